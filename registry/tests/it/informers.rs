//! Informers: lists, watches, their faults, and what stays in memory.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};
use target_registry::{
    Change, ClientOptions, Cluster, Informer, InformerSpec, Kind, Metrics, Payload, Readiness,
    Registration, error_text,
};

use crate::{
    eventually,
    fake::{Fake, Fault},
};

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");
const WIDGET: Kind = Kind::namespaced("example.org", "v1", "Widget", "widgets");
const SHORT: Duration = Duration::from_secs(5);

/// What an informer reported, as short lines.
type Log = Arc<Mutex<Vec<String>>>;

fn hub(fake: &Fake, namespaces: Option<&[&str]>) -> Arc<Cluster> {
    let namespaces = namespaces.map(|names| names.iter().map(|n| (*n).to_owned()).collect());
    let options = ClientOptions {
        request_timeout: Duration::from_secs(1),
        ..ClientOptions::default()
    };
    Cluster::hub(fake.config(), namespaces, &options).unwrap()
}

fn spec(kind: Kind, payload: Payload) -> (InformerSpec, Log) {
    let log = Log::default();
    let lines = log.clone();
    let spec = InformerSpec {
        kind,
        selector: None,
        payload,
        keep: Arc::new(|_| true),
        reduce: Arc::new(|_| {}),
        on_change: Arc::new(move |cluster, change| {
            let line = match change {
                Change::Applied(object) => format!("+{}", object.name_any()),
                Change::Deleted(object) => format!("-{}", object.name_any()),
                Change::Relabelled(before) => format!("~{}", before.name_any()),
                other => format!("{other:?}"),
            };
            assert_eq!(cluster.name(), "local");
            lines.lock().unwrap().push(line);
        }),
    };
    (spec, log)
}

fn lines(log: &Log) -> Vec<String> {
    log.lock().unwrap().clone()
}

async fn seen(log: &Log, line: &str) {
    let what = format!("{line} in {:?}", lines(log));
    eventually(&what, SHORT, || {
        lines(log).iter().any(|l| l == line).then_some(())
    })
    .await;
}

fn names(informer: &Informer) -> Vec<String> {
    informer
        .list(None)
        .iter()
        .map(|object| object.name_any())
        .collect()
}

fn labelled(value: &str) -> Value {
    json!({"metadata": {"labels": {"app": value}}, "data": {"k": "v"}})
}

async fn synced(informer: &Informer) {
    assert_eq!(informer.ready(None, SHORT).await, Readiness::Synced);
}

