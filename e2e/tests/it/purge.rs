//! The purge of rows that were soft-deleted long ago: what it says of its runs, and that each is counted once.

mod runs;

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::{
    expect::{Wanted, condition},
    kinds,
    operator::Running,
    patience::seconds,
    shape::assert_has,
};
use jiff::Timestamp;
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::{Value, json};

use crate::upgrade::life::{LIMIT, Life, here_and_there};

#[test]
fn a_purge_that_fails_is_seen_and_one_that_succeeds_heals_it() {
    here_and_there("purge", "edge-2", async |mut life, running| {
        is_scheduled(&mut life).await?;
        let run = fails(&life).await?;
        pauses(&mut life, &run).await?;
        is_healed(&life, running).await
    });
}

pub async fn purge_is(
    life: &Life<'_>,
    status: &str,
    reason: &str,
    message: &str,
) -> Result<DynamicObject> {
    let wanted = Wanted::of("DBPurgeReady")
        .status(status)
        .reason(reason)
        .message(message);
    life.glance().condition(seconds(LIMIT), wanted).await
}

/// A run as `kubectl create job --from=cronjob/…` makes it, but with one try only.
pub async fn run_by_hand(life: &Life<'_>, name: &str, more: &Value) -> Result<()> {
    let cron_job = life
        .workload
        .get(kinds::CRON_JOB, &life.job("db-purge"))
        .await?;
    let template = &cron_job["spec"]["jobTemplate"];
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "namespace": life.site.namespace(), "name": name,
            "labels": template["metadata"]["labels"],
            "annotations": { "cronjob.kubernetes.io/instantiate": "manual" },
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "CronJob", "controller": true,
                "name": cron_job["metadata"]["name"], "uid": cron_job["metadata"]["uid"],
            }],
        },
        "spec": template["spec"],
    });
    job["spec"]["backoffLimit"] = json!(0);
    for (field, value) in more.as_object().into_iter().flatten() {
        job["spec"][field] = value.clone();
    }
    life.workload.cluster().create(&job).await?;
    Ok(())
}

const WEEKLY: &str =
    "Database purge scheduled \"@daily\", hard-deleting rows soft-deleted more than 7 days ago";

async fn is_scheduled(life: &mut Life<'_>) -> Result<()> {
    let plain = "Database purge scheduled \"1 0 * * *\", hard-deleting rows soft-deleted more than 30 days ago";
    purge_is(life, "True", "DBPurgeScheduled", plain).await?;

    life.scenario = life.scenario.clone().with(
        "dbPurge",
        json!({ "schedule": "@daily", "retentionDays": 7, "purgeImagesTable": true }),
    );
    life.apply().await?;
    purge_is(life, "True", "DBPurgeScheduled", WEEKLY).await?;
    let cron_job = life
        .workload
        .get(kinds::CRON_JOB, &life.job("db-purge"))
        .await?;
    assert_has(
        &cron_job,
        &json!({ "spec": { "schedule": "@daily", "suspend": false, "concurrencyPolicy": "Forbid" } }),
    );
    let container = &cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0];
    let script = container["command"][3].as_str().unwrap_or_default();
    let (rows, images) = (
        script.find("db purge --age_in_days 7 --max_rows 1000"),
        script.find("db purge_images_table --age_in_days 7 --max_rows 1000"),
    );
    assert!(rows.is_some() && rows < images, "{script}");
    Ok(())
}

/// Returns the name of the run that failed last.
async fn fails(life: &Life<'_>) -> Result<String> {
    life.kubelet.fail_jobs(life.site.namespace()).await?;
    let first = life.job("by-hand-1");
    run_by_hand(life, &first, &Value::Null).await?;
    let failed = format!(
        "Database purge Job {first} failed; the soft-deleted backlog is no longer shrinking (BackoffLimitExceeded)"
    );
    let glance = purge_is(life, "False", "DBPurgeJobFailed", &failed).await?;
    assert_eq!(
        condition(&glance, "Ready").map(|c| c["status"].clone()),
        Some(json!("False"))
    );
    let told = format!(
        "Database purge Job {first} failed; inspect its pod logs — the soft-deleted image and task rows keep accumulating until a run succeeds"
    );
    let event = life.event("DBPurgeJobFailed", "Warning", &told).await?;
    assert_eq!(event.count, Some(1));
    let uid = life.workload.get(kinds::JOB, &first).await?["metadata"]["uid"].clone();
    let counted = "cobaltcore.c5c3.io/last-db-purge-job-uid";
    let glance = life.glance().get().await?.context("the Glance")?;
    assert_eq!(
        glance.annotations().get(counted).map(|u| json!(u)),
        Some(uid)
    );

    // One that hangs is ended by its deadline, which is said.
    life.kubelet.heal(life.site.namespace()).await?;
    life.kubelet.hold_jobs(life.site.namespace()).await?;
    let late = life.job("by-hand-late");
    run_by_hand(life, &late, &json!({ "activeDeadlineSeconds": 1 })).await?;
    let failed = format!(
        "Database purge Job {late} failed; the soft-deleted backlog is no longer shrinking (DeadlineExceeded)"
    );
    purge_is(life, "False", "DBPurgeJobFailed", &failed).await?;
    Ok(late)
}

