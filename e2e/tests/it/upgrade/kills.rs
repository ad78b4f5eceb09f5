//! The operator dies in the middle of an upgrade: its successor goes on where it was, nothing runs twice and nothing is
//! left out.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use e2e::{
    audit::Audit,
    bed::run,
    expect::Wanted,
    fleet::Fleet,
    gate::{Gate, Side, Stop},
    kinds,
    operator::{Operator, Running},
    patience::seconds,
    scenario::Scenario,
    site::Site,
    witness::Witness,
};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;

use super::life::{LIMIT, Life, NEW, status};

#[test]
fn an_upgrade_survives_the_operator() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "crash").await?;
        site.register("edge-1").await?;
        let operator = site.operator().await?;
        let mut running = operator.start().await?;
        let scenario = site
            .scenario("images")
            .backend("images-s3", true)
            .on("edge-1");
        let mut life = Life::begin(&site, scenario).await?;
        let audit = life.workload.cluster().audit();
        let mark = audit.map(Audit::mark).transpose()?;

        // Jobs end only after the operator was killed over each of them.
        let phases = [
            ("Expanding", "db-expand"),
            ("Migrating", "db-migrate"),
            ("Contracting", "db-contract"),
        ];
        life.kubelet.hold_jobs(site.namespace()).await?;
        life.asks_for("2026.1").await?;
        for (phase, suffix) in phases {
            let there = |glance: &DynamicObject| {
                let now = &status(glance)["upgradePhase"];
                (now == phase).then_some(()).ok_or(now.to_string())
            };
            life.glance()
                .satisfies(seconds(LIMIT), phase, there)
                .await?;
            life.job_exists(suffix).await?;
            running.kill()?;
            running = operator.start().await?;
            life.ends(suffix).await?;
        }
        life.kubelet.heal(site.namespace()).await?;
        life.database("DatabaseSynced", "revision verified").await?;
        let glance = life.glance().is_ready(seconds(LIMIT)).await?;
        assert_eq!(status(&glance)["installedRelease"], "2026.1");
        assert_eq!(status(&glance)["upgradePhase"], Value::Null);

        // Each phase ran once, and the sync of the new release after them.
        let (Some(audit), Some(mark)) = (audit, mark) else {
            return Ok(());
        };
        let created: Vec<_> = audit
            .requests_by(&site.user_on_targets(), mark)?
            .into_iter()
            .filter(|r| (r.verb.as_str(), r.resource.as_str(), r.code) == ("create", "jobs", 201))
            .map(|r| r.name)
            .collect();
        let wanted =
            ["db-expand", "db-migrate", "db-contract", "db-sync"].map(|suffix| life.job(suffix));
        assert_eq!(created, wanted);
        Ok(())
    });
}

/// One Glance whose upgrade is watched, version by version.
struct Watched<'a> {
    life: Life<'a>,
    glances: Witness,
    jobs: Witness,
    revision: u64,
}

/// A site behind a gate, with an operator that has not been started.
async fn gated<'f>(fleet: &'f Fleet, name: &str) -> Result<(Site<'f>, Gate, Operator)> {
    let site = Site::open(fleet, name).await?;
    let mut gate = Gate::new(site.namespace());
    let there = gate.door(fleet.cluster("edge-1")?).await?;
    let hub = gate.door(site.hub()).await?;
    site.register_by_way_of("edge-1", &there).await?;
    let operator = site
        .operator()
        .await?
        .by_way_of(site.hub(), &hub)?
        .arg("--allow-insecure-registrations");
    Ok((site, gate, operator))
}

