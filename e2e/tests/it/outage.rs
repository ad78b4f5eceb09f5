//! Clusters that fail in every way we know, and the others, which must not notice.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    assets::Component,
    audit::Audit,
    bed::run,
    cluster::Cluster,
    expect::{Object, Wanted, condition, eventually},
    fleet::Fleet,
    kinds,
    line::{Fault, Line},
    operator::{Operator, Running},
    patience::seconds,
    registration,
    site::Site,
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// The clusters that fail, by their names.
const FAILING: [&str; 5] = ["far-1", "far-2", "far-3", "far-4", "far-5"];

/// How each fails, and whether it is then lost until it is repaired.
const FAULTS: [(&str, Fault, bool); 8] = [
    ("refusing", Fault::Refuse, true),
    ("black-holed", Fault::BlackHole, true),
    ("frozen", Fault::Freeze, false),
    ("resetting", Fault::Reset, true),
    ("slow", Fault::Delay(Duration::from_secs(3)), true),
    ("401", Fault::Answer(401, None), true),
    ("503", Fault::Answer(503, None), true),
    ("429", Fault::Answer(429, Some("3600")), false),
];

const UP: &str = "glance_operator_target_cluster_up";

/// A hub, a healthy cluster and five with lines that can be broken, each with a Glance.
struct Stage<'f> {
    site: Site<'f>,
    edge: &'f Cluster,
    /// Where the clusters that fail lead to.
    fars: [&'f Cluster; 5],
    lines: Vec<Line>,
    operator: Operator,
    running: Running,
    /// What the last change asked for.
    most: u32,
}

/// How long a change took, and how many requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    requests: usize,
    time: Duration,
}

async fn merge(cluster: &Cluster, kind: (&str, &str), ns: &str, name: &str, patch: Value) {
    let api = cluster.any(kind.0, kind.1, Some(ns));
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
}

fn most(replicas: u32) -> Value {
    json!({ "spec": { "autoscaling": {
        "minReplicas": 2, "maxReplicas": replicas, "targetCPUUtilization": 80,
    } } })
}

// === impl Stage ===

