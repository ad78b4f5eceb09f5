//! What people watch the operator with: the alert rules under promtool, and the dashboard's queries on a
//! real Prometheus that scrapes a real operator.

mod bounds;
mod secure;

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    bed::run,
    checkout,
    cluster::Cluster,
    expect::{Object, Wanted, eventually},
    fleet::Fleet,
    kinds,
    operator::Running,
    patience::seconds,
    prometheus::{self, Prometheus, promtool},
    registration,
    site::Site,
    webhooks::Webhooks,
    workload::Workload,
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::upgrade::life::failed_for_good;

const DASHBOARD: &str = "charts/glance-operator/dashboards/glance-operator.json";

/// Whether the real programs can be had; says in one line why not, and what is not tested then.
fn is_to_be_had(what: &str) -> bool {
    let Err(error) = prometheus::find("promtool") else {
        return true;
    };
    // Not by a macro, which the test harness would keep to itself.
    let said = writeln!(std::io::stderr(), "skipped: {what}: {error:#}");
    said.expect("somebody listens");
    false
}

#[test]
fn the_alert_rules_are_valid_and_fire_when_their_tests_say() {
    if !is_to_be_had("the alert rules") {
        return;
    }
    let rules = "charts/glance-operator/rules/glance-operator.yaml";
    let said = promtool(&["check", "rules", rules]).unwrap();
    assert!(said.contains("11 rules found"), "{said}");
    let said = promtool(&["test", "rules", "e2e/prometheus/rules_test.yaml"]).unwrap();
    assert!(said.contains("SUCCESS"), "{said}");
}

#[test]
fn tests_that_are_skipped_for_want_of_a_program_say_which_package_brings_it() {
    let nothing = tempfile::tempdir().unwrap();
    let skipped = "monitoring::the_alert_rules_are_valid_and_fire_when_their_tests_say";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", skipped])
        .env("PATH", nothing.path())
        .env("XDG_CACHE_HOME", nothing.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    for words in ["skipped: the alert rules", "the Debian package prometheus"] {
        assert!(said.contains(words), "{said}");
    }
}

fn dashboard() -> Value {
    let text = std::fs::read_to_string(checkout().join(DASHBOARD)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Title and queries of each panel.
fn queries() -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let panels = dashboard()["panels"].as_array().unwrap().clone();
    let of = |panel: &Value| {
        let targets = panel["targets"].as_array().unwrap();
        targets.iter().map(|target| text(&target["expr"])).collect()
    };
    panels
        .iter()
        .map(|panel| (text(&panel["title"]), of(panel)))
        .collect()
}

async fn merge(cluster: &Cluster, kind: (&str, &str), ns: &str, name: &str, patch: Value) {
    let api = cluster.any(kind.0, kind.1, Some(ns));
    let patch = Patch::Merge(&patch);
    api.patch(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// A run of the purge `CronJob`, as `kubectl create job --from=cronjob/…` makes it.
async fn purge(cluster: &Cluster, ns: &str, glance: &str, name: &str) -> Result<()> {
    let owner = format!("{glance}-db-purge");
    let cron_job = Object::new(cluster, kinds::CRON_JOB, ns, &owner);
    let cron_job = cron_job.exists(seconds(30)).await?;
    let template = &cron_job.data["spec"]["jobTemplate"];
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "namespace": ns, "name": name, "labels": template["metadata"]["labels"],
            "annotations": { "cronjob.kubernetes.io/instantiate": "manual" },
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "CronJob", "controller": true,
                "name": cron_job.metadata.name, "uid": cron_job.metadata.uid,
            }],
        },
        "spec": template["spec"],
    });
    job["spec"]["backoffLimit"] = json!(0);
    cluster.create(&job).await?;
    Ok(())
}