#[test]
fn an_operator_that_dies_before_and_after_every_write_of_an_upgrade_ends_it_all_the_same() {
    run(async |fleet: &Fleet| {
        let (site, mut gate, operator) = gated(fleet, "cut").await?;
        let running = operator.start().await?;
        let here = site.scenario("here").backend("here-s3", true);
        let there = site
            .scenario("there")
            .backend("there-s3", true)
            .on("edge-1");
        let (here, there) =
            futures::try_join!(Watched::begin(&site, here), Watched::begin(&site, there))?;
        let mut all = [here, there];
        gate.arm();
        for watched in &mut all {
            watched.life.asks_for("2026.1").await?;
        }
        let end = async {
            for watched in &all {
                watched.ends().await?;
            }
            Ok(())
        };
        let stops = killing(&mut gate, &operator, running, end).await?;
        eprintln!("killed {} times", stops.len());
        for watched in &all {
            watched.went_its_way()?;
            watched.was_cut_everywhere(&stops)?;
            let rolled = watched.life.workload.rollout().await?;
            assert_eq!(
                rolled.revision,
                watched.revision + 1,
                "the pods rolled once"
            );
        }
        gate.disarm();
        Ok(())
    });
}

#[test]
fn an_operator_that_dies_before_and_after_every_write_of_an_abort_ends_it_all_the_same() {
    run(async |fleet: &Fleet| {
        let (site, mut gate, operator) = gated(fleet, "cut-abort").await?;
        let running = operator.start().await?;
        let scenario = site
            .scenario("images")
            .backend("images-s3", true)
            .on("edge-1");
        let mut watched = Watched::begin(&site, scenario).await?;
        watched.life.kubelet.hold_jobs(site.namespace()).await?;
        watched.life.asks_for("2026.1").await?;
        watched.life.ends("db-expand").await?;
        watched.life.job_exists("db-migrate").await?;
        watched
            .life
            .database("MigrateInProgress", "Migrate phase running")
            .await?;
        gate.arm();
        watched.life.asks_for("2025.2").await?;
        let glance = watched.life.glance();
        let end = async { glance.is_ready(seconds(120)).await.map(drop) };
        let stops = killing(&mut gate, &operator, running, end).await?;
        gate.disarm();
        for suffix in ["db-expand", "db-migrate"] {
            watched.life.no_job(suffix).await?;
            let delete = format!("DELETE {}", job_path(&watched.life, suffix));
            cut_on_both_sides(&stops, &delete)?;
        }
        assert_eq!(
            watched.phases()?,
            [None, Some("Expanding"), Some("Migrating"), None].map(|p| p.map(str::to_owned))
        );
        let made = watched.made()?;
        assert!(!made.contains_key(&watched.life.job("db-contract")));
        assert_eq!(
            made.get(&watched.life.job("db-sync")).map(BTreeSet::len),
            None
        );
        Ok(())
    });
}

/// Kills the operator at each stop of the gate, and starts another, until `end`. Where it was stopped.
async fn killing(
    gate: &mut Gate,
    operator: &Operator,
    mut running: Running,
    end: impl Future<Output = Result<()>>,
) -> Result<Vec<Stop>> {
    let mut end = std::pin::pin!(end);
    let mut stops = Vec::new();
    loop {
        tokio::select! {
            ended = &mut end => return ended.map(|()| stops),
            stop = gate.stop() => {
                running.kill()?;
                gate.open();
                running = operator.launch()?;
                stops.push(stop.context("the gate is gone")?);
            }
        }
    }
}

fn job_path(life: &Life<'_>, suffix: &str) -> String {
    format!(
        "/apis/batch/v1/namespaces/{}/jobs/{}",
        life.site.namespace(),
        life.job(suffix)
    )
}

fn cut_on_both_sides(stops: &[Stop], write: &str) -> Result<()> {
    for side in [Side::Before, Side::After] {
        if !stops.iter().any(|s| s.write == write && s.side == side) {
            bail!("never stopped {side:?} {write}: {stops:#?}");
        }
    }
    Ok(())
}

impl<'a> Watched<'a> {
    async fn begin(site: &'a Site<'a>, scenario: Scenario) -> Result<Self> {
        let life = Life::begin(site, scenario).await?;
        let ns = site.namespace();
        Ok(Self {
            glances: Witness::of(site.hub(), kinds::GLANCE, ns).await?,
            jobs: Witness::of(life.workload.cluster(), kinds::JOB, ns).await?,
            revision: life.workload.rollout().await?.revision,
            life,
        })
    }

