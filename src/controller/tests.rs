use std::sync::Mutex;

use axum::{Router, body::Body, extract::RawQuery, response::IntoResponse as _, routing::get};
use glance_api::{
    glance::{Glance, GlanceSpec},
    keys::annotations::RETRY_JOB,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use serde_json::json;
use target_registry::{ClientOptions, Cluster, Registry, Trigger};
use tokio::sync::mpsc;

use super::*;
use crate::{
    backoff::StepFailures,
    cluster::{ledger::Ledgers, probe::Probe},
    context::{Newest, Resync, Settings},
    glance::watches,
    leader::Leadership,
    pipeline::notice::Publisher,
};

fn context() -> Arc<Context> {
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let router = watches::Router::new(store().0, store().0, Trigger::new().0, Trigger::new().0);
    Arc::new(Context {
        hub: Cluster::hub(config, None, &ClientOptions::default()).unwrap(),
        registry: Registry::disabled(),
        ledgers: Ledgers::default(),
        router: Arc::new(router),
        leadership: Leadership::unelected(),
        metrics: Metrics::new().unwrap(),
        failures: StepFailures::new(),
        publisher: Publisher::new("glance-controller", "test").0,
        probe: Probe::new("cluster.local"),
        settings: Settings {
            abandon_after: Duration::ZERO,
            resync: Resync::every(PASS_DEADLINE),
            local_probe_by_proxy: false,
            cluster_domain: "cluster.local".into(),
            operator_namespace: None,
            hub_uid: None,
        },
        glances: Newest::default(),
        backends: Newest::default(),
    })
}

/// Passes that all end in one way.
struct Passes {
    kind: ErrorKind,
    throws: bool,
    run: Mutex<usize>,
}

impl Passes {
    fn that(kind: ErrorKind, throws: bool) -> Arc<Self> {
        let run = Mutex::default();
        Arc::new(Self { kind, throws, run })
    }

    fn run(&self) -> usize {
        *self.run.lock().unwrap()
    }
}

impl Handler<ConfigMap> for Passes {
    fn seen(&self, _: &ConfigMap) {}

    fn gone(&self, _: &ConfigMap) {}

    fn listed(&self) {}

    fn cluster(&self, _: &ConfigMap) -> String {
        String::new()
    }

    async fn admit(&self, _: &ConfigMap) -> Turn<'_> {
        Turn::Unbounded
    }

    async fn pass(&self, _: Arc<ConfigMap>) -> Result<Action, StepError> {
        *self.run.lock().unwrap() += 1;
        assert!(!self.throws, "a bug");
        Err(StepError::new(self.kind, "it does not work"))
    }
}

/// An API server with so many CRs, of which none ever changes.
fn server(crs: usize) -> Client {
    let of = |number| json!({ "metadata": { "namespace": "tenant", "name": format!("cr-{number}"), "uid": format!("{number}") } });
    let list = json!({
        "apiVersion": "v1", "kind": "ConfigMapList", "metadata": { "resourceVersion": "1" },
        "items": (0..crs).map(of).collect::<Vec<_>>(),
    });
    let answer = move |RawQuery(query): RawQuery| {
        let body = if query.is_some_and(|query| query.contains("watch=")) {
            Body::from_stream(stream::pending::<Result<String, Infallible>>())
        } else {
            Body::from(list.to_string())
        };
        async move { body.into_response() }
    };
    Client::new(
        Router::new().route("/api/v1/configmaps", get(answer)),
        "default",
    )
}

#[tokio::test(start_paused = true)]
async fn the_failures_of_one_controller_slow_the_other_one_down_in_nothing() {
    let ctx = context();
    let stop = CancellationToken::new();
    let start = |name, crs| {
        let (reader, writer) = store();
        let wiring = Wiring {
            name,
            api: Api::all(server(crs)),
            writer,
            reader,
            stop: stop.clone(),
        };
        let passes = Passes::that(ErrorKind::Api, false);
        let run = run(
            wiring,
            stream::pending(),
            Arc::clone(&passes),
            Arc::clone(&ctx),
        );
        (tokio::spawn(run), passes)
    };
    // More than are retried in one go.
    let (stormy, storm) = start("glance", 300);
    let (calm, few) = start("glancebackend", 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    stop.cancel();
    let _ = tokio::join!(stormy, calm);
    assert!((400..600).contains(&storm.run()), "{}", storm.run());
    // At 0, 5, 15, 35 … ms, 1275 ms.
    assert_eq!(few.run(), 9);
}

#[tokio::test]
async fn a_pass_that_panics_is_counted_wherever_the_panic_was_caught() {
    let ctx = context();
    let pauses = Pauses::new(store().0);
    let stop = CancellationToken::new();
    let panics = async |passes: Arc<Passes>| {
        let mut cr = ConfigMap::default();
        cr.metadata.name = Some("images".into());
        bounded(
            "glance",
            Arc::new(cr),
            &ctx,
            passes.as_ref(),
            &pauses,
            &stop,
        )
        .await;
        let page = ctx.metrics.encode();
        let series = r#"controller_runtime_reconcile_panics_total{controller="glance"} "#;
        let count = page.lines().find_map(|line| line.strip_prefix(series));
        count.map(str::to_owned)
    };
    assert_eq!(panics(Passes::that(ErrorKind::Api, false)).await, None);
    // A step does this, around itself.
    assert_eq!(
        panics(Passes::that(ErrorKind::Panic, false))
            .await
            .as_deref(),
        Some("1")
    );
    assert_eq!(
        panics(Passes::that(ErrorKind::Api, true)).await.as_deref(),
        Some("2")
    );
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_one_wake_up_and_an_endless_one_delays_nobody() {
    let (wake, woken) = mpsc::unbounded_channel();
    let woken = stream::unfold(woken, async |mut woken| Some((woken.recv().await?, woken)));
    let storm = tokio::spawn(async move {
        for round in 0.. {
            let _ = wake.send("stormy");
            if round == 3 {
                let _ = wake.send("calm");
            }
            tokio::time::sleep(BURST / 10).await;
        }
    });
    let mut woken = Box::pin(in_bursts(woken));
    let begun = tokio::time::Instant::now();
    let mut first = [woken.next().await, woken.next().await];
    first.sort();
    assert_eq!(first, [Some("calm"), Some("stormy")]);
    assert!(begun.elapsed() <= BURST * 2, "{:?}", begun.elapsed());
    assert_eq!(woken.next().await, Some("stormy"), "the next burst");
    assert!(begun.elapsed() >= BURST * 2);
    storm.abort();
}

#[test]
fn a_pass_is_not_woken_by_its_own_notes() {
    let seen = |annotation: Option<(&str, &str)>| {
        let mut glance = Glance::new("images", GlanceSpec::default());
        glance.annotations_mut().insert("a".into(), "b".into());
        if let Some((key, value)) = annotation {
            glance.annotations_mut().insert(key.into(), value.into());
        }
        wakes().hash_property(&glance)
    };
    assert_eq!(seen(Some((COUNTED_JOBS[0], "uid"))), seen(None));
    assert_ne!(seen(Some((RETRY_JOB, "1"))), seen(None));
    assert_ne!(seen(Some(("a", "c"))), seen(None));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_wake_ups_is_the_end() {
    let ended = in_bursts(stream::iter(["a", "b", "a"])).collect::<HashSet<_>>();
    assert_eq!(ended.await, HashSet::from(["a", "b"]));
}
