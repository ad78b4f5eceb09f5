//! One registration, as the owner keeps it.

use std::sync::Arc;

use super::attempt::Attempt;
use crate::{
    Cause, Cluster, ClusterState, Registration, RegistryOptions, State,
    breaker::Health,
    client::{Limits, Shared as Keepsakes, Throttle},
    metrics::ClusterMetrics,
    permits::Permits,
    registration::ContentHash,
    registry::Entry,
};
use jiff::Timestamp;
use tokio::time::Instant;
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
    /// What is wrong with the content while something older is in use.
    pub(super) content: Option<Trouble>,
    /// What the credential falls short of.
    pub(super) shortcoming: Option<(Cause, String)>,
    /// What the probe says of the generation in use, and when it asks again.
    pub(super) health: (Health, Option<Timestamp>),
    pub(super) attempt: Option<Attempt>,
    /// Whether anything is known about it: refused, or an attempt ended.
    pub(super) tried: bool,
    /// The cluster this name has led to so far.
    pub(super) pin: Option<String>,
    /// Whether who answers the generation in use has said who it is.
    pub(super) identified: bool,
    pub(super) keepsakes: Keepsakes,
    pub(super) permits: Arc<Permits>,
    /// Whether its `TargetCluster` may say where the name has led to: it was registered before this
    /// process began.
    pub(super) inherits: bool,
    /// The registration whose token is being renewed, and what ends that.
    pub(super) renewal: Option<(Arc<Registration>, CancellationToken)>,
    /// When a renewed token was last told of.
    pub(super) renewed_at: Option<Instant>,
    /// What led to another cluster than it should.
    pub(super) stranger: Option<Arc<Registration>>,
    /// The cluster it has to lead to by its policy, as that was last seen.
    pub(super) wanted: Option<String>,
    /// Why the token in use is not renewed although it should be.
    pub(super) unrenewed: Option<(Arc<Registration>, String)>,
}

// === impl Member ===

impl Member {
    pub(super) fn new(name: &str, options: &RegistryOptions) -> Self {
        Self {
            state: ClusterState::pending(name),
            seen: None,
            current: None,
            content: None,
            shortcoming: None,
            health: (Health::Good, None),
            attempt: None,
            tried: false,
            pin: None,
            identified: false,
            keepsakes: Keepsakes {
                throttle: Arc::new(Throttle::default()),
                metrics: ClusterMetrics::target(name, options.client.metrics.clone()),
                limits: Limits::target(),
            },
            permits: Permits::new(options.client.max_in_flight),
            inherits: false,
            renewal: None,
            renewed_at: None,
            stranger: None,
            wanted: None,
            unrenewed: None,
        }
    }

    /// Ends the attempt that is under way.
    pub(super) fn give_up(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            attempt.stop.cancel();
        }
    }

    /// Puts a generation to use; what was known of the one before is void.
    pub(super) fn use_now(
        &mut self,
        cluster: Arc<Cluster>,
        registration: Arc<Registration>,
    ) -> Option<Arc<Cluster>> {
        self.content = None;
        self.health = (Health::Good, None);
        let old = self.current.replace((cluster, registration));
        old.map(|(cluster, _)| cluster)
    }

    /// Uses nothing any more.
    pub(super) fn use_nothing(&mut self) -> Option<Arc<Cluster>> {
        self.content = None;
        self.health = (Health::Good, None);
        self.identified = false;
        self.current.take().map(|(cluster, _)| cluster)
    }

    /// The state of a registration that has a generation in use.
    pub(super) fn standing(&self) -> (State, Option<Trouble>) {
        let (health, next_try) = &self.health;
        match (health, &self.content) {
            (Health::Down(cause, text), _) => {
                (State::Lost, Some((*cause, text.clone(), *next_try)))
            }
            (_, Some(trouble)) => (State::Degraded, Some(trouble.clone())),
            (Health::Shaky(cause, text), None) => {
                (State::Degraded, Some((*cause, text.clone(), *next_try)))
            }
            (Health::Good, None) => match &self.shortcoming {
                Some((cause, text)) => (State::Degraded, Some((*cause, text.clone(), None))),
                None => (State::Connected, None),
            },
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
            since: if same { old.since } else { now() },
            next_try,
            server: registration.map(|registration| registration.server()),
            uid: self.pin.clone(),
            identified: self.identified,
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
        let credential = next.credential.as_ref();
        let expiry = credential.and_then(|credential| credential.expires_at.as_ref());
        self.keepsakes.metrics.expiry(expiry.map(|time| time.0));
        self.state = next.clone();
        let entry = Entry {
            cluster: cluster.filter(|_| state.resolves()),
            state: Arc::new(next),
        };
        (entry, notify)
    }
}

/// People read it, and conditions hold it: to the second.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
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
