//! What is known of a name before a command changes it: the cluster it stands for, its server, the
//! account that the hub logs in with.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use target_registry::{
    Claims, ClientOptions, KUBECONFIG_KEY, Registration, error_text, is_registration,
};

use super::{
    access::{ACCOUNT, NAMESPACE},
    error::Error,
    hub::{ACCOUNT_ANNOTATION, Hub},
};

/// How long a look at a cluster through its registration may take.
const LOOK: Duration = Duration::from_secs(10);

/// What the hub knows of a name before a command changes it.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Identity of the cluster the name stands for.
    pub uid: Option<String>,
    /// Host and port of its server.
    pub server: Option<String>,
    /// What the registered token says of itself.
    pub claims: Claims,
    /// The namespaces that are declared; `None` without such a declaration.
    pub namespaces: Option<BTreeSet<String>>,
    /// Whether it has a `TargetCluster`.
    pub has_target: bool,
}

// === impl Known ===

impl Known {
    /// By the Secret and the `TargetCluster`; without an identity there, by asking the cluster.
    pub async fn of(hub: &Hub, name: &str, secret: Option<&Secret>) -> Result<Self, Error> {
        must_be_registration(hub, name, secret)?;
        let target = hub.target(name).await?;
        let status = target.as_ref().and_then(|target| target.status.clone());
        let status = status.unwrap_or_default();
        let registration = secret.and_then(|s| Registration::from_secret(s, true).ok());
        let pinned = target.as_ref().and_then(|target| target.spec.pinned());
        let mut uid = pinned.map(str::to_owned);
        if uid.is_none() && secret.is_some() {
            uid = status.cluster_uid;
        }
        if uid.is_none()
            && let Some(registration) = &registration
        {
            uid = look(registration).await.ok().flatten();
        }
        let claims = registration.as_ref().map(Registration::claims);
        let mut claims = claims.unwrap_or_default();
        if claims.account.is_none() {
            claims.account = secret.and_then(noted_account);
        }
        let server = registration.as_ref().map(Registration::server);
        Ok(Self {
            uid,
            server: server.or(status.server),
            claims,
            namespaces: registration.and_then(|r| r.namespaces().cloned()),
            has_target: target.is_some(),
        })
    }
}

/// Refuses a Secret that is neither a registration nor was one: it is somebody's, and only has the name of a cluster.
pub fn must_be_registration(hub: &Hub, name: &str, secret: Option<&Secret>) -> Result<(), Error> {
    let holds_one = |secret: &Secret| {
        let mut data = secret.data.iter().flatten();
        is_registration(&secret.metadata) || data.any(|(key, _)| key == KUBECONFIG_KEY)
    };
    if secret.is_none_or(holds_one) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the Secret {}/{name} holds something else than a registration; take another name",
        hub.namespace
    )))
}

/// The account that these commands noted when they wrote the registration.
fn noted_account(secret: &Secret) -> Option<(String, String)> {
    let annotations = secret.metadata.annotations.as_ref()?;
    let (namespace, name) = annotations.get(ACCOUNT_ANNOTATION)?.split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}

/// The hub's account on a target: as named, else that of the registered token, else as the chart
/// has it.
pub fn account(namespace: Option<&str>, name: Option<&str>, known: &Claims) -> (String, String) {
    let known = known.account.as_ref();
    let pick = |given: Option<&str>, known: Option<&String>, default: &str| {
        given
            .or(known.map(String::as_str))
            .unwrap_or(default)
            .to_owned()
    };
    (
        pick(namespace, known.map(|known| &known.0), NAMESPACE),
        pick(name, known.map(|known| &known.1), ACCOUNT),
    )
}

/// Logs in by a registration and says who answers, or why nobody does.
pub async fn look(registration: &Registration) -> Result<Option<String>, String> {
    let options = ClientOptions {
        request_timeout: LOOK,
        ..ClientOptions::default()
    };
    let cluster = registration
        .connect(&options)
        .await
        .map_err(|error| error_text(&error))?;
    let identity = cluster.probe().await.map_err(|error| error_text(&error))?;
    Ok(identity.uid)
}
