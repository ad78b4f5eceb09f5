//! **`DBConnectionSecret`**: the finished database URL in a Secret of its own, and its digest.
//!
//! Reports through `SecretsReady`: `WaitingForDBCredentials` while the upstream Secret lacks what the URL needs. Never
//! writes the Secret with half of the credentials (contract: database, `DBConnectionSecret`).

use glance_api::{
    conditions::reasons::WAITING_FOR_DB_CREDENTIALS,
    defaults,
    glance::{CredentialsMode, Glance},
};
use kube::core::DynamicObject;
use std::borrow::Cow;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::{
    cluster::{
        Target,
        children::Created,
        kinds::{DATABASE, SECRET},
        ledger,
        ownership::Claim,
    },
    dsn::{Dsn, Tls, Verify},
    glance::database::mariadb,
    hash::salted_digest,
    names,
    pipeline::report::{ErrorKind, REQUEUE_SECRETS, Report, StepError, Verdict},
};

const STEP: &str = "DBConnectionSecret";
/// The only data key of the Secret.
pub const KEY: &str = "connection";

/// The database URL, as far as others need it.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Digest for the pod annotation and for the retry of failed Jobs.
    pub digest: String,
}

/// Writes the Secret.
pub async fn reconcile(glance: &Glance, target: &Target) -> Result<Report<Connection>, StepError> {
    let upstream = &glance.spec.database.secret_ref.name;
    let name = names::db_connection(&target.owner.name);
    let Some(facts) = target.secret(upstream).await? else {
        return Ok(waiting(format!(
            "Upstream database credentials Secret {}/{upstream} not found",
            target.namespace()
        )));
    };
    let live = target.child(&SECRET, &name).await?;
    let glance = &*as_provisioned(glance, target).await?;
    let inputs = inputs(glance, &facts.version, live.as_deref());
    if let Some(digest) = live
        .as_ref()
        .and_then(|_| target.view.ledger.output(&target.owner.uid, STEP, &inputs))
    {
        return Ok(Report::done(Connection { digest }));
    }

    let Some(payload) = target.payload(upstream).await? else {
        return Ok(waiting(format!(
            "Upstream database credentials Secret {}/{upstream} not found",
            target.namespace()
        )));
    };
    let text = |key: &'static str| payload.text(key).ok().flatten();
    let url = match url(glance, target.namespace(), text) {
        Ok(url) => url,
        Err(missing) => {
            return Ok(waiting(format!(
                "Upstream database credentials Secret {}/{upstream} missing key \"{missing}\"",
                target.namespace()
            )));
        }
    };
    write(target, &name, KEY, &url).await?;
    let digest = salted_digest(&target.owner.uid, &url);
    let live = target.child(&SECRET, &name).await?;
    target.view.ledger.learn_output(
        &target.owner.uid,
        STEP,
        self::inputs(glance, &payload.version, live.as_deref()),
        digest.clone(),
    );
    Ok(Report::done(Connection { digest }))
}

/// The Glance with the database that there is, where its spec names another one by now: the `MariaDB` operator moves
/// none, so that a URL after the spec would send every pod that restarts to a database that nobody makes.
async fn as_provisioned<'a>(
    glance: &'a Glance,
    target: &Target,
) -> Result<Cow<'a, Glance>, StepError> {
    if glance.spec.database.cluster_ref.is_none() {
        return Ok(Cow::Borrowed(glance));
    }
    let live = match target.child(&DATABASE, &target.owner.name).await {
        // The Database step has a condition to say that in.
        Err(error) if error.kind == ErrorKind::Forbidden => None,
        live => live?,
    };
    let other = live.and_then(|live| mariadb::other_place(&live.data, &glance.spec.database));
    Ok(other.map_or(Cow::Borrowed(glance), |place| {
        let mut glance = glance.clone();
        glance.spec.database.database = place.database;
        if let Some(cluster) = &mut glance.spec.database.cluster_ref {
            cluster.name = place.cluster;
        }
        Cow::Owned(glance)
    }))
}

fn waiting(message: String) -> Report<Connection> {
    Report::waiting(
        Verdict::no(WAITING_FOR_DB_CREDENTIALS, message),
        REQUEUE_SECRETS,
    )
}

/// Everything the URL and its Secret depend on, versions standing for content.
fn inputs(glance: &Glance, upstream: &ledger::Version, live: Option<&DynamicObject>) -> String {
    let live = live.map(|live| ledger::version(&live.metadata));
    format!(
        "{upstream:?} {live:?} {}",
        ledger::of_json(&glance.spec.database)
    )
}

/// The URL, or the key that is missing for it. `value` reads the credentials; one that is no text counts as missing,
/// like an empty one.
pub fn url(
    glance: &Glance,
    namespace: &str,
    mut value: impl FnMut(&'static str) -> Option<SecretString>,
) -> Result<SecretString, &'static str> {
    let database = &glance.spec.database;
    let own_name = glance.metadata.name.clone().unwrap_or_default();
    let static_mode = defaults::credentials_mode(&glance.spec.database) == CredentialsMode::Static;
    let user = if database.cluster_ref.is_some() && static_mode {
        own_name
    } else {
        let user = value("username").ok_or("username")?;
        user.expose_secret().to_owned()
    };
    let password = value("password").ok_or("password")?;
    let host = match &database.cluster_ref {
        Some(cluster) => names::service_host(&cluster.name, namespace),
        None => database.host.clone().unwrap_or_default(),
    };
    let dsn = Dsn {
        user: &user,
        password: &password,
        host: &host,
        port: database.port.unwrap_or_default(),
        database: &database.database,
        tls: defaults::database_tls(database).and_then(|(tls, mode)| {
            Some(Tls {
                verify: Verify::from_mode(mode)?,
                client_certificate: tls.client_cert_secret_ref.is_some(),
            })
        }),
    };
    Ok(dsn.to_url())
}