/// A fleet on which everything that the dashboard shows has happened.
async fn life(site: &Site<'_>, running: &Running) -> Result<()> {
    let (hub, edge, ns) = (
        site.hub(),
        site.fleet().cluster("edge-1")?,
        site.namespace(),
    );
    site.register("edge-1").await?;
    site.register("edge-2").await?;
    // A target that lets us read nothing: its watches fail again and again.
    let elsewhere = format!("{ns}-poor");
    let poor = registration::grant(edge, &elsewhere, &[&elsewhere], &Value::Null).await?;
    registration::register(hub, &site.clusters_namespace(), "poor", &poor, Some(ns)).await?;
    for scenario in [
        site.scenario("local").backend("local-s3", true),
        site.scenario("placed")
            .on("edge-1")
            .backend("placed-s3", true),
        site.scenario("left").on("edge-2").backend("left-s3", true),
    ] {
        site.apply(&scenario).await?;
        site.glance(scenario.name()).is_ready(seconds(90)).await?;
    }
    hub.apply(&site.scenario("barred").on("poor").glance())
        .await?;
    // Purges that succeed and that fail.
    purge(hub, ns, "local", "local-by-hand").await?;
    let succeeded = (
        "glance_operator_db_purge_total",
        &[("result", "succeeded")][..],
    );
    running
        .metric_becomes(seconds(30), succeeded, |n| n > 0.5)
        .await?;
    let kubelet = site.fleet().doubles("hub")?.kubelet();
    kubelet.fail_jobs(ns).await?;
    purge(hub, ns, "local", "local-by-hand-2").await?;
    let failed = (
        "glance_operator_db_purge_total",
        &[("result", "failed")][..],
    );
    running
        .metric_becomes(seconds(30), failed, |n| n > 0.5)
        .await?;
    // A first install whose schema Job fails.
    let broken = site.scenario("broken").backend("broken-s3", true);
    site.apply(&broken).await?;
    let job = Workload::of(site, &broken)?;
    let (job, jobs) = (
        job.object(kinds::JOB, "broken-db-sync"),
        hub.any(kinds::JOB.0, kinds::JOB.1, Some(ns)),
    );
    failed_for_good(&job, jobs, Duration::ZERO).await?;
    let wanted = Wanted::of("DatabaseReady")
        .status("False")
        .reason("DBSyncFailed");
    site.glance("broken").condition(seconds(60), wanted).await?;
    kubelet.heal(ns).await?;
    // A Service that belongs to somebody else.
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": ns, "name": "somebody" },
    });
    let owner = hub.apply(&owner).await?;
    hub.apply(&json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "namespace": ns, "name": "taken",
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "ConfigMap", "name": "somebody",
                "uid": owner.metadata.uid, "controller": true,
            }],
        },
        "spec": { "ports": [{ "port": 1, "targetPort": 1 }], "selector": { "app": "other" } },
    }))
    .await?;
    site.apply(&site.scenario("taken").backend("taken-s3", true))
        .await?;
    // A backend without credentials.
    hub.apply(&e2e::scenario::backend(ns, "placed", "bare-s3", false))
        .await?;
    // A Glance that is deleted after its cluster.
    site.deregister("edge-2").await?;
    let away = Wanted::of("SecretsReady").reason("TargetClusterUnavailable");
    site.glance("left").condition(seconds(30), away).await?;
    hub.delete(&site.scenario("left").glance()).await?;
    site.glance("left").is_gone(seconds(60)).await?;
    Ok(())
}

#[test]
fn every_query_of_the_dashboard_shows_something_and_the_alerts_find_what_is_wrong() {
    if !is_to_be_had("the dashboard and the alerts on a real Prometheus") {
        return;
    }
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "watched").await?;
        let operator = site
            .operator()
            .await?
            .arg("--leader-elect")
            .arg("--abandon-after=1s");
        let folder = fleet.folder().path();
        let webhooks = Webhooks::prepare(site.namespace(), folder)?;
        let running = webhooks.on(operator).start().await?;
        webhooks.register(site.hub()).await?;
        let prometheus = Prometheus::start(&[running.metrics_address()], folder).await?;
        let begun = SystemTime::now();
        life(&site, &running).await?;
        for (title, queries) in queries() {
            for query in queries {
                let found = eventually(seconds(30), &format!("{title}: {query}"), async || {
                    let found = prometheus.query(&query).await?;
                    ensure!(!found.is_empty(), "no data");
                    Ok(found)
                })
                .await?;
                assert!(found.len() < 60, "{title}: {query}: {} series", found.len());
            }
        }
        for rule in prometheus.rules().await? {
            assert_eq!(rule["health"], "ok", "{rule}");
        }
        alerts_are_right(&site, &prometheus).await?;
        webhooks.unregister(site.hub()).await?;
        if let Some(file) = std::env::var_os("E2E_SCREENSHOT") {
            keep_busy(&site, begun).await?;
            screenshot(&prometheus, folder, begun, Path::new(&file))?;
        }
        Ok(())
    });
}

