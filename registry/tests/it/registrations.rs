//! Registrations: what engages, what is kept, what is dropped, and that nobody notices a rotation.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use target_registry::{
    Cause, Cluster, ClusterState, Informer, InformerSpec, Kind, Metrics, Payload, Readiness,
    Registry, RegistryOptions, State, Unresolved, error_code,
};
use tokio_util::sync::CancellationToken;

use crate::{
    eventually,
    fake::{Fake, Fault, kubeconfig},
};

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");
const SHORT: Duration = Duration::from_secs(8);

/// A hub and a registry that watches it.
struct Rig {
    name: &'static str,
    hub: Fake,
    cluster: Arc<Cluster>,
    registry: Registry,
    stop: CancellationToken,
}

// === impl Rig ===

impl Rig {
    fn start(hub: Fake) -> Self {
        Self::with(hub, |_| {})
    }

    fn with(hub: Fake, change: impl FnOnce(&mut RegistryOptions)) -> Self {
        let mut options = RegistryOptions::new("clusters");
        // The fakes speak plain HTTP.
        options.allow_insecure = true;
        options.engage_timeout = Duration::from_secs(1);
        options.client.request_timeout = Duration::from_secs(1);
        change(&mut options);
        let cluster = Cluster::hub(hub.config(), None, &options.client).unwrap();
        let stop = CancellationToken::new();
        let registry = Registry::start(&cluster, options, stop.clone());
        Self {
            name: "blue",
            hub,
            cluster,
            registry,
            stop,
        }
    }

    fn register(&self, data: &[(&str, &str)]) {
        self.hub.register(self.name, "true", data);
    }

    fn state(&self) -> Option<ClusterState> {
        self.registry
            .snapshot()
            .into_iter()
            .find(|state| state.name == self.name)
    }

    async fn until(&self, state: State, cause: Option<Cause>) -> ClusterState {
        eventually(&format!("{state} {cause:?}"), SHORT, || {
            self.state()
                .filter(|now| now.state == state && now.cause == cause)
        })
        .await
    }

    async fn engaged(&self) -> Arc<Cluster> {
        self.until(State::Connected, None).await;
        self.registry.resolve(self.name).unwrap()
    }

    fn error(&self) -> Unresolved {
        self.registry.resolve(self.name).unwrap_err()
    }

    async fn generation(&self, generation: u64) -> Arc<Cluster> {
        eventually(&format!("generation {generation}"), SHORT, || {
            self.registry
                .resolve(self.name)
                .ok()
                .filter(|c| c.generation() >= generation)
        })
        .await
    }
}

fn informer(cluster: &Cluster) -> Arc<Informer> {
    cluster.informer(InformerSpec {
        kind: CONFIG_MAP,
        selector: None,
        payload: Payload::Metadata,
        keep: Arc::new(|_| true),
        reduce: Arc::new(|_| {}),
        on_change: Arc::new(|_, _| {}),
    })
}

async fn synced(cluster: &Cluster) -> Arc<Informer> {
    let informer = informer(cluster);
    assert_eq!(informer.ready(None, SHORT).await, Readiness::Synced);
    informer
}

async fn version_of(cluster: &Cluster) -> Result<String, kube::Error> {
    Ok(cluster.client().apiserver_version().await?.git_version)
}

/// A server that accepts connections and never says a word.
async fn black_hole() -> (String, tokio::net::TcpListener) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    (
        format!("https://{}", listener.local_addr().unwrap()),
        listener,
    )
}

