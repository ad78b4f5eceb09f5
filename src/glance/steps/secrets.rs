//! **Secrets**: the selected store is ready and both credential Secrets are usable.
//!
//! Condition `SecretsReady`: `SecretStoreNotReady`, `WaitingForDBCredentials`, `WaitingForServiceUserCredentials`
//! while one of the gates waits, `SecretsAvailable` when all are passed. The gates run in this order on every pass:
//! the store's condition is how a backend outage shows (contract: database, secret gates).

use glance_api::{
    conditions::reasons::{
        SECRET_STORE_NOT_READY, SECRETS_AVAILABLE, WAITING_FOR_DB_CREDENTIALS,
        WAITING_FOR_SERVICE_USER_CREDENTIALS,
    },
    defaults,
    glance::{CredentialsMode, Glance, SecretStoreKind},
};
use target_registry::Kind;

use crate::{
    cluster::{
        Target,
        inputs::{Explanation, InputState},
        kinds::SECRET,
        ledger::{self, SecretFacts, Version},
    },
    external::secrets::{CLUSTER_SECRET_STORE, SECRET_STORE},
    glance::workload::environment::SecretKeyRef,
    hash::salted_digest,
    names,
    oslo::escape::environment_value,
    pipeline::report::{ErrorKind, REQUEUE_SECRETS, Report, StepError, Verdict},
};

/// How the API pods get the service password.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Digest for the pod annotation.
    pub password_digest: String,
    /// Where the password is read from.
    pub password: SecretKeyRef,
}

/// One of the two credential gates.
struct Gate<'a> {
    secret: &'a str,
    keys: Vec<&'a str>,
    reason: &'static str,
    noun: &'static str,
    waiting: &'static str,
}

/// Runs the gates.
pub async fn reconcile(glance: &Glance, target: &Target) -> Result<Report<Credentials>, StepError> {
    if let Some(verdict) = store_gate(glance, target).await? {
        return Ok(Report::waiting(verdict, REQUEUE_SECRETS));
    }
    for gate in [database_gate(glance), service_user_gate(glance)] {
        if let Some(verdict) = credential_gate(target, &gate).await? {
            return Ok(Report::waiting(verdict, REQUEUE_SECRETS));
        }
    }
    Ok(Report::with(
        Verdict::yes(SECRETS_AVAILABLE, ""),
        credentials(glance, target).await?,
    ))
}

async fn store_gate(glance: &Glance, target: &Target) -> Result<Option<Verdict>, StepError> {
    let (kind, name) = defaults::secret_store(&glance.spec);
    let (served_kind, namespace) = match kind {
        SecretStoreKind::ClusterSecretStore => (CLUSTER_SECRET_STORE, None),
        SecretStoreKind::SecretStore => (SECRET_STORE, Some(target.namespace())),
    };
    let state = match target.input_state(&served_kind, namespace, name).await {
        Err(error) if error.kind == ErrorKind::OutOfScope => {
            let verdict = Verdict::no(SECRET_STORE_NOT_READY, error.message.clone());
            return Err(error.verdict(verdict));
        }
        // Usual in a namespace-scoped install, whose Role cannot grant a kind without namespace: no failure of ours,
        // and the CR's author can do something about it.
        Err(error) if error.kind == ErrorKind::Forbidden => {
            return Ok(Some(Verdict::no(
                SECRET_STORE_NOT_READY,
                forbidden(&served_kind, name, target.cluster.name(), &error.message),
            )));
        }
        state => state?,
    };
    let text = format!(
        "{} \"{name}\" is not ready; upstream secret backend unreachable",
        served_kind.kind
    );
    Ok(match state {
        InputState::Ready => None,
        InputState::NotReady => Some(Verdict::no(SECRET_STORE_NOT_READY, text)),
        InputState::NotServed => Some(Verdict::no(
            SECRET_STORE_NOT_READY,
            format!(
                "{text}: cluster {} does not serve {}.external-secrets.io; install external-secrets there",
                target.cluster.name(),
                served_kind.plural
            ),
        )),
    })
}

/// What to do about a store that this operator may not read.
fn forbidden(kind: &Kind, name: &str, cluster: &str, answer: &str) -> String {
    let instead = if kind.namespaced {
        ""
    } else {
        ", or select a SecretStore of this namespace"
    };
    format!(
        "{} \"{name}\" may not be read on cluster {cluster} ({answer}): grant get, list and watch on {}.{} \
         there{instead}",
        kind.kind, kind.plural, kind.group
    )
}