async fn alerts_are_right(site: &Site<'_>, prometheus: &Prometheus) -> Result<()> {
    let ns = site.namespace();
    let is = |alert: &Value, name: &str, labels: &[(&str, &str)]| {
        let found = &alert["labels"];
        found["alertname"] == name && labels.iter().all(|(label, value)| found[*label] == *value)
    };
    let alerts = eventually(seconds(20), "the alerts", async || {
        let alerts = prometheus.alerts().await?;
        for (name, labels) in [
            (
                "GlanceDBSyncFailed",
                &[("namespace", ns), ("glance", "broken")][..],
            ),
            (
                "GlanceDBPurgeFailed",
                &[("namespace", ns), ("glance", "local")],
            ),
            ("GlanceNotReady", &[("namespace", ns), ("glance", "broken")]),
            (
                "GlanceBackendNotReady",
                &[("namespace", ns), ("backend", "bare-s3")],
            ),
            ("GlanceChildrenAbandoned", &[("cluster", "edge-2")]),
            (
                "GlanceReconcileErrors",
                &[("sub_reconciler", "Deployment"), ("cluster", "local")],
            ),
        ] {
            let found = alerts.iter().any(|alert| is(alert, name, labels));
            ensure!(found, "{name} {labels:?}: {alerts:#?}");
        }
        Ok(alerts)
    })
    .await?;
    for name in ["GlanceUpgradePhaseFailed", "GlanceOperatorWithoutLeader"] {
        assert!(
            !alerts.iter().any(|alert| is(alert, name, &[])),
            "{alerts:#?}"
        );
    }
    Ok(())
}

/// Some life for the curves.
async fn keep_busy(site: &Site<'_>, begun: SystemTime) -> Result<()> {
    for round in 0.. {
        if begun.elapsed()? > Duration::from_mins(5) {
            break;
        }
        let patch = json!({ "spec": { "deployment": { "replicas": 1 + round % 3 } } });
        merge(site.hub(), kinds::GLANCE, site.namespace(), "placed", patch).await;
        tokio::time::sleep(Duration::from_secs(7)).await;
    }
    Ok(())
}

fn screenshot(
    prometheus: &Prometheus,
    folder: &Path,
    begun: SystemTime,
    file: &Path,
) -> Result<()> {
    let page = std::fs::read_to_string(checkout().join("e2e/prometheus/dashboard.html"))?;
    let since_1970 =
        |moment: SystemTime| Ok::<_, anyhow::Error>(moment.duration_since(UNIX_EPOCH)?.as_secs());
    let page = page
        .replace("= DASHBOARD", &format!("= {}", dashboard()))
        .replace("\"PROMETHEUS\"", &format!("\"{}\"", prometheus.address()))
        .replace("= FROM", &format!("= {}", since_1970(begun)?))
        .replace("= TO", &format!("= {}", since_1970(SystemTime::now())?));
    let html = folder.join("dashboard.html");
    std::fs::write(&html, page)?;
    let file: PathBuf = checkout().join(file);
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        .args(["--window-size=1200,1740", "--virtual-time-budget=20000"])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("chromium").display()
        ))
        .arg(format!("--screenshot={}", file.display()))
        .arg(format!("file://{}", html.display()))
        .output()
        .context("the picture needs chromium: apt-get install chromium")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
