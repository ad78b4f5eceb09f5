//! `make bench`: what the operator costs, on a hub and two targets of real control planes with simulated nodes.
//!
//! Prints one line per promise: its limit, what was seen, and what the Go operator took on control planes of the same
//! kind (two cores, several runs). Counts, bytes and CPU time are held to their limits; times of a machine with other
//! work to do are shown and judged by nobody.

use std::{collections::BTreeMap, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    audit::{Mark, Request},
    cluster::Cluster,
    expect::{conditions, eventually},
    fleet::{Fleet, Shape},
    kinds,
    operator::{self, Operator, Running},
    patience,
    progress::Progress,
    scenario::Scenario,
    site::Site,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams},
};
use serde_json::json;
use tokio::time::Instant;

use self::table::Table;

mod table;

/// How many Glances are placed, half on each target.
const GLANCES: usize = 100;
/// How many Secrets and as many Deployments of others each target gets.
const FOREIGN: usize = 1000;
/// How long a fleet at rest is watched.
const REST: Duration = Duration::from_secs(30);
/// How long the last word of something is waited for.
const SETTLE: Duration = Duration::from_secs(5);
/// How many objects are written at once.
const WRITERS: usize = 16;

#[tokio::main]
async fn main() -> ExitCode {
    match bench().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The fleet with marks in the audit logs of all its clusters.
struct Count<'f> {
    site: &'f Site<'f>,
    operator: &'f Operator,
    marks: Vec<Mark>,
}

// === impl Count ===

impl<'f> Count<'f> {
    fn begin(site: &'f Site<'f>, operator: &'f Operator) -> Result<Self> {
        let marks = site
            .fleet()
            .members()
            .iter()
            .map(|member| Ok(member.cluster().audit().context("no audit log")?.mark()?));
        Ok(Self {
            site,
            operator,
            marks: marks.collect::<Result<_>>()?,
        })
    }

    /// What the operator asked since, without watches (they begin anew by themselves).
    fn end(&self) -> Result<Vec<Request>> {
        let mut all = Vec::new();
        for (member, mark) in self.site.fleet().members().iter().zip(&self.marks) {
            let log = member.cluster().audit().context("no audit log")?;
            for user in [self.operator.user(), self.site.user_on_targets()] {
                all.extend(log.requests_by(&user, *mark)?);
            }
        }
        all.retain(|request| request.verb != "watch");
        Ok(all)
    }
}

async fn bench() -> Result<bool> {
    let progress = Progress::start();
    let fleet = Fleet::start(Shape {
        progress,
        ..Shape::targets(2)
    })
    .await?;
    let site = Site::open(&fleet, "bench").await?;
    for target in fleet.targets() {
        site.register(target.name()).await?;
    }
    // As in a pod: the chart's limit of half a processor makes the runtime start one worker.
    let operator = site.operator().await?.env("TOKIO_WORKER_THREADS", "1");
    let mut table = Table::default();
    let binary = operator::binary()?;
    #[allow(clippy::cast_precision_loss, reason = "millions of bytes")]
    let bytes = std::fs::metadata(&binary)?.len() as f64 / 1e6;
    table.counted("stripped binary", "46 MB", (25.0, bytes), "MB");

    progress.say("starting the operator");
    let running = operator.start().await?;
    let first = site.scenario("first").backend("first-store", true);
    site.apply(&first).await?;
    site.glance("first").is_ready(patience::seconds(60)).await?;
    running.stop()?;
    let begun = Instant::now();
    let running = operator.launch()?;
    let pass = ("controller_runtime_reconcile_total", &[][..]);
    while running.metric(pass.0, pass.1).await.ok().flatten() < Some(1.0) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let took = begun.elapsed();
    table.timed("start to first pass, two targets", "0.7–2.7 s", 1.0, took);
    site.hub().delete(&first.glance()).await?;
    site.glance("first").is_gone(patience::seconds(60)).await?;
    running.stop()?;
    let running = operator.start().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let empty = megabytes(&running)?;
    table.counted(
        "resident memory, two targets, no CR",
        "52–55 MB",
        (20.0, empty),
        "MB",
    );

    one(&site, &mut table).await?;
    let bench = Bench {
        site: &site,
        operator: &operator,
        running: &running,
        targets: fleet.targets().collect(),
        progress,
    };
    bench.many(&mut table).await?;

    println!("\n{} ({bytes:.1} MB)\n\n{table}", binary.display());
    progress.say("taking everything down");
    tokio::task::spawn_blocking(move || running.stop()).await??;
    Ok(table.is_kept())
}

