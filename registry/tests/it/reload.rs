//! A registration that is written again: what is kept, what is dropped, and that nobody notices.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use target_registry::{Cause, Readiness, State};

use crate::{
    eventually,
    fake::{Fake, Fault, kubeconfig},
    rig::{Rig, SHORT, black_hole, synced, version_of},
};

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
async fn a_new_token_wakes_the_watches_that_a_revoked_one_has_ended() {
    let blue = Fake::start();
    let rig = Rig::start(Fake::start());
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    let cluster = rig.engaged().await;
    let watch = synced(&cluster).await;
    blue.accept(&["better"]);
    blue.cut();
    rig.until(State::Lost, Some(Cause::Unauthorized)).await;
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