/// The Secret that holds one value.
pub fn secret(name: &str, key: &str, value: &SecretString) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name },
        "type": "Opaque",
        "stringData": { key: value.expose_secret() },
    })
}

/// Writes a value into an own Secret where its environment form differs from the value itself. Whether it does. One
/// that is not needed any more stays: until the roll-out is through there are pods that cannot restart without it.
pub async fn write_if_escaped(
    target: &Target,
    name: &str,
    value: &SecretString,
    escape: impl Fn(&str) -> std::borrow::Cow<'_, str>,
) -> Result<bool, StepError> {
    let escaped = escape(value.expose_secret());
    if escaped == value.expose_secret() {
        return Ok(false);
    }
    write(
        target,
        name,
        "password",
        &SecretString::from(escaped.into_owned()),
    )
    .await?;
    Ok(true)
}

/// Brings a Secret of ours to hold exactly this key and value. One of that name that is not ours is refused; on the
/// hub one that nobody controls is taken over.
async fn write(
    target: &Target,
    name: &str,
    key: &str,
    value: &SecretString,
) -> Result<(), StepError> {
    let desired = secret(name, key, value);
    if target.child(&SECRET, name).await?.is_none()
        && let Created::New(_) = target.create(&SECRET, desired.clone()).await?
    {
        return Ok(());
    }
    let Some(live) = target.read(&SECRET, name).await? else {
        return Err(StepError::new(
            ErrorKind::Conflict,
            format!("Secret {name} went away during the pass"),
        ));
    };
    let claim = target.owner.claim(&live.metadata);
    if !matches!(claim, Claim::Mine | Claim::Unmarked) {
        return Err(target.owner.refuse("Secret", name, &claim));
    }
    if claim == Claim::Mine && holds_exactly(&live, key, value) {
        target.view.observe(&SECRET, live);
        return Ok(());
    }
    if let Some(obstacle) = unwritable(&live) {
        if claim != Claim::Mine {
            return Err(StepError::new(
                ErrorKind::Refused,
                format!(
                    "refusing to adopt pre-existing Secret {}/{name}: it is {obstacle}, so its content cannot be set; \
                     delete it",
                    target.namespace()
                ),
            ));
        }
        target.delete(&SECRET, &live.metadata).await?;
        return match target.create(&SECRET, desired).await? {
            Created::New(_) => Ok(()),
            Created::Exists => Err(StepError::new(
                ErrorKind::Conflict,
                format!("Secret {name} is {obstacle} and not gone yet"),
            )),
        };
    }
    let mut wanted = json!({ "metadata": live.metadata, "type": live.data["type"] });
    target.owner.stamp(&mut wanted);
    if !target.is_remote() {
        // Owners beside the controller stay.
        wanted["metadata"]["ownerReferences"] =
            target.owner.mark(&live.metadata)["metadata"]["ownerReferences"].take();
    }
    let mut object = live;
    object.metadata = serde_json::from_value(wanted["metadata"].take())
        .map_err(|error| StepError::new(ErrorKind::Render, error.to_string()))?;
    object.metadata.managed_fields = None;
    object.data = json!({
        "type": "Opaque",
        "data": { key: data_encoding::BASE64.encode(value.expose_secret().as_bytes()) },
    });
    target.replace(&SECRET, name, &object).await
}

/// What about a Secret keeps every update from setting its content.
fn unwritable(live: &DynamicObject) -> Option<String> {
    if live.data["immutable"] == true {
        return Some("immutable".to_owned());
    }
    let kind = live.data["type"].as_str().unwrap_or("Opaque");
    (kind != "Opaque").then(|| format!("of type {kind}"))
}

fn holds_exactly(live: &DynamicObject, key: &str, value: &SecretString) -> bool {
    let wanted = data_encoding::BASE64.encode(value.expose_secret().as_bytes());
    let data: Option<&serde_json::Map<String, Value>> = live.data["data"].as_object();
    data.is_some_and(|data| {
        data.len() == 1 && data.get(key).and_then(Value::as_str) == Some(&wanted)
    })
}

#[cfg(test)]
mod tests {
    use kube::core::DynamicObject;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::plain(json!({ "type": "Opaque" }), None)]
    #[case::locked(json!({ "type": "Opaque", "immutable": true }), Some("immutable"))]
    #[case::typed(json!({ "type": "example.org/login" }), Some("of type example.org/login"))]
    fn a_secret_that_no_update_can_mend_is_known(
        #[case] data: Value,
        #[case] obstacle: Option<&str>,
    ) {
        let mut live = DynamicObject::new("images-db-connection", &SECRET.api_resource());
        live.data = data;
        assert_eq!(unwritable(&live).as_deref(), obstacle);
    }
}