async fn becomes(informer: &Informer, wanted: impl Fn(&Readiness) -> bool) {
    let until = Instant::now() + 4 * SHORT;
    loop {
        let ready = informer.ready(None, Duration::ZERO).await;
        if wanted(&ready) {
            return;
        }
        assert!(Instant::now() < until, "{ready:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn what_is_there_and_what_comes_is_known() {
    let fake = Fake::start();
    fake.put("v1/configmaps", "ns", "a", labelled("x"));
    let hub = hub(&fake, None);
    let (spec, log) = spec(CONFIG_MAP, Payload::Full);
    let informer = hub.informer(spec);
    synced(&informer).await;
    assert_eq!(lines(&log)[..2], ["+a", "Synced"]);
    let known = informer.get(Some("ns"), "a").unwrap();
    assert_eq!(known.data["data"]["k"], "v");
    assert_eq!(
        known.types.as_ref().unwrap().kind,
        "ConfigMap",
        "items of a list are typed"
    );

    fake.put("v1/configmaps", "ns", "b", labelled("x"));
    seen(&log, "+b").await;
    fake.delete("v1/configmaps", "ns", "a");
    seen(&log, "-a").await;
    assert_eq!(names(&informer), ["b"]);
    assert!(informer.get(Some("ns"), "a").is_none());
    assert_eq!(fake.lists("configmaps"), 1);
}

#[tokio::test]
async fn metadata_only_transfers_and_keeps_no_payload() {
    let fake = Fake::start();
    let managed = json!([{"manager": "us", "operation": "Apply"}]);
    let rest = json!({"metadata": {"managedFields": managed}, "data": {"k": "SECRET"}});
    fake.put("v1/configmaps", "ns", "a", rest.clone());
    let hub = hub(&fake, None);
    let (spec, log) = spec(CONFIG_MAP, Payload::Metadata);
    let informer = hub.informer(spec);
    synced(&informer).await;
    fake.put("v1/configmaps", "ns", "b", rest);
    seen(&log, "+b").await;
    for object in informer.list(Some("ns")) {
        assert_eq!(object.data, json!({}), "no payload");
        assert_eq!(object.managed_fields()[0].manager.as_deref(), Some("us"));
        assert_eq!(object.types.as_ref().unwrap().kind, "ConfigMap");
    }
    let calls = fake.calls("configmaps");
    assert!(
        calls
            .iter()
            .all(|call| call.accept.contains("PartialObjectMetadata")),
        "{calls:?}"
    );
}

#[tokio::test]
async fn the_selector_and_keep_and_reduce_decide_what_stays() {
    let fake = Fake::start();
    for (name, label) in [("other", "y"), ("kept", "x"), ("dropped", "x")] {
        fake.put("v1/configmaps", "ns", name, labelled(label));
    }
    let hub = hub(&fake, None);
    let (mut spec, log) = spec(CONFIG_MAP, Payload::Full);
    spec.selector = Some("app=x".to_owned());
    spec.keep = Arc::new(|object: &DynamicObject| {
        object.data["data"]["k"] != "drop" && object.name_any() != "dropped"
    });
    spec.reduce = Arc::new(|object: &mut DynamicObject| object.data = Value::Null);
    let informer = hub.informer(spec);
    synced(&informer).await;
    assert_eq!(names(&informer), ["kept"]);
    assert_eq!(informer.get(Some("ns"), "kept").unwrap().data, Value::Null);
    assert!(
        lines(&log).contains(&"+dropped".to_owned()),
        "reported all the same"
    );
    assert!(
        !lines(&log).contains(&"+other".to_owned()),
        "not even transferred"
    );

    let rest = json!({"metadata": {"labels": {"app": "x"}}, "data": {"k": "drop"}});
    fake.put("v1/configmaps", "ns", "kept", rest);
    eventually("what is no longer kept is absent", SHORT, || {
        informer.list(None).is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn pages_are_followed() {
    let fake = Fake::start();
    fake.set_page(3);
    for index in 0..10 {
        fake.put("v1/configmaps", "ns", &format!("o{index}"), labelled("x"));
    }
    let hub = hub(&fake, None);
    let (spec, _log) = spec(CONFIG_MAP, Payload::Metadata);
    let informer = hub.informer(spec);
    synced(&informer).await;
    assert_eq!(names(&informer).len(), 10);
    assert_eq!(fake.lists("configmaps"), 4);
    assert!(fake.calls("configmaps")[0].query.contains("limit=500"));
}

#[tokio::test]
async fn a_cut_watch_resumes_without_a_list_and_loses_nothing() {
    let fake = Fake::start();
    let hub = hub(&fake, None);
    let (spec, log) = spec(CONFIG_MAP, Payload::Metadata);
    let informer = hub.informer(spec);
    synced(&informer).await;
    fake.fail("configmaps", Fault::Status(503));
    fake.cut();
    fake.put("v1/configmaps", "ns", "meanwhile", labelled("x"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    fake.heal();
    seen(&log, "+meanwhile").await;
    assert_eq!(fake.lists("configmaps"), 1);
    assert_eq!(
        informer.ready(None, Duration::ZERO).await,
        Readiness::Synced
    );
}

#[tokio::test]
async fn an_expired_version_is_listed_again_and_reports_the_difference_only() {
    let fake = Fake::start();
    for name in ["same", "gone", "changed"] {
        fake.put("v1/configmaps", "ns", name, labelled("x"));
    }
    let hub = hub(&fake, None);
    let (spec, log) = spec(CONFIG_MAP, Payload::Metadata);
    let informer = hub.informer(spec);
    synced(&informer).await;
    eventually("a watch", SHORT, || {
        (fake.open_watches() == 1).then_some(())
    })
    .await;
    log.lock().unwrap().clear();
    fake.fail("configmaps", Fault::Status(503));
    fake.cut();
    tokio::time::sleep(Duration::from_millis(100)).await;
    fake.put("v1/configmaps", "ns", "changed", labelled("y"));
    fake.delete("v1/configmaps", "ns", "gone");
    fake.put("v1/configmaps", "ns", "new", labelled("x"));
    fake.compact();
    fake.heal();
    seen(&log, "Synced").await;
    assert_eq!(
        lines(&log),
        ["+changed", "~changed", "+new", "-gone", "Synced"]
    );
    assert_eq!(names(&informer), ["changed", "new", "same"]);
}

#[tokio::test]
async fn a_watch_that_is_ended_at_once_is_not_started_in_a_spin() {
    let fake = Fake::start();
    let hub = hub(&fake, None);
    let (spec, _log) = spec(CONFIG_MAP, Payload::Metadata);
    fake.fail("configmaps", Fault::EndWatches);
    let informer = hub.informer(spec);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let calls = fake.calls("configmaps").len();
    assert!(calls < 10, "{calls} calls in two seconds");
    fake.heal();
    fake.put("v1/configmaps", "ns", "a", labelled("x"));
    eventually("the watch heals", SHORT, || informer.get(Some("ns"), "a")).await;
}

#[tokio::test]
async fn a_version_that_is_expired_at_once_is_not_listed_in_a_spin() {
    let fake = Fake::start();
    fake.fail("configmaps", Fault::RefuseWatches(410));
    let hub = hub(&fake, None);
    let (spec, _) = spec(CONFIG_MAP, Payload::Metadata);
    let _informer = hub.informer(spec);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let lists = fake.lists("configmaps");
    assert!((2..=5).contains(&lists), "{lists} lists in 3 s");
}

#[tokio::test]
async fn a_refusal_of_a_watch_that_does_not_end_is_given_up() {
    let fake = Fake::start();
    let hub = hub(&fake, None);
    let (spec, log) = spec(CONFIG_MAP, Payload::Metadata);
    fake.fail("configmaps", Fault::StallWatches(503));
    let informer = hub.informer(spec);
    becomes(&informer, |ready| matches!(ready, Readiness::Failing(_))).await;
    fake.heal();
    fake.put("v1/configmaps", "ns", "b", labelled("x"));
    eventually("the watch", 4 * SHORT, || {
        lines(&log).iter().any(|line| line == "+b").then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_is_written_while_a_list_is_under_way_is_newer_than_the_list() {
    let fake = Fake::start();
    fake.put("v1/configmaps", "ns", "a", labelled("x"));
    fake.fail("configmaps", Fault::Slow(Duration::from_millis(500)));
    let hub = hub(&fake, None);
    let informer = hub.informer(quiet(Payload::Full));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut written = DynamicObject::new("a", &CONFIG_MAP.api_resource()).within("ns");
    written.metadata.resource_version = Some("10000".to_owned());
    informer.observe(written);
    synced(&informer).await;
    let known = informer.get(Some("ns"), "a").unwrap();
    assert_eq!(known.metadata.resource_version.as_deref(), Some("10000"));
}

#[tokio::test]
async fn a_kind_that_does_not_answer_keeps_no_other_waiting() {
    let fake = Fake::start();
    for kind in ["Widget", "Gadget", "Gizmo"] {
        let plural = format!("{}s", kind.to_lowercase());
        fake.serve("example.org/v1", kind, &plural);
        fake.fail(&format!("/{plural}"), Fault::Hang);
    }
    let target = target(&fake, None).await;
    let slow = [
        ("Widget", "widgets"),
        ("Gadget", "gadgets"),
        ("Gizmo", "gizmos"),
    ];
    let _slow = slow.map(|(kind, plural)| {
        let kind = Kind::namespaced("example.org", "v1", kind, plural);
        target.informer(InformerSpec {
            kind,
            ..quiet(Payload::Metadata)
        })
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let started = Instant::now();
    let informer = target.informer(quiet(Payload::Metadata));
    synced(&informer).await;
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
}

/// A target that has so many `ConfigMap`s with so much text in each.
fn full(objects: usize, text: usize) -> Fake {
    let fake = Fake::start();
    for index in 0..objects {
        let annotations = json!({"text": "x".repeat(text)});
        let rest = json!({"metadata": {"annotations": annotations}});
        fake.put("v1/configmaps", "ns", &format!("c-{index:03}"), rest);
    }
    fake
}

async fn target(fake: &Fake, memory_limit: Option<usize>) -> Arc<Cluster> {
    let mut secret = Secret::default();
    secret.metadata.name = Some("blue".to_owned());
    let kubeconfig = ByteString(fake.kubeconfig("good").into_bytes());
    secret.data = Some([("kubeconfig".to_owned(), kubeconfig)].into());
    let options = ClientOptions {
        memory_limit,
        ..ClientOptions::default()
    };
    let registration = Registration::from_secret(&secret, true).unwrap();
    registration.connect(&options).await.unwrap()
}

fn quiet(payload: Payload) -> InformerSpec {
    InformerSpec {
        on_change: Arc::new(|_, _| {}),
        ..spec(CONFIG_MAP, payload).0
    }
}

#[tokio::test]
async fn a_list_that_is_too_long_for_one_page_is_read_in_smaller_ones() {
    let fake = full(60, 75_000);
    let target = target(&fake, None).await;
    let informer = target.informer(quiet(Payload::Metadata));
    synced(&informer).await;
    assert_eq!(informer.list(None).len(), 60);
}

#[tokio::test]
async fn a_cluster_that_has_too_much_to_tell_takes_no_more_than_its_share() {
    let fake = full(100, 10_000);
    let target = target(&fake, Some(500_000)).await;
    let informer = target.informer(quiet(Payload::Metadata));
    let Readiness::Failing(why) = informer.ready(None, SHORT).await else {
        panic!("{:?}", informer.ready(None, SHORT).await);
    };
    assert!(why.contains("more objects"), "{why}");
    let known = informer.list(None).len();
    assert!(known < 50, "{known} of 100 were kept");
    for index in 10..100 {
        fake.delete("v1/configmaps", "ns", &format!("c-{index:03}"));
    }
    becomes(&informer, |ready| *ready == Readiness::Synced).await;
    assert_eq!(informer.list(None).len(), 10);
}

#[tokio::test]
async fn an_answer_of_nothing_but_values_is_not_decoded() {
    let fake = Fake::start();
    let values = vec![json!({}); 200_000];
    let rest = json!({"metadata": {}, "data": {}, "values": values});
    fake.put("v1/configmaps", "ns", "a", rest);
    let target = target(&fake, None).await;
    let api = CONFIG_MAP.api(target.client(), Some("ns"));
    let error = api.get("a").await.unwrap_err();
    assert!(
        error_text(&error).contains("more than 100000 values"),
        "{error:?}"
    );
    let informer = target.informer(quiet(Payload::Full));
    assert!(matches!(
        informer.ready(None, SHORT).await,
        Readiness::Failing(_)
    ));
}

#[tokio::test]
async fn a_watch_without_headers_is_given_up() {
    let fake = Fake::start();
    let hub = hub(&fake, None);
    let (spec, _log) = spec(CONFIG_MAP, Payload::Metadata);
    fake.fail("configmaps", Fault::Hang);
    let started = Instant::now();
    let informer = hub.informer(spec);
    let readiness = informer.ready(None, SHORT).await;
    assert!(
        matches!(&readiness, Readiness::Failing(why) if why.contains("no answer")),
        "{readiness:?}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    fake.heal();
    eventually("it heals", SHORT, || {
        (fake.open_watches() == 1).then_some(())
    })
    .await;
    synced(&informer).await;
}

#[tokio::test]
async fn a_quiet_watch_outlives_the_deadline_of_calls() {
    let fake = Fake::start();
    let hub = hub(&fake, None);
    let (spec, log) = spec(CONFIG_MAP, Payload::Metadata);
    let informer = hub.informer(spec);
    synced(&informer).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(fake.open_watches(), 1);
    fake.put("v1/configmaps", "ns", "late", labelled("x"));
    seen(&log, "+late").await;
    let watches = fake.calls("configmaps").len() - fake.lists("configmaps");
    assert_eq!(watches, 1, "the same watch all the time");
}

#[tokio::test]
async fn ready_waits_for_a_slow_list_but_not_for_ever() {
    let fake = Fake::start();
    fake.fail("configmaps", Fault::Slow(Duration::from_millis(700)));
    let hub = hub(&fake, None);
    let (spec, _log) = spec(CONFIG_MAP, Payload::Metadata);
    let informer = hub.informer(spec);
    let readiness = informer.ready(None, Duration::from_millis(50)).await;
    let Readiness::Failing(why) = readiness else {
        panic!("{readiness:?}")
    };
    assert!(
        why.contains("the first list of configmaps on cluster \"local\""),
        "{why}"
    );
    synced(&informer).await;
}

#[tokio::test]
async fn a_kind_may_come_and_go_and_come_back() {
    let fake = Fake::start();
    let hub = hub(&fake, None);
    let (spec, log) = spec(WIDGET, Payload::Full);
    let informer = hub.informer(spec);
    assert_eq!(informer.ready(None, SHORT).await, Readiness::NotServed);
    assert_eq!(lines(&log), ["Gone"]);

    fake.serve("example.org/v1", "Widget", "widgets");
    fake.put("example.org/v1/widgets", "ns", "w", json!({}));
    let limit = Duration::from_secs(20);
    eventually("it is seen to appear", limit, || {
        informer.get(Some("ns"), "w")
    })
    .await;
    synced(&informer).await;
    assert_eq!(lines(&log), ["Gone", "Served", "+w", "Synced"]);

    log.lock().unwrap().clear();
    fake.unserve("example.org/v1", "Widget");
    seen(&log, "Gone").await;
    assert_eq!(informer.ready(None, SHORT).await, Readiness::NotServed);
    assert_eq!(lines(&log), ["-w", "Gone"]);
    let lists = fake.lists("/widgets");

    fake.serve("example.org/v1", "Widget", "widgets");
    fake.put("example.org/v1/widgets", "ns", "w2", json!({}));
    eventually("it is seen to come back", limit, || {
        informer.get(Some("ns"), "w2")
    })
    .await;
    assert_eq!(
        fake.lists("/widgets"),
        lists + 1,
        "no lists while it was not served"
    );
}

#[tokio::test]
async fn a_forbidden_kind_that_is_not_served_is_not_served() {
    let fake = Fake::start();
    let hub = hub(&fake, None);
    fake.fail("/widgets", Fault::Status(403));
    let (spec, _log) = spec(WIDGET, Payload::Metadata);
    let informer = hub.informer(spec);
    assert_eq!(informer.ready(None, SHORT).await, Readiness::NotServed);
}

#[tokio::test]
async fn a_forbidden_namespace_degrades_its_leg_alone() {
    let fake = Fake::start();
    fake.put("v1/configmaps", "good", "a", labelled("x"));
    fake.put("v1/configmaps", "elsewhere", "b", labelled("x"));
    fake.fail("namespaces/bad/", Fault::Status(403));
    let hub = hub(&fake, Some(&["good", "bad"]));
    let (spec, log) = spec(CONFIG_MAP, Payload::Metadata);
    let informer = hub.informer(spec);
    assert_eq!(informer.ready(Some("good"), SHORT).await, Readiness::Synced);
    assert_eq!(
        informer.ready(Some("bad"), SHORT).await,
        Readiness::Forbidden("as told".to_owned())
    );
    assert!(
        matches!(informer.ready(None, SHORT).await, Readiness::Forbidden(_)),
        "the worst"
    );
    let outside = informer.ready(Some("elsewhere"), SHORT).await;
    assert!(matches!(outside, Readiness::Failing(_)), "{outside:?}");
    assert_eq!(names(&informer), ["a"]);
    assert_eq!(
        fake.lists("/api/v1/configmaps"),
        0,
        "never the whole cluster"
    );

    fake.put("v1/configmaps", "good", "c", labelled("x"));
    seen(&log, "+c").await;
    fake.heal();
    eventually("granted later", SHORT, || {
        let seen: BTreeSet<_> = fake
            .calls("namespaces/bad/")
            .iter()
            .map(|c| c.query.contains("watch"))
            .collect();
        seen.contains(&true).then_some(())
    })
    .await;
    synced(&informer).await;
}

#[tokio::test]
async fn a_credential_that_is_not_accepted_is_failing_at_once() {
    let fake = Fake::start();
    let hub = hub(&fake, None);
    let (spec, _log) = spec(CONFIG_MAP, Payload::Metadata);
    let informer = hub.informer(spec);
    synced(&informer).await;
    eventually("a watch", SHORT, || {
        (fake.open_watches() == 1).then_some(())
    })
    .await;
    fake.accept(&[]);
    fake.cut();
    let started = Instant::now();
    while informer.ready(None, SHORT).await != Readiness::Failing("Unauthorized".to_owned()) {
        assert!(started.elapsed() < SHORT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn own_writes_are_seen_at_once_and_old_news_do_not_undo_them() {
    let fake = Fake::start();
    let version = fake.put("v1/configmaps", "ns", "a", labelled("x"));
    let hub = hub(&fake, None);
    let (spec, log) = spec(CONFIG_MAP, Payload::Full);
    let informer = hub.informer(spec);
    synced(&informer).await;
    let at = |version: u64| {
        let mut object = (*informer.get(Some("ns"), "a").unwrap()).clone();
        object.metadata.resource_version = Some(version.to_string());
        object
    };
    let known = || {
        informer
            .get(Some("ns"), "a")
            .unwrap()
            .resource_version()
            .unwrap()
    };
    let events = lines(&log).len();
    informer.observe(at(version + 900));
    assert_eq!(known(), (version + 900).to_string());
    informer.observe(at(version + 99));
    assert_eq!(
        known(),
        (version + 900).to_string(),
        "99 is less than 900, also as text"
    );
    fake.put("v1/configmaps", "ns", "a", labelled("y"));
    eventually("the older event", SHORT, || {
        (lines(&log).len() > events).then_some(())
    })
    .await;
    assert_eq!(
        known(),
        (version + 900).to_string(),
        "an event that lags behind"
    );

    let uid = informer.get(Some("ns"), "a").unwrap().uid().unwrap();
    let late = at(version + 950);
    informer.forget(Some("ns"), "a", "another uid");
    assert!(informer.get(Some("ns"), "a").is_some());
    informer.forget(Some("ns"), "a", &uid);
    assert!(informer.get(Some("ns"), "a").is_none());
    informer.observe(late);
    assert!(
        informer.get(Some("ns"), "a").is_none(),
        "the answer of a write that was overtaken"
    );
}

#[tokio::test]
async fn a_panic_of_the_owner_costs_a_try_and_not_the_watch() {
    let fake = Fake::start();
    fake.put("v1/configmaps", "ns", "a", labelled("x"));
    let hub = hub(&fake, None);
    let (mut spec, _log) = spec(CONFIG_MAP, Payload::Metadata);
    let first = Arc::new(AtomicBool::new(true));
    spec.on_change = Arc::new(move |_, _| {
        assert!(!first.swap(false, Ordering::SeqCst), "on purpose");
    });
    let informer = hub.informer(spec);
    eventually("it goes on", SHORT, || {
        (fake.open_watches() == 1).then_some(())
    })
    .await;
    synced(&informer).await;
    assert_eq!(names(&informer), ["a"]);
}

#[tokio::test]
async fn a_watch_ends_with_its_handle_and_with_its_cluster() {
    let fake = Fake::start();
    let registry = prometheus::Registry::new();
    let options = ClientOptions {
        metrics: Some(Metrics::register(&registry, "t").unwrap()),
        ..ClientOptions::default()
    };
    let hub = Cluster::hub(fake.config(), None, &options).unwrap();
    fake.put("v1/configmaps", "ns", "a", labelled("x"));
    let gauge = || {
        let text = prometheus::TextEncoder::new()
            .encode_to_string(&registry.gather())
            .unwrap();
        let prefix = "t_target_watch_objects{cluster=\"local\",kind=\"ConfigMap\"} ";
        text.lines()
            .find_map(|line| line.strip_prefix(prefix).map(str::to_owned))
            .unwrap()
    };
    let (one, _log) = spec(CONFIG_MAP, Payload::Metadata);
    let (two, _log) = spec(CONFIG_MAP, Payload::Metadata);
    let (one, two) = (hub.informer(one), hub.informer(two));
    eventually("two watches", SHORT, || {
        (fake.open_watches() == 2).then_some(())
    })
    .await;
    assert_eq!(gauge(), "2", "each holds one object");
    drop(one);
    eventually("one watch", SHORT, || {
        (fake.open_watches() == 1).then_some(())
    })
    .await;
    assert!(hub.shut_down().await);
    eventually("no watch", SHORT, || {
        (fake.open_watches() == 0).then_some(())
    })
    .await;
    assert_eq!(gauge(), "0");
    assert_eq!(names(&two), ["a"], "an end is not an absence");
    assert!(matches!(
        two.ready(None, SHORT).await,
        Readiness::Failing(_)
    ));
    drop(two);
}

#[tokio::test]
async fn many_watches_spread_over_connections_and_places_are_given_back() {
    let fake = Fake::start();
    let hub = hub(&fake, None);
    let calls = Arc::new(AtomicUsize::new(0));
    let informers: Vec<_> = (0..170)
        .map(|_| {
            let (mut spec, _log) = spec(CONFIG_MAP, Payload::Metadata);
            let calls = calls.clone();
            spec.on_change = Arc::new(move |_, _| {
                calls.fetch_add(1, Ordering::SeqCst);
            });
            hub.informer(spec)
        })
        .collect();
    let limit = Duration::from_secs(20);
    eventually("all watches", limit, || {
        (fake.open_watches() == 170).then_some(())
    })
    .await;
    calls.store(0, Ordering::SeqCst);
    fake.put("v1/configmaps", "ns", "a", labelled("x"));
    eventually("all events", limit, || {
        (calls.load(Ordering::SeqCst) == 170).then_some(())
    })
    .await;
    drop(informers);
    eventually("none left", limit, || {
        (fake.open_watches() == 0).then_some(())
    })
    .await;
}
