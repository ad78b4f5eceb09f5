//! `DatabaseReady` while a Glance is installed: each thing that is waited for, and each end of the
//! migration.

use anyhow::Result;
use e2e::{doubles::status::Behaviour, expect::condition, fleet::Fleet, kinds, scenario::mariadb};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::stage::{Stage, holds, later, on_hub_and_target, says, soon};

on_hub_and_target!(
    each_wait_for_the_database_is_named_and_ends_by_an_event,
    a_failed_migration_is_told_once_and_can_be_run_again,
);

const TYPE: &str = "DatabaseReady";

async fn each_wait_for_the_database_is_named_and_ends_by_an_event(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "database", place).await?;
    let (children, ns) = (stage.children()?, stage.namespace());
    let (mood, kubelet) = (stage.doubles()?.mood(), stage.doubles()?.kubelet());
    for kind in [kinds::MARIADB, kinds::DATABASE, kinds::USER, kinds::GRANT] {
        mood.set(kind, ns, Behaviour::Silent);
    }
    kubelet.hold_jobs(ns).await?;
    let scenario = stage.scenario("images").backend("store", true);
    scenario.apply_credentials(children).await?;
    scenario.apply_resources(stage.hub()).await?;
    let glance = stage.glance("images");

    let cluster = "MariaDB cluster \"mariadb\" is not ready";
    says(&glance, later(), (TYPE, "ClusterNotReady", cluster)).await?;
    children.apply(&mariadb(ns, "mariadb")).await?;
    mood.set(kinds::MARIADB, ns, Behaviour::Healthy);
    let database = "MariaDB Database CR is not ready";
    says(&glance, soon(), (TYPE, "WaitingForDatabase", database)).await?;
    mood.set(kinds::DATABASE, ns, Behaviour::Healthy);
    let login = "MariaDB User or Grant CR is not ready";
    says(&glance, soon(), (TYPE, "WaitingForDatabase", login)).await?;
    // A grant needs the user to exist.
    assert!(stage.child(kinds::GRANT, "images")?.get().await?.is_none());
    mood.set(kinds::USER, ns, Behaviour::Healthy);
    stage.child(kinds::GRANT, "images")?.exists(soon()).await?;
    says(&glance, soon(), (TYPE, "WaitingForDatabase", login)).await?;
    mood.set(kinds::GRANT, ns, Behaviour::Healthy);
    let running = "db_sync job is running";
    says(&glance, soon(), (TYPE, "DBSyncInProgress", running)).await?;
    kubelet.heal(ns).await?;
    holds(&glance, soon(), (TYPE, "DatabaseSynced")).await?;
    glance.is_ready(later()).await?;

    // An outage later shows as well, and so does one object that its operator gives up.
    mood.set(kinds::MARIADB, ns, Behaviour::Broken);
    says(&glance, soon(), (TYPE, "ClusterNotReady", cluster)).await?;
    mood.set(kinds::MARIADB, ns, Behaviour::Healthy);
    holds(&glance, soon(), (TYPE, "DatabaseSynced")).await?;
    for (kind, message) in [
        (kinds::DATABASE, database),
        (kinds::USER, login),
        (kinds::GRANT, login),
    ] {
        mood.set(kind, ns, Behaviour::Broken);
        says(&glance, soon(), (TYPE, "WaitingForDatabase", message)).await?;
        mood.set(kind, ns, Behaviour::Healthy);
        holds(&glance, soon(), (TYPE, "DatabaseSynced")).await?;
    }

    // An image of another release than the one the CR names never runs.
    let image = |tag| json!({ "repository": "registry.example/openstack/glance", "tag": tag });
    let other = scenario.clone().with("image", image("2026.1"));
    stage.hub().apply(&other.glance()).await?;
    let mismatch = "spec.image.tag \"2026.1\" names OpenStack release 2026.1 but spec.openStackRelease \
                    is \"2025.2\"; bump spec.image in lockstep with spec.openStackRelease";
    says(&glance, soon(), (TYPE, "ImageReleaseMismatch", mismatch)).await?;
    stage.hub().apply(&scenario.glance()).await?;
    holds(&glance, soon(), (TYPE, "DatabaseSynced")).await
}

