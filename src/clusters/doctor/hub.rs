//! What the hub itself tells: the registration, the policy, the operator's own word.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use target_registry::{
    Claims, NAMESPACES_KEY, REGISTRATION_LABEL, Registration, RegistrationError,
    target_cluster::{AllowedNamespaces, ConditionStatus},
};

use super::{
    remedy::Remedies,
    report::{Check, Verdict},
};
use crate::clusters::{
    Session,
    fleet::{Entry, Fleet, Placed},
    output::distance,
};

/// A credential that ends sooner than this is worth a warning.
const SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The Secret: is there one, does it count, can it be used, how long.
pub fn registration(
    entry: &Entry,
    fleet: &Fleet,
    remedies: &Remedies,
    now: Timestamp,
) -> Vec<Check> {
    let mut checks = Vec::new();
    checks.push(if fleet.serves_targets {
        Check::ok("kinds", "the hub serves TargetClusters")
    } else {
        Check::warning(
            "kinds",
            "the hub does not serve TargetClusters: no policy, no status",
        )
        .cured_by(remedies.install_kinds())
    });
    let Some(secret) = &entry.secret else {
        checks.push(if fleet.reads_secrets {
            Check::failed("registration", "there is no Secret of this name")
                .cured_by(remedies.register(&known_namespaces(entry)))
        } else {
            Check::skipped("registration", "you may not read Secrets in this namespace")
        });
        return checks;
    };
    if entry.registration().is_none() {
        let labels = secret.metadata.labels.as_ref();
        let label = labels.and_then(|labels| labels.get(REGISTRATION_LABEL));
        let detail = match label {
            Some(value) => {
                format!("the label {REGISTRATION_LABEL} is {value:?} and must be exactly \"true\"")
            }
            None => format!("the label {REGISTRATION_LABEL}=true is missing"),
        };
        checks.push(Check::failed("registration", detail).cured_by(remedies.label()));
        return checks;
    }
    checks.push(Check::ok("registration", "the Secret is labelled as one"));
    checks.extend(content(entry, remedies));
    checks.extend(credential(entry, remedies, now));
    checks
}

/// Whether the operator can use what the Secret says.
fn content(entry: &Entry, remedies: &Remedies) -> Vec<Check> {
    let Some(secret) = entry.registration() else {
        return Vec::new();
    };
    let error = match Registration::from_secret(secret, false) {
        Ok(registration) => {
            let scope = match registration.namespaces() {
                Some(namespaces) => {
                    let names: Vec<_> = namespaces.iter().cloned().collect();
                    Check::ok("namespaces", names.join(","))
                }
                None => Check::ok("namespaces", "the whole cluster"),
            };
            let detail = format!("leads to {}", registration.server());
            return vec![Check::ok("kubeconfig", detail), scope];
        }
        Err(error) => error,
    };
    let detail = error.to_string();
    match &error {
        RegistrationError::NamespacesEmpty { .. } | RegistrationError::NamespaceInvalid { .. } => {
            let failed = Check::failed("namespaces", detail);
            let namespaces = usable_namespaces(entry);
            vec![if namespaces.is_empty() {
                failed.cured_by(remedies.register(&known_namespaces(entry)))
            } else {
                failed.cured_by(remedies.declare(&namespaces))
            }]
        }
        RegistrationError::Refused { refusal, .. }
            if refusal.is_insecure() && says(entry, "Registered") == Some(true) =>
        {
            vec![
                Check::warning(
                    "kubeconfig",
                    format!("{detail} (the operator was told to allow it)"),
                )
                .cured_by(remedies.rotate()),
            ]
        }
        _ => vec![Check::failed("kubeconfig", detail).cured_by(remedies.rotate())],
    }
}

/// How near an end is worth a warning. A token that the operator renews should have been renewed after
/// four fifths of its life.
fn soon(claims: &Claims, renewed: bool) -> SignedDuration {
    match (claims.issued, claims.expires) {
        (Some(issued), Some(expires)) if renewed => expires.duration_since(issued) / 10,
        _ => SOON,
    }
}