fn database_gate(glance: &Glance) -> Gate<'_> {
    let database = &glance.spec.database;
    // In managed static mode the SQL user is named after the CR, so nobody reads a user name.
    let managed_static = database.cluster_ref.is_some()
        && defaults::credentials_mode(&glance.spec.database) == CredentialsMode::Static;
    Gate {
        secret: &database.secret_ref.name,
        keys: if managed_static {
            vec!["password"]
        } else {
            vec!["username", "password"]
        },
        reason: WAITING_FOR_DB_CREDENTIALS,
        noun: "Database credentials",
        waiting: "Waiting for ESO to sync database credentials from OpenBao",
    }
}

fn service_user_gate(glance: &Glance) -> Gate<'_> {
    Gate {
        secret: &glance.spec.service_user.secret_ref.name,
        keys: vec![password_key(glance)],
        reason: WAITING_FOR_SERVICE_USER_CREDENTIALS,
        noun: "Service-user credentials",
        waiting: "Waiting for ESO to sync the Glance service-user password from OpenBao",
    }
}

fn password_key(glance: &Glance) -> &str {
    glance
        .spec
        .service_user
        .secret_ref
        .key
        .as_deref()
        .filter(|key| !key.is_empty())
        .unwrap_or("password")
}

async fn credential_gate(target: &Target, gate: &Gate<'_>) -> Result<Option<Verdict>, StepError> {
    // Out of scope is for good, so the condition must say it; other failures are the next pass's business.
    let show = |error: StepError| {
        if error.kind == ErrorKind::OutOfScope {
            let verdict = Verdict::no(gate.reason, error.message.clone());
            error.verdict(verdict)
        } else {
            error
        }
    };
    let facts = target.secret(gate.secret).await.map_err(show)?;
    let missing = facts.as_ref().map(|facts| facts.missing(&gate.keys));
    if missing.as_ref().is_some_and(Vec::is_empty) {
        return Ok(None);
    }
    let explanation = target.explain(gate.secret).await.map_err(show)?;
    Ok(Some(judge(
        gate,
        target.namespace(),
        facts.as_ref(),
        explanation,
    )))
}

fn judge(
    gate: &Gate<'_>,
    namespace: &str,
    facts: Option<&SecretFacts>,
    explanation: Explanation,
) -> Verdict {
    let Gate { secret, noun, .. } = gate;
    let missing = facts.map(|facts| facts.missing(&gate.keys).join(", "));
    let message = match (explanation, missing) {
        (Explanation::Absent, None) => {
            format!("{noun} ExternalSecret {namespace}/{secret} not found yet")
        }
        // The contract's sentence first; then what the person who made the Secret by hand needs to know.
        (Explanation::Absent, Some(missing)) => format!(
            "{noun} ExternalSecret {namespace}/{secret} not found yet; the Secret exists but lacks a value for: {missing}"
        ),
        (Explanation::Ready, Some(missing)) => {
            format!("{noun} Secret exists but is missing expected keys: {missing}")
        }
        (Explanation::Ready, None) => format!("{noun} Secret exists but is missing expected keys"),
        (Explanation::NotReady, _) => gate.waiting.to_owned(),
    };
    Verdict::no(gate.reason, message)
}

