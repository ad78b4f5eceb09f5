//! `DeploymentReady`: pods that do not come, and pods that go.

use anyhow::Result;
use e2e::{expect::condition, fleet::Fleet};

use super::stage::{Stage, holds, later, on_hub_and_target, says, soon};

on_hub_and_target!(a_roll_out_that_hangs_is_counted_out_and_an_outage_shows_at_once);

async fn a_roll_out_that_hangs_is_counted_out_and_an_outage_shows_at_once(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "rollout", place).await?;
    let ns = stage.namespace();
    let kubelet = stage.doubles()?.kubelet();
    // The pods of Jobs are pods too: the schema has to be there before nothing starts any more.
    kubelet.hold_jobs(ns).await?;
    stage
        .site
        .apply(&stage.scenario("images").backend("store", true))
        .await?;
    let glance = stage.glance("images");
    let running = "db_sync job is running";
    says(
        &glance,
        later(),
        ("DatabaseReady", "DBSyncInProgress", running),
    )
    .await?;
    stage
        .child(e2e::kinds::JOB, "images-db-sync")?
        .satisfies(later(), "to run", |job| {
            let active = job
                .data
                .pointer("/status/ready")
                .and_then(serde_json::Value::as_i64);
            (active == Some(1))
                .then_some(())
                .ok_or(format!("{active:?} run"))
        })
        .await?;
    kubelet.heal(ns).await?;
    kubelet.hold(ns).await?;

    let waiting = |counts: &str| format!("Glance API deployment is not yet available: {counts}");
    let hung = waiting("0 of 2 ready, 2 updated");
    says(
        &glance,
        later(),
        ("DeploymentReady", "WaitingForDeployment", &hung),
    )
    .await?;
    let found = glance.get().await?.unwrap();
    for type_ in ["GlanceAPIReady", "HTTPRouteReady", "DBPurgeReady"] {
        assert!(
            condition(&found, type_).is_none(),
            "{type_} comes after the pods"
        );
    }
    assert!(found.data.pointer("/status/endpoint").is_none());
    kubelet.heal(ns).await?;
    holds(&glance, soon(), ("DeploymentReady", "DeploymentReady")).await?;
    glance.is_ready(soon()).await?;
    let found = glance.get().await?.unwrap();
    assert_eq!(
        found
            .data
            .pointer("/status/endpoint")
            .and_then(|e| e.as_str()),
        Some(format!("http://images.{ns}.svc.cluster.local:9292/").as_str())
    );

    kubelet.unready(ns).await?;
    let down = waiting("0 of 2 ready, 2 updated");
    says(
        &glance,
        soon(),
        ("DeploymentReady", "WaitingForDeployment", &down),
    )
    .await?;
    let none = "no Glance API pod is available";
    says(
        &glance,
        soon(),
        ("GlanceAPIReady", "EndpointNotReady", none),
    )
    .await?;
    kubelet.heal(ns).await?;
    holds(&glance, soon(), ("DeploymentReady", "DeploymentReady")).await?;
    holds(&glance, soon(), ("GlanceAPIReady", "APIHealthy")).await?;
    glance.is_ready(soon()).await?;
    Ok(())
}