/// How long the credential is good for, by its own words or by the operator's.
fn credential(entry: &Entry, remedies: &Remedies, now: Timestamp) -> Option<Check> {
    let registration = entry.in_use()?;
    let target = entry.target.as_ref();
    let status = target.and_then(|target| target.status.as_ref());
    let reported = status.and_then(|status| status.credential.as_ref());
    let reported = reported.and_then(|credential| credential.expires_at.as_ref());
    let own = registration.credential().expires_at.as_ref();
    let expires = own.or(reported).map(|time| time.0);
    let renewed = target.is_some_and(|target| target.spec.renew_credentials == Some(true));
    let soon = soon(&registration.claims(), renewed);
    let Some(expires) = expires else {
        return Some(Check::ok("credential", "does not say when it expires"));
    };
    let left = expires.duration_since(now);
    Some(if left <= SignedDuration::ZERO {
        let ago = distance(expires, now);
        Check::failed("credential", format!("has expired {ago} ago")).cured_by(remedies.rotate())
    } else if left < soon {
        let ahead = distance(now, expires);
        Check::warning("credential", format!("expires in {ahead}")).cured_by(remedies.rotate())
    } else {
        Check::ok(
            "credential",
            format!("expires in {}", distance(now, expires)),
        )
    })
}

/// Who may use the cluster, and whether it may be used at all.
pub async fn policy(session: &Session, entry: &Entry, remedies: &Remedies) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(target) = &entry.target {
        checks.push(if target.spec.is_paused() {
            Check::warning("pause", "the cluster is paused: nothing is written there")
                .cured_by(remedies.resume())
        } else {
            Check::ok("pause", "not paused")
        });
    }
    let Some(glances) = &entry.glances else {
        checks.push(Check::skipped(
            "grants",
            "you may not list the Glances of all namespaces",
        ));
        return checks;
    };
    checks.push(grants(session, entry, glances, remedies).await);
    checks.extend(scope(entry, glances, remedies));
    checks
}

async fn grants(
    session: &Session,
    entry: &Entry,
    glances: &[Placed],
    remedies: &Remedies,
) -> Check {
    let spec = entry.target.as_ref().map(|target| &target.spec);
    let Some(allowed) = spec.and_then(|spec| spec.allowed_namespaces.as_ref()) else {
        let said = refused_grants(entry);
        return if said {
            Check::failed(
                "grants",
                "no namespace is admitted, and the operator asks for grants",
            )
            .cured_by(remedies.policy(&grant_all(&AllowedNamespaces::default(), glances)))
        } else {
            Check::ok(
                "grants",
                format!("every namespace is admitted; Glances: {}", glances.len()),
            )
        };
    };
    let mut refused = Vec::new();
    let mut unknown = Vec::new();
    for namespace in namespaces_of(glances) {
        if allowed.names.contains(&namespace) {
            continue;
        }
        match (
            &allowed.selector,
            session.hub.namespace_labels(&namespace).await,
        ) {
            (None, _) => refused.push(namespace),
            (Some(selector), Some(labels)) if !selector.matches(&labels) => refused.push(namespace),
            (Some(_), Some(_)) => {}
            (Some(_), None) => unknown.push(namespace),
        }
    }
    if !refused.is_empty() {
        let detail = format!(
            "Glances name the cluster in namespaces that it does not admit: {}",
            refused.join(", ")
        );
        let blocked: Vec<_> = glances
            .iter()
            .filter(|g| refused.contains(&g.namespace))
            .cloned()
            .collect();
        return Check::failed("grants", detail)
            .cured_by(remedies.policy(&grant_all(allowed, &blocked)));
    }
    if unknown.is_empty() {
        Check::ok(
            "grants",
            format!("all {} Glances are admitted", glances.len()),
        )
    } else {
        Check::skipped(
            "grants",
            format!("you may not read the labels of {}", unknown.join(", ")),
        )
    }
}

/// Whether the operator refuses somebody for want of a grant although no policy is set.
fn refused_grants(entry: &Entry) -> bool {
    let status = entry
        .target
        .as_ref()
        .and_then(|target| target.status.as_ref());
    let conditions = status.map(|status| status.conditions.as_slice());
    conditions
        .unwrap_or_default()
        .iter()
        .any(|c| c.reason == "NotGranted")
}

fn grant_all(allowed: &AllowedNamespaces, glances: &[Placed]) -> serde_json::Value {
    let mut names = allowed.names.clone();
    names.extend(namespaces_of(glances));
    json!({ "allowedNamespaces": { "names": names } })
}

