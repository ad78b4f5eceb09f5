//! Two replicas: one works, the other is ready to; whichever way the first goes, nothing is lost,
//! nothing is done twice, and nobody writes who has been replaced.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    audit::{Audit, Mark, Request},
    bed::run,
    children,
    expect::{Object, Wanted, always, eventually},
    fleet::Fleet,
    kinds,
    line::{Fault, Line},
    operator::{Operator, Running},
    patience::seconds,
    registration,
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
        // The only host it has asked anything is the hub's, and is called so.
        assert!(page.contains("rest_client_requests_total{"), "{page}");
        assert!(!page.contains("host=\"local\""), "{page}");

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
        let mut written = since.changes()?;
        // Half sent when its sender was stopped, it is an error of the server and has changed nothing.
        written.retain(|request| request.code != 500);
        second.thaw();
        assert_eq!(ended.code(), Some(1), "{}", first.tail(5));
        assert!(first.tail(20).contains("leader election lost"));
        assert!(written.is_empty(), "{written:#?}");
        eprintln!("taken over {waited:?} after the leader was stopped in its sleep");
        Ok(())
    });
}

#[test]
fn a_leader_that_changes_while_a_target_is_away_forgets_and_gives_up_nothing_there() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "handover").await?;
        let far = fleet.cluster("edge-2")?;
        let line = Line::to(far).await?;
        let through = line.kubeconfig(&site.kubeconfig(far).await?);
        let (clusters, scope) = (site.clusters_namespace(), Some(site.namespace()));
        registration::register(site.hub(), &clusters, "edge-2", &through, scope).await?;
        site.register("edge-1").await?;
        let operator = replicated(&site)
            .await?
            .arg("--abandon-after=2s")
            .arg("--target-probe-interval=1s")
            .arg("--target-first-retry=300ms");
        let first = operator.clone().log("handover-first").start().await?;
        takes_over(&first).await?;
        let second = operator.clone().log("handover-second").start().await?;
        let near = site.scenario("near").on("edge-1").backend("near-s3", true);
        let stays = site
            .scenario("stays")
            .on("edge-2")
            .backend("stays-s3", true);
        let goes = site.scenario("goes").on("edge-2").backend("goes-s3", true);
        let all = [near.clone(), stays.clone(), goes.clone()];
        for scenario in &all {
            site.apply(scenario).await?;
        }
        all_are_ready(&site, &all).await?;
        let before = children::by_labels(far, site.namespace(), "stays").await?;

        // Away; something to do there, which the first leader cannot do, and then it dies.
        line.fail(Fault::BlackHole);
        let up = (
            "glance_operator_target_cluster_up",
            &[("cluster", "edge-2")][..],
        );
        first
            .metric_becomes(seconds(30), up, |value| value < 0.5)
            .await?;
        let patch = json!({ "spec": { "deployment": { "replicas": 3 } } });
        site.hub()
            .any(kinds::GLANCE.0, kinds::GLANCE.1, Some(site.namespace()))
            .patch("stays", &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        site.hub().delete(&goes.glance()).await?;
        let unavailable = Wanted::of("SecretsReady").reason("TargetClusterUnavailable");
        site.glance("goes")
            .condition(seconds(20), unavailable)
            .await?;
        first.kill()?;
        takes_over(&second).await?;
        // The second has never reached it. Everybody else is served.
        scale(&site, &near, 3).await?;
        always(seconds(4), "what is there to be held", async || {
            site.glance("goes").get().await?.context("it was let go")
        })
        .await?;
        site.glance("stays")
            .condition(seconds(20), unavailable)
            .await?;

        line.heal();
        Object::new(far, kinds::DEPLOYMENT, site.namespace(), "stays")
            .satisfies(seconds(60), "to be as asked for", |found| {
                let now = &found.data["spec"]["replicas"];
                (*now == json!(3)).then_some(()).ok_or(now.to_string())
            })
            .await?;
        site.glance("stays").is_ready(seconds(60)).await?;
        site.glance("goes").is_gone(seconds(60)).await?;
        eventually(seconds(30), "it to be swept", async || {
            let left = children::by_labels(far, site.namespace(), "goes").await?;
            ensure!(left.is_empty(), "{:?}", children::names(&left));
            Ok(())
        })
        .await?;
        let after = children::by_labels(far, site.namespace(), "stays").await?;
        for (key, child) in &before {
            let now = after.get(key).and_then(|child| child.metadata.uid.clone());
            assert_eq!(now, child.metadata.uid, "{key}");
        }
        let events = site.glance("goes").events().await?;
        let given_up = events
            .iter()
            .filter(|e| e.reason.as_deref() == Some("RemoteChildrenAbandoned"));
        assert_eq!(given_up.count(), 0, "{events:#?}");
        Ok(())
    });
}

#[test]
fn a_leader_whose_way_to_the_hub_is_slow_or_cut_for_a_moment_goes_on_leading() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "slow-hub").await?;
        let line = Line::to(site.hub()).await?;
        let operator = replicated(&site)
            .await?
            .by_way_of(site.hub(), &line.url())?;
        let mut running = operator.start().await?;
        takes_over(&running).await?;
        let leads_on = async |running: &mut Running| {
            always(seconds(3), "it to lead", async || {
                let ended = running.exited();
                ensure!(ended.is_none(), "{ended:?}: {}", running.tail(5));
                ensure!(leads(running).await?, "{}", running.tail(5));
                Ok(())
            })
            .await
        };
        // One attempt must not use up what is left of the term (4 s).
        line.fail(Fault::Delay(Duration::from_millis(100)));
        leads_on(&mut running).await?;
        line.fail(Fault::BlackHole);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        line.heal();
        leads_on(&mut running).await?;
        line.fail(Fault::Reset);
        tokio::time::sleep(Duration::from_millis(500)).await;
        line.heal();
        leads_on(&mut running).await?;
        // Longer than that it must not: another may lead by then.
        line.fail(Fault::BlackHole);
        let cut = Instant::now();
        let ended = eventually(seconds(15), "it to end itself", async || {
            running.exited().context("it still runs")
        })
        .await?;
        assert_eq!(ended.code(), Some(1), "{}", running.tail(5));
        // Before the lease of 6 s runs out.
        assert!(cut.elapsed() < seconds(6), "{:?}", cut.elapsed());
        Ok(())
    });
}
