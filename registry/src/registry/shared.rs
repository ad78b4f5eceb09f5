//! What is known of all names: written by the owner task, read by everybody without waiting.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwap;
use tokio::{
    sync::{broadcast, mpsc, watch},
    time::Instant,
};
use tokio_util::task::TaskTracker;

use super::RegistryOptions;
use crate::{
    Cluster, ClusterChanged, ClusterState, TargetCluster, Unresolved,
    mirror::Mirror,
    objects::{self, Findings, Reports},
    policy::{self, Policies},
};

/// Changes a subscriber may be behind before it misses some.
const CHANGES: usize = 1024;

/// What the owner task writes and everybody reads.
pub(crate) struct Shared {
    pub(super) enabled: bool,
    /// Whether the Secrets were listed once.
    listed: AtomicBool,
    pub(super) snapshot: ArcSwap<BTreeMap<String, Entry>>,
    pub(super) changes: broadcast::Sender<ClusterChanged>,
    /// Counts what was published, also what concerns no user of a cluster.
    published: watch::Sender<u64>,
    /// Since when a name may be given up, for those that may.
    clocks: Mutex<HashMap<String, Instant>>,
    pub(super) attempted: watch::Sender<bool>,
    pub(super) started: Instant,
    pub(crate) policies: Policies,
    pub(crate) reports: Reports,
    pub(crate) tasks: TaskTracker,
}

/// What is known of one name.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) state: Arc<ClusterState>,
    /// Present exactly while the state resolves.
    pub(crate) cluster: Option<Arc<Cluster>>,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(enabled: bool) -> Self {
        let tasks = TaskTracker::new();
        if !enabled {
            tasks.close();
        }
        Self {
            enabled,
            listed: AtomicBool::new(false),
            snapshot: ArcSwap::default(),
            changes: broadcast::Sender::new(CHANGES),
            published: watch::Sender::new(0),
            clocks: Mutex::default(),
            attempted: watch::Sender::new(!enabled),
            started: Instant::now(),
            policies: Policies::default(),
            reports: Reports::default(),
            tasks,
        }
    }

    /// One that follows the policies on the hub; answers the names whose policy changes.
    pub(super) fn following(options: &RegistryOptions) -> (Self, mpsc::UnboundedReceiver<String>) {
        let mut shared = Self::new(true);
        let (tell_owner, policies) = mpsc::unbounded_channel();
        let changes = shared.changes.clone();
        let tell =
            move |name: &str, before: Option<&TargetCluster>, now: Option<&TargetCluster>| {
                if policy::differs(before, now) {
                    // The owner may have ended, and nobody may be listening.
                    let _ = tell_owner.send(name.to_owned());
                    let _ = changes.send(ClusterChanged {
                        name: name.to_owned(),
                    });
                }
            };
        let objects = Arc::new(Mirror::new(objects::read, tell));
        let changes = shared.changes.clone();
        let clusters = Arc::clone(&objects);
        let tell = move |namespace: &str,
                         before: Option<&policy::Labels>,
                         now: Option<&policy::Labels>| {
            for name in policy::regranted(&clusters.all(), namespace, before, now) {
                let _ = changes.send(ClusterChanged { name });
            }
        };
        let namespaces = Arc::new(Mirror::new(objects::labels, tell));
        shared.policies = Policies::new(
            objects,
            namespaces,
            options.require_grants,
            options.client.max_in_flight,
        );
        (shared, policies)
    }

    pub(crate) fn published(&self) -> watch::Receiver<u64> {
        self.published.subscribe()
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    pub(crate) fn is_attempted(&self) -> bool {
        *self.attempted.borrow()
    }

    /// What a look at a cluster has brought. Who waits for a namespace is told that it is there, and
    /// who does not know yet, that it is not.
    pub(crate) fn found(&self, name: &str, findings: Findings) {
        let lacked =
            |reports: &Reports| reports.findings(name).map(|f| f.missing_namespaces.clone());
        let before = lacked(&self.reports).unwrap_or_default();
        self.reports.set_findings(name, findings);
        if lacked(&self.reports).unwrap_or_default() != before {
            let _ = self.changes.send(ClusterChanged {
                name: name.to_owned(),
            });
        }
    }

    /// Every registration by name.
    pub(crate) fn states(&self) -> BTreeMap<String, Arc<ClusterState>> {
        let snapshot = self.snapshot.load();
        let entries = snapshot.iter();
        entries
            .map(|(name, entry)| (name.clone(), entry.state.clone()))
            .collect()
    }

    pub(crate) fn resolve(&self, name: &str) -> Result<Arc<Cluster>, Unresolved> {
        if !self.enabled {
            return Err(Unresolved::Disabled {
                name: name.to_owned(),
            });
        }
        match self.snapshot.load().get(name) {
            Some(Entry {
                cluster: Some(cluster),
                ..
            }) => Ok(cluster.clone()),
            Some(Entry { state, .. }) => Err(state.unresolved()),
            // Nobody knows what is registered before the Secrets were listed once.
            None if !self.listed.load(Ordering::Acquire) => Err(Unresolved::Pending {
                name: name.to_owned(),
            }),
            None => Err(Unresolved::NotRegistered {
                name: name.to_owned(),
            }),
        }
    }

    /// From now on a name without a Secret is one that is not registered.
    pub(crate) fn set_listed(&self) {
        self.listed.store(true, Ordering::Release);
        self.published.send_modify(|count| *count += 1);
    }

    pub(super) fn clocks(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.clocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces what is known of a name, in one step. For the owner task alone, so that no change
    /// is lost between reading and writing.
    pub(crate) fn publish(&self, name: &str, entry: Option<Entry>, notify: bool) {
        let mut next = BTreeMap::clone(&self.snapshot.load());
        match entry {
            Some(entry) => next.insert(name.to_owned(), entry),
            None => next.remove(name),
        };
        self.snapshot.store(Arc::new(next));
        self.published.send_modify(|count| *count += 1);
        {
            let may_abandon = self.resolve(name).is_err_and(|error| error.may_abandon());
            let mut clocks = self.clocks();
            if may_abandon {
                clocks.entry(name.to_owned()).or_insert_with(Instant::now);
            } else {
                clocks.remove(name);
            }
        }
        if notify {
            // Nobody may be listening.
            let _ = self.changes.send(ClusterChanged {
                name: name.to_owned(),
            });
        }
    }

    pub(crate) fn set_attempted(&self) {
        if !self.attempted.send_replace(true) {
            self.published.send_modify(|count| *count += 1);
        }
    }
}
