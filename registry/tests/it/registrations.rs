//! Registrations: what engages, what is refused, what ends one.

use std::time::Duration;

use serde_json::json;
use target_registry::{Cause, State};

use crate::{
    eventually,
    fake::{Fake, Fault},
    rig::{Rig, SHORT, synced, version_of},
};

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
async fn neither_the_type_of_a_secret_nor_keys_that_mean_nothing_make_a_difference() {
    let blue = Fake::start();
    let rig = Rig::start(Fake::start());
    let config = blue.kubeconfig("good");
    rig.register(&[("kubeconfig", &config), ("value", &config)]);
    let cluster = rig.engaged().await;
    // One of the two kubeconfigs goes, the one that nobody reads.
    rig.register(&[("kubeconfig", &config)]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let same = rig.registry.resolve("blue").unwrap();
    assert_eq!(same.generation(), cluster.generation());

    // Another type: to Kubernetes that is another Secret.
    rig.hub.delete("v1/secrets", "clusters", "blue");
    eventually("it to be gone", SHORT, || {
        rig.state().is_none().then_some(())
    })
    .await;
    let labels = json!({target_registry::REGISTRATION_LABEL: "true"});
    let encoded = data_encoding::BASE64.encode(config.as_bytes());
    let secret = json!({
        "type": "example.org/cluster", "metadata": {"labels": labels},
        "data": {"kubeconfig": encoded, "value": encoded},
    });
    rig.hub.put("v1/secrets", "clusters", "blue", secret);
    rig.engaged().await;

    // The other one goes.
    rig.register(&[("value", &config)]);
    rig.until(State::Rejected, Some(Cause::KubeconfigInvalid))
        .await;
}
