//! One cluster that does not answer, and all the others.

use std::time::{Duration, Instant};

use target_registry::{Cause, Purpose, State, Unresolved, error_code};

use crate::{
    eventually,
    fake::{Fake, Fault, kubeconfig},
    rig::{Rig, SHORT, black_hole, informer, version_of},
};

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
async fn any_number_of_black_holes_keeps_nobody_waiting_for_his_own_cluster() {
    let hub = Fake::start();
    let (url, _hole) = black_hole().await;
    // Listed, and tried, before the one that answers; more than are tried at one time.
    for index in 0..150 {
        let data = kubeconfig(&url, "good");
        hub.register(&format!("a{index:03}"), "true", &[("kubeconfig", &data)]);
    }
    let blue = Fake::start();
    hub.register("blue", "true", &[("kubeconfig", &blue.kubeconfig("good"))]);
    let rig = Rig::with(hub, |options| {
        options.engage_timeout = Duration::from_secs(30);
        options.client.connect_timeout = Duration::from_secs(30);
        options.client.request_timeout = Duration::from_secs(30);
    });
    let started = Instant::now();
    rig.registry.settled("blue").await;
    println!(
        "measured: settled beside 150 black holes after {:?}",
        started.elapsed()
    );
    let cluster = rig.registry.resolve("blue").unwrap();
    version_of(&cluster).await.unwrap();
    let others = rig.registry.snapshot();
    let pending = others.iter().filter(|s| s.state == State::Pending).count();
    assert_eq!(pending, 150, "no other attempt had to end before");
    rig.registry.settled("absent").await;
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_take_no_time_while_a_list_stalls() {
    let (blue, other) = (Fake::start(), Fake::start());
    let rig = Rig::start(Fake::start());
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    let cluster = rig.engaged().await;
    blue.fail("configmaps", Fault::Stall);
    let informer = informer(&cluster);
    eventually("the list to begin", SHORT, || {
        (blue.lists("configmaps") > 0).then_some(())
    })
    .await;
    let mut times = Vec::new();
    for round in 0..1000 {
        if round % 100 == 0 {
            // The owner has something to do meanwhile.
            let data = other.kubeconfig("good");
            rig.hub
                .register("green", "true", &[("kubeconfig", &data), ("round", "")]);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let started = Instant::now();
        let found = rig.registry.resolve_for("blue", "tenant", Purpose::Work);
        let known = rig.registry.snapshot().len();
        let clock = rig.registry.unresolved_for("blue");
        times.push(started.elapsed());
        assert!(found.is_ok() && known >= 1 && clock.is_zero());
    }
    drop(informer);
    times.sort();
    println!(
        "measured: reads beside a LIST that stalls: median {:?}, p99 {:?}",
        times[500], times[990]
    );
    assert!(times[990] < Duration::from_millis(1), "{:?}", times[990]);
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
