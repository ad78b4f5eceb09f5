//! One cluster that does not answer, and all the others.

use std::time::{Duration, Instant};

use target_registry::{Cause, Unresolved, error_code};

use crate::{
    eventually,
    fake::{Fake, Fault, kubeconfig},
    rig::{Rig, SHORT, black_hole, version_of},
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
