//! Runs that the cluster starts by itself, with operators that come and go, and what happens when a run cannot be noted.

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::{
    bed::run, cluster::Cluster, expect::eventually, fleet::Fleet, kinds, patience::seconds, policy,
    site::Site,
};
use kube::{
    ResourceExt as _,
    api::{DynamicObject, ListParams},
};
use serde_json::{Value, json};

use super::{purge_is, run_by_hand};
use crate::upgrade::life::{LIMIT, Life, here_and_there};

const COUNTED: &str = "cobaltcore.c5c3.io/last-db-purge-job-uid";

/// The runs that have ended, oldest first.
async fn ended(life: &Life<'_>) -> Result<Vec<DynamicObject>> {
    let jobs = life
        .workload
        .cluster()
        .any(kinds::JOB.0, kinds::JOB.1, Some(life.site.namespace()));
    let own = format!("app.kubernetes.io/instance={}", life.scenario.name());
    let mut runs = jobs.list(&ListParams::default().labels(&own)).await?.items;
    runs.retain(|run| run.data["status"]["succeeded"] == 1);
    runs.sort_by_key(|run| run.metadata.creation_timestamp.clone());
    Ok(runs)
}

fn float(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Waits until the newest run is the one with this number, and the Glance knows it.
async fn noted(life: &Life<'_>, number: usize) -> Result<()> {
    eventually(seconds(100), "the run to be noted", async || {
        let runs = ended(life).await?;
        let newest = runs.last().context("no run has ended")?;
        let glance = life.glance().get().await?.context("the Glance")?;
        let known = glance.annotations().get(COUNTED) == newest.metadata.uid.as_ref();
        anyhow::ensure!(known && runs.len() >= number, "{} runs", runs.len());
        Ok(())
    })
    .await
}

#[test]
fn runs_on_schedule_are_counted_once_whichever_operator_sees_them() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "nightly").await?;
        site.register("edge-1").await?;
        let operator = site.operator().await?;
        let first = operator.start().await?;
        let minutely = json!({ "schedule": "* * * * *" });
        let here = site.scenario("here").with("dbPurge", minutely.clone());
        let there = site.scenario("there").with("dbPurge", minutely);
        let lives = futures::try_join!(
            Life::begin(&site, here.backend("here-s3", true)),
            Life::begin(&site, there.backend("there-s3", true).on("edge-1")),
        )?;
        let lives = [lives.0, lives.1];
        for life in &lives {
            // No run of another kind could be meant: the first is the cluster's own.
            noted(life, 1).await?;
            let runs = ended(life).await?;
            let owner = runs[0].owner_references().first().context("no owner")?;
            assert_eq!(
                (owner.kind.as_str(), owner.controller),
                ("CronJob", Some(true))
            );
        }
        let counted = async |running: &e2e::operator::Running, life: &Life<'_>| {
            let labels = [
                ("glance", life.scenario.name()),
                ("namespace", site.namespace()),
                ("result", "succeeded"),
            ];
            let found = running.metric("glance_operator_db_purge_total", &labels);
            Ok::<_, anyhow::Error>(found.await?.unwrap_or(0.0).round())
        };
        let mut before = Vec::new();
        for life in &lives {
            let runs = ended(life).await?.len();
            let number = counted(&first, life).await?;
            assert!(number >= 1.0 && number <= float(runs), "{number} of {runs}");
            before.push(number);
        }
        // While no operator runs, so does the purge.
        first.kill()?;
        let missed = async |life: &Life<'_>| {
            let known = ended(life).await?.len();
            eventually(seconds(100), "a run that nobody sees", async || {
                let now = ended(life).await?.len();
                anyhow::ensure!(now > known, "{now}");
                Ok(())
            })
            .await
        };
        futures::try_join!(missed(&lives[0]), missed(&lives[1]))?;
        let second = operator.start().await?;
        for (life, before) in lives.iter().zip(before) {
            noted(life, 2).await?;
            tokio::time::sleep(Duration::from_millis(500)).await;
            let (runs, after) = (ended(life).await?.len(), counted(&second, life).await?);
            // All of this operator's, and none that its predecessor had.
            assert!(
                after >= 1.0 && before + after <= float(runs),
                "{before} {after} {runs}"
            );
        }
        // Started once more, it has nothing to count, and the time of the last run it still knows.
        second.kill()?;
        for life in &lives {
            let mut spec = life
                .scenario
                .clone()
                .with("dbPurge", json!({ "suspend": true }));
            spec = spec.with(
                "dbPurge",
                json!({ "schedule": "* * * * *", "suspend": true }),
            );
            site.hub().apply(&spec.glance()).await?;
        }
        let third = operator.start().await?;
        for life in &lives {
            purge_is(
                life,
                "True",
                "DBPurgeSuspended",
                "suspended via spec.dbPurge.suspend",
            )
            .await?;
            let labels = [("glance", life.scenario.name())];
            let series = (
                "glance_operator_db_purge_last_success_timestamp_seconds",
                &labels[..],
            );
            third
                .metric_becomes(seconds(20), series, |at| at > 0.0)
                .await?;
            assert!(counted(&third, life).await? <= 1.0);
        }
        Ok(())
    });
}

