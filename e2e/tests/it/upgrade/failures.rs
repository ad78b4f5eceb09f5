//! Phases that fail for good, each told once, and every way out.

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::{kinds, operator::Running, patience::seconds};
use jiff::Timestamp;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::life::{LIMIT, Life, here_and_there, status};

#[test]
fn a_phase_that_fails_is_told_once_and_runs_again_as_soon_as_there_is_a_reason() {
    here_and_there("fails", "edge-2", async |mut life, running| {
        life.kubelet.hold_jobs(life.site.namespace()).await?;
        life.asks_for("2026.1").await?;
        expand_by_the_button(&life).await?;
        migrate_by_another_image(&mut life).await?;
        contract_by_itself_and_by_other_credentials(&life).await?;
        all_told_and_counted_once(&life, running).await
    });
}

/// Waits until a phase is at work, and lets it fail. Returns the Job that failed.
async fn fails(life: &Life<'_>, noun: &str, phase: &str) -> Result<DynamicObject> {
    let suffix = format!("db-{}", noun.to_lowercase());
    life.database(
        &format!("{noun}InProgress"),
        &format!("{noun} phase running"),
    )
    .await?;
    let job = life.job_exists(&suffix).await?;
    life.fails_for_good(&suffix).await?;
    let (name, ns) = (life.job(&suffix), life.site.namespace());
    let text = format!("{noun} job {name} failed: job has permanently failed: {ns}/{name}");
    let reason = format!("{noun}Failed");
    let glance = life.database(&reason, &text).await?;
    assert_eq!(status(&glance)["upgradePhase"], phase);
    assert_eq!(status(&glance)["installedRelease"], "2025.2");
    life.event(&reason, "Warning", &text).await?;
    Ok(job)
}

async fn expand_by_the_button(life: &Life<'_>) -> Result<()> {
    let failed = fails(life, "Expand", "Expanding").await?;
    life.annotate("glance.openstack.c5c3.io/retry-job", "1")
        .await?;
    life.another_job("db-expand", failed.metadata.uid.as_deref(), seconds(20))
        .await?;
    life.ends("db-expand").await
}

async fn migrate_by_another_image(life: &mut Life<'_>) -> Result<()> {
    let failed = fails(life, "Migrate", "Migrating").await?;
    let image = json!({ "repository": "registry.example/openstack/glance", "tag": "2026.1-p1" });
    life.scenario = life.scenario.clone().with("image", image);
    life.apply().await?;
    let job = life
        .another_job("db-migrate", failed.metadata.uid.as_deref(), seconds(20))
        .await?;
    assert_eq!(
        job.data["spec"]["template"]["spec"]["containers"][0]["image"],
        "registry.example/openstack/glance:2026.1-p1"
    );
    life.ends("db-migrate").await
}