#[tokio::test]
async fn a_registered_cluster_is_engaged_and_described() {
    let (hub, blue) = (Fake::start(), Fake::start());
    let config = blue.kubeconfig("good");
    hub.register(
        "blue",
        "true",
        &[
            ("kubeconfig", &config),
            ("namespaces", "b, a"),
            ("more", "x"),
        ],
    );
    let rig = Rig::start(hub);
    rig.registry.attempted().await;
    let cluster = rig.registry.resolve("blue").unwrap();
    assert!(!cluster.is_hub() && rig.cluster.is_hub());
    assert_eq!(version_of(&cluster).await.unwrap(), "v1.33.0");
    assert_eq!(cluster.uid(), Some(format!("uid-of-{}", blue.url)));
    assert!(cluster.check_scope("a", "x").is_ok() && cluster.check_scope("c", "x").is_err());
    let state = rig.state().unwrap();
    assert_eq!(state.namespaces, ["a", "b"]);
    assert_eq!(state.server.as_deref(), blue.url.strip_prefix("http://"));
    assert_eq!(state.version.as_deref(), Some("v1.33.0"));
    assert_eq!(
        (state.generation, state.state, state.cause),
        (1, State::Connected, None)
    );
    assert_eq!(rig.registry.unresolved_for("blue"), Duration::ZERO);
    assert_eq!(
        rig.registry.resolve("green").unwrap_err().to_string(),
        "cluster not found"
    );
    assert!(
        serde_json::to_string(&state)
            .unwrap()
            .contains("\"clusterUID\":")
    );
}

#[tokio::test]
async fn only_the_exact_label_in_the_right_namespace_registers() {
    let (hub, blue) = (Fake::start(), Fake::start());
    let config = blue.kubeconfig("good");
    for (name, label) in [("green", "yes"), ("red", "True")] {
        hub.register(name, label, &[("kubeconfig", &config)]);
    }
    let labels = json!({target_registry::REGISTRATION_LABEL: "true"});
    hub.put(
        "v1/secrets",
        "elsewhere",
        "grey",
        json!({"metadata": {"labels": labels}}),
    );
    let rig = Rig::start(hub);
    rig.register(&[("kubeconfig", &config)]);
    rig.engaged().await;
    assert_eq!(rig.registry.snapshot().len(), 1);
}

#[tokio::test]
async fn garbage_keeps_the_last_good_and_says_so() {
    let blue = Fake::start();
    let rig = Rig::start(Fake::start());
    let config = blue.kubeconfig("good");
    rig.register(&[("kubeconfig", &config)]);
    let cluster = rig.engaged().await;
    let watch = synced(&cluster).await;
    let mut changes = rig.registry.subscribe();
    rig.register(&[("kubeconfig", "not a kubeconfig")]);
    let state = rig
        .until(State::Degraded, Some(Cause::KubeconfigInvalid))
        .await;
    assert!(state.detail.contains("not a mapping"), "{}", state.detail);
    assert_eq!(changes.recv().await.unwrap().name, "blue");
    assert!(Arc::ptr_eq(
        &rig.registry.resolve("blue").unwrap(),
        &cluster
    ));
    version_of(&cluster).await.unwrap();

    let calls = blue.calls("kube-system").len();
    rig.register(&[("kubeconfig", &config)]);
    assert!(
        Arc::ptr_eq(&rig.engaged().await, &cluster),
        "what was in use is good again"
    );
    assert_eq!(
        blue.calls("kube-system").len(),
        calls,
        "and is not even asked"
    );
    assert_eq!(watch.ready(None, SHORT).await, Readiness::Synced);
}

#[tokio::test]
async fn garbage_without_a_last_good_is_rejected_and_not_retried() {
    let rig = Rig::start(Fake::start());
    rig.register(&[("kubeconfig", "not a kubeconfig")]);
    let state = rig
        .until(State::Rejected, Some(Cause::KubeconfigInvalid))
        .await;
    assert_eq!(state.next_try, None);
    let error = rig.error();
    assert!(
        error
            .to_string()
            .starts_with("cluster not found: the kubeconfig of"),
        "{error}"
    );
    assert!(error.may_abandon());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(rig.registry.unresolved_for("blue") >= Duration::from_millis(40));
}

