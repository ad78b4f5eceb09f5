//! What the target tells to whoever logs in as the hub does.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::{authentication::v1::SelfSubjectReview, core::v1::Namespace};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use serde_json::json;
use target_registry::{Cause, ClientOptions, Cluster, Kind, Registration, error_code, error_text};

use super::{
    hub::says,
    remedy::{Remedies, more_rights, whole_namespace},
    report::Check,
    rights,
};
use crate::{
    clusters::{
        access::{IN_CLUSTER, IN_NAMESPACES},
        fleet::{Entry, Fleet},
        known::account,
    },
    external::{
        gateway::HTTP_ROUTE,
        mariadb::{DATABASE, GRANT, USER},
        secrets::CLUSTER_SECRET_STORE,
    },
};

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Logs in and looks around.
pub async fn examine(
    registration: &Registration,
    entry: &Entry,
    fleet: &Fleet,
    remedies: &Remedies,
) -> Vec<Check> {
    let options = ClientOptions {
        request_timeout: PATIENCE,
        ..ClientOptions::default()
    };
    let answer = match registration.connect(&options).await {
        Ok(cluster) => cluster.probe().await.map(|_| cluster),
        Err(error) => Err(error),
    };
    let cluster = match answer {
        Ok(cluster) => cluster,
        Err(error) => return vec![unreachable(&error, entry, remedies)],
    };
    let version = cluster.version().unwrap_or_default();
    let mut checks = vec![Check::ok(
        "connection",
        format!("{} answers {version}", registration.server())
            .trim_end()
            .to_owned(),
    )];
    let account = account_of(&cluster, registration).await;
    checks.push(Check::ok(
        "login",
        format!("as {}/{}", account.0, account.1),
    ));
    checks.push(identity(&cluster, entry, remedies));
    checks.extend(duplicates(&cluster, registration, entry, fleet, remedies));
    checks.extend(permissions(&cluster, registration, &account, remedies).await);
    checks.extend(capabilities(&cluster, entry, remedies).await);
    checks
}

/// Whether the operator goes on with the registration before the present one.
fn is_kept(entry: &Entry) -> bool {
    entry
        .target
        .as_ref()
        .and_then(|target| target.status.as_ref()?.condition("Reachable"))
        .is_some_and(|condition| condition.reason == "Degraded")
}

fn unreachable(error: &kube::Error, entry: &Entry, remedies: &Remedies) -> Check {
    let (cause, text) = (Cause::of(error), error_text(error));
    if cause == Cause::Unauthorized {
        return Check::failed(
            "login",
            format!("the target does not accept the credential: {text}"),
        )
        .cured_by(remedies.rotate());
    }
    // The operator may well sit where the target can be reached from; on a connection that it kept from before, it proves
    // nothing about what is registered now.
    if says(entry, "Reachable") == Some(true) && !is_kept(entry) && cause != Cause::Tls {
        let detail = format!("not from here ({cause}: {text}), but the operator reaches it");
        return Check::skipped("connection", detail);
    }
    let detail = match cause {
        Cause::Tls => format!("the target cannot be verified by the registered authority: {text}"),
        _ => format!("{cause}: {text}; the remedy registers the address of the context"),
    };
    Check::failed("connection", detail).cured_by(remedies.rotate())
}

/// Who the registration logs in as: by the target's word, else by the token's, else by convention.
async fn account_of(cluster: &Arc<Cluster>, registration: &Registration) -> (String, String) {
    let api: Api<SelfSubjectReview> = Api::all(cluster.client());
    let review = SelfSubjectReview {
        metadata: ObjectMeta::default(),
        status: None,
    };
    let answer = api.create(&PostParams::default(), &review).await.ok();
    let user = answer.and_then(|answer| answer.status?.user_info?.username);
    let said = user.as_deref().and_then(|user| {
        let account = user.strip_prefix("system:serviceaccount:")?;
        account.split_once(':')
    });
    if let Some((namespace, name)) = said {
        return (namespace.to_owned(), name.to_owned());
    }
    account(None, None, &registration.claims())
}

fn identity(cluster: &Cluster, entry: &Entry, remedies: &Remedies) -> Check {
    const CHECK: &str = "identity";
    let Some(uid) = cluster.uid() else {
        return Check::skipped(
            CHECK,
            "the account may not read the namespace kube-system, which tells clusters apart",
        );
    };
    let target = entry.target.as_ref();
    let pinned = target.and_then(|target| target.spec.pinned());
    let recorded = target.and_then(|target| target.status.as_ref()?.cluster_uid.as_deref());
    match pinned.or(recorded) {
        Some(known) if known != uid => Check::failed(
            CHECK,
            format!("the name stands for the cluster {known} and leads to {uid}; put the right kubeconfig back, or approve the move"),
        )
        .cured_by(remedies.policy(&json!({ "identity": uid }))),
        _ => Check::ok(CHECK, format!("kube-system has the UID {uid}")),
    }
}

