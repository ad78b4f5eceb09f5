//! One release follows the next: expand, migrate, roll out, contract, while the old pods serve.

use anyhow::{Context as _, Result};
use e2e::{
    expect::{Wanted, eventually},
    kinds,
    operator::Running,
    patience::seconds,
    shape::assert_has,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::life::{LIMIT, Life, NEW, OLD, STEP, here_and_there, reasons_in_order, status};

#[test]
fn a_release_follows_the_next_while_the_api_serves() {
    here_and_there("upgrade", "edge-1", async |mut life, running| {
        let glance = life.glance().get().await?.context("the Glance")?;
        assert_eq!(status(&glance)["installedRelease"], "2025.2");
        assert_eq!(status(&glance)["upgradePhase"], Value::Null);
        let config_map = expands(&mut life, running).await?;
        rolls(&life, &config_map).await?;
        completes(&mut life).await?;
        is_settled(&life, running).await
    });
}

/// Returns the name of the configuration that the phases run on.
async fn expands(life: &mut Life<'_>, running: &Running) -> Result<Value> {
    let ns = life.site.namespace();
    let before = life.workload.rollout().await?;
    // Expand runs on the new image while the old pods go on as they are.
    life.kubelet.hold_jobs(ns).await?;
    life.greedy(true);
    // A purge that runs in between stays as it is: whoever minds suspends it before.
    life.scenario = life
        .scenario
        .clone()
        .with("dbPurge", json!({ "schedule": "@weekly" }));
    life.asks_for("2026.1").await?;
    let glance = life
        .database("ExpandInProgress", &format!("Expand phase running: {STEP}"))
        .await?;
    assert_eq!(status(&glance)["upgradePhase"], "Expanding");
    assert_eq!(status(&glance)["targetRelease"], "2026.1");
    assert_eq!(status(&glance)["installedRelease"], "2025.2");
    let config_map = {
        let expand = life
            .workload
            .get(kinds::JOB, &life.job("db-expand"))
            .await?;
        phase_job(&expand, "expand", life.scenario.name());
        expand["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"].clone()
    };
    assert_eq!(life.workload.rollout().await?, before, "the API serves on");
    let purge = life
        .workload
        .get(kinds::CRON_JOB, &life.job("db-purge"))
        .await?;
    assert_eq!(purge["spec"]["schedule"], "1 0 * * *");
    assert_eq!(
        purge["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"],
        OLD
    );
    let phase = [
        ("glance", life.scenario.name()),
        ("namespace", ns),
        ("phase", "Expanding"),
    ];
    let phase = ("glance_operator_upgrade_phase", &phase[..]);
    running
        .metric_becomes(seconds(20), phase, |n| (n - 1.0).abs() < 0.1)
        .await?;
    assert_ne!(
        config_map,
        before.template["spec"]["volumes"][0]["configMap"]["name"]
    );
    life.no_job("db-migrate").await?;
    Ok(config_map)
}

async fn rolls(life: &Life<'_>, config_map: &Value) -> Result<()> {
    let ns = life.site.namespace();
    // Expand and migrate end; new pods do not get up; contract must not run under the old ones.
    life.kubelet.heal(ns).await?;
    life.database(
        "UpgradeRollingUpdate",
        &format!("Waiting for Deployment rollout: {STEP}"),
    )
    .await?;
    let waiting = Wanted::of("DeploymentReady").status("False").reason("WaitingForDeployment").message(
        "Waiting for the upgraded image to finish rolling out before contracting the database schema",
    );
    let glance = life.glance().condition(seconds(LIMIT), waiting).await?;
    assert_eq!(status(&glance)["upgradePhase"], "RollingUpdate");
    life.no_job("db-contract").await?;
    let deployment = life.workload.deployment().await?;
    let api = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        (&api["image"], &api["command"][0]),
        (&json!(NEW), &json!("uwsgi"))
    );
    assert_eq!(
        deployment["status"]["readyReplicas"], 2,
        "the old pods serve on"
    );
    let mounted = &deployment["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"];
    assert_eq!(
        mounted, config_map,
        "the phases ran on the configuration that is rolled out"
    );
    Ok(())
}

async fn completes(life: &mut Life<'_>) -> Result<()> {
    life.greedy(false);
    life.apply().await?;
    let glance = life.glance().is_ready(seconds(LIMIT)).await?;
    assert_eq!(status(&glance)["installedRelease"], "2026.1");
    assert_eq!(status(&glance)["upgradePhase"], Value::Null);
    assert_eq!(status(&glance)["targetRelease"], Value::Null);
    reasons_in_order(
        &life.glance(),
        &[
            "UpgradeInitiated",
            "ExpandComplete",
            "MigrateComplete",
            "DeploymentRolloutComplete",
            "UpgradeComplete",
        ],
    )
    .await?;
    for (reason, message) in [
        ("UpgradeInitiated", format!("Upgrade initiated: {STEP}")),
        ("ExpandComplete", format!("Expand phase complete: {STEP}")),
        ("MigrateComplete", format!("Migrate phase complete: {STEP}")),
        (
            "DeploymentRolloutComplete",
            format!("Deployment rollout complete during upgrade {STEP}"),
        ),
        ("UpgradeComplete", format!("Upgrade complete: {STEP}")),
    ] {
        life.event(reason, "Normal", &message).await?;
    }
    Ok(())
}

