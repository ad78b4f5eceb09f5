//! Calls: deadlines, limits, counting, capabilities, scope.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use target_registry::{
    AnswerTooLong, ClientOptions, Cluster, DeadlineExceeded, Fence, Fenced, Kind, Metrics,
    error_code, error_text,
};

use crate::fake::{Fake, Fault};

const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");
const OTHER: Kind = Kind::namespaced("apps", "v1", "Other", "others");
const WIDGET: Kind = Kind::namespaced("example.org", "v1", "Widget", "widgets");

fn options() -> ClientOptions {
    ClientOptions {
        user_agent: "the-test/1".to_owned(),
        connect_timeout: Duration::from_millis(500),
        request_timeout: Duration::from_millis(500),
        ..ClientOptions::default()
    }
}

fn hub(fake: &Fake) -> Arc<Cluster> {
    Cluster::hub(fake.config(), None, &options()).unwrap()
}

async fn list(cluster: &Cluster) -> Result<usize, kube::Error> {
    let api: Api<ConfigMap> = Api::all(cluster.client());
    Ok(api.list(&ListParams::default()).await?.items.len())
}

/// Whether `error` comes from an `E` somewhere.
fn is<E: std::error::Error + 'static>(error: &kube::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.is::<E>() {
            return true;
        }
        next = error.source();
    }
    false
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_wherever_the_server_stalls() {
    let fake = Fake::start();
    let hub = hub(&fake);
    assert_eq!(list(&hub).await.unwrap(), 0);
    for fault in [
        Fault::Hang,
        Fault::Stall,
        Fault::Slow(Duration::from_mins(1)),
    ] {
        fake.fail("configmaps", fault);
        let started = Instant::now();
        let error = list(&hub).await.unwrap_err();
        let took = started.elapsed();
        assert!(is::<DeadlineExceeded>(&error), "{error:?}");
        assert!(
            took >= Duration::from_millis(490) && took < Duration::from_secs(3),
            "{took:?}"
        );
        fake.heal();
    }
    assert_eq!(
        list(&hub).await.unwrap(),
        0,
        "the next call is as good as ever"
    );
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let fake = Fake::start();
    let mut options = options();
    options.request_timeout = Duration::from_secs(20);
    let hub = Cluster::hub(fake.config(), None, &options).unwrap();
    fake.fail("configmaps", Fault::Huge(256 * 1024 * 1024));
    let error = list(&hub).await.unwrap_err();
    assert!(is::<AnswerTooLong>(&error), "{error:?}");
    fake.heal();
    assert_eq!(list(&hub).await.unwrap(), 0);
}

#[tokio::test]
async fn a_server_that_accepts_and_never_speaks_costs_the_connect_timeout() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let config = kube::Config::new(url.parse().unwrap());
    let hub = Cluster::hub(config, None, &options()).unwrap();
    let started = Instant::now();
    let error = list(&hub).await.unwrap_err();
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(error_code(&error), None);
}

#[tokio::test]
async fn nothing_is_tried_twice() {
    let fake = Fake::start();
    let hub = hub(&fake);
    for code in [500, 503, 504] {
        fake.fail("configmaps", Fault::Status(code));
        let before = fake.calls("configmaps").len();
        assert_eq!(error_code(&list(&hub).await.unwrap_err()), Some(code));
        assert_eq!(fake.calls("configmaps").len(), before + 1);
        fake.heal();
    }
}

#[tokio::test]
async fn a_server_that_asks_to_be_left_alone_is() {
    let fake = Fake::start();
    let hub = hub(&fake);
    fake.fail("configmaps", Fault::Busy("1"));
    assert_eq!(error_code(&list(&hub).await.unwrap_err()), Some(429));
    fake.heal();
    let before = fake.calls("").len();
    let error = list(&hub).await.unwrap_err();
    assert_eq!(error_code(&error), Some(429), "{error}");
    assert!(
        error_text(&error).contains("asked not to be called"),
        "{error}"
    );
    assert_eq!(fake.calls("").len(), before, "not even asked");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(list(&hub).await.unwrap(), 0);
}

#[tokio::test]
async fn the_code_of_an_answer_that_is_no_status_is_seen() {
    let fake = Fake::start();
    let hub = hub(&fake);
    for code in [401, 403, 404] {
        fake.fail("configmaps", Fault::Gateway(code));
        let error = list(&hub).await.unwrap_err();
        assert_eq!(error_code(&error), Some(code));
        assert_eq!(error_text(&error), "as told");
        fake.heal();
    }
}

#[tokio::test]
async fn calls_carry_the_agent_and_are_counted() {
    let fake = Fake::start();
    let registry = prometheus::Registry::new();
    let mut options = options();
    options.metrics = Some(Metrics::register(&registry, "test").unwrap());
    let hub = Cluster::hub(fake.config(), None, &options).unwrap();
    list(&hub).await.unwrap();
    fake.fail("configmaps", Fault::Status(503));
    list(&hub).await.unwrap_err();
    assert_eq!(hub.request_count(), 2);
    assert_eq!(fake.calls("configmaps")[0].agent, "the-test/1");
    assert_eq!(fake.calls("configmaps")[0].token, "good");
    let text = prometheus::TextEncoder::new()
        .encode_to_string(&registry.gather())
        .unwrap();
    for (verb, code) in [("list", "200"), ("list", "503")] {
        let line = format!(
            "test_target_requests_total{{cluster=\"local\",code=\"{code}\",verb=\"{verb}\"}} 1"
        );
        assert!(text.contains(&line), "{text}");
    }
}