/// A single Glance on the hub.
async fn one(site: &Site<'_>, table: &mut Table) -> Result<()> {
    let single = site
        .scenario("single")
        .backend("single-fast", true)
        .backend("single-cold", false);
    single.apply_surroundings(site.hub()).await?;
    single.apply_credentials(site.hub()).await?;
    let begun = Instant::now();
    single.apply_resources(site.hub()).await?;
    site.glance("single")
        .is_ready(patience::seconds(60))
        .await?;
    let took = begun.elapsed();
    table.timed("one local Glance from apply to Ready", "31–62 s", 5.0, took);
    site.hub().delete(&single.glance()).await?;
    for backend in single.backends() {
        site.hub().delete(&backend).await?;
    }
    site.glance("single").is_gone(patience::seconds(60)).await?;
    Ok(())
}

/// The operator at work, and where to write down what that took.
struct Bench<'f> {
    site: &'f Site<'f>,
    operator: &'f Operator,
    running: &'f Running,
    targets: Vec<&'f Cluster>,
    progress: Progress,
}

// === impl Bench ===

impl Bench<'_> {
    /// Many Glances on targets: until they are Ready, at rest, when a registration is rotated, beside objects of
    /// others, and until they are gone.
    async fn many(&self, table: &mut Table) -> Result<()> {
        self.install(table).await?;
        self.rest(table).await?;
        self.rotate(table).await?;
        self.strangers(table).await?;
        self.delete(table).await
    }

    async fn install(&self, table: &mut Table) -> Result<()> {
        self.progress
            .say(format_args!("preparing {GLANCES} Glances"));
        let scenarios: Vec<(Scenario, &Cluster)> = (0..GLANCES)
            .map(|number| {
                let target = self.targets[number % self.targets.len()];
                let name = format!("g{number:03}");
                let scenario = self
                    .site
                    .scenario(&name)
                    .on(target.name())
                    .backend(&format!("{name}-fast"), true)
                    .backend(&format!("{name}-cold"), false);
                (scenario, target)
            })
            .collect();
        for target in &self.targets {
            scenarios[0].0.apply_surroundings(target).await?;
        }
        stream::iter(&scenarios)
            .map(async |(scenario, target)| scenario.apply_credentials(target).await)
            .buffer_unordered(WRITERS)
            .try_collect::<()>()
            .await?;

        self.progress.say("applying them");
        let count = Count::begin(self.site, self.operator)?;
        let processor = processor_time(self.running)?;
        let begun = Instant::now();
        stream::iter(&scenarios)
            .map(async |(scenario, _)| scenario.apply_resources(self.site.hub()).await)
            .buffer_unordered(WRITERS)
            .try_collect::<()>()
            .await?;
        all_ready(self.site, patience::seconds(300)).await?;
        let took = begun.elapsed();
        tokio::time::sleep(SETTLE).await;
        let spent = processor_time(self.running)?.saturating_sub(processor);
        let each = |total: f64| total / to_f64(GLANCES);
        let asked = count.end()?;
        let asked = asked.iter().filter(|r| !is_probe(r)).count();
        table.counted(
            "requests per placed Glance with two backends until Ready",
            "87–91",
            (45.0, each(to_f64(asked))),
            "",
        );
        table.counted(
            "CPU time per placed Glance until Ready",
            "73–87 ms",
            (25.0, each(spent.as_secs_f64() * 1000.0)),
            "ms",
        );
        table.timed(
            "100 placed Glances from apply to all Ready",
            "80–100 s",
            33.0,
            took,
        );
        table.counted(
            "resident memory with 100 placed Glances and 200 backends",
            "77–79 MB",
            (40.0, megabytes(self.running)?),
            "MB",
        );
        Ok(())
    }

    async fn rest(&self, table: &mut Table) -> Result<()> {
        self.progress.say("watching them at rest");
        let count = Count::begin(self.site, self.operator)?;
        tokio::time::sleep(REST).await;
        let asked = count.end()?;
        let mut others = BTreeMap::<_, usize>::new();
        for request in asked.iter().filter(|r| !is_probe(r) && !is_health_check(r)) {
            *others
                .entry((&request.verb, &request.resource))
                .or_default() += 1;
        }
        let probes = asked.iter().filter(|r| is_probe(r)).count();
        let checks = asked.iter().filter(|r| is_health_check(r)).count();
        self.progress.say(format_args!(
            "{checks} health checks, {probes} probes, others: {others:?}"
        ));
        table.counted(
            "requests per second that are no probe and no health check",
            "0",
            (0.0, to_f64(others.values().sum()) / REST.as_secs_f64()),
            "",
        );
        Ok(())
    }

    async fn rotate(&self, table: &mut Table) -> Result<()> {
        self.progress.say("rotating a registration");
        let count = Count::begin(self.site, self.operator)?;
        self.site.rotate(self.targets[0].name()).await?;
        tokio::time::sleep(SETTLE).await;
        let asked = count.end()?;
        let asked = asked
            .iter()
            .filter(|r| !is_probe(r) && !is_health_check(r))
            .count();
        table.counted(
            "requests per CR when its registration is rotated",
            "28",
            (1.0, to_f64(asked) / to_f64(GLANCES / self.targets.len())),
            "",
        );
        Ok(())
    }

    async fn strangers(&self, table: &mut Table) -> Result<()> {
        self.progress.say(format_args!(
            "{FOREIGN} Secrets and as many Deployments of others on each target"
        ));
        let before = megabytes(self.running)?;
        strangers(self.site.namespace(), &self.targets).await?;
        tokio::time::sleep(SETTLE).await;
        let growth = (megabytes(self.running)? - before).max(0.0);
        let objects = to_f64(2 * FOREIGN * self.targets.len());
        table.counted(
            "growth per 10 000 Secrets and Deployments of others",
            "grows",
            (1.0, growth * 10_000.0 / objects),
            "MB",
        );
        Ok(())
    }

    async fn delete(&self, table: &mut Table) -> Result<()> {
        self.progress.say("deleting the Glances");
        let begun = Instant::now();
        let api = glances(self.site);
        api.delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;
        eventually(
            patience::seconds(300),
            "all Glances to be gone",
            async || {
                let left = api.list_metadata(&ListParams::default()).await?;
                let left = left.items.len();
                ensure!(left == 0, "{left} are left");
                Ok::<_, anyhow::Error>(())
            },
        )
        .await?;
        table.timed(
            "100 placed Glances deleted and gone",
            "132–135 s",
            20.0,
            begun.elapsed(),
        );
        Ok(())
    }
}