#[tokio::test]
async fn another_refusal_is_told_since_it_says_what_to_repair_next() {
    let rig = Rig::start(Fake::start());
    let user = |user: &str| format!("users: [{{name: me, user: {{{user}}}}}]");
    rig.register(&[("kubeconfig", &user("tokenFile: /a"))]);
    rig.until(State::Rejected, Some(Cause::CredentialsRefused))
        .await;
    let mut changes = rig.registry.subscribe();
    rig.register(&[("kubeconfig", &user("client-key: /a"))]);
    let change = tokio::time::timeout(SHORT, changes.recv()).await;
    assert_eq!(change.unwrap().unwrap().name, "blue");
    let error = rig.error().to_string();
    assert!(error.contains("users[0].user.client-key"), "{error}");
}

#[tokio::test]
async fn what_is_withdrawn_or_refused_is_dropped_at_once() {
    let blue = Fake::start();
    let rig = Rig::start(Fake::start());
    let config = blue.kubeconfig("good");
    let plugin = config.replace(
        "\"token\"",
        "\"exec\":{\"command\":\"/bin/true\"},\"token\"",
    );
    let path = config.replace("\"token\"", "\"tokenFile\":\"/dev/zero\",\"token\"");
    let unknown = config.replace("\"token\"", "\"Exec\":{},\"token\"");
    let refused: [(&[(&str, &str)], Cause); 7] = [
        (&[("kubeconfig", &plugin)], Cause::CredentialsRefused),
        (&[("kubeconfig", &path)], Cause::CredentialsRefused),
        (&[("kubeconfig", &unknown)], Cause::CredentialsRefused),
        (&[("other", "x")], Cause::KubeconfigInvalid),
        (&[("kubeconfig", "")], Cause::KubeconfigInvalid),
        (
            &[("kubeconfig", &config), ("namespaces", " ")],
            Cause::NamespacesInvalid,
        ),
        (
            &[("kubeconfig", &config), ("namespaces", "a,B")],
            Cause::NamespacesInvalid,
        ),
    ];
    for (data, cause) in refused {
        rig.register(&[("kubeconfig", &config)]);
        let cluster = rig.engaged().await;
        let watch = synced(&cluster).await;
        eventually("a watch", SHORT, || {
            (blue.open_watches() == 1).then_some(())
        })
        .await;
        rig.register(data);
        rig.until(State::Rejected, Some(cause)).await;
        assert!(rig.error().may_abandon(), "{data:?}");
        eventually("its watch ends", SHORT, || {
            (blue.open_watches() == 0).then_some(())
        })
        .await;
        drop(watch);
    }
}

#[tokio::test]
async fn a_removed_label_a_deletion_and_a_terminating_secret_deregister() {
    let blue = Fake::start();
    let rig = Rig::start(Fake::start());
    let config = blue.kubeconfig("good");
    let data = [("kubeconfig", config.as_str())];
    let gone = async || {
        eventually("deregistered", SHORT, || {
            rig.state().is_none().then_some(())
        })
        .await;
        assert_eq!(rig.error().to_string(), "cluster not found");
    };
    rig.register(&data);
    rig.engaged().await;
    rig.hub.register("blue", "false", &data);
    gone().await;
    rig.register(&data);
    rig.engaged().await;
    rig.hub.put("v1/secrets", "clusters", "blue", json!({}));
    gone().await;
    rig.register(&data);
    rig.engaged().await;
    let labels = json!({target_registry::REGISTRATION_LABEL: "true"});
    let metadata = json!({"labels": labels, "deletionTimestamp": "2026-01-01T00:00:00Z"});
    rig.hub.put(
        "v1/secrets",
        "clusters",
        "blue",
        json!({"metadata": metadata}),
    );
    gone().await;
    rig.register(&data);
    rig.engaged().await;
    rig.hub.delete("v1/secrets", "clusters", "blue");
    gone().await;
    assert!(
        rig.registry.unresolved_for("blue") < SHORT,
        "counted from the removal"
    );
}

