//! Back to the installed release: from every phase until it is too late, and then only for who insists.

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::{
    cluster::told, doubles::status::Behaviour, expect::eventually, kinds, patience::seconds,
};
use kube::{
    ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::life::{LIMIT, Life, OLD, STEP, here_and_there, status};

#[test]
fn an_upgrade_can_be_called_off_until_it_is_too_late() {
    here_and_there("abort", "edge-2", async |mut life, _| {
        while_expanding(&mut life).await?;
        while_migrating(&mut life).await?;
        while_rolling(&mut life).await?;
        assert_eq!(life.count("UpgradeAborted").await?, 3, "one for each");
        while_contracting(&mut life).await
    });
}

/// The Jobs of a finished upgrade stay, its contract Job among them. They say nothing about the next one.
#[test]
fn what_an_earlier_upgrade_left_keeps_no_later_one_from_being_called_off() {
    here_and_there("abort-2", "edge-2", async |mut life, _| {
        life.asks_for("2026.1").await?;
        life.event(
            "UpgradeComplete",
            "Normal",
            &format!("Upgrade complete: {STEP}"),
        )
        .await?;
        life.glance().is_ready(seconds(LIMIT)).await?;
        life.job_exists("db-contract").await?;
        life.greedy(true);
        life.asks_for("2026.2").await?;
        life.database("UpgradeRollingUpdate", "Waiting for Deployment rollout")
            .await?;
        // Contracting is near, and its Job is not there yet.
        let (cluster, ns) = (life.workload.cluster().name(), life.site.namespace());
        let mood = life.site.fleet().doubles(cluster)?.mood();
        mood.set(kinds::MARIADB, ns, Behaviour::Broken);
        life.database("ClusterNotReady", "MariaDB cluster").await?;
        life.pretend(json!({ "upgradePhase": "Contracting" }))
            .await?;
        life.greedy(false);
        life.asks_for("2026.1").await?;
        mood.set(kinds::MARIADB, ns, Behaviour::Healthy);
        let told =
            "Upgrade 2026.1 → 2026.2 aborted: spec release reverted to installed release 2026.1";
        life.event("UpgradeAborted", "Normal", told).await?;
        let glance = life.glance().is_ready(seconds(LIMIT)).await?;
        assert_eq!(status(&glance)["installedRelease"], "2026.1");
        assert_eq!(life.count("UpgradeAbortRefused").await?, 0);
        life.no_job("db-contract").await
    });
}

fn aborted() -> String {
    format!("Upgrade {STEP} aborted: spec release reverted to installed release 2025.2")
}

async fn while_expanding(life: &mut Life<'_>) -> Result<()> {
    let ns = life.site.namespace();
    let before = life.workload.rollout().await?;
    life.kubelet.hold_jobs(ns).await?;
    life.asks_for("2026.1").await?;
    life.database("ExpandInProgress", "Expand phase running")
        .await?;
    let expand = life.job_exists("db-expand").await?;

    // A third release is refused, and what goes on goes on.
    life.asks_for("2026.2").await?;
    let text = format!("Spec release changed to 2026.2 during active upgrade {STEP}");
    let refusal = format!("{text}; complete or roll back the current upgrade first");
    let glance = life.database("UpgradeTargetChanged", &refusal).await?;
    assert_eq!(status(&glance)["upgradePhase"], "Expanding");
    let refused = life.event("UpgradeTargetChanged", "Warning", &text).await?;
    assert_eq!(refused.count, Some(1));
    // Asked for again, the old goal goes on where it was.
    life.asks_for("2026.1").await?;
    life.database("ExpandInProgress", &format!("Expand phase running: {STEP}"))
        .await?;
    let same = life.job_exists("db-expand").await?;
    assert_eq!(same.metadata.uid, expand.metadata.uid);

    // Back to the installed release, before the image is: the way out must not need both at once.
    life.asks_for("2026.2").await?;
    life.database("UpgradeTargetChanged", &refusal).await?;
    life.scenario = life
        .scenario
        .clone()
        .with("openStackRelease", json!("2025.2"));
    life.apply().await?;
    life.event("UpgradeAborted", "Normal", &aborted()).await?;
    let mismatch = "spec.image.tag \"2026.2\" names OpenStack release 2026.2 but spec.openStackRelease is \"2025.2\"; \
                    bump spec.image in lockstep with spec.openStackRelease";
    let glance = life.database("ImageReleaseMismatch", mismatch).await?;
    assert_eq!(status(&glance)["upgradePhase"], Value::Null);
    assert_eq!(status(&glance)["targetRelease"], Value::Null);
    life.event("ImageReleaseMismatch", "Warning", mismatch)
        .await?;
    assert_eq!(life.count("ImageReleaseMismatch").await?, 1);
    life.no_job("db-expand").await?;
    life.asks_for("2025.2").await?;
    life.glance().is_ready(seconds(LIMIT)).await?;
    assert_eq!(
        life.workload.rollout().await?,
        before,
        "the API never noticed"
    );
    Ok(())
}

/// A pod that does not go keeps the next migration waiting: two must never meet on one schema.
async fn while_migrating(life: &mut Life<'_>) -> Result<()> {
    let before = life.workload.rollout().await?;
    life.asks_for("2026.1").await?;
    life.ends("db-expand").await?;
    life.database(
        "MigrateInProgress",
        &format!("Migrate phase running: {STEP}"),
    )
    .await?;
    let pod = pod_of(life, "db-migrate").await?;
    finalizers(life, &pod, &["e2e.c5c3.io/stays"]).await?;
    life.asks_for("2025.2").await?;
    let waiting =
        format!("Aborting upgrade {STEP}: waiting for its Jobs and their pods to be gone");
    let glance = life.database("MigrateInProgress", &waiting).await?;
    assert_eq!(status(&glance)["upgradePhase"], "Migrating");
    // On the target the operator may not look at pods. There the Job stays until its pod is gone.
    if life.scenario.target().is_none() {
        for suffix in ["db-expand", "db-migrate"] {
            let name = life.job(suffix);
            life.workload
                .object(e2e::kinds::JOB, &name)
                .is_gone(seconds(20))
                .await?;
        }
    }
    let sync = life.job_exists("db-sync").await?;
    // Longer than it takes to look again.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let glance = life.glance().get().await?.context("the Glance")?;
    assert_eq!(
        status(&glance)["upgradePhase"],
        "Migrating",
        "the pod is still there"
    );
    finalizers(life, &pod, &[]).await?;
    let glance = life.glance().is_ready(seconds(LIMIT)).await?;
    assert_eq!(status(&glance)["upgradePhase"], Value::Null);
    let same = life.job_exists("db-sync").await?;
    assert_eq!(
        same.metadata.uid, sync.metadata.uid,
        "the schema is that of the sync before"
    );
    assert_eq!(life.workload.rollout().await?, before);
    Ok(())
}

async fn while_rolling(life: &mut Life<'_>) -> Result<()> {
    life.kubelet.heal(life.site.namespace()).await?;
    life.greedy(true);
    life.asks_for("2026.1").await?;
    life.database(
        "UpgradeRollingUpdate",
        &format!("Waiting for Deployment rollout: {STEP}"),
    )
    .await?;
    life.greedy(false);
    life.asks_for("2025.2").await?;
    let glance = life.glance().is_ready(seconds(LIMIT)).await?;
    assert_eq!(status(&glance)["upgradePhase"], Value::Null);
    is_back(life).await
}

async fn while_contracting(life: &mut Life<'_>) -> Result<()> {
    let ns = life.site.namespace();
    // Once the contract Job exists, going back may leave a schema that the old release cannot read.
    life.greedy(true);
    life.asks_for("2026.1").await?;
    life.database("UpgradeRollingUpdate", "Waiting for Deployment rollout")
        .await?;
    life.kubelet.hold_jobs(ns).await?;
    life.greedy(false);
    life.apply().await?;
    life.database(
        "ContractInProgress",
        &format!("Contract phase running: {STEP}"),
    )
    .await?;
    life.job_exists("db-contract").await?;
    life.asks_for("2025.2").await?;
    let glance = life
        .database("ContractInProgress", "the contract Job of the upgrade")
        .await?;
    assert_eq!(status(&glance)["upgradePhase"], "Contracting");
    let refused = life
        .glance()
        .event(seconds(20), "UpgradeAbortRefused")
        .await?;
    assert_eq!(
        (refused.type_.as_deref(), refused.count),
        (Some("Warning"), Some(1))
    );
    life.job_exists("db-contract").await?;

    // Whoever has restored the database may insist.
    life.annotate("glance.openstack.c5c3.io/allow-unsafe-abort", "true")
        .await?;
    let gone = |glance: &DynamicObject| {
        let phase = &glance.data["status"]["upgradePhase"];
        phase.is_null().then_some(()).ok_or(phase.to_string())
    };
    life.glance()
        .satisfies(seconds(LIMIT), "to be back", gone)
        .await?;
    life.kubelet.heal(ns).await?;
    is_back(life).await
}

async fn is_back(life: &Life<'_>) -> Result<()> {
    let glance = life.glance().is_ready(seconds(LIMIT)).await?;
    assert_eq!(status(&glance)["installedRelease"], "2025.2");
    for suffix in ["db-expand", "db-migrate", "db-contract"] {
        life.no_job(suffix).await?;
    }
    let api = &life.workload.is_rolled_out(seconds(LIMIT)).await?.template["spec"]["containers"][0];
    assert_eq!(
        (&api["image"], &api["command"][0]),
        (&json!(OLD), &json!("glance-api"))
    );
    Ok(())
}

/// The name of the one pod of a Job, once it runs.
async fn pod_of(life: &Life<'_>, suffix: &str) -> Result<String> {
    let of_job = ListParams::default().labels(&format!(
        "batch.kubernetes.io/job-name={}",
        life.job(suffix)
    ));
    eventually(seconds(LIMIT), "the pod of the Job", async || {
        let found = life.pods().list(&of_job).await.map_err(|e| told(&e))?;
        let found = found.items;
        let pod = found.first().ok_or("there is none")?;
        let phase = &pod.data["status"]["phase"];
        (phase == "Running")
            .then(|| pod.name_any())
            .ok_or(phase.to_string())
    })
    .await
}

async fn finalizers(life: &Life<'_>, pod: &str, finalizers: &[&str]) -> Result<()> {
    // The Job controller has one of its own on the pod, which it takes off itself.
    let pods = life.pods();
    eventually(seconds(LIMIT), "the finalizers to be set", async || {
        let now = pods.get_metadata(pod).await.map_err(|e| told(&e))?;
        let mut all = now.metadata.finalizers.unwrap_or_default();
        all.retain(|name| !name.starts_with("e2e."));
        all.extend(finalizers.iter().map(|name| (*name).to_owned()));
        let patch = json!({ "metadata": {
            "resourceVersion": now.metadata.resource_version, "finalizers": all,
        } });
        pods.patch_metadata(pod, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .map_err(|e| told(&e))
    })
    .await?;
    Ok(())
}
