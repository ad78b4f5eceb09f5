//! What is known of a cluster, as its status says it.

use std::{fmt::Write as _, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Findings;
use crate::{
    Cause, ClusterState, State, TargetClusterStatus,
    target_cluster::{Abandoned, Condition, ConditionStatus, MissingPermission},
};

/// Longest message of a condition.
const LONGEST: usize = 1024;

/// Missing permissions that a message names.
const NAMED: usize = 5;

/// Everything the status of one object is made of.
pub(super) struct Facts<'a> {
    pub(super) state: Option<&'a ClusterState>,
    /// Other names of the same cluster.
    pub(super) twins: Vec<String>,
    pub(super) findings: Option<Arc<Findings>>,
    pub(super) dependents: Option<usize>,
    pub(super) abandoned: Vec<Abandoned>,
}

/// Status, reason and message of a condition.
type Verdict = (ConditionStatus, String, String);

// === impl Facts ===

impl Facts<'_> {
    /// The status, when it was `known` until now.
    pub(super) fn status(
        self,
        known: Option<&TargetClusterStatus>,
        generation: Option<i64>,
        now: Timestamp,
    ) -> TargetClusterStatus {
        let verdicts = [
            ("Registered", self.registered()),
            ("Reachable", self.reachable()),
            ("Identified", self.identified()),
            ("Permitted", self.permitted(known)),
        ];
        let ready = ready(&verdicts);
        let conditions = verdicts
            .into_iter()
            .chain([("Ready", ready)])
            .map(|(type_, verdict)| {
                let before = known.and_then(|known| known.condition(type_));
                condition(type_, verdict, before, generation, now)
            })
            .collect();
        let state = self.state;
        // What was found stays shown while nobody can look.
        let shown = self.findings.as_ref().filter(|_| state.is_some());
        TargetClusterStatus {
            conditions,
            observed_generation: generation,
            // Where a name has led is known again only when it answers.
            cluster_uid: state
                .and_then(|state| state.uid.clone())
                .or_else(|| state.and(known).and_then(|known| known.cluster_uid.clone())),
            version: state
                .and_then(|state| state.version.clone())
                .or_else(|| state.and(known).and_then(|known| known.version.clone())),
            server: state.and_then(|state| state.server.clone()),
            namespaces: state
                .map(|state| state.namespaces.clone())
                .unwrap_or_default(),
            credential: state.and_then(|state| state.credential.clone()),
            missing_permissions: match shown {
                Some(findings) => findings.missing.clone(),
                None => state
                    .and(known)
                    .map(|k| k.missing_permissions.clone())
                    .unwrap_or_default(),
            },
            capabilities: match shown {
                Some(findings) => findings.capabilities.clone(),
                None => state
                    .and(known)
                    .map(|k| k.capabilities.clone())
                    .unwrap_or_default(),
            },
            dependents: match self.dependents {
                Some(count) => i32::try_from(count).ok(),
                None => known.and_then(|known| known.dependents),
            },
            abandoned: self.abandoned,
        }
    }

    fn registered(&self) -> Verdict {
        let Some(state) = self.state else {
            return no(
                "NotRegistered",
                "there is no registration Secret of this name".to_owned(),
            );
        };
        match state.cause {
            Some(cause) if cause.is_content() && state.state == State::Degraded => no(
                cause.as_str(),
                format!("{}; the connection from before is kept", state.detail),
            ),
            Some(cause) if cause.is_content() => no(cause.as_str(), state.detail.clone()),
            _ => yes("Registered", String::new()),
        }
    }

    fn reachable(&self) -> Verdict {
        let Some(state) = self.state else {
            return unknown("NotRegistered", String::new());
        };
        let cause = state.cause.map_or("Unreachable", Cause::as_str);
        match state.state {
            State::Pending => unknown("Pending", "connecting".to_owned()),
            State::Connected => yes("Connected", String::new()),
            // How it is reached is as it should be.
            State::Degraded if state.cause.is_some_and(Cause::is_shortcoming) => {
                yes("Connected", String::new())
            }
            State::Degraded => yes("Degraded", format!("{cause}: {}", state.detail)),
            State::Lost => no(cause, state.detail.clone()),
            State::Rejected if state.cause == Some(Cause::IdentityChanged) => {
                yes("Connected", String::new())
            }
            State::Rejected => unknown("NotTried", "the registration is refused".to_owned()),
        }
    }

    fn identified(&self) -> Verdict {
        let Some(state) = self.state else {
            return unknown("NotRegistered", String::new());
        };
        let unreadable = !state.identified && state.state.resolves();
        match (&state.uid, state.cause) {
            (_, Some(Cause::IdentityChanged)) => no("IdentityChanged", state.detail.clone()),
            _ if unreadable => unknown(
                UNREADABLE,
                "who answers is not checked, for the credential may not read the namespace \
                 kube-system: grant get on namespaces"
                    .to_owned(),
            ),
            _ if !state.identified => unknown("NotConnected", String::new()),
            (Some(_), _) if !self.twins.is_empty() => yes(
                "DuplicateIdentity",
                format!(
                    "the same cluster is registered as {}",
                    self.twins.join(", ")
                ),
            ),
            (Some(_), _) => yes("Identified", String::new()),
            (None, _) => unknown("NotConnected", String::new()),
        }
    }

    fn permitted(&self, known: Option<&TargetClusterStatus>) -> Verdict {
        let usable = self.state.is_some_and(|state| {
            state.state != State::Rejected || state.cause == Some(Cause::IdentityChanged)
        });
        let before = known.and_then(|known| known.condition("Permitted"));
        match (&self.findings, before) {
            _ if !usable => unknown("NotChecked", String::new()),
            (Some(findings), _) => judge(findings),
            // Nothing new is known after a restart.
            (None, Some(before)) => (before.status, before.reason.clone(), before.message.clone()),
            (None, None) => unknown("NotChecked", String::new()),
        }
    }
}