/// Keeps anybody from noting Jobs on the Glances of a namespace.
fn forbidding(namespace: &str) -> [Value; 2] {
    let expression = "!has(object.metadata.annotations) || object.metadata.annotations.all(key, \
                      !key.endsWith('-job-uid') || (has(oldObject.metadata.annotations) && key in \
                      oldObject.metadata.annotations && oldObject.metadata.annotations[key] == \
                      object.metadata.annotations[key]))";
    let rule = json!({
        "apiGroups": ["glance.openstack.c5c3.io"], "apiVersions": ["*"],
        "operations": ["UPDATE"], "resources": ["glances"],
    });
    let name = format!("{namespace}-notes");
    policy::forbidding(&name, namespace, &rule, expression, "no notes")
}

async fn enforced(hub: &Cluster, life: &Life<'_>, namespace: &str) -> Result<()> {
    for manifest in forbidding(namespace) {
        hub.apply(&manifest).await?;
    }
    eventually(seconds(LIMIT), "the policy to be enforced", async || {
        if life
            .annotate("e2e.c5c3.io/trial-job-uid", "1")
            .await
            .is_err()
        {
            return Ok(());
        }
        let clear = json!({ "metadata": { "annotations": { "e2e.c5c3.io/trial-job-uid": null } } });
        life.merge(&clear).await?;
        Err(anyhow::anyhow!("it is not"))
    })
    .await
}

#[test]
fn a_job_that_cannot_be_noted_is_told_and_counted_later() {
    here_and_there("unnoted", "edge-1", async |life, running| {
        let (hub, ns, name) = (life.site.hub(), life.site.namespace(), life.scenario.name());
        // Both Glances are in one namespace of one hub: the second to come finds the policy in force.
        enforced(hub, &life, ns).await?;
        let purge = life.job("unnoted");
        run_by_hand(&life, &purge, &Value::Null).await?;
        let told = "Patching last-observed db-purge Job UID failed; metric emission deferred to the next reconcile: ";
        let event = life
            .glance()
            .event(seconds(LIMIT), "DBPurgeMetricEmissionDeferred")
            .await?;
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert!(
            event
                .message
                .is_some_and(|m| m.starts_with(told) && m.contains("no notes"))
        );

        life.annotate("glance.openstack.c5c3.io/retry-job", "1")
            .await?;
        let image =
            json!({ "repository": "registry.example/openstack/glance", "tag": "2025.2-p1" });
        let patched = life.scenario.clone().with("image", image);
        hub.apply(&patched.glance()).await?;
        let told = "Patching last-observed db-sync Job UID failed; metric emission deferred to the next reconcile: ";
        let event = life
            .glance()
            .event(seconds(LIMIT), "DBSyncMetricEmissionDeferred")
            .await?;
        assert!(event.message.is_some_and(|m| m.starts_with(told)));
        // The schema is there all the same.
        life.database("DatabaseSynced", "revision verified").await?;
        let series = |result| [("glance", name), ("namespace", ns), ("result", result)];
        let counted = async |family: &str| {
            let found = running.metric(family, &series("succeeded")).await?;
            Ok::<_, anyhow::Error>(found.unwrap_or(0.0).round())
        };
        assert!(counted("glance_operator_db_purge_total").await? < 0.5);

        for manifest in forbidding(ns) {
            hub.delete(&manifest).await?;
        }
        // The sync that was replaced was counted before.
        for (family, wanted) in [
            ("glance_operator_db_purge_total", 1.0),
            ("glance_operator_db_sync_total", 2.0),
        ] {
            let labels = series("succeeded");
            running
                .metric_becomes(seconds(60), (family, &labels[..]), |n| {
                    (n - wanted).abs() < 0.1
                })
                .await?;
        }
        Ok(())
    });
}