/// The digest of the password, and the Secret to read it from: the user's own, or a copy of ours where oslo.config
/// would expand a `$` or strip a quote in it.
async fn credentials(glance: &Glance, target: &Target) -> Result<Credentials, StepError> {
    const STEP: &str = "Secrets";
    let secret = &glance.spec.service_user.secret_ref.name;
    let key = password_key(glance);
    let uid = &target.owner.uid;
    let copy = names::authtoken(&target.owner.name);
    let plain = SecretKeyRef {
        name: secret.clone(),
        key: key.to_owned(),
    };
    let Some(facts) = target.secret(secret).await? else {
        return Err(StepError::new(
            ErrorKind::Conflict,
            format!("Secret {secret} went away during the pass"),
        ));
    };
    let inputs = inputs(target, &facts.version, key, &copy).await?;
    if let Some(known) = target.view.ledger.output(uid, STEP, &inputs) {
        let escaped = known.starts_with('!');
        if !escaped || target.child(&SECRET, &copy).await?.is_some() {
            return Ok(Credentials {
                password_digest: known.trim_start_matches('!').to_owned(),
                password: if escaped { copied(&copy) } else { plain },
            });
        }
    }
    let payload = target.payload(secret).await?.ok_or_else(|| {
        StepError::new(
            ErrorKind::Conflict,
            format!("Secret {secret} went away during the pass"),
        )
    })?;
    let password = payload
        .text(key)
        .map_err(|_| {
            StepError::new(
                ErrorKind::Render,
                format!(
                    "key {key:?} in Secret {}/{secret} is not UTF-8 text",
                    target.namespace()
                ),
            )
        })?
        .ok_or_else(|| {
            StepError::new(
                ErrorKind::Conflict,
                format!("key {key:?} went out of Secret {secret} during the pass"),
            )
        })?;
    let digest = salted_digest(uid, &password);
    let escaped =
        super::db_connection::write_if_escaped(target, &copy, &password, environment_value).await?;
    let output = if escaped {
        format!("!{digest}")
    } else {
        digest.clone()
    };
    let inputs = self::inputs(target, &payload.version, key, &copy).await?;
    target.view.ledger.learn_output(uid, STEP, inputs, output);
    Ok(Credentials {
        password_digest: digest,
        password: if escaped { copied(&copy) } else { plain },
    })
}

/// Everything the outcome depends on, versions standing for content; that of our own copy too, which somebody may edit.
async fn inputs(
    target: &Target,
    upstream: &Version,
    key: &str,
    copy: &str,
) -> Result<String, StepError> {
    let copy = target.child(&SECRET, copy).await?;
    let copy = copy.map(|copy| ledger::version(&copy.metadata));
    Ok(format!("{upstream:?} {key} {copy:?}"))
}

fn copied(name: &str) -> SecretKeyRef {
    SecretKeyRef {
        name: name.to_owned(),
        key: "password".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;

    use super::*;
    use crate::testing;

    fn facts(keys: &[(&str, bool)]) -> SecretFacts {
        SecretFacts {
            version: Version {
                uid: String::new(),
                resource_version: String::new(),
            },
            keys: keys
                .iter()
                .map(|(key, filled)| ((*key).to_owned(), *filled))
                .collect::<BTreeMap<_, _>>(),
        }
    }

    #[rstest]
    #[case(
        None,
        Explanation::Absent,
        "Service-user credentials ExternalSecret ns/svc not found yet"
    )]
    #[case(
        None,
        Explanation::NotReady,
        "Waiting for ESO to sync the Glance service-user password from OpenBao"
    )]
    #[case(
        None,
        Explanation::Ready,
        "Service-user credentials Secret exists but is missing expected keys"
    )]
    #[case(
        Some(facts(&[("other", true)])),
        Explanation::Ready,
        "Service-user credentials Secret exists but is missing expected keys: password"
    )]
    #[case(
        Some(facts(&[("password", false)])),
        Explanation::Absent,
        "Service-user credentials ExternalSecret ns/svc not found yet; the Secret exists but lacks a value for: password"
    )]
    fn a_gate_says_what_is_missing(
        #[case] facts: Option<SecretFacts>,
        #[case] explanation: Explanation,
        #[case] message: &str,
    ) {
        let mut glance = testing::glance("images");
        glance.spec.service_user.secret_ref.name = "svc".into();
        let gate = service_user_gate(&glance);
        let verdict = judge(&gate, "ns", facts.as_ref(), explanation);
        assert_eq!(
            verdict,
            Verdict::no("WaitingForServiceUserCredentials", message)
        );
    }

    #[test]
    fn the_user_name_is_asked_for_only_where_it_is_used() {
        let mut glance = testing::glance("images");
        assert_eq!(database_gate(&glance).keys, ["password"]);
        glance.spec.database.credentials_mode = Some(CredentialsMode::Dynamic);
        assert_eq!(database_gate(&glance).keys, ["username", "password"]);
        glance.spec.database.credentials_mode = None;
        glance.spec.database.cluster_ref = None;
        glance.spec.database.host = Some("db.example.org".into());
        assert_eq!(database_gate(&glance).keys, ["username", "password"]);
    }
}