async fn pauses(life: &mut Life<'_>, first: &str) -> Result<()> {
    // A pause outranks the failure and remembers it.
    let mut purge = life.scenario.glance()["spec"]["dbPurge"].clone();
    purge["suspend"] = json!(true);
    life.scenario = life.scenario.clone().with("dbPurge", purge);
    life.apply().await?;
    let paused = format!(
        "Database purge CronJob suspended via spec.dbPurge.suspend; no rows are being hard-deleted and the soft-deleted backlog \
         keeps growing (schedule \"@daily\", retention 7 days when resumed); the last run (Job {first}) failed before the pause"
    );
    purge_is(life, "True", "DBPurgeSuspended", &paused).await?;
    life.glance().is_ready(seconds(LIMIT)).await?;
    let suspended = life
        .workload
        .get(kinds::CRON_JOB, &life.job("db-purge"))
        .await?;
    assert_eq!(suspended["spec"]["suspend"], true);
    life.scenario = life.scenario.clone().with(
        "dbPurge",
        json!({ "schedule": "@daily", "retentionDays": 7 }),
    );
    life.apply().await?;
    purge_is(life, "False", "DBPurgeJobFailed", "").await?;
    Ok(())
}

async fn is_healed(life: &Life<'_>, running: &Running) -> Result<()> {
    life.kubelet.heal(life.site.namespace()).await?;
    let second = life.job("by-hand-2");
    run_by_hand(life, &second, &Value::Null).await?;
    purge_is(life, "True", "DBPurgeScheduled", WEEKLY).await?;
    life.glance().is_ready(seconds(LIMIT)).await?;
    for (result, wanted) in [("failed", 2.0), ("succeeded", 1.0)] {
        let labels = [
            ("glance", life.scenario.name()),
            ("namespace", life.site.namespace()),
            ("result", result),
        ];
        let purges = ("glance_operator_db_purge_total", &labels[..]);
        running
            .metric_becomes(seconds(20), purges, |n: f64| (n - wanted).abs() < 0.1)
            .await?;
    }
    let own = [
        ("glance", life.scenario.name()),
        ("namespace", life.site.namespace()),
    ];
    let last = running
        .metric(
            "glance_operator_db_purge_last_success_timestamp_seconds",
            &own,
        )
        .await?;
    let job = life.workload.get(kinds::JOB, &second).await?;
    let conditions = job["status"]["conditions"].as_array().cloned();
    let ended: Timestamp = conditions
        .iter()
        .flatten()
        .find(|c| c["type"] == "Complete")
        .and_then(|c| c["lastTransitionTime"].as_str())
        .context("the run has not ended")?
        .parse()?;
    let last = last.context("no time of a success")?;
    assert_eq!(last.to_string(), ended.as_second().to_string());
    // The same Jobs are not counted again, and the failure is not told again but for the resumption.
    life.annotate("e2e.c5c3.io/look", "again").await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let all = [("glance", life.scenario.name())];
    let total = running
        .metric("glance_operator_db_purge_total", &all)
        .await?;
    assert!(total.is_some_and(|n| (n - 3.0).abs() < 0.1), "{total:?}");
    let events = life.glance().events().await?;
    let failures: Vec<_> = events
        .iter()
        .filter(|e| e.reason.as_deref() == Some("DBPurgeJobFailed"))
        .collect();
    assert_eq!(failures.len(), 2, "{failures:#?}");
    assert_eq!(
        life.count("DBPurgeJobFailed").await?,
        3,
        "one for each, and one for the resumption"
    );
    Ok(())
}