async fn contract_by_itself_and_by_other_credentials(life: &Life<'_>) -> Result<()> {
    let attempt = |job: &DynamicObject| job.annotations()["cobaltcore.c5c3.io/attempt"].clone();
    life.database("ContractInProgress", "Contract phase running")
        .await?;
    let first = life.job_exists("db-contract").await?;
    assert_eq!(attempt(&first), "1");
    // A database that came back since would be a reason of its own.
    ready_for_long(life).await?;
    // It failed ten minutes ago, so the pause is over.
    life.failed_for_good("db-contract", Duration::from_mins(10))
        .await?;
    let second = life
        .another_job("db-contract", first.metadata.uid.as_deref(), seconds(20))
        .await?;
    assert_eq!(attempt(&second), "2");
    // The next pause is twice as long.
    life.failed_for_good("db-contract", Duration::from_mins(11))
        .await?;
    let name = life.job("db-contract");
    life.database("ContractFailed", "job has permanently failed")
        .await?;
    life.annotate("e2e.c5c3.io/look", "1").await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let same = life.workload.object(kinds::JOB, &name).get().await?;
    assert_eq!(same.context("the Job")?.metadata.uid, second.metadata.uid);

    // Deleted by hand it runs at once, and is no first attempt for that.
    life.workload
        .cluster()
        .any(kinds::JOB.0, kinds::JOB.1, Some(life.site.namespace()))
        .delete(&name, &DeleteParams::background())
        .await?;
    let third = life
        .another_job("db-contract", second.metadata.uid.as_deref(), seconds(20))
        .await?;
    assert_eq!(attempt(&third), "3");

    // A password that is rotated meanwhile may be why it fails, and is a reason to run again.
    let login = [("username", "glance"), ("password", "another-password")];
    let secret = format!("{}-db", life.scenario.name());
    life.workload
        .cluster()
        .secret(life.site.namespace(), &secret, &login)
        .await?;
    life.database("ContractInProgress", "it runs again with the new one")
        .await?;
    life.fails_for_good("db-contract").await?;
    let fourth = life
        .another_job("db-contract", third.metadata.uid.as_deref(), seconds(20))
        .await?;
    assert_eq!(attempt(&fourth), "1");
    life.kubelet.heal(life.site.namespace()).await?;
    life.database("DatabaseSynced", "revision verified").await?;
    let glance = life.glance().is_ready(seconds(LIMIT)).await?;
    assert_eq!(status(&glance)["installedRelease"], "2026.1");
    assert_eq!(status(&glance)["upgradePhase"], Value::Null);
    let counted = "cobaltcore.c5c3.io/migration-attempts";
    assert_eq!(glance.annotations().get(counted), None);
    Ok(())
}

/// Makes the database cluster one that has been ready for an hour.
async fn ready_for_long(life: &Life<'_>) -> Result<()> {
    let then = Timestamp::now() - Duration::from_hours(1);
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "StatefulSetReady", "message": "Running",
        "lastTransitionTime": then.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    let patch = json!({ "status": { "conditions": [ready] } });
    life.workload
        .cluster()
        .any(
            kinds::MARIADB.0,
            kinds::MARIADB.1,
            Some(life.site.namespace()),
        )
        .patch_status("mariadb", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

async fn all_told_and_counted_once(life: &Life<'_>, running: &Running) -> Result<()> {
    for reason in [
        "UpgradeInitiated",
        "ExpandFailed",
        "ExpandComplete",
        "MigrateFailed",
        "MigrateComplete",
        "DeploymentRolloutComplete",
        "ContractFailed",
        "UpgradeComplete",
    ] {
        life.glance().event(seconds(20), reason).await?;
        assert_eq!(life.count(reason).await?, 1, "{reason}");
    }
    // After the install and after the upgrade.
    assert_eq!(life.count("DatabaseSynced").await?, 2);
    let own = [
        ("glance", life.scenario.name()),
        ("namespace", life.site.namespace()),
    ];
    for (phase, failed) in [("expand", 1.0), ("migrate", 1.0), ("contract", 3.0)] {
        for (result, wanted) in [("failed", failed), ("succeeded", 1.0)] {
            let labels = [&own[..], &[("phase", phase), ("result", result)]].concat();
            let series = ("glance_operator_upgrade_jobs_total", &labels[..]);
            running
                .metric_becomes(seconds(10), series, |n| (n - wanted).abs() < 0.1)
                .await?;
        }
    }
    // The dashboards' pair knows no phases: five failures; three phases and two syncs.
    for (result, wanted) in [("failed", 5.0), ("succeeded", 5.0)] {
        let labels = [&own[..], &[("result", result)]].concat();
        let series = ("glance_operator_db_sync_total", &labels[..]);
        running
            .metric_becomes(seconds(10), series, |n| (n - wanted).abs() < 0.1)
            .await?;
    }
    let timed = running
        .metric("glance_operator_db_sync_duration_seconds_count", &own)
        .await?;
    assert_eq!(timed.map(f64::round), Some(10.0));
    Ok(())
}