    /// Waits for the end of the upgrade and of the sync after it.
    async fn ends(&self) -> Result<()> {
        let patience = seconds(400);
        let glance = self.life.glance();
        glance
            .satisfies(patience, "to be upgraded", |found| {
                let found = status(found);
                let over = found["installedRelease"] == "2026.1" && found["upgradePhase"].is_null();
                over.then_some(()).ok_or_else(|| found.to_string())
            })
            .await?;
        let sync = self.life.job("db-sync");
        self.life
            .workload
            .object(kinds::JOB, &sync)
            .satisfies(patience, "to run on the new image", |job| {
                let image = &job.data["spec"]["template"]["spec"]["containers"][0]["image"];
                let succeeded = &job.data["status"]["succeeded"];
                (image == NEW && succeeded == 1)
                    .then_some(())
                    .ok_or(format!("{image} {succeeded}"))
            })
            .await?;
        let synced = Wanted::of("DatabaseReady")
            .status("True")
            .message("revision verified");
        glance.condition(patience, synced).await?;
        glance.is_ready(patience).await?;
        Ok(())
    }

    /// The phases that the status went through.
    fn phases(&self) -> Result<Vec<Option<String>>> {
        let own = self.life.scenario.name();
        let mut phases = vec![None];
        for version in self.glances.versions()? {
            if version.name_any() == own {
                phases.push(status(&version)["upgradePhase"].as_str().map(str::to_owned));
            }
        }
        phases.dedup();
        Ok(phases)
    }

    /// The UIDs of the Jobs that were made since the beginning, by name.
    fn made(&self) -> Result<BTreeMap<String, BTreeSet<Option<String>>>> {
        let prefix = format!("{}-db-", self.life.scenario.name());
        let mut made = BTreeMap::<_, BTreeSet<_>>::new();
        for job in self.jobs.versions()? {
            let name = job.name_any();
            if name.starts_with(&prefix) {
                made.entry(name).or_default().insert(job.metadata.uid);
            }
        }
        Ok(made)
    }

    /// No phase was left out, came twice or came back, and each Job was made once.
    fn went_its_way(&self) -> Result<()> {
        let way = [
            None,
            Some("Expanding"),
            Some("Migrating"),
            Some("RollingUpdate"),
            Some("Contracting"),
            None,
        ];
        assert_eq!(self.phases()?, way.map(|phase| phase.map(str::to_owned)));
        let made = self.made()?;
        for suffix in ["db-expand", "db-migrate", "db-contract"] {
            let jobs = made.get(&self.life.job(suffix)).map(BTreeSet::len);
            assert_eq!(jobs, Some(1), "{suffix}");
        }
        // The old one went, the new one came.
        let syncs = made.get(&self.life.job("db-sync")).map(BTreeSet::len);
        assert!(syncs.is_some_and(|syncs| syncs <= 2), "{syncs:?}");
        Ok(())
    }

    /// Every kind of write that an upgrade consists of was met on both sides.
    fn was_cut_everywhere(&self, stops: &[Stop]) -> Result<()> {
        let (ns, name) = (self.life.site.namespace(), self.life.scenario.name());
        let glance =
            format!("/apis/glance.openstack.c5c3.io/v1alpha1/namespaces/{ns}/glances/{name}");
        for write in [
            format!("PATCH {glance}"),
            format!("PATCH {glance}/status"),
            format!("POST /apis/batch/v1/namespaces/{ns}/jobs"),
            format!("DELETE {}", job_path(&self.life, "db-sync")),
            format!("PATCH /apis/apps/v1/namespaces/{ns}/deployments/{name}"),
            format!("PATCH /apis/batch/v1/namespaces/{ns}/cronjobs/{name}-db-purge"),
        ] {
            cut_on_both_sides(stops, &write)?;
        }
        // Four Jobs are made, each stopped before and after.
        let cluster = self.life.workload.cluster().name();
        let jobs = stops
            .iter()
            .filter(|s| {
                s.cluster == cluster && s.write.starts_with("POST") && s.write.ends_with("/jobs")
            })
            .count();
        assert!(jobs >= 8, "{jobs}");
        Ok(())
    }
}