fn duplicates(
    cluster: &Cluster,
    registration: &Registration,
    entry: &Entry,
    fleet: &Fleet,
    remedies: &Remedies,
) -> Option<Check> {
    let (uid, server) = (cluster.uid(), registration.server());
    let others = fleet
        .entries
        .iter()
        .filter(|other| other.name != entry.name);
    let mut same = others.filter(|other| {
        let status = other
            .target
            .as_ref()
            .and_then(|target| target.status.as_ref());
        let their_uid = status.and_then(|status| status.cluster_uid.clone());
        let secret = other.registration();
        let theirs = secret.and_then(|secret| Registration::from_secret(secret, true).ok());
        match (&uid, &their_uid) {
            (Some(uid), Some(theirs)) if secret.is_some() => uid == theirs,
            _ => theirs.is_some_and(|theirs| theirs.server() == server),
        }
    });
    let other = same.next()?;
    Some(
        Check::warning(
            "duplicates",
            format!("the registration {} leads to the same cluster", other.name),
        )
        .cured_by(remedies.unregister(&other.name)),
    )
}

async fn permissions(
    cluster: &Arc<Cluster>,
    registration: &Registration,
    (account_namespace, account): &(String, String),
    remedies: &Remedies,
) -> Vec<Check> {
    const CHECK: &str = "permissions";
    let who = (account_namespace.as_str(), account.as_str());
    let client = cluster.client();
    let mut checks = Vec::new();
    let mut wide = rights::single(IN_CLUSTER);
    if registration.namespaces().is_none() {
        wide.extend(rights::single(IN_NAMESPACES));
    }
    let everything = rights::single(IN_NAMESPACES);
    match rights::missing(&client, None, wide).await {
        Ok(missing) if missing.is_empty() => {}
        Ok(missing) => {
            let detail = format!("in the whole cluster: {}", rights::words(&missing));
            let objects = more_rights(None, &rights::rules(&missing), who);
            checks.push(
                Check::failed(CHECK, detail).cured_by_objects(remedies.apply_on_target(objects)),
            );
        }
        Err(error) => checks.push(Check::skipped(CHECK, error_text(&error))),
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for namespace in registration.namespaces().into_iter().flatten() {
        let missing = rights::missing(&client, Some(namespace), everything.clone()).await;
        let exists = match namespaces.get_metadata(namespace).await {
            Ok(_) => Some(true),
            Err(error) if error_code(&error) == Some(404) => Some(false),
            Err(_) => None,
        };
        match (missing, exists) {
            (Err(error), _) => checks.push(Check::skipped(CHECK, error_text(&error))),
            (Ok(_), Some(false)) => {
                let detail = format!("the namespace {namespace} does not exist on the target");
                let objects = whole_namespace(namespace, who);
                checks.push(
                    Check::failed("namespace", detail)
                        .cured_by_objects(remedies.apply_on_target(objects)),
                );
            }
            (Ok(missing), _) if missing.is_empty() => {}
            (Ok(missing), None) if missing == everything => {
                let detail = format!(
                    "nothing is granted in the namespace {namespace}, or it does not exist on the target"
                );
                let objects = whole_namespace(namespace, who);
                checks.push(
                    Check::failed("namespace", detail)
                        .cured_by_objects(remedies.apply_on_target(objects)),
                );
            }
            (Ok(missing), _) => {
                let detail = format!("in the namespace {namespace}: {}", rights::words(&missing));
                let objects = more_rights(Some(namespace), &rights::rules(&missing), who);
                checks.push(
                    Check::failed(CHECK, detail)
                        .cured_by_objects(remedies.apply_on_target(objects)),
                );
            }
        }
    }
    if checks.is_empty() {
        checks.push(Check::ok(CHECK, "everything that Glances need is granted"));
    }
    checks
}

/// The optional kinds, with who needs them and how they get there.
async fn capabilities(cluster: &Arc<Cluster>, entry: &Entry, remedies: &Remedies) -> Vec<Check> {
    const CHECK: &str = "capabilities";
    let glances = entry.glances.as_deref().unwrap_or_default();
    let databases = glances.iter().any(|glance| glance.managed_database);
    let routes = glances.iter().any(|glance| glance.gateway);
    let mariadb = "apply --server-side -f https://github.com/mariadb-operator/mariadb-operator/releases/latest/download/crds.yaml";
    let gateway = "apply --server-side -f https://github.com/kubernetes-sigs/gateway-api/releases/latest/download/standard-install.yaml";
    let stores = "apply --server-side -f https://raw.githubusercontent.com/external-secrets/external-secrets/main/deploy/crds/bundle.yaml";
    let kinds: [(Kind, bool, &str); 5] = [
        (CLUSTER_SECRET_STORE, !glances.is_empty(), stores),
        (DATABASE, databases, mariadb),
        (USER, databases, mariadb),
        (GRANT, databases, mariadb),
        (HTTP_ROUTE, routes, gateway),
    ];
    let mut checks = Vec::new();
    let mut served = Vec::new();
    let mut told = BTreeSet::new();
    for (kind, needed, install) in kinds {
        match cluster.serves(&kind).await {
            Ok(true) => served.push(kind.kind),
            Ok(false) if needed => {
                // One command installs all kinds of one project.
                if told.insert(install) {
                    let detail = format!("{kind} is not served there, and Glances need it");
                    let remedy = remedies.on_target(install);
                    checks.push(Check::failed(CHECK, detail).cured_by(remedy));
                }
            }
            Ok(false) => {}
            Err(error) => checks.push(Check::skipped(CHECK, format!("{kind}: {error}"))),
        }
    }
    if checks.is_empty() {
        let detail = if served.is_empty() {
            "none of the optional kinds is served, and none is needed so far".to_owned()
        } else {
            format!("served: {}", served.join(", "))
        };
        checks.push(Check::ok(CHECK, detail));
    }
    checks
}