/// Reason of `Identified` where the identity may not be read. It does not spoil `Ready`: nothing
/// that the cluster is used for depends on it.
const UNREADABLE: &str = "IdentityUnreadable";

fn judge(findings: &Findings) -> Verdict {
    if let Some(failure) = &findings.failure {
        return unknown("CheckFailed", failure.clone());
    }
    if !findings.missing_namespaces.is_empty() {
        let commands: Vec<_> = findings
            .missing_namespaces
            .iter()
            .map(|namespace| format!("kubectl create namespace {namespace}"))
            .collect();
        return no(
            "NamespaceMissing",
            format!(
                "declared namespaces do not exist on the cluster; create them there: {}",
                commands.join("; ")
            ),
        );
    }
    if findings.missing.is_empty() {
        return yes("Permitted", String::new());
    }
    no("MissingPermissions", missing(&findings.missing))
}

/// Permissions that are missing, in words.
pub(crate) fn missing(permissions: &[MissingPermission]) -> String {
    let mut text = "the credential may not ".to_owned();
    for (index, missing) in permissions.iter().take(NAMED).enumerate() {
        let (dot, group) = match missing.group.as_str() {
            "" => ("", ""),
            group => (".", group),
        };
        let place = match &missing.namespace {
            Some(namespace) => format!(" in namespace {namespace}"),
            None => String::new(),
        };
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(
            text,
            "{comma}{} {}{dot}{group}{place}",
            missing.verb, missing.resource
        );
    }
    if permissions.len() > NAMED {
        let _ = write!(text, ", and {} more", permissions.len() - NAMED);
    }
    text
}

fn ready(verdicts: &[(&str, Verdict)]) -> Verdict {
    let first = |status| {
        verdicts
            .iter()
            .find(move |(_, verdict)| verdict.0 == status && verdict.1 != UNREADABLE)
    };
    for status in [ConditionStatus::False, ConditionStatus::Unknown] {
        if let Some((type_, (_, reason, message))) = first(status) {
            let text = if message.is_empty() {
                format!("{type_} is not known to hold")
            } else {
                message.clone()
            };
            return (status, reason.clone(), text);
        }
    }
    yes("AllReady", String::new())
}

fn yes(reason: &str, message: String) -> Verdict {
    (ConditionStatus::True, reason.to_owned(), message)
}

fn no(reason: &str, message: String) -> Verdict {
    (ConditionStatus::False, reason.to_owned(), message)
}

fn unknown(reason: &str, message: String) -> Verdict {
    (ConditionStatus::Unknown, reason.to_owned(), message)
}

fn condition(
    type_: &str,
    (status, reason, mut message): Verdict,
    before: Option<&Condition>,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    let end = message.floor_char_boundary(LONGEST);
    message.truncate(end);
    let since = before.filter(|before| before.status == status);
    // The API keeps whole seconds.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    Condition {
        type_: type_.to_owned(),
        status,
        reason,
        message,
        last_transition_time: since.map_or(Time(now), |before| before.last_transition_time.clone()),
        observed_generation: generation,
    }
}

#[cfg(test)]
mod tests;
