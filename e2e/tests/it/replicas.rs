//! Two replicas: one works, the other is ready to; whichever way the first goes, nothing is lost,
//! nothing is done twice, and nobody writes who has been replaced.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    audit::{Audit, Mark, Request},
    bed::run,
    expect::{Object, eventually},
    fleet::Fleet,
    kinds,
    operator::{Operator, Running},
    patience::seconds,
    scenario::Scenario,
    site::Site,
};
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

const LEASE: &str = "glance.openstack.c5c3.io";

/// An installation whose replicas take over soon. The rules are those of the defaults.
async fn replicated(site: &Site<'_>) -> Result<Operator> {
    Ok(site
        .operator()
        .await?
        .arg("--leader-elect")
        .arg("--leader-elect-lease-duration=6s")
        .arg("--leader-elect-renew-deadline=4s")
        .arg("--leader-elect-retry-period=500ms"))
}

async fn leads(replica: &Running) -> Result<bool> {
    let gauge = replica.metric("leader_election_master_status", &[("name", LEASE)]);
    Ok(gauge.await?.is_some_and(|value| value > 0.5))
}

/// Time until a replica leads.
async fn takes_over(replica: &Running) -> Result<Duration> {
    let begun = Instant::now();
    eventually(seconds(30), "the other replica to lead", async || {
        ensure!(leads(replica).await?, "{}", replica.tail(5));
        Ok(())
    })
    .await?;
    Ok(begun.elapsed())
}

fn glances(site: &Site<'_>, names: [&str; 4]) -> Vec<Scenario> {
    names
        .into_iter()
        .enumerate()
        .map(|(number, name)| {
            let scenario = site.scenario(name).backend(&format!("{name}-s3"), true);
            if number % 2 == 0 {
                scenario
            } else {
                scenario.on("edge-1")
            }
        })
        .collect()
}

/// Both logs, and what they say since a moment.
struct Witnesses<'s> {
    hub: (&'s Audit, Mark),
    edge: (&'s Audit, Mark),
    on_hub: String,
    on_edge: String,
}

impl<'s> Witnesses<'s> {
    fn of(site: &'s Site<'_>, operator: &Operator) -> Result<Self> {
        let log = |cluster: &'s e2e::cluster::Cluster| {
            let audit = cluster.audit().context("no audit log")?;
            Ok::<_, anyhow::Error>((audit, audit.mark()?))
        };
        Ok(Self {
            hub: log(site.hub())?,
            edge: log(site.fleet().cluster("edge-1")?)?,
            on_hub: operator.user(),
            on_edge: site.user_on_targets(),
        })
    }

    /// Everything the operator changed since, the lease aside.
    fn changes(&self) -> Result<Vec<Request>> {
        let mut all = self.hub.0.requests_by(&self.on_hub, self.hub.1)?;
        all.extend(self.edge.0.requests_by(&self.on_edge, self.edge.1)?);
        all.retain(|request| {
            let reads = ["get", "list", "watch"].contains(&request.verb.as_str());
            let reviews = request.resource.ends_with("reviews");
            !reads && !reviews && request.resource != "leases"
        });
        Ok(all)
    }

    /// Jobs that were made, repetitions included.
    fn jobs(&self) -> Result<usize> {
        let made = |request: &Request| {
            request.verb == "create" && request.resource == "jobs" && request.code == 201
        };
        Ok(self.changes()?.iter().filter(|r| made(r)).count())
    }
}

/// Waits for the first child that the operator makes anywhere.
async fn first_child(witnesses: &Witnesses<'_>) -> Result<()> {
    eventually(seconds(30), "the first child", async || {
        let changes = witnesses.changes()?;
        let child = |r: &&Request| r.resource == "configmaps" || r.resource == "databases";
        changes.iter().find(child).map(drop).context("none yet")
    })
    .await
}

async fn all_are_ready(site: &Site<'_>, scenarios: &[Scenario]) -> Result<()> {
    for scenario in scenarios {
        site.glance(scenario.name()).is_ready(seconds(90)).await?;
    }
    Ok(())
}