impl<'f> Stage<'f> {
    async fn open(fleet: &'f Fleet, name: &str, fars: [&'f Cluster; 5]) -> Result<Self> {
        let site = Site::open(fleet, name).await?;
        let edge = fleet.cluster("edge-1")?;
        let operator = site
            .operator()
            .await?
            .arg("--target-probe-interval=1s")
            .arg("--target-first-retry=300ms");
        let running = operator.start().await?;
        site.register("edge-1").await?;
        let mut lines = Vec::new();
        for (name, far) in FAILING.into_iter().zip(fars) {
            far.namespace(site.namespace()).await?;
            let kubeconfig = site.kubeconfig(far).await?;
            let line = Line::to(far).await?;
            let through = line.kubeconfig(&kubeconfig);
            let (ns, scope) = (site.clusters_namespace(), Some(site.namespace()));
            registration::register(site.hub(), &ns, name, &through, scope).await?;
            lines.push(line);
        }
        let scaled = most(4)["spec"]["autoscaling"].clone();
        for (name, target) in FAILING
            .map(|name| (name, name))
            .into_iter()
            .chain([("near", "edge-1"), ("here", "")])
        {
            let store = format!("{name}-store");
            let mut scenario = site.scenario(name).backend(&store, true);
            let mut children = site.hub();
            if !target.is_empty() {
                scenario = scenario.on(target);
                let index = FAILING.iter().position(|name| *name == target);
                children = index.map_or(edge, |index| fars[index]);
            }
            let scenario = scenario.with("autoscaling", scaled.clone());
            scenario.apply(site.hub(), children).await?;
        }
        for name in FAILING.into_iter().chain(["near", "here"]) {
            site.glance(name).is_ready(seconds(90)).await?;
        }
        Ok(Self {
            site,
            edge,
            fars,
            lines,
            operator,
            running,
            most: 4,
        })
    }

    fn cluster(&self, name: &str) -> &'f Cluster {
        match name {
            "here" => self.site.hub(),
            "near" => self.edge,
            name => {
                let index = FAILING.iter().position(|failing| *failing == name);
                self.fars[index.unwrap()]
            }
        }
    }

    async fn ask_for(&self, name: &str) {
        merge(
            self.site.hub(),
            kinds::GLANCE,
            self.site.namespace(),
            name,
            most(self.most),
        )
        .await;
    }

    /// Waits until the autoscaler of a Glance is as it was last asked for.
    async fn has(&self, name: &str, limit: Duration) -> Result<()> {
        let autoscaler = Object::new(
            self.cluster(name),
            kinds::AUTOSCALER,
            self.site.namespace(),
            name,
        );
        eventually(limit, &format!("the change of {name}"), async || {
            let found = autoscaler.get().await?.context("no autoscaler")?;
            let now = &found.data["spec"]["maxReplicas"];
            ensure!(*now == json!(self.most), "{now}");
            Ok(())
        })
        .await
    }

    /// Changes a Glance and waits until that is done and said.
    async fn change(&mut self, name: &str) -> Result<Cost> {
        self.most += 1;
        let audits = (self.site.hub().audit(), self.cluster(name).audit());
        let mark = |audit: Option<&Audit>| audit.map(Audit::mark).transpose();
        let marks = (mark(audits.0)?, mark(audits.1)?);
        let begun = Instant::now();
        self.ask_for(name).await;
        self.has(name, seconds(30)).await?;
        let glance = self.site.glance(name);
        eventually(seconds(30), &format!("{name} to say so"), async || {
            let found = glance.get().await?.context("no Glance")?;
            let said = &found.data["status"]["observedGeneration"];
            ensure!(said.as_i64() == found.metadata.generation, "{said}");
            Ok(())
        })
        .await?;
        let time = begun.elapsed();
        let mut requests = 0;
        let on_targets = self.site.user_on_targets();
        let of = [
            (audits.0, marks.0, self.operator.user()),
            (audits.1, marks.1, on_targets),
        ];
        for (audit, mark, user) in of {
            if let (Some(audit), Some(mark)) = (audit, mark) {
                let mut asked = audit.requests_by(&user, mark)?;
                // The check of its health comes by a clock.
                asked.retain(|r| {
                    r.name == name && r.verb != "watch" && r.resource != "services/proxy"
                });
                requests += asked.len();
            }
        }
        Ok(Cost { requests, time })
    }

    /// The dearest of some changes on the healthy cluster and on the hub.
    async fn changes(&mut self, times: u32) -> Result<[Cost; 2]> {
        let mut dearest = [Cost {
            requests: 0,
            time: Duration::ZERO,
        }; 2];
        for _ in 0..times {
            for (dearest, name) in dearest.iter_mut().zip(["near", "here"]) {
                let cost = self.change(name).await?;
                dearest.requests = dearest.requests.max(cost.requests);
                dearest.time = dearest.time.max(cost.time);
            }
        }
        Ok(dearest)
    }

    async fn becomes(&self, name: &str, up: bool) -> Result<()> {
        let labels = [("cluster", name)];
        let wanted = |value: f64| (value > 0.5) == up;
        self.running
            .metric_becomes(seconds(40), (UP, &labels), wanted)
            .await?;
        Ok(())
    }

    /// Changes a Service of a Glance behind the operator's back.
    async fn drift(&self, name: &str) {
        let patch = json!({ "spec": { "selector": { "app.kubernetes.io/instance": "drifted" } } });
        merge(
            self.cluster(name),
            kinds::SERVICE,
            self.site.namespace(),
            name,
            patch,
        )
        .await;
    }

    async fn repaired(&self, name: &str, limit: Duration) -> Result<()> {
        let service = Object::new(
            self.cluster(name),
            kinds::SERVICE,
            self.site.namespace(),
            name,
        );
        service
            .satisfies(limit, "to be repaired", |found| {
                let now = &found.data["spec"]["selector"]["app.kubernetes.io/instance"];
                (now == name).then_some(()).ok_or(now.to_string())
            })
            .await?;
        Ok(())
    }
}

