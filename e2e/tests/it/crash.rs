//! The operator is killed at any moment: the next one finishes what it began, and nothing is
//! there twice.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use e2e::{
    audit::{Audit, Mark},
    bed::run,
    children::{self, Children},
    cluster::Cluster,
    expect::{Object, Wanted, eventually},
    fleet::Fleet,
    kinds,
    operator::Operator,
    patience::seconds,
    scenario::{Scenario, backend},
    site::Site,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::Value;

/// Moments that can be had again: `E2E_SEED` sets the first number.
struct Moments(u64);

impl Moments {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let clock = now.map_or(0, |now| now.subsec_nanos().into());
        let given = std::env::var("E2E_SEED").ok();
        let seed = given.and_then(|text| text.parse().ok()).unwrap_or(clock);
        eprintln!("moments of E2E_SEED={seed}");
        Self(seed)
    }

    /// Any moment up to `limit` (splitmix64).
    fn next(&mut self, limit: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(z % millis.max(1))
    }
}

/// What a Glance in managed mode owns, each family of content-addressed objects once.
fn expected(name: &str) -> Vec<String> {
    [
        "ConfigMap/NAME-config-*",
        "CronJob/NAME-db-purge",
        "Database/NAME",
        "Deployment/NAME",
        "Grant/NAME",
        "Job/NAME-db-sync",
        "PodDisruptionBudget/NAME",
        "Secret/NAME-backends-*",
        "Secret/NAME-db-connection",
        "Service/NAME",
        "User/NAME",
    ]
    .map(|pattern| pattern.replace("NAME", name))
    .to_vec()
}

/// The one in use and three of history.
const REVISIONS: usize = 4;

/// Three Glances and the clusters that they run on.
struct Fates<'f> {
    site: &'f Site<'f>,
    scenarios: Vec<Scenario>,
    marks: Vec<Option<Mark>>,
}

impl Fates<'_> {
    fn cluster(&self, scenario: &Scenario) -> Result<&Cluster> {
        self.site.children(scenario)
    }

    async fn owned(&self, scenario: &Scenario) -> Result<Children> {
        let (cluster, ns) = (self.cluster(scenario)?, scenario.namespace());
        match scenario.target() {
            Some(_) => children::by_labels(cluster, ns, scenario.name()).await,
            None => children::by_reference(cluster, ns, scenario.name()).await,
        }
    }

    /// Generation of the Deployment and the UIDs of its pods.
    async fn pods(&self, scenario: &Scenario) -> Result<(Option<i64>, Vec<Option<String>>)> {
        let (cluster, ns, name) = (
            self.cluster(scenario)?,
            scenario.namespace(),
            scenario.name(),
        );
        let deployment = Object::new(cluster, kinds::DEPLOYMENT, ns, name);
        let live = deployment.get().await?.context("no Deployment")?;
        let selector = format!("app.kubernetes.io/instance={name},app.kubernetes.io/component=api");
        let pods = cluster
            .api::<Pod>(ns)
            .list(&ListParams::default().labels(&selector))
            .await?;
        let mut uids: Vec<_> = pods.items.into_iter().map(|p| p.metadata.uid).collect();
        uids.sort();
        Ok((live.metadata.generation, uids))
    }

    /// Jobs that were made for a Glance since the beginning, repetitions included.
    fn jobs_made(&self, number: usize) -> Result<Option<usize>> {
        let scenario = &self.scenarios[number];
        let (Some(audit), Some(mark)) = (self.cluster(scenario)?.audit(), self.marks[number])
        else {
            return Ok(None);
        };
        let user = scenario.target().map(|_| self.site.user_on_targets());
        let made = audit.requests(mark)?.into_iter().filter(|r| {
            r.verb == "create"
                && r.resource == "jobs"
                && r.namespace == scenario.namespace()
                && r.code == 201
                && user.as_ref().is_none_or(|user| r.user == *user)
        });
        Ok(Some(made.count()))
    }

    /// All are ready, nothing is there twice, nothing is missing.
    async fn are_well(&self) -> Result<()> {
        for (number, scenario) in self.scenarios.iter().enumerate() {
            let name = scenario.name();
            let glance = self.site.glance(name).is_ready(seconds(90)).await?;
            assert_eq!(glance.metadata.generation, Some(1), "{name}");
            let owned = self.owned(scenario).await?;
            let mut names = children::names(&owned);
            for family in names.chunk_by(|a, b| a == b) {
                let most = if family[0].ends_with('*') {
                    REVISIONS
                } else {
                    1
                };
                assert!(family.len() <= most, "{names:?}");
            }
            names.dedup();
            assert_eq!(names, expected(name));
            let job = &owned[&format!("Job/{name}-db-sync")];
            assert_eq!(job.data["status"]["succeeded"], 1, "{name}");
            if let Some(made) = self.jobs_made(number)? {
                assert_eq!(made, 1, "Jobs of {name}");
            }
        }
        Ok(())
    }

    /// The default store in the configuration that the pods mount.
    async fn default_store(&self, scenario: &Scenario) -> Result<String> {
        let owned = self.owned(scenario).await?;
        let deployment = owned
            .get(&format!("Deployment/{}", scenario.name()))
            .context("no Deployment")?;
        let volumes = deployment
            .data
            .pointer("/spec/template/spec/volumes")
            .and_then(Value::as_array)
            .context("no volumes")?;
        let mounted = volumes
            .iter()
            .filter_map(|volume| volume["configMap"]["name"].as_str())
            .find_map(|name| owned.get(&format!("ConfigMap/{name}")))
            .context("the mounted ConfigMap is not there")?;
        let files = mounted.data["data"].as_object().context("no data")?;
        files
            .values()
            .filter_map(Value::as_str)
            .flat_map(str::lines)
            .find_map(|line| line.strip_prefix("default_backend"))
            .map(|rest| rest.trim_start_matches([' ', '=']).trim().to_owned())
            .context("no default_backend")
    }

    /// The Secrets with the stores, in use and of history.
    async fn stores(&self, scenario: &Scenario) -> Result<Vec<String>> {
        let owned = self.owned(scenario).await?;
        let stores = format!("Secret/{}-backends-", scenario.name());
        Ok(owned
            .into_keys()
            .filter(|key| key.starts_with(&stores))
            .collect())
    }

    async fn make_default(&self, scenario: &Scenario, store: &str) -> Result<()> {
        for suffix in ["a", "b"] {
            let name = format!("{}-{suffix}", scenario.name());
            let manifest = backend(scenario.namespace(), scenario.name(), &name, name == store);
            self.site.hub().apply(&manifest).await?;
        }
        Ok(())
    }
}

