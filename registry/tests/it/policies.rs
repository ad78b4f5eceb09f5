//! What a `TargetCluster` beside the Secret changes.

use std::{sync::Arc, time::Duration};

use data_encoding::BASE64URL_NOPAD;
use jiff::Timestamp;
use serde_json::{Value, json};
use target_registry::{
    Cause, Cluster, ClusterState, Purpose, Registry, RegistryOptions, State, Unresolved,
};
use tokio_util::sync::CancellationToken;

use crate::{
    eventually,
    fake::{Fake, Fault},
};

const LIMIT: Duration = Duration::from_secs(8);

/// A registry over a hub; stopped when it is dropped.
struct Process {
    registry: Registry,
    stop: CancellationToken,
    _hub: Arc<Cluster>,
}

impl Process {
    fn start(hub: &Fake) -> Self {
        let mut options = RegistryOptions::new("clusters");
        options.allow_insecure = true;
        options.probe.first_retry = Duration::from_millis(200);
        let cluster = Cluster::hub(hub.config(), None, &options.client).unwrap();
        let stop = CancellationToken::new();
        let registry = Registry::start(&cluster, options, stop.clone());
        Self {
            registry,
            stop,
            _hub: cluster,
        }
    }

    async fn until(&self, state: State, cause: Option<Cause>) {
        eventually(&format!("{state} {cause:?}"), LIMIT, || {
            let known = self.registry.snapshot();
            known
                .iter()
                .any(|now| now.name == "blue" && now.state == state && now.cause == cause)
                .then_some(())
        })
        .await;
    }
}