#[test]
fn whatever_happens_to_five_of_six_clusters_the_sixth_and_the_hub_are_served_as_ever() {
    run(async |fleet: &Fleet| {
        let far = fleet.cluster("edge-2")?;
        let mut stage = Stage::open(fleet, "outage", [far; 5]).await?;
        let without = stage.changes(3).await?;
        eprintln!("without a failure {without:?}");
        for (what, fault, lost) in FAULTS {
            let begun = Instant::now();
            let mut with = [Cost {
                requests: 0,
                time: Duration::ZERO,
            }; 2];
            for (index, name) in FAILING.into_iter().enumerate() {
                stage.lines[index].fail(fault);
                // Something to do there, which cannot be done.
                stage.ask_for(name).await;
                if [1, 2, 5].contains(&(index + 1)) {
                    merge_max(&mut with, stage.changes(1).await?);
                }
            }
            if lost {
                for name in FAILING {
                    stage.becomes(name, false).await?;
                }
                let gone = Wanted::of("SecretsReady").reason("TargetClusterUnavailable");
                let seen = stage
                    .site
                    .glance("far-1")
                    .condition(seconds(20), gone)
                    .await?;
                let message = condition(&seen, "SecretsReady").unwrap_or_default();
                let message = message["message"].as_str().unwrap_or_default().to_owned();
                assert!(
                    message.contains("\"far-1\" is not usable since"),
                    "{message}"
                );
                merge_max(&mut with, stage.changes(1).await?);
            }
            // While nobody can look.
            for name in FAILING {
                stage.drift(name).await;
            }
            let drifted = Instant::now();
            // A freeze ends by itself: what hangs is given up, and what is new works.
            if fault != Fault::Freeze {
                stage.lines.iter().for_each(Line::heal);
            }
            for name in FAILING {
                stage.becomes(name, true).await?;
                stage.repaired(name, seconds(90)).await.context(what)?;
                // The last edit of each Glance was made before the one of the others.
                stage.ask_for(name).await;
                stage.has(name, seconds(60)).await.context(what)?;
            }
            let back = drifted.elapsed();
            stage.lines.iter().for_each(Line::heal);
            let ratio =
                |index: usize| with[index].time.as_secs_f64() / without[index].time.as_secs_f64();
            eprintln!(
                "1, 2 and 5 of 6 clusters {what}: requests {} and {} (without {} and {}), slowest \
                 change {:.1} and {:.1} times as slow, drift repaired {back:?} after it was made; \
                 {:?} in all",
                with[0].requests,
                with[1].requests,
                without[0].requests,
                without[1].requests,
                ratio(0),
                ratio(1),
                begun.elapsed()
            );
            for (with, without) in with.iter().zip(without) {
                assert!(
                    with.requests <= without.requests,
                    "{what}: {with:?} {without:?}"
                );
                // One call to a cluster that does not answer takes ten seconds.
                let noise = (without.time * 3).max(seconds(5));
                assert!(with.time < noise, "{what}: {with:?} {without:?}");
            }
        }
        // The numbers of a cluster go with its registration.
        for name in FAILING {
            stage.site.deregister(name).await?;
        }
        eventually(seconds(20), "their numbers to go", async || {
            let text = stage.running.metrics().await?;
            let left = text.lines().find(|line| line.contains("cluster=\"far-"));
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        })
        .await?;
        Ok(())
    });
}

#[test]
fn control_planes_that_stop_in_their_tracks_hold_up_no_other_cluster() {
    run(async |fleet: &Fleet| {
        let (first, second) = tokio::try_join!(
            fleet.another("stopped-1", false),
            fleet.another("stopped-2", false)
        )?;
        let (one, two) = (first.cluster(), second.cluster());
        let mut stage = Stage::open(fleet, "stopped", [one, one, two, two, two]).await?;
        let without = stage.changes(3).await?;
        let mut with = [Cost {
            requests: 0,
            time: Duration::ZERO,
        }; 2];
        // Two of six, then five of six.
        for (plane, names) in [(&first, &FAILING[..2]), (&second, &FAILING[2..])] {
            let plane = plane.plane().context("a control plane of our own")?;
            plane.freeze(Component::ApiServer);
            for name in names {
                stage.ask_for(name).await;
            }
            merge_max(&mut with, stage.changes(2).await?);
        }
        for name in FAILING {
            stage.becomes(name, false).await?;
        }
        merge_max(&mut with, stage.changes(1).await?);
        for plane in [&first, &second].into_iter().filter_map(|m| m.plane()) {
            plane.thaw(Component::ApiServer);
        }
        let thawed = Instant::now();
        for name in FAILING {
            // Before the operator knows that it is back, or nearly so.
            stage.drift(name).await;
        }
        for name in FAILING {
            stage.becomes(name, true).await?;
            stage.repaired(name, seconds(90)).await?;
            stage.ask_for(name).await;
            stage.has(name, seconds(60)).await?;
        }
        eprintln!(
            "2 and 5 of 6 clusters stopped: {with:?}, without {without:?}, ratios {:.1} and {:.1}, all well {:?} after the end",
            with[0].time.as_secs_f64() / without[0].time.as_secs_f64(),
            with[1].time.as_secs_f64() / without[1].time.as_secs_f64(),
            thawed.elapsed(),
        );
        for (with, without) in with.iter().zip(without) {
            assert!(with.requests <= without.requests, "{with:?} {without:?}");
            // One call to a cluster that does not answer takes ten seconds.
            let noise = (without.time * 3).max(seconds(5));
            assert!(with.time < noise, "{with:?} {without:?}");
        }
        Ok(())
    });
}

fn merge_max(all: &mut [Cost; 2], more: [Cost; 2]) {
    for (all, more) in all.iter_mut().zip(more) {
        all.requests = all.requests.max(more.requests);
        all.time = all.time.max(more.time);
    }
}