/// Runs an operator for a while, then kills it in the middle of whatever it does.
async fn short_life(operator: &Operator, life: Duration) -> Result<()> {
    let running = operator.launch()?;
    let life = Duration::from_millis(300) + life;
    tokio::time::sleep(life).await;
    eprintln!("killed when it was {} ms old", life.as_millis());
    running.kill()
}

/// A Glance at rest: the generation of its Deployment, its pods, its stores.
#[derive(Debug, PartialEq, Eq)]
struct Rest {
    generation: i64,
    pods: Vec<Option<String>>,
    stores: Vec<String>,
}

impl Fates<'_> {
    /// Every Glance at rest, once it is.
    async fn rest(&self) -> Result<Vec<Rest>> {
        let mut all = Vec::new();
        for scenario in &self.scenarios {
            let (ns, name) = (scenario.namespace(), scenario.name());
            Object::new(self.cluster(scenario)?, kinds::DEPLOYMENT, ns, name)
                .satisfies(seconds(60), "to have rolled out", |live| {
                    let status = &live.data["status"];
                    let done = status["observedGeneration"].as_i64() == live.metadata.generation
                        && status["updatedReplicas"] == 2
                        && status["replicas"] == 2;
                    if done {
                        Ok(())
                    } else {
                        Err(status.to_string())
                    }
                })
                .await?;
            let (generation, pods) = self.pods(scenario).await?;
            all.push(Rest {
                generation: generation.unwrap_or(0),
                pods,
                stores: self.stores(scenario).await?,
            });
        }
        Ok(all)
    }

    /// Installs all, with four kills on the way.
    async fn install(&self, operator: &Operator, moments: &mut Moments) -> Result<Vec<Rest>> {
        for scenario in &self.scenarios {
            self.site.apply(scenario).await?;
        }
        for _ in 0..4 {
            short_life(operator, moments.next(seconds(2))).await?;
        }
        let running = operator.start().await?;
        self.are_well().await?;
        let rest = self.rest().await?;
        for (scenario, rest) in self.scenarios.iter().zip(&rest) {
            // Once with the first store that had credentials, once with both at most.
            assert!(rest.generation <= 2, "{}: {rest:?}", scenario.name());
        }
        running.kill()?;
        Ok(rest)
    }

    /// Switches the default store back and forth, with a kill after each switch.
    async fn switch(
        &self,
        operator: &Operator,
        moments: &mut Moments,
        before: &[Rest],
    ) -> Result<Vec<Rest>> {
        for suffix in ["b", "a", "b"] {
            for scenario in &self.scenarios {
                let store = format!("{}-{suffix}", scenario.name());
                self.make_default(scenario, &store).await?;
            }
            short_life(operator, moments.next(seconds(2))).await?;
        }
        let running = operator.start().await?;
        for scenario in &self.scenarios {
            let wanted = format!("{}-b", scenario.name());
            eventually(seconds(60), "the default to be switched", async || {
                let now = self.default_store(scenario).await?;
                anyhow::ensure!(now == wanted, "{now}");
                Ok(())
            })
            .await?;
        }
        self.are_well().await?;
        let rest = self.rest().await?;
        for (now, before) in rest.iter().zip(before) {
            let rolled = now.generation - before.generation;
            assert!((1..=3).contains(&rolled), "{rolled} times for 3 switches");
            assert_eq!(now.stores, before.stores, "no store has changed");
        }
        running.kill()?;
        Ok(rest)
    }

    /// Nothing has changed while no operator ran: the next one changes nothing.
    async fn stay(&self, operator: &Operator, before: &[Rest]) -> Result<()> {
        let running = operator.start().await?;
        tokio::time::sleep(seconds(3)).await;
        self.are_well().await?;
        assert_eq!(self.rest().await?, before);
        running.kill()
    }

    /// Deletes all, with three kills on the way.
    async fn end(&self, operator: &Operator, moments: &mut Moments) -> Result<()> {
        for scenario in &self.scenarios {
            self.site.hub().delete(&scenario.glance()).await?;
        }
        for _ in 0..3 {
            short_life(operator, moments.next(seconds(1))).await?;
        }
        let _running = operator.start().await?;
        for scenario in &self.scenarios {
            let glance = self.site.glance(scenario.name());
            glance.is_gone(seconds(120)).await?;
            eventually(seconds(60), "nothing to be left", async || {
                let left = self.owned(scenario).await?;
                anyhow::ensure!(left.is_empty(), "{:?}", children::names(&left));
                Ok(())
            })
            .await?;
            for event in glance.events().await? {
                let reason = event.reason.as_deref();
                assert_ne!(reason, Some("RemoteChildrenAbandoned"));
            }
        }
        Ok(())
    }
}