impl Process {
    fn state(&self) -> ClusterState {
        let known = self.registry.snapshot();
        known
            .into_iter()
            .find(|state| state.name == "blue")
            .unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn hub() -> Fake {
    let hub = Fake::start();
    hub.serve(
        "clusters.openstack.c5c3.io/v1alpha1",
        "TargetCluster",
        "targetclusters",
    );
    hub
}

fn policy(hub: &Fake, spec: &Value, status: &Value) {
    let rest = json!({
        "apiVersion": "clusters.openstack.c5c3.io/v1alpha1", "kind": "TargetCluster",
        "spec": spec, "status": status,
    });
    let resource = "clusters.openstack.c5c3.io/v1alpha1/targetclusters";
    hub.put(resource, "clusters", "blue", rest);
}

/// A hub whose registration leads to another cluster than an earlier process has seen.
async fn led_elsewhere() -> (Fake, Fake, Process) {
    let (hub, blue) = (hub(), Fake::start());
    policy(&hub, &json!({}), &json!({"clusterUID": "another"}));
    hub.register("blue", "true", &[("kubeconfig", &blue.kubeconfig("good"))]);
    let process = Process::start(&hub);
    process
        .until(State::Rejected, Some(Cause::IdentityChanged))
        .await;
    (hub, blue, process)
}

/// A token of a service account that was issued now.
fn token(number: u8, seconds: i64) -> String {
    let now = Timestamp::now().as_second();
    let part = |value: Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let claims = json!({
        "sub": "system:serviceaccount:access:hub", "iat": now, "exp": now + seconds, "jti": number,
    });
    format!("{}.{}.c2ln", part(json!({"alg": "RS256"})), part(claims))
}

#[tokio::test]
async fn a_grant_and_a_pause_hold_from_the_first_moment_on() {
    let (hub, blue) = (hub(), Fake::start());
    policy(
        &hub,
        &json!({"allowedNamespaces": {"names": ["tenant"]}}),
        &json!({}),
    );
    hub.register("blue", "true", &[("kubeconfig", &blue.kubeconfig("good"))]);
    let process = Process::start(&hub);
    let ask = |namespace, purpose| process.registry.resolve_for("blue", namespace, purpose);
    eventually("a verdict", LIMIT, || {
        match ask("stranger", Purpose::Work) {
            Err(Unresolved::NotGranted { .. }) => Some(()),
            Err(Unresolved::Pending { .. }) => None,
            other => panic!("{other:?}"),
        }
    })
    .await;
    process.until(State::Connected, None).await;
    assert!(ask("tenant", Purpose::Work).is_ok());
    policy(&hub, &json!({"paused": true, "maxInFlight": 1}), &json!({}));
    eventually("the pause", LIMIT, || {
        matches!(ask("tenant", Purpose::Work), Err(Unresolved::Paused { .. })).then_some(())
    })
    .await;
    let cluster = ask("tenant", Purpose::Read).unwrap();
    let permit = cluster.try_permit();
    assert!(
        permit.is_some() && cluster.try_permit().is_none(),
        "one at a time"
    );
}

#[tokio::test]
async fn where_a_name_has_led_outlives_the_process() {
    let (hub, blue, process) = led_elsewhere().await;
    let uid = format!("uid-of-{}", blue.url);
    policy(
        &hub,
        &json!({"identity": uid}),
        &json!({"clusterUID": "another"}),
    );
    process.until(State::Connected, None).await;
    policy(
        &hub,
        &json!({"identity": "another"}),
        &json!({"clusterUID": uid}),
    );
    process
        .until(State::Rejected, Some(Cause::IdentityChanged))
        .await;
    // Whoever takes a wrong demand back finds everything as it was.
    policy(&hub, &json!({}), &json!({"clusterUID": uid}));
    process.until(State::Connected, None).await;
}

#[tokio::test]
async fn who_may_not_ask_who_answers_forgets_nothing() {
    let (hub, blue, red) = (hub(), Fake::start(), Fake::start());
    let uid = format!("uid-of-{}", blue.url);
    policy(&hub, &json!({}), &json!({"clusterUID": uid}));
    blue.fail("namespaces/kube-system", Fault::Status(403));
    hub.register("blue", "true", &[("kubeconfig", &blue.kubeconfig("good"))]);
    let process = Process::start(&hub);
    process.until(State::Connected, None).await;
    let state = process.state();
    assert!(!state.identified, "nobody has said who it is");
    assert_eq!(
        state.uid,
        Some(uid),
        "where the name led before is still known"
    );
    // Somebody says which cluster it has to be; who answers does not say that it is another.
    policy(&hub, &json!({"identity": "another"}), &json!({}));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(process.state().state, State::Connected);
    policy(&hub, &json!({}), &json!({}));
    hub.register("blue", "true", &[("kubeconfig", &red.kubeconfig("good"))]);
    process
        .until(State::Rejected, Some(Cause::IdentityChanged))
        .await;
    assert!(process.state().detail.contains("create it again"));
    policy(&hub, &json!({"identity": "another"}), &json!({}));
    eventually("the way out that is left", LIMIT, || {
        let state = process.state();
        let refused = state.cause == Some(Cause::IdentityChanged);
        (refused && !state.detail.contains("create it again")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_was_withdrawn_is_not_used_when_somebody_approves_of_where_it_led() {
    let (hub, blue, process) = led_elsewhere().await;
    hub.register("blue", "true", &[]);
    process
        .until(State::Rejected, Some(Cause::KubeconfigInvalid))
        .await;
    let before = blue.calls("").len();
    let uid = format!("uid-of-{}", blue.url);
    policy(
        &hub,
        &json!({"identity": uid}),
        &json!({"clusterUID": "another"}),
    );
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(process.state().cause, Some(Cause::KubeconfigInvalid));
    assert_eq!(blue.calls("").len(), before, "nobody logged in");
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends_and_the_next_process_goes_on_with_it() {
    let (hub, blue) = (hub(), Fake::start());
    let (first, second) = (token(1, 4), token(2, 3600));
    blue.accept(&[&first, &second]);
    blue.grant(&second);
    policy(&hub, &json!({"renewCredentials": true}), &json!({}));
    hub.register("blue", "true", &[("kubeconfig", &blue.kubeconfig(&first))]);
    let process = Process::start(&hub);
    process.until(State::Connected, None).await;
    let generation = process.registry.resolve("blue").unwrap().generation();
    let asks = || blue.calls("serviceaccounts/hub/token").len();
    assert_eq!(asks(), 0, "not at once");
    let in_use = |token: &str| {
        blue.calls("")
            .last()
            .is_some_and(|call| call.token == token)
    };
    eventually("the renewed token", LIMIT, || in_use(&second).then_some(())).await;
    assert_eq!(asks(), 1);
    assert_eq!(
        process.registry.resolve("blue").unwrap().generation(),
        generation,
        "swapped under the connection"
    );
    let kept = hub.calls("secrets/blue");
    assert!(
        !kept.is_empty()
            && kept
                .iter()
                .all(|call| call.path.ends_with("/blue-renewed-token")),
        "beside the registration, which is not written"
    );

    // The first one ends; what is kept does not, also if it was refused for a while.
    blue.accept(&[]);
    drop(process);
    let process = Process::start(&hub);
    process.until(State::Lost, Some(Cause::Unauthorized)).await;
    blue.accept(&[&second]);
    process.until(State::Connected, None).await;
    assert!(in_use(&second));
    // A new registration goes before it.
    let third = token(3, 3600);
    blue.accept(&[&third]);
    hub.register("blue", "true", &[("kubeconfig", &blue.kubeconfig(&third))]);
    eventually("the new registration", LIMIT, || {
        in_use(&third).then_some(())
    })
    .await;
    process.until(State::Connected, None).await;
}

#[tokio::test]
async fn a_cluster_that_does_not_accept_what_it_grants_is_not_asked_without_end() {
    let (hub, blue) = (hub(), Fake::start());
    let (good, bad) = (token(1, 4), token(2, 3600));
    blue.accept(&[&good]);
    blue.grant(&bad);
    policy(&hub, &json!({"renewCredentials": true}), &json!({}));
    hub.register("blue", "true", &[("kubeconfig", &blue.kubeconfig(&good))]);
    let process = Process::start(&hub);
    process.until(State::Connected, None).await;
    let asks = || blue.calls("serviceaccounts/hub/token").len();
    eventually("the renewal", LIMIT, || (asks() > 0).then_some(())).await;
    // Long enough for many more, had the refusal of the new one begun it all again.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(asks(), 1);
    assert!(
        process.registry.resolve("blue").is_ok(),
        "by the token it accepts"
    );
}

#[tokio::test]
async fn a_renewal_that_is_refused_does_not_cost_the_token_in_use() {
    let (hub, blue) = (hub(), Fake::start());
    let (first, second, third) = (token(1, 4), token(2, 8), token(3, 3600));
    blue.accept(&[&first, &second]);
    blue.grant(&second);
    policy(&hub, &json!({"renewCredentials": true}), &json!({}));
    hub.register("blue", "true", &[("kubeconfig", &blue.kubeconfig(&first))]);
    let process = Process::start(&hub);
    process.until(State::Connected, None).await;
    let tried = |token: &str| blue.calls("").iter().any(|call| call.token == token);
    eventually("the second", LIMIT, || tried(&second).then_some(())).await;
    process.until(State::Connected, None).await;
    // The first ends. What comes next is not accepted.
    blue.accept(&[&second]);
    let name = "blue-renewed-token";
    let mut secret = hub.get("v1/secrets", "clusters", name).unwrap();
    secret["data"]["token"] = json!(data_encoding::BASE64.encode(third.as_bytes()));
    hub.put("v1/secrets", "clusters", name, secret);
    eventually("the third", LIMIT, || tried(&third).then_some(())).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(
        process.registry.resolve("blue").is_ok(),
        "{:?}",
        process.state()
    );
}

#[tokio::test]
async fn a_secret_that_is_no_renewed_token_is_not_written_over() {
    let (hub, blue) = (hub(), Fake::start());
    let (first, second) = (token(1, 6), token(2, 3600));
    blue.accept(&[&first, &second]);
    blue.grant(&second);
    policy(&hub, &json!({"renewCredentials": true}), &json!({}));
    hub.register(
        "blue-renewed-token",
        "true",
        &[("kubeconfig", &blue.kubeconfig("good"))],
    );
    hub.register("blue", "true", &[("kubeconfig", &blue.kubeconfig(&first))]);
    let process = Process::start(&hub);
    let near = Some(Cause::CredentialExpiring);
    process.until(State::Degraded, near).await;
    let detail = process.state().detail;
    assert!(
        detail.contains("clusters/blue-renewed-token") && detail.contains("something else"),
        "{detail}"
    );
    assert!(
        blue.calls("serviceaccounts/hub/token").is_empty(),
        "nothing was asked for that could not be kept"
    );
    hub.delete("v1/secrets", "clusters", "blue-renewed-token");
    process.until(State::Connected, None).await;
}

#[tokio::test]
async fn a_token_that_ends_no_later_is_no_renewal() {
    let (hub, blue) = (hub(), Fake::start());
    let (first, earlier, second) = (token(1, 6), token(2, 5), token(3, 3600));
    blue.accept(&[&first, &earlier, &second]);
    blue.grant(&earlier);
    policy(&hub, &json!({"renewCredentials": true}), &json!({}));
    hub.register("blue", "true", &[("kubeconfig", &blue.kubeconfig(&first))]);
    let process = Process::start(&hub);
    let near = Some(Cause::CredentialExpiring);
    process.until(State::Degraded, near).await;
    let detail = process.state().detail;
    assert!(detail.contains("ends no later"), "{detail}");
    blue.grant(&second);
    process.until(State::Connected, None).await;
}

#[tokio::test]
async fn a_credential_that_nobody_renews_degrades_its_cluster_before_it_ends() {
    let (hub, blue) = (hub(), Fake::start());
    let (hour, month) = (token(1, 3600), token(2, 30 * 24 * 3600));
    blue.accept(&[&hour, &month]);
    hub.register("blue", "true", &[("kubeconfig", &blue.kubeconfig(&hour))]);
    let process = Process::start(&hub);
    let near = Some(Cause::CredentialExpiring);
    process.until(State::Degraded, near).await;
    let mut changes = process.registry.subscribe();
    assert!(
        process.registry.resolve("blue").is_ok(),
        "it is used as ever"
    );
    // Somebody sees to it.
    policy(&hub, &json!({"renewCredentials": true}), &json!({}));
    process.until(State::Connected, None).await;
    policy(&hub, &json!({}), &json!({}));
    process.until(State::Degraded, near).await;
    hub.register("blue", "true", &[("kubeconfig", &blue.kubeconfig(&month))]);
    process.until(State::Connected, None).await;
    drop(process);
    let mut told = 0;
    while changes.try_recv().is_ok() {
        told += 1;
    }
    assert!(
        told <= 3,
        "who uses it hears of two policies and a rotation: {told}"
    );
}