async fn scale(site: &Site<'_>, scenario: &Scenario, replicas: u32) -> Result<()> {
    let (ns, name) = (site.namespace(), scenario.name());
    let api = site.hub().any(kinds::GLANCE.0, kinds::GLANCE.1, Some(ns));
    let patch = json!({ "spec": { "deployment": { "replicas": replicas } } });
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Object::new(site.children(scenario)?, kinds::DEPLOYMENT, ns, name)
        .satisfies(seconds(30), "to have another number of replicas", |found| {
            let now = &found.data["spec"]["replicas"];
            (*now == json!(replicas))
                .then_some(())
                .ok_or_else(|| now.to_string())
        })
        .await?;
    Ok(())
}

/// What the events about the lease say, without who said it.
async fn said_of_the_lease(site: &Site<'_>) -> Result<Vec<String>> {
    let events: Api<Event> = site.hub().api(site.namespace());
    let about = ListParams::default().fields(&format!("involvedObject.name={LEASE}"));
    let mut said: Vec<_> = events
        .list(&about)
        .await?
        .items
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some("LeaderElection"))
        .filter_map(|event| Some(event.message?.split_once(' ')?.1.to_owned()))
        .collect();
    said.sort();
    Ok(said)
}

#[test]
fn a_replica_that_is_killed_or_stopped_loses_nothing_and_nothing_is_done_twice() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "replicas").await?;
        site.register("edge-1").await?;
        let operator = replicated(&site).await?;
        let witnesses = Witnesses::of(&site, &operator)?;
        let first = operator.clone().log("replicas-first").start().await?;
        takes_over(&first).await?;
        // A standby is ready, serves, and touches no cluster.
        let second = operator.clone().log("replicas-second").start().await?;
        assert!(!leads(&second).await?);
        let page = second.metrics().await?;
        assert!(
            !page.contains("glance_operator_target_cluster_up"),
            "{page}"
        );

        let scenarios = glances(&site, ["one", "two", "three", "four"]);
        for scenario in &scenarios {
            site.apply(scenario).await?;
        }
        first_child(&witnesses).await?;
        first.kill()?;
        let killed = takes_over(&second).await?;
        all_are_ready(&site, &scenarios).await?;
        assert_eq!(witnesses.jobs()?, scenarios.len(), "one Job each");

        let third = operator.clone().log("replicas-third").start().await?;
        let status = second.stop()?;
        assert!(status.success(), "{status}");
        let stopped = takes_over(&third).await?;
        eprintln!("taken over {killed:?} after a kill, {stopped:?} after a stop");
        assert!(
            stopped * 2 < killed,
            "{stopped:?} after a stop that gave the lease back, {killed:?} after a kill"
        );
        for scenario in &scenarios {
            scale(&site, scenario, 3).await?;
        }
        assert_eq!(witnesses.jobs()?, scenarios.len(), "still one Job each");
        eventually(seconds(10), "the events about the lease", async || {
            let said = said_of_the_lease(&site).await?;
            let wanted = [
                "became leader",
                "became leader",
                "became leader",
                "stopped leading",
            ];
            ensure!(said == wanted, "{said:?}");
            Ok(())
        })
        .await?;
        Ok(())
    });
}

#[test]
fn a_leader_that_slept_in_the_middle_of_its_work_wakes_up_and_writes_nothing() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "asleep").await?;
        site.register("edge-1").await?;
        let operator = replicated(&site).await?;
        let mut first = operator.clone().log("asleep-first").start().await?;
        takes_over(&first).await?;
        let mut second = operator.clone().log("asleep-second").start().await?;
        let scenarios = glances(&site, ["one", "two", "three", "four"]);
        let witnesses = Witnesses::of(&site, &operator)?;
        for scenario in &scenarios {
            site.apply(scenario).await?;
        }
        first_child(&witnesses).await?;
        first.freeze();
        let frozen = witnesses.changes()?.len();
        let waited = takes_over(&second).await?;
        all_are_ready(&site, &scenarios).await?;
        assert!(
            witnesses.changes()?.len() > frozen,
            "the first was stopped before it was through"
        );
        // Nothing is left to be done; the second is kept from doing it all the same.
        let since = Witnesses::of(&site, &operator)?;
        second.freeze();
        first.thaw();
        let ended = eventually(seconds(10), "the first to end itself", async || {
            first.exited().context("it still runs")
        })
        .await?;
        let written = since.changes()?;
        second.thaw();
        assert_eq!(ended.code(), Some(1), "{}", first.tail(5));
        assert!(first.tail(20).contains("leader election lost"));
        assert!(written.is_empty(), "{written:#?}");
        eprintln!("taken over {waited:?} after the leader was stopped in its sleep");
        Ok(())
    });
}