#[tokio::test]
async fn a_deletion_that_was_missed_is_noticed_by_the_next_list() {
    let blue = Fake::start();
    let rig = Rig::start(Fake::start());
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    rig.engaged().await;
    rig.hub.fail("secrets", Fault::Status(503));
    rig.hub.cut();
    tokio::time::sleep(Duration::from_millis(50)).await;
    rig.hub.delete("v1/secrets", "clusters", "blue");
    rig.hub.compact();
    rig.hub.heal();
    eventually("deregistered", SHORT, || {
        rig.state().is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_changed_token_is_swapped_under_running_watches() {
    let blue = Fake::start();
    let rig = Rig::start(Fake::start());
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    let cluster = rig.engaged().await;
    let watch = synced(&cluster).await;
    eventually("a watch", SHORT, || {
        (blue.open_watches() == 1).then_some(())
    })
    .await;
    blue.accept(&["good", "better"]);
    rig.register(&[("kubeconfig", &blue.kubeconfig("better"))]);
    eventually("the new token is used", SHORT, || {
        blue.calls("version")
            .iter()
            .any(|call| call.token == "better")
            .then_some(())
    })
    .await;
    eventually("it is in place", SHORT, || {
        rig.state().filter(|state| state.state == State::Connected)
    })
    .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    blue.accept(&["better"]);
    assert!(
        Arc::ptr_eq(&rig.registry.resolve("blue").unwrap(), &cluster),
        "the same generation"
    );
    version_of(&cluster).await.unwrap();
    blue.put("v1/configmaps", "ns", "a", json!({}));
    eventually("the open watch goes on", SHORT, || {
        watch.get(Some("ns"), "a")
    })
    .await;
    blue.cut();
    blue.put("v1/configmaps", "ns", "b", json!({}));
    eventually("it resumes as the new one", SHORT, || {
        watch.get(Some("ns"), "b")
    })
    .await;
    assert_eq!(blue.lists("configmaps"), 1, "without a list");
    eventually("as the new one", SHORT, || {
        let last = blue.calls("configmaps").pop();
        last.filter(|call| call.token == "better")
    })
    .await;
}

#[tokio::test]
async fn a_new_token_wakes_a_watch_that_waits_after_failures() {
    let blue = Fake::start();
    let rig = Rig::start(Fake::start());
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    let cluster = rig.engaged().await;
    let watch = synced(&cluster).await;
    blue.accept(&["better"]);
    blue.cut();
    let before = blue.calls("configmaps").len();
    eventually("some failures", SHORT, || {
        (blue.calls("configmaps").len() > before + 2).then_some(())
    })
    .await;
    blue.put("v1/configmaps", "ns", "a", json!({}));
    rig.register(&[("kubeconfig", &blue.kubeconfig("better"))]);
    eventually("it goes on", Duration::from_secs(2), || {
        watch.get(Some("ns"), "a")
    })
    .await;
}

#[tokio::test]
async fn a_new_token_that_is_not_accepted_takes_the_old_one_away() {
    let blue = Fake::start();
    let rig = Rig::start(Fake::start());
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    rig.engaged().await;
    rig.register(&[("kubeconfig", &blue.kubeconfig("bad"))]);
    let state = rig.until(State::Lost, Some(Cause::Unauthorized)).await;
    assert!(state.next_try.is_some());
    let error = rig.error();
    assert!(error.to_string().contains("Unauthorized"), "{error}");
    assert!(
        !error.may_abandon(),
        "the credential is wrong, the cluster is there"
    );
    blue.accept(&["bad"]);
    let cluster = rig.engaged().await;
    version_of(&cluster).await.unwrap();
}

#[tokio::test]
async fn a_first_token_that_is_not_accepted_is_named_and_retried() {
    let blue = Fake::start();
    let rig = Rig::start(Fake::start());
    rig.register(&[("kubeconfig", &blue.kubeconfig("bad"))]);
    rig.until(State::Lost, Some(Cause::Unauthorized)).await;
    rig.registry.attempted().await;
    assert!(!rig.error().may_abandon());
    blue.accept(&["bad"]);
    rig.engaged().await;
}

#[tokio::test]
async fn an_unreachable_new_server_keeps_the_last_good() {
    let blue = Fake::start();
    let rig = Rig::start(Fake::start());
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    let cluster = rig.engaged().await;
    rig.register(&[("kubeconfig", &kubeconfig("http://127.0.0.1:1", "good"))]);
    rig.until(State::Degraded, Some(Cause::ConnectionRefused))
        .await;
    assert!(Arc::ptr_eq(
        &rig.registry.resolve("blue").unwrap(),
        &cluster
    ));
    version_of(&cluster).await.unwrap();

    let (url, _hole) = black_hole().await;
    rig.register(&[("kubeconfig", &kubeconfig(&url, "good"))]);
    rig.until(State::Degraded, Some(Cause::Timeout)).await;
    blue.fail("version", Fault::Status(500));
    rig.register(&[("kubeconfig", &blue.kubeconfig("other"))]);
    blue.accept(&["good", "other"]);
    rig.until(State::Degraded, Some(Cause::Unreachable)).await;
    blue.heal();
    assert!(
        Arc::ptr_eq(&rig.engaged().await, &cluster),
        "a token only, once it can be tried"
    );
}

/// A server that completes TLS handshakes and nothing more; tells the protocol that was agreed on.
fn tls_server() -> (String, String, std::sync::mpsc::Receiver<Option<Vec<u8>>>) {
    let pair = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let chain = vec![pair.cert.der().clone()];
    let key = pair.signing_key.serialize_der().try_into().unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let (agreed, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut tls = rustls::ServerConnection::new(Arc::new(config.clone())).unwrap();
            while tls.is_handshaking() && tls.complete_io(&mut stream).is_ok() {}
            if agreed
                .send(tls.alpn_protocol().map(<[u8]>::to_vec))
                .is_err()
            {
                return;
            }
        }
    });
    (
        url,
        data_encoding::BASE64.encode(pair.cert.pem().as_bytes()),
        seen,
    )
}

#[tokio::test]
async fn an_unknown_authority_is_named_as_such() {
    let (url, _, _seen) = tls_server();
    let rig = Rig::start(Fake::start());
    rig.register(&[("kubeconfig", &kubeconfig(&url, "good"))]);
    let state = rig.until(State::Lost, Some(Cause::Tls)).await;
    assert!(state.detail.contains("certificate"), "{}", state.detail);
    assert!(!rig.error().may_abandon());
}

#[tokio::test]
async fn http2_is_agreed_on_with_a_verified_server() {
    let (url, ca, seen) = tls_server();
    let rig = Rig::start(Fake::start());
    let other = kubeconfig(&url, "good");
    let mut config: serde_json::Value = serde_json::from_str(&other).unwrap();
    config["clusters"][0]["cluster"]["certificate-authority-data"] = json!(ca);
    rig.register(&[("kubeconfig", &config.to_string())]);
    let agreed = tokio::task::spawn_blocking(move || seen.recv_timeout(SHORT).unwrap());
    assert_eq!(agreed.await.unwrap().as_deref(), Some(&b"h2"[..]));
}

#[tokio::test]
async fn a_narrowed_scope_is_dropped_before_the_new_one_is_there() {
    let blue = Fake::start();
    let rig = Rig::start(Fake::start());
    let config = blue.kubeconfig("good");
    rig.register(&[("kubeconfig", &config), ("namespaces", "a,b")]);
    rig.engaged().await;
    blue.fail("kube-system", Fault::Slow(Duration::from_millis(300)));
    rig.register(&[("kubeconfig", &config), ("namespaces", "a,b,c")]);
    let wider = rig.generation(2).await;
    assert!(wider.check_scope("c", "x").is_ok());

    rig.register(&[("kubeconfig", &config), ("namespaces", "a,b")]);
    rig.until(State::Pending, None).await;
    assert!(!rig.error().may_abandon());
    let narrow = rig.generation(3).await;
    assert!(narrow.check_scope("c", "x").is_err());

    rig.register(&[("kubeconfig", &config)]);
    assert_eq!(rig.generation(4).await.namespaces(), None);
    rig.register(&[("kubeconfig", &config), ("namespaces", "a")]);
    rig.until(State::Pending, None).await;
    rig.engaged().await;
    rig.register(&[("kubeconfig", "not a kubeconfig"), ("namespaces", "b")]);
    rig.until(State::Rejected, Some(Cause::KubeconfigInvalid))
        .await;
}

#[tokio::test]
async fn a_name_that_leads_to_another_cluster_is_not_followed() {
    let (blue, other) = (Fake::start(), Fake::start());
    let rig = Rig::start(Fake::start());
    let config = blue.kubeconfig("good");
    rig.register(&[("kubeconfig", &config)]);
    rig.engaged().await;
    rig.register(&[("kubeconfig", &other.kubeconfig("good"))]);
    let state = rig
        .until(State::Rejected, Some(Cause::IdentityChanged))
        .await;
    assert!(
        state.detail.contains("delete the Secret"),
        "{}",
        state.detail
    );
    assert!(
        !rig.error().may_abandon(),
        "what lies on the first cluster is not lost"
    );
    rig.register(&[("kubeconfig", &config)]);
    rig.engaged().await;
    rig.hub.delete("v1/secrets", "clusters", "blue");
    eventually("deregistered", SHORT, || {
        rig.state().is_none().then_some(())
    })
    .await;
    rig.register(&[("kubeconfig", &other.kubeconfig("good"))]);
    assert_eq!(
        rig.engaged().await.uid(),
        Some(format!("uid-of-{}", other.url))
    );
}

#[tokio::test]
async fn a_repaired_cluster_of_the_same_content_is_not_tried_twice() {
    let blue = Fake::start();
    let rig = Rig::start(Fake::start());
    let config = blue.kubeconfig("good");
    rig.register(&[("kubeconfig", &config)]);
    let cluster = rig.engaged().await;
    let calls = blue.calls("").len();
    for _ in 0..3 {
        // Annotations, labels and the type are not part of the content.
        rig.register(&[("kubeconfig", &config), ("extra", "x")]);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(Arc::ptr_eq(
        &rig.registry.resolve("blue").unwrap(),
        &cluster
    ));
    assert_eq!(blue.calls("").len(), calls);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_rotations_leave_no_gap_and_no_task() {
    let blue = Fake::start();
    let port = blue.url.rsplit(':').next().unwrap().to_owned();
    let rig = Rig::start(Fake::start());
    let addresses = [
        format!("http://127.0.0.1:{port}"),
        format!("http://localhost:{port}"),
    ];
    rig.register(&[("kubeconfig", &kubeconfig(&addresses[0], "good"))]);
    rig.engaged().await;

    let (reads, slowest, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let shared = Arc::new((reads, slowest, stop));
    let (registry, counters) = (rig.registry.clone(), shared.clone());
    let reader = std::thread::spawn(move || {
        while !counters.2.load(Ordering::Relaxed) {
            let started = Instant::now();
            registry.resolve("blue").expect("resolves at every moment");
            let took = u64::try_from(started.elapsed().as_micros()).unwrap();
            counters.1.fetch_max(took, Ordering::Relaxed);
            counters.0.fetch_add(1, Ordering::Relaxed);
        }
    });

    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let mut baseline = 0;
    for round in 2..=101_u64 {
        let address = &addresses[usize::try_from((round + 1) % 2).unwrap()];
        rig.register(&[("kubeconfig", &kubeconfig(address, "good"))]);
        let cluster = rig.generation(round).await;
        // Each generation does some work, so that there is something to leak.
        let _watches = [synced(&cluster).await, synced(&cluster).await];
        assert!(!reader.is_finished(), "a gap in round {round}");
        if round == 5 {
            baseline = tasks();
        }
    }
    eventually("tasks are back at the baseline", SHORT, || {
        (tasks() <= baseline).then_some(())
    })
    .await;
    shared.2.store(true, Ordering::Relaxed);
    reader.join().unwrap();
    println!(
        "{} reads, slowest {} µs, {baseline} tasks",
        shared.0.load(Ordering::Relaxed),
        shared.1.load(Ordering::Relaxed)
    );

    let before = tasks();
    rig.stop.cancel();
    tokio::time::timeout(SHORT, rig.registry.closed())
        .await
        .unwrap();
    assert!(rig.cluster.shut_down().await);
    eventually("watches end", SHORT, || {
        (blue.open_watches() == 0).then_some(())
    })
    .await;
    assert!(tasks() < before, "{} of {before} tasks are left", tasks());
}

#[tokio::test]
async fn black_holes_delay_nobody_else() {
    let hub = Fake::start();
    let (url, _hole) = black_hole().await;
    for index in 0..30 {
        let data = kubeconfig(&url, "good");
        hub.register(&format!("hole{index}"), "true", &[("kubeconfig", &data)]);
    }
    let blue = Fake::start();
    let rig = Rig::with(hub, |options| {
        options.engage_timeout = Duration::from_secs(3);
    });
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    let started = Instant::now();
    let cluster = rig.engaged().await;
    version_of(&cluster).await.unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    assert!(matches!(
        rig.registry.resolve("hole3"),
        Err(Unresolved::Pending { .. })
    ));
    rig.registry.attempted().await;
    let error = rig.registry.resolve("hole3").unwrap_err();
    assert!(
        matches!(
            &error,
            Unresolved::Lost {
                cause: Cause::Timeout,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .starts_with("cluster not found: \"hole3\" is not usable"),
        "{error}"
    );
}

#[tokio::test]
async fn a_slow_cluster_does_not_delay_calls_on_another() {
    let (slow, fast) = (Fake::start(), Fake::start());
    let rig = Rig::start(Fake::start());
    rig.register(&[("kubeconfig", &slow.kubeconfig("good"))]);
    rig.hub
        .register("fast", "true", &[("kubeconfig", &fast.kubeconfig("good"))]);
    let blue = rig.engaged().await;
    let fast = eventually("fast", SHORT, || rig.registry.resolve("fast").ok()).await;
    slow.fail("", Fault::Hang);
    let hanging: Vec<_> = (0..50)
        .map(|_| {
            let blue = blue.clone();
            tokio::spawn(async move { version_of(&blue).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let started = Instant::now();
    version_of(&fast).await.unwrap();
    version_of(&rig.cluster).await.unwrap();
    assert!(
        started.elapsed() < Duration::from_millis(500),
        "{:?}",
        started.elapsed()
    );
    for call in hanging {
        assert_eq!(error_code(&call.await.unwrap().unwrap_err()), None);
    }
}

#[tokio::test]
async fn a_hub_that_answers_late_is_waited_for() {
    let (hub, blue) = (Fake::start(), Fake::start());
    hub.register("blue", "true", &[("kubeconfig", &blue.kubeconfig("good"))]);
    hub.fail("secrets", Fault::Status(503));
    let rig = Rig::start(hub);
    let waiting = rig.registry.clone();
    let waiting = tokio::spawn(async move { waiting.attempted().await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished(), "nothing is known yet");
    rig.hub.heal();
    tokio::time::timeout(SHORT, waiting).await.unwrap().unwrap();
    rig.registry.resolve("blue").unwrap();
}

#[tokio::test]
async fn permits_are_shared_by_generations() {
    let blue = Fake::start();
    let rig = Rig::with(Fake::start(), |options| options.client.max_in_flight = 1);
    let port = blue.url.rsplit(':').next().unwrap().to_owned();
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    let old = rig.engaged().await;
    let permit = old.try_permit();
    let other = kubeconfig(&format!("http://localhost:{port}"), "good");
    rig.register(&[("kubeconfig", &other)]);
    let new = rig.generation(2).await;
    assert!(permit.is_some() && new.try_permit().is_none());
    version_of(&old).await.unwrap();
    drop(permit);
    assert!(new.try_permit().is_some());
}

#[tokio::test]
async fn metrics_come_and_go_with_the_registration() {
    let blue = Fake::start();
    let numbers = prometheus::Registry::new();
    let metrics = Metrics::register(&numbers, "t").unwrap();
    let rig = Rig::with(Fake::start(), |options| {
        options.client.metrics = Some(metrics);
    });
    let text = || {
        prometheus::TextEncoder::new()
            .encode_to_string(&numbers.gather())
            .unwrap()
    };
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    let cluster = rig.engaged().await;
    let _watch = synced(&cluster).await;
    for line in [
        "t_target_cluster_up{cluster=\"blue\"} 1",
        "t_target_cluster_state{cluster=\"blue\",state=\"Connected\"} 1",
        "t_target_cluster_state{cluster=\"blue\",state=\"Lost\"} 0",
        "t_target_cluster_engagements_total{cluster=\"blue\",result=\"connected\"} 1",
        "t_target_requests_total{cluster=\"blue\",code=\"200\",verb=\"list\"} 1",
    ] {
        assert!(text().contains(line), "{line} in {}", text());
    }
    rig.hub.delete("v1/secrets", "clusters", "blue");
    eventually("its series go", SHORT, || {
        (!text().contains("cluster=\"blue\"")).then_some(())
    })
    .await;
    let _ = version_of(&cluster).await;
    assert!(!text().contains("cluster=\"blue\""), "and do not come back");
    assert!(text().contains("cluster=\"local\""));
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_log_has_the_lines_people_look_for_and_no_secret() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    // For all tests of this process: a subscriber for one thread would race with the others.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let text = || String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();

    let blue = Fake::start();
    blue.accept(&["PLANTED1", "PLANTED2"]);
    let mut rig = Rig::start(Fake::start());
    rig.name = "logged";
    rig.register(&[
        ("kubeconfig", &blue.kubeconfig("PLANTED1")),
        ("namespaces", "a,b"),
    ]);
    let cluster = rig.engaged().await;
    let _watch = informer(&cluster);
    rig.register(&[
        ("kubeconfig", &blue.kubeconfig("PLANTED2")),
        ("namespaces", "a,b,c"),
    ]);
    rig.generation(2).await;
    rig.register(&[("kubeconfig", "PLANTED3: [")]);
    rig.until(State::Degraded, Some(Cause::KubeconfigInvalid))
        .await;
    rig.register(&[(
        "kubeconfig",
        "users: [{name: PLANTED4, user: {exec: {command: PLANTED5}}}]",
    )]);
    rig.until(State::Rejected, Some(Cause::CredentialsRefused))
        .await;
    rig.register(&[("kubeconfig", "x"), ("namespaces", "")]);
    rig.until(State::Rejected, Some(Cause::NamespacesInvalid))
        .await;
    for line in [
        "building the cluster from its registration Secret",
        "namespaces=a,b",
        "cluster engaged",
        "registration changed, re-engaging the cluster",
        "cluster disengaged",
        "namespaces key present but empty",
        "refusing the kubeconfig of cluster \"logged\": exec and auth-provider",
    ] {
        let ours = |whole: &&str| whole.contains("cluster=\"logged\"") && whole.contains(line);
        assert!(
            text().lines().any(|whole| ours(&whole)),
            "{line} in {}",
            text()
        );
    }
    let planted = text()
        .lines()
        .find(|line| line.contains("PLANTED"))
        .map(str::to_owned);
    assert_eq!(planted, None);
    assert!(!format!("{cluster:?} {:?} {:?}", rig.registry, rig.state()).contains("PLANTED"));
}
