//! Clusters that stop answering, and come back.

use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::json;
use target_registry::{Cause, State};

use crate::{
    eventually,
    fake::{Fake, Fault},
    rig::{Rig, SHORT, quick, synced, version_of},
};

async fn probed(blue: &Fake) {
    let before = blue.calls("readyz").len();
    eventually("two more probes", SHORT, || {
        (blue.calls("readyz").len() >= before + 2).then_some(())
    })
    .await;
}

fn rig() -> Rig {
    Rig::with(Fake::start(), |options| options.probe = quick())
}

#[rstest]
#[case::silent(Fault::Hang, Cause::Timeout)]
#[case::half_an_answer(Fault::Stall, Cause::Timeout)]
#[case::broken(Fault::Status(503), Cause::Unreachable)]
#[case::no_api_server(Fault::Plain(404), Cause::Unreachable)]
#[case::unauthorized(Fault::Status(401), Cause::Unauthorized)]
#[case::unauthorized_by_a_gateway(Fault::Gateway(401), Cause::Unauthorized)]
#[tokio::test]
async fn a_cluster_that_fails_is_left_alone_and_comes_back_by_itself(
    #[case] fault: Fault,
    #[case] cause: Cause,
) {
    let blue = Fake::start();
    let rig = rig();
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    let cluster = rig.engaged().await;
    let watch = synced(&cluster).await;
    let mut changes = rig.registry.subscribe();

    blue.fail("", fault);
    blue.cut();
    let state = rig.until(State::Lost, Some(cause)).await;
    assert!(state.next_try.is_some(), "{state:?}");
    assert_eq!(
        changes.recv().await.unwrap().name,
        "blue",
        "users are woken"
    );
    let error = rig.error();
    let text = error.to_string();
    for part in [
        "cluster not found: \"blue\" is not usable since",
        cause.as_str(),
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!error.may_abandon());
    assert_eq!(rig.error(), error, "the text stays as it is");

    // Only the probe still asks.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let watches = blue.calls("configmaps").len();
    probed(&blue).await;
    probed(&blue).await;
    assert_eq!(blue.calls("configmaps").len(), watches, "watches rest");
    blue.put("v1/configmaps", "ns", "meanwhile", json!({}));

    blue.heal();
    let healed = Instant::now();
    let back = rig.engaged().await;
    assert_eq!(
        back.generation(),
        cluster.generation(),
        "and not built anew"
    );
    assert_eq!(
        changes.recv().await.unwrap().name,
        "blue",
        "users are woken"
    );
    eventually("what happened meanwhile is seen", SHORT, || {
        watch.get(Some("ns"), "meanwhile")
    })
    .await;
    println!("{cause}: back after {:?}", healed.elapsed());
    version_of(&back).await.unwrap();
}

#[tokio::test]
async fn a_lost_answer_takes_nothing_away_and_wakes_nobody() {
    let blue = Fake::start();
    let rig = Rig::with(Fake::start(), |options| {
        options.probe = quick();
        options.probe.failures = u32::MAX;
    });
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    let cluster = rig.engaged().await;
    let mut changes = rig.registry.subscribe();
    let mut published = rig.registry.published();
    blue.fail("readyz", Fault::Status(500));
    published.changed().await.unwrap();
    rig.until(State::Degraded, Some(Cause::Unreachable)).await;
    version_of(&rig.registry.resolve("blue").unwrap())
        .await
        .unwrap();
    blue.heal();
    assert_eq!(rig.engaged().await.generation(), cluster.generation());
    assert!(changes.try_recv().is_err(), "nobody is concerned");
}

#[tokio::test]
async fn who_may_not_ask_for_readiness_has_been_answered() {
    let blue = Fake::start();
    let rig = rig();
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    rig.engaged().await;
    blue.fail("readyz", Fault::Status(403));
    probed(&blue).await;
    probed(&blue).await;
    blue.heal();
    // A proxy in front that does not let the path through.
    blue.fail("readyz", Fault::Plain(404));
    probed(&blue).await;
    probed(&blue).await;
    assert_eq!(rig.state().unwrap().state, State::Connected);
}

#[tokio::test]
async fn a_revoked_credential_is_noticed_by_the_next_call() {
    let blue = Fake::start();
    let rig = Rig::start(Fake::start());
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    let cluster = rig.engaged().await;
    blue.accept(&["better"]);
    assert!(version_of(&cluster).await.is_err());
    let started = Instant::now();
    rig.until(State::Lost, Some(Cause::Unauthorized)).await;
    // The next probe is due seconds later.
    let took = started.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    rig.register(&[("kubeconfig", &blue.kubeconfig("better"))]);
    let back = rig.engaged().await;
    assert_eq!(back.generation(), cluster.generation());
    version_of(&back).await.unwrap();
}

#[tokio::test]
async fn a_busy_cluster_is_not_a_lost_one() {
    let blue = Fake::start();
    let rig = rig();
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    rig.engaged().await;
    blue.fail("", Fault::Busy("1"));
    rig.until(State::Degraded, Some(Cause::Throttled)).await;
    let asked = blue.calls("").len();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(blue.calls("").len(), asked, "its wish is honoured");
    assert!(rig.registry.resolve("blue").is_ok());
    blue.heal();
    rig.engaged().await;
}

#[tokio::test]
async fn a_lost_cluster_that_comes_back_as_another_is_not_used() {
    let blue = Fake::start();
    let rig = rig();
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    rig.engaged().await;
    blue.fail("", Fault::Status(503));
    rig.until(State::Lost, Some(Cause::Unreachable)).await;
    blue.become_another();
    blue.heal();
    rig.until(State::Rejected, Some(Cause::IdentityChanged))
        .await;
    assert!(!rig.error().may_abandon());
}

#[tokio::test]
async fn garbage_written_while_a_cluster_is_lost_is_told_once_it_is_back() {
    let blue = Fake::start();
    let rig = rig();
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    let cluster = rig.engaged().await;
    blue.fail("", Fault::Hang);
    rig.until(State::Lost, Some(Cause::Timeout)).await;
    rig.register(&[("kubeconfig", "not a kubeconfig")]);
    blue.heal();
    rig.until(State::Degraded, Some(Cause::KubeconfigInvalid))
        .await;
    let now = rig.registry.resolve("blue").unwrap();
    assert_eq!(now.generation(), cluster.generation());
}
