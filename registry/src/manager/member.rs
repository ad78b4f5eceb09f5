//! One registration, as the owner keeps it.

use std::sync::Arc;

use super::attempt::Attempt;
use crate::{
    Cause, Cluster, ClusterState, Registration, RegistryOptions, State,
    client::{Shared as Keepsakes, Throttle},
    metrics::ClusterMetrics,
    permits::Permits,
    registration::ContentHash,
    registry::Entry,
};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

/// Why a registration is not as it should be: the kind, in words, and when it is tried again.
pub(super) type Trouble = (Cause, String, Option<Timestamp>);

/// One registration.
pub(super) struct Member {
    pub(super) state: ClusterState,
    /// The content that was judged last, whatever came of it.
    pub(super) seen: Option<ContentHash>,
    /// The generation in use, and what it was made from.
    pub(super) current: Option<(Arc<Cluster>, Arc<Registration>)>,
    pub(super) attempt: Option<Attempt>,
    /// Whether anything is known about it: refused, or an attempt ended.
    pub(super) tried: bool,
    /// The cluster this name has led to so far.
    pub(super) pin: Option<String>,
    pub(super) keepsakes: Keepsakes,
    pub(super) permits: Arc<Permits>,
    /// Whether its `TargetCluster` may say where the name has led to: it was registered before this
    /// process began.
    pub(super) inherits: bool,
    /// The registration whose token is being renewed, and what ends that.
    pub(super) renewal: Option<(Arc<Registration>, CancellationToken)>,
    /// What led to another cluster than it should.
    pub(super) stranger: Option<Arc<Registration>>,
}

// === impl Member ===

impl Member {
    pub(super) fn new(name: &str, options: &RegistryOptions) -> Self {
        Self {
            state: ClusterState::pending(name),
            seen: None,
            current: None,
            attempt: None,
            tried: false,
            pin: None,
            keepsakes: Keepsakes {
                throttle: Arc::new(Throttle::default()),
                metrics: ClusterMetrics::target(name, options.client.metrics.clone()),
            },
            permits: Permits::new(options.client.max_in_flight),
            inherits: false,
            renewal: None,
            stranger: None,
        }
    }

    /// Ends the attempt that is under way.
    pub(super) fn give_up(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            attempt.stop.cancel();
        }
    }

    /// Enters a state; answers what is to be published, and whether it concerns who waits.
    pub(super) fn turn(&mut self, state: State, trouble: Option<Trouble>) -> (Entry, bool) {
        let old = &self.state;
        let (cause, detail, next_try) = match trouble {
            Some((cause, detail, next_try)) => (Some(cause), detail, next_try),
            None => (None, String::new(), None),
        };
        let same = old.state == state && old.cause == cause;
        let cluster = self.current.as_ref().map(|(cluster, _)| cluster.clone());
        let registration = match (&self.current, &self.attempt) {
            (Some((_, registration)), _) => Some(registration),
            (None, Some(attempt)) => Some(&attempt.registration),
            (None, None) => None,
        };
        let namespaces = registration.and_then(|registration| registration.namespaces());
        let next = ClusterState {
            name: old.name.clone(),
            state,
            cause,
            detail,
            since: if same { old.since } else { Timestamp::now() },
            next_try,
            server: registration.map(|registration| registration.server()),
            uid: self.pin.clone(),
            version: cluster.as_ref().and_then(|cluster| cluster.version()),
            namespaces: namespaces.into_iter().flatten().cloned().collect(),
            credential: registration.map(|registration| registration.credential().clone()),
            generation: cluster.as_ref().map_or(0, |cluster| cluster.generation()),
        };
        // A further failed try concerns nobody who waits; another refusal does, for it says what to
        // repair next.
        let notify = !same
            || old.generation != next.generation
            || state == State::Connected
            || (state == State::Rejected && old.detail != next.detail);
        self.keepsakes.metrics.state(state);
        let expires = next.credential.as_ref().and_then(|c| c.expires_at.as_ref());
        self.keepsakes
            .metrics
            .expiry(expires.map(|time| time.0.as_second()));
        self.state = next.clone();
        let state = Arc::new(next);
        (Entry { state, cluster }, notify)
    }
}

/// The declared namespaces as one word.
pub(super) fn scope(registration: &Registration) -> String {
    match registration.namespaces() {
        Some(names) => names
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(","),
        None => "all".to_owned(),
    }
}