async fn is_settled(life: &Life<'_>, running: &Running) -> Result<()> {
    let ns = life.site.namespace();
    // The sync of the new release comes last; the phase Jobs stay where they are.
    let sync = life.job("db-sync");
    life.workload
        .object(kinds::JOB, &sync)
        .satisfies(seconds(LIMIT), "to run on the new image", |job| {
            let image = &job.data["spec"]["template"]["spec"]["containers"][0]["image"];
            let succeeded = &job.data["status"]["succeeded"];
            (image == NEW && succeeded == 1)
                .then_some(())
                .ok_or(format!("{image} {succeeded}"))
        })
        .await?;
    let glance = life.glance().is_ready(seconds(LIMIT)).await?;
    assert_eq!(
        life.workload.is_rolled_out(seconds(LIMIT)).await?.template["spec"]["containers"][0]["image"],
        NEW
    );
    for (phase, suffix) in [
        ("expand", "db-expand"),
        ("migrate", "db-migrate"),
        ("contract", "db-contract"),
    ] {
        let job = life.workload.get(kinds::JOB, &life.job(suffix)).await?;
        phase_job(&job, phase, life.scenario.name());
        let counted = &glance.annotations()[&format!("cobaltcore.c5c3.io/last-{suffix}-job-uid")];
        assert_eq!(job["metadata"]["uid"], json!(counted), "{suffix}");
    }
    let purge = life
        .workload
        .get(kinds::CRON_JOB, &life.job("db-purge"))
        .await?;
    assert_eq!(
        purge["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"],
        NEW
    );
    assert_eq!(purge["spec"]["schedule"], "@weekly");

    // Two syncs and three phases, each counted once.
    let labels = [
        ("glance", life.scenario.name()),
        ("namespace", ns),
        ("result", "succeeded"),
    ];
    let counter = ("glance_operator_db_sync_total", &labels[..]);
    running
        .metric_becomes(seconds(20), counter, |n| (n - 5.0).abs() < 0.1)
        .await?;
    // By phase, and no phase goes on.
    for phase in ["expand", "migrate", "contract"] {
        let labels = [&labels[..], &[("phase", phase)]].concat();
        let jobs = running
            .metric("glance_operator_upgrade_jobs_total", &labels)
            .await?;
        assert!(jobs.is_some_and(|n| (n - 1.0).abs() < 0.1), "{phase}");
    }
    let own = [("glance", life.scenario.name())];
    let phase = running
        .metric("glance_operator_upgrade_phase", &own)
        .await?;
    assert_eq!(phase, None);
    let failed = [("glance", life.scenario.name()), ("result", "failed")];
    assert!(
        running
            .metric("glance_operator_db_sync_total", &failed)
            .await?
            .unwrap_or(0.0)
            < 0.1
    );
    goes(life, running).await
}

/// With the Glance go its series, and only its.
async fn goes(life: &Life<'_>, running: &Running) -> Result<()> {
    life.site.hub().delete(&life.scenario.glance()).await?;
    life.glance().is_gone(seconds(LIMIT)).await?;
    let own = format!("glance=\"{}\"", life.scenario.name());
    eventually(seconds(20), "no series of the Glance", async || {
        let page = running.metrics().await?;
        let left: Vec<_> = page.lines().filter(|line| line.contains(&own)).collect();
        anyhow::ensure!(left.is_empty(), "{left:#?}");
        Ok(())
    })
    .await
}

fn phase_job(job: &Value, phase: &str, name: &str) {
    assert_has(
        job,
        &json!({ "spec": {
            "backoffLimit": 4, "ttlSecondsAfterFinished": null, "activeDeadlineSeconds": null,
            "template": { "metadata": { "labels": { "app.kubernetes.io/instance": null } }, "spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": format!("db-{phase}"), "image": NEW,
                    "command": ["glance-manage", "--config-dir", "/etc/glance/glance-api.conf.d/", "db", phase],
                    "env": [
                        { "name": "OS_DATABASE__CONNECTION", "valueFrom": { "secretKeyRef": {
                            "name": format!("{name}-db-connection"), "key": "connection" } } },
                        { "name": "OS_DATABASE__MAX_RETRIES", "value": "1" },
                    ],
                }],
            } },
        } }),
    );
}
