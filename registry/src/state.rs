//! What is known about a registration, and the answer when its name does not resolve.

use jiff::Timestamp;
use serde::Serialize;

use crate::{failure::Cause, target_cluster::CredentialStatus};

/// State of a registration. It has one for as long as its Secret exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum State {
    /// The Secret was accepted, no attempt to connect has ended yet. Does not resolve.
    Pending,
    /// Connected with what the Secret says now. Resolves.
    Connected,
    /// Connected, and not as it should be: with what an earlier version of the Secret said, because
    /// the present one cannot be read or its server not be reached, or after some failed probes, or
    /// with a server that asks to be left alone, or with a credential that may not do everything or
    /// ends soon. Resolves.
    Degraded,
    /// Connected before and not answering any more, or not connected because the last attempt failed
    /// and nothing older may be used; tried again. Does not resolve.
    Lost,
    /// The content of the Secret is refused, or leads to another cluster than before. Does not
    /// resolve until the Secret is written again.
    Rejected,
}

/// One registration as a person wants to see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterState {
    /// Name of the cluster, which is the name of its registration Secret.
    pub name: String,
    /// The state it is in.
    pub state: State,
    /// Why, where the state needs a reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The reason in words; never contains a credential.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Since when it is in this state for this cause.
    pub since: Timestamp,
    /// When it is tried again, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// Host and port of the API server, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// UID of the `kube-system` namespace of the cluster that the name has led to so far, if that was ever read.
    #[serde(rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Whether the connection in use was told that UID: not so where it may not read the namespace.
    pub identified: bool,
    /// Version the API server reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Declared namespaces; empty means the whole cluster.
    pub namespaces: Vec<String>,
    /// What it is spoken to with, and until when that is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialStatus>,
    /// Generation of the connection in use, 0 if there is none. A changed token keeps it, any
    /// other change makes a new one.
    pub generation: u64,
}

/// A cluster began or ceased to resolve, or is reached in a new way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterChanged {
    /// Name of the cluster.
    pub name: String,
}

/// Why a name does not resolve.
///
/// The text begins with `cluster not found` (contract: target clusters, resolution), followed by
/// the cause; only a switched-off registry answers otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// The registry is switched off.
    #[error("no multicluster provider set, but cluster {name:?} passed")]
    Disabled {
        /// The name that was asked for.
        name: String,
    },
    /// There is no registration of that name.
    #[error("cluster not found")]
    NotRegistered {
        /// The name that was asked for.
        name: String,
    },
    /// There is one, and it is refused.
    #[error("cluster not found: {detail}")]
    Rejected {
        /// The name that was asked for.
        name: String,
        /// The kind of refusal.
        cause: Cause,
        /// The refusal in words.
        detail: String,
    },
    /// There is one, and the first attempt to connect has not ended.
    #[error("cluster not found: connecting to {name:?} for the first time")]
    Pending {
        /// The name that was asked for.
        name: String,
    },
    /// There is one, and it cannot be used now.
    #[error("cluster not found: {name:?} is not usable since {since} ({cause}): {detail}")]
    Lost {
        /// The name that was asked for.
        name: String,
        /// The kind of failure.
        cause: Cause,
        /// The failure in words.
        detail: String,
        /// Since when.
        since: Timestamp,
        /// When it is tried again.
        next_try: Option<Timestamp>,
    },
    /// The namespace of who asks may not use it.
    #[error(
        "cluster {name:?} does not admit namespace {namespace:?} (NotGranted): nothing is written \
         there until allowedNamespaces of its TargetCluster names it"
    )]
    NotGranted {
        /// The name that was asked for.
        name: String,
        /// The namespace of who asked.
        namespace: String,
    },
    /// Nothing may be written there for the time being.
    #[error(
        "cluster {name:?} is paused (Paused): nothing is written or deleted there until paused of \
         its TargetCluster is unset"
    )]
    Paused {
        /// The name that was asked for.
        name: String,
    },
    /// The namespace does not exist there.
    #[error(
        "namespace {namespace:?} does not exist on cluster {name:?} (NamespaceMissing): create it \
         there with `kubectl create namespace {namespace}`"
    )]
    NoNamespace {
        /// The name that was asked for.
        name: String,
        /// The namespace.
        namespace: String,
    },
    /// It is another cluster than the one that holds what was written under this name.
    #[error(
        "cluster {name:?} is {found} now, and this was written to {expected} (IdentityChanged): \
         nothing is read or written there until the name leads back, or spec.identity of its \
         TargetCluster approves of {found}"
    )]
    Moved {
        /// The name that was asked for.
        name: String,
        /// The identity that was written to.
        expected: String,
        /// The identity it has now.
        found: String,
    },
}