fn is_probe(request: &Request) -> bool {
    request.uri.starts_with("/readyz")
}

fn is_health_check(request: &Request) -> bool {
    request.resource == "services/proxy"
}

fn glances(site: &Site<'_>) -> Api<DynamicObject> {
    let (group, kind) = kinds::GLANCE;
    site.hub().any(group, kind, Some(site.namespace()))
}

/// Waits until every Glance of the site says Ready.
async fn all_ready(site: &Site<'_>, limit: Duration) -> Result<()> {
    let api = glances(site);
    eventually(limit, "all Glances to be ready", async || {
        let all = api.list(&ListParams::default()).await?;
        let ready = all.items.iter().filter(|glance| {
            conditions(glance)
                .iter()
                .any(|c| c["type"] == "Ready" && c["status"] == "True")
        });
        let ready = ready.count();
        ensure!(ready == GLANCES, "{ready} of {GLANCES}");
        Ok::<_, anyhow::Error>(())
    })
    .await
}

/// Secrets and Deployments that are none of the operator's business.
async fn strangers(ns: &str, targets: &[&Cluster]) -> Result<()> {
    let all = targets
        .iter()
        .flat_map(|target| (0..FOREIGN).map(move |number| (*target, number)));
    stream::iter(all)
        .map(async |(target, number)| {
            let name = format!("stranger-{number}");
            let value = "x".repeat(2000);
            target
                .secret(ns, &name, &[("value", value.as_str())])
                .await?;
            let labels = json!({ "app": name });
            let deployment = json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": { "namespace": ns, "name": name },
                "spec": {
                    "replicas": 0,
                    "selector": { "matchLabels": labels },
                    "template": {
                        "metadata": { "labels": labels },
                        "spec": { "containers": [{ "name": "a", "image": "registry.example/a" }] },
                    },
                },
            });
            target.create(&deployment).await?;
            Ok::<_, anyhow::Error>(())
        })
        .buffer_unordered(WRITERS)
        .try_collect::<()>()
        .await
}

/// User and system time of the operator so far.
fn processor_time(running: &Running) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", running.id()))?;
    // After the command's name, which may hold spaces: user time is the 12th field, system time the 13th.
    let (_, fields) = stat.rsplit_once(')').context("no command in stat")?;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().unwrap_or_default())
        .sum();
    Ok(Duration::from_millis(
        ticks * 1000 / rustix::param::clock_ticks_per_second(),
    ))
}

#[allow(clippy::cast_precision_loss, reason = "millions of bytes")]
fn megabytes(running: &Running) -> Result<f64> {
    Ok(running.resident()? as f64 / 1e6)
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn to_f64(count: usize) -> f64 {
    count as f64
}