/// Whether every Glance lives in a namespace that the registration declares.
fn scope(entry: &Entry, glances: &[Placed], remedies: &Remedies) -> Option<Check> {
    let secret = entry.registration()?;
    let registration = Registration::from_secret(secret, true).ok()?;
    let declared = registration.namespaces()?;
    let outside: BTreeSet<String> = namespaces_of(glances)
        .into_iter()
        .filter(|n| !declared.contains(n))
        .collect();
    if outside.is_empty() {
        return Some(Check::ok(
            "scope",
            "every Glance is in a declared namespace",
        ));
    }
    let all = declared.union(&outside).cloned().collect();
    let outside: Vec<_> = outside.into_iter().collect();
    let detail = format!(
        "Glances live in namespaces that the registration does not declare: {}",
        outside.join(", ")
    );
    Some(Check::failed("scope", detail).cured_by(remedies.register(&all)))
}

/// What the operator says.
pub fn operator(entry: &Entry, fleet: &Fleet) -> Check {
    const CHECK: &str = "operator";
    if !fleet.serves_targets {
        return Check::skipped(CHECK, "without TargetClusters it cannot report");
    }
    let target = entry.target.as_ref();
    let Some(status) = target.and_then(|target| target.status.as_ref()) else {
        return Check::failed(
            CHECK,
            "it has not reported: see whether it runs and watches this namespace (--clusters-namespace)",
        );
    };
    let parts = status.conditions.iter().filter(|c| c.type_ != "Ready");
    let bad: Vec<_> = parts.filter(|condition| !condition.is_true()).collect();
    match (status.condition("Ready"), bad.as_slice()) {
        (Some(ready), []) if ready.is_true() => Check::ok(CHECK, "says that the cluster is ready"),
        (Some(ready), []) => Check::failed(CHECK, format!("{}: {}", ready.reason, ready.message)),
        (ready, bad) => {
            let words: Vec<_> = bad
                .iter()
                .map(|c| {
                    format!("{}: {} {}", c.type_, c.reason, c.message)
                        .trim_end()
                        .to_owned()
                })
                .collect();
            // Something that nobody may look at does not keep a cluster from being ready.
            let verdict = match ready {
                Some(ready) if ready.is_true() => Verdict::Ok,
                _ => Verdict::Failed,
            };
            Check::new(CHECK, verdict, words.join("; "))
        }
    }
}

/// What a condition of the operator says; `None` without one that knows.
pub fn says(entry: &Entry, type_: &str) -> Option<bool> {
    let status = entry.target.as_ref()?.status.as_ref()?;
    let condition = status.condition(type_)?;
    match condition.status {
        ConditionStatus::True => Some(true),
        ConditionStatus::False => Some(false),
        ConditionStatus::Unknown => None,
    }
}

fn namespaces_of(glances: &[Placed]) -> BTreeSet<String> {
    glances
        .iter()
        .map(|glance| glance.namespace.clone())
        .collect()
}

/// The namespaces of the Glances that name the cluster, and those that were declared last.
fn known_namespaces(entry: &Entry) -> BTreeSet<String> {
    let mut known = namespaces_of(entry.glances.as_deref().unwrap_or_default());
    let status = entry
        .target
        .as_ref()
        .and_then(|target| target.status.as_ref());
    known.extend(
        status
            .map(|status| status.namespaces.clone())
            .unwrap_or_default(),
    );
    known
}

/// The entries of a broken list that are names of namespaces, and those that are in use.
fn usable_namespaces(entry: &Entry) -> BTreeSet<String> {
    let raw = entry.data(NAMESPACES_KEY).unwrap_or_default();
    let raw = String::from_utf8_lossy(raw).into_owned();
    let valid = |text: &&str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !text.is_empty()
            && text.len() <= 63
            && text.bytes().all(inner)
            && !text.starts_with('-')
            && !text.ends_with('-')
    };
    let entries = raw
        .split(',')
        .map(str::trim)
        .filter(valid)
        .map(str::to_owned);
    let mut usable: BTreeSet<String> = entries.collect();
    usable.extend(known_namespaces(entry));
    usable
}