#[test]
fn an_operator_that_is_killed_ten_times_finishes_its_work_and_does_nothing_twice() {
    run(async |fleet: &Fleet| {
        let mut moments = Moments::new();
        let site = Site::open(fleet, "crash").await?;
        site.register("edge-1").await?;
        site.register("edge-2").await?;
        let operator = site.operator().await?;
        let scenario = |name: &str| {
            site.scenario(name)
                .backend(&format!("{name}-a"), true)
                .backend(&format!("{name}-b"), false)
        };
        let scenarios = vec![
            scenario("local"),
            scenario("one").on("edge-1"),
            scenario("two").on("edge-2"),
        ];
        let mut marks = Vec::new();
        for scenario in &scenarios {
            let audit = site.children(scenario)?.audit();
            marks.push(audit.map(Audit::mark).transpose()?);
        }
        let fates = Fates {
            site: &site,
            scenarios,
            marks,
        };
        let installed = fates.install(&operator, &mut moments).await?;
        let switched = fates.switch(&operator, &mut moments, &installed).await?;
        fates.stay(&operator, &switched).await?;
        fates.end(&operator, &mut moments).await
    });
}

#[test]
fn a_registration_that_was_away_takes_no_store_out_of_the_pods() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "away").await?;
        site.register("edge-1").await?;
        let _operator = site.operator().await?.start().await?;
        let scenario = site
            .scenario("images")
            .on("edge-1")
            .backend("images-a", true)
            .backend("images-b", false);
        let fates = Fates {
            site: &site,
            scenarios: vec![scenario],
            marks: vec![None],
        };
        site.apply(&fates.scenarios[0]).await?;
        fates.are_well().await?;
        for backend in ["images-a", "images-b"] {
            site.backend(backend).is_ready(seconds(30)).await?;
        }
        let before = fates.rest().await?;
        for _ in 0..3 {
            site.deregister("edge-1").await?;
            for backend in ["images-a", "images-b"] {
                let away = Wanted::of("CredentialsReady")
                    .status("False")
                    .reason("TargetClusterUnavailable");
                site.backend(backend).condition(seconds(20), away).await?;
            }
            site.register("edge-1").await?;
            for backend in ["images-a", "images-b"] {
                site.backend(backend).is_ready(seconds(30)).await?;
            }
            fates.are_well().await?;
            assert_eq!(fates.rest().await?, before);
        }
        Ok(())
    });
}