async fn a_failed_migration_is_told_once_and_can_be_run_again(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "migrate", place).await?;
    let (children, ns) = (stage.children()?, stage.namespace());
    let kubelet = stage.doubles()?.kubelet();
    kubelet.hold_jobs(ns).await?;
    stage
        .site
        .apply(&stage.scenario("images").backend("store", true))
        .await?;
    let glance = stage.glance("images");
    let running = "db_sync job is running";
    says(&glance, later(), (TYPE, "DBSyncInProgress", running)).await?;

    let fail = async || {
        // Five pods with growing pauses between them would take minutes.
        let patch = json!({ "spec": { "backoffLimit": 0 } });
        children
            .any(kinds::JOB.0, kinds::JOB.1, Some(ns))
            .patch(
                "images-db-sync",
                &PatchParams::default(),
                &Patch::Merge(&patch),
            )
            .await?;
        kubelet.fail_jobs(ns).await
    };
    let failed = format!("db_sync job failed: job has permanently failed: {ns}/images-db-sync");
    fail().await?;
    says(&glance, later(), (TYPE, "DBSyncFailed", &failed)).await?;
    let event = glance.event(soon(), "DBSyncFailed").await?;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.message.as_deref(), Some(failed.as_str()));
    let found = glance.get().await?.unwrap();
    assert!(
        condition(&found, "DeploymentReady").is_none(),
        "nothing runs on a schema that is not there"
    );

    // The button: the annotation runs it again at once.
    kubelet.heal(ns).await?;
    kubelet.hold_jobs(ns).await?;
    let first = stage.live(kinds::JOB, "images-db-sync").await?;
    let button = json!({ "metadata": { "annotations": {
        "glance.openstack.c5c3.io/retry-job": "1",
    } } });
    stage.patch(kinds::GLANCE, "images", button).await?;
    says(&glance, soon(), (TYPE, "DBSyncInProgress", running)).await?;
    let second = stage.live(kinds::JOB, "images-db-sync").await?;
    assert_ne!(first.metadata.uid, second.metadata.uid);

    // It fails again; then the database comes back from an outage, which is a reason to try again.
    fail().await?;
    says(&glance, later(), (TYPE, "DBSyncFailed", &failed)).await?;
    kubelet.heal(ns).await?;
    // The conditions of the database carry whole seconds.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let mood = stage.doubles()?.mood();
    mood.set(kinds::MARIADB, ns, Behaviour::Broken);
    let cluster = "MariaDB cluster \"mariadb\" is not ready";
    says(&glance, soon(), (TYPE, "ClusterNotReady", cluster)).await?;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    mood.set(kinds::MARIADB, ns, Behaviour::Healthy);
    holds(&glance, soon(), (TYPE, "DatabaseSynced")).await?;
    let failures = glance.events().await?;
    let failures = failures
        .iter()
        .filter(|event| event.reason.as_deref() == Some("DBSyncFailed"))
        .map(|event| event.count.unwrap_or(1))
        .sum::<i32>();
    assert_eq!(failures, 2, "one event for each failure");

    // A finished Job that somebody deletes is made again.
    let third = stage.live(kinds::JOB, "images-db-sync").await?;
    glance.is_ready(later()).await?;
    stage.delete(kinds::JOB, "images-db-sync").await?;
    stage
        .child(kinds::JOB, "images-db-sync")?
        .satisfies(soon(), "to be another one", |job| {
            (job.metadata.uid != third.metadata.uid)
                .then_some(())
                .ok_or_else(|| "it is the old one".to_owned())
        })
        .await?;
    glance.is_ready(later()).await?;
    Ok(())
}