// === impl State ===

impl State {
    /// All of them, in the order of their severity.
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Connected,
        Self::Degraded,
        Self::Lost,
        Self::Rejected,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Connected => "Connected",
            Self::Degraded => "Degraded",
            Self::Lost => "Lost",
            Self::Rejected => "Rejected",
        }
    }

    /// Whether a registration in this state hands out its cluster.
    pub const fn resolves(self) -> bool {
        matches!(self, Self::Connected | Self::Degraded)
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

// === impl ClusterState ===

impl ClusterState {
    pub(crate) fn pending(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            state: State::Pending,
            cause: None,
            detail: String::new(),
            since: Timestamp::now(),
            next_try: None,
            server: None,
            uid: None,
            identified: false,
            version: None,
            namespaces: Vec::new(),
            credential: None,
            generation: 0,
        }
    }

    /// The answer to somebody who wants to use the cluster in this state.
    pub(crate) fn unresolved(&self) -> Unresolved {
        let name = self.name.clone();
        match (self.state, self.cause) {
            (State::Rejected, Some(cause)) => Unresolved::Rejected {
                name,
                cause,
                detail: self.detail.clone(),
            },
            (State::Lost, Some(cause)) => Unresolved::Lost {
                name,
                cause,
                detail: self.detail.clone(),
                since: self.since,
                next_try: self.next_try,
            },
            _ => Unresolved::Pending { name },
        }
    }
}

// === impl Unresolved ===

impl Unresolved {
    /// Whether somebody may give up what lies on the cluster once this has lasted long enough.
    ///
    /// True only for a name that is not registered, here or at all, or whose content is refused. A
    /// cluster that is merely out of reach, or suspected to be another one, comes back: what lies
    /// there is not lost.
    pub fn may_abandon(&self) -> bool {
        match self {
            Self::Disabled { .. } | Self::NotRegistered { .. } => true,
            Self::Rejected { cause, .. } => cause.is_content(),
            Self::Pending { .. }
            | Self::Lost { .. }
            | Self::NotGranted { .. }
            | Self::Paused { .. }
            | Self::NoNamespace { .. }
            | Self::Moved { .. } => false,
        }
    }

    /// The name that was asked for.
    pub fn name(&self) -> &str {
        match self {
            Self::Disabled { name }
            | Self::NotRegistered { name }
            | Self::Rejected { name, .. }
            | Self::Pending { name }
            | Self::Lost { name, .. }
            | Self::NotGranted { name, .. }
            | Self::Paused { name }
            | Self::NoNamespace { name, .. }
            | Self::Moved { name, .. } => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn state(state: State, cause: Option<Cause>) -> ClusterState {
        ClusterState {
            state,
            cause,
            detail: "the reason".to_owned(),
            ..ClusterState::pending("blue")
        }
    }

    #[rstest]
    #[case::pending(State::Pending, None, "cluster not found: connecting", false)]
    #[case::lost(
        State::Lost,
        Some(Cause::Timeout),
        "cluster not found: \"blue\" is not",
        false
    )]
    #[case::wrong_token(State::Lost, Some(Cause::Unauthorized), "cluster not found: ", false)]
    #[case::exec(
        State::Rejected,
        Some(Cause::CredentialsRefused),
        "cluster not found: the",
        true
    )]
    #[case::garbage(
        State::Rejected,
        Some(Cause::KubeconfigInvalid),
        "cluster not found: the",
        true
    )]
    #[case::swapped(
        State::Rejected,
        Some(Cause::IdentityChanged),
        "cluster not found: the",
        false
    )]
    fn only_refused_content_may_be_abandoned(
        #[case] kind: State,
        #[case] cause: Option<Cause>,
        #[case] text: &str,
        #[case] may_abandon: bool,
    ) {
        let unresolved = state(kind, cause).unresolved();
        assert!(unresolved.to_string().starts_with(text), "{unresolved}");
        assert_eq!(unresolved.may_abandon(), may_abandon);
        assert_eq!(unresolved.name(), "blue");
    }

    #[test]
    fn the_fixed_texts_of_the_contract() {
        let name = "blue".to_owned();
        let gone = Unresolved::NotRegistered { name: name.clone() };
        assert_eq!(gone.to_string(), "cluster not found");
        assert!(gone.may_abandon());
        let off = Unresolved::Disabled { name };
        assert_eq!(
            off.to_string(),
            "no multicluster provider set, but cluster \"blue\" passed"
        );
        assert!(off.may_abandon(), "to this process no name is registered");
    }
}