#[tokio::test]
async fn asking_for_a_kind_is_coalesced_and_remembered() {
    let fake = Fake::start();
    let hub = hub(&fake);
    fake.fail("/apis/apps/v1", Fault::Slow(Duration::from_millis(100)));
    let asks = (0..200).map(|_| {
        let hub = hub.clone();
        tokio::spawn(async move { hub.serves(&DEPLOYMENT).await })
    });
    for answer in futures::future::join_all(asks).await {
        assert!(answer.unwrap().unwrap());
    }
    assert!(hub.serves(&DEPLOYMENT).await.unwrap());
    assert_eq!(fake.calls("/apis/apps/v1").len(), 1);
    hub.forget_capability(&DEPLOYMENT).await;
    assert!(hub.serves(&DEPLOYMENT).await.unwrap());
    assert_eq!(fake.calls("/apis/apps/v1").len(), 2);
}

#[tokio::test]
async fn there_are_three_answers() {
    let fake = Fake::start();
    let hub = hub(&fake);
    assert!(
        !hub.serves(&WIDGET).await.unwrap(),
        "a plain text 404 for the group"
    );
    assert!(!hub.serves(&WIDGET).await.unwrap());
    assert_eq!(fake.calls("example.org").len(), 1, "the no is remembered");
    assert!(
        !hub.serves(&OTHER).await.unwrap(),
        "a kind that is missing in a group"
    );

    hub.forget_capability(&WIDGET).await;
    for fault in [
        Fault::Plain(503),
        Fault::Status(500),
        Fault::Status(403),
        Fault::Hang,
    ] {
        fake.fail("example.org", fault);
        let error = hub.serves(&WIDGET).await.unwrap_err();
        assert_eq!(error.group_version, "example.org/v1");
        assert!(
            hub.serves(&DEPLOYMENT).await.unwrap(),
            "others do not even notice"
        );
        fake.heal();
    }
    fake.serve("example.org/v1", "Widget", "widgets");
    assert!(
        hub.serves(&WIDGET).await.unwrap(),
        "an error is not remembered"
    );
}

#[tokio::test]
async fn who_answers_is_asked_once_and_forbidden_parts_stay_open() {
    let fake = Fake::start();
    let hub = hub(&fake);
    assert_eq!(hub.uid(), None);
    let identity = hub.probe().await.unwrap();
    assert_eq!(hub.uid(), Some(format!("uid-of-{}", fake.url)));
    assert_eq!(identity.version.as_deref(), Some("v1.33.0"));
    fake.fail("kube-system", Fault::Status(403));
    assert_eq!(hub.probe().await.unwrap().uid, None);
    fake.heal();
    fake.accept(&[]);
    assert_eq!(error_code(&hub.probe().await.unwrap_err()), Some(401));
}

#[tokio::test]
async fn an_undeclared_namespace_is_refused_without_a_call() {
    let fake = Fake::start();
    let declared: BTreeSet<_> = ["a".to_owned()].into();
    let hub = Cluster::hub(fake.config(), Some(declared), &options()).unwrap();
    hub.check_scope("a", "x").unwrap();
    let error = hub.check_scope("b", "x").unwrap_err();
    assert_eq!(
        error.to_string(),
        "unable to get: b/x because of unknown namespace for the cache"
    );
    assert_eq!(fake.calls("").len(), 0);
}

#[tokio::test]
async fn permits_are_given_without_waiting() {
    let fake = Fake::start();
    let mut options = options();
    options.max_in_flight = 2;
    let hub = Cluster::hub(fake.config(), None, &options).unwrap();
    let (one, two) = (hub.try_permit(), hub.try_permit());
    assert!(one.is_some() && two.is_some() && hub.try_permit().is_none());
    drop(one);
    assert!(hub.try_permit().is_some());
}

#[tokio::test]
async fn an_extension_is_made_once_per_generation() {
    let fake = Fake::start();
    let hub = hub(&fake);
    let outer = hub.extension(|cluster| {
        let inner = cluster.extension(|_| 5_u32);
        format!("{}{inner}", cluster.name())
    });
    assert_eq!(*outer, "local5");
    assert_eq!(*hub.extension(|_| String::new()), "local5", "made before");
    assert_eq!(*hub.extension(|_| 7_u32), 5);
}

#[tokio::test]
async fn a_process_that_may_have_been_replaced_changes_nothing_and_still_reads() {
    let fake = Fake::start();
    let open = Arc::new(AtomicBool::new(false));
    let asked = open.clone();
    let until = move || {
        let until = tokio::time::Instant::now() + Duration::from_secs(4);
        asked.load(Ordering::Relaxed).then_some(until)
    };
    let options = ClientOptions {
        fence: Some(Fence::new(until)),
        ..options()
    };
    let hub = Cluster::hub(fake.config(), None, &options).unwrap();
    let api: Api<ConfigMap> = Api::namespaced(hub.client(), "n");
    let map = ConfigMap::default();
    let error = api.create(&PostParams::default(), &map).await.unwrap_err();
    assert!(is::<Fenced>(&error), "{error:?}");
    let error = api.delete("m", &DeleteParams::default()).await.unwrap_err();
    assert!(is::<Fenced>(&error), "{error:?}");
    assert_eq!(fake.calls("configmaps").len(), 0, "nothing was sent");
    assert_eq!(list(&hub).await.unwrap(), 0);
    open.store(true, Ordering::Relaxed);
    let _ = api.delete("m", &DeleteParams::default()).await;
    assert_eq!(fake.calls("configmaps").len(), 2, "the list and the change");
}
