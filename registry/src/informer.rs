//! What is known of one kind on one cluster, kept up to date by watches.

mod budget;
pub(crate) mod feed;
mod inner;
pub(crate) mod leg;
mod store;

use std::{
    sync::{Arc, RwLock},
    time::Duration,
};

use kube::api::DynamicObject;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::DropGuard;

pub(crate) use self::budget::Budget;
use self::{
    inner::{Inner, LegState, run},
    store::Source,
};
use crate::{Cluster, Kind};

/// How much of each object is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Metadata only. The objects have empty data.
    Metadata,
    /// Whole objects.
    Full,
}

/// What an [`Informer`] watches and keeps.
///
/// The functions run in the task of the watch: they must not block and should be quick.
#[derive(Clone)]
pub struct InformerSpec {
    /// The kind.
    pub kind: Kind,
    /// A label selector, applied by the server.
    pub selector: Option<String>,
    /// How much of each object is transferred.
    pub payload: Payload,
    /// Whether an object is kept. What is not counts as absent; asked again at each change, with
    /// the object as it came from the server.
    pub keep: Arc<dyn Fn(&DynamicObject) -> bool + Send + Sync>,
    /// Reduces an object to what is worth its memory. Runs after `keep` and before `on_change`;
    /// name, namespace, UID and resourceVersion have to stay.
    pub reduce: Arc<dyn Fn(&mut DynamicObject) + Send + Sync>,
    /// Called after the store has been changed, for each event, of kept objects or not.
    pub on_change: OnChange,
}

/// What is called for each event of a watched kind.
pub type OnChange = Arc<dyn Fn(&Cluster, &Change) + Send + Sync>;

/// What happened to a watched kind.
#[derive(Clone, Debug)]
pub enum Change {
    /// An object is new or has changed; reduced, as it is kept. A repeated list tells of what
    /// differs from what was known, and of nothing else.
    Applied(Arc<DynamicObject>),
    /// An object is gone; its last known state, reduced.
    Deleted(Arc<DynamicObject>),
    /// An object has other labels or owners than before: as it was. Comes right after
    /// [`Self::Applied`], for those to whom only the old ones meant something.
    Relabelled(Arc<DynamicObject>),
    /// A list has ended: what is known is complete. Comes once per leg and list.
    Synced,
    /// The kind is served from now on, having not been before.
    Served,
    /// The kind is not served, or no longer. What was known of it has been reported as deleted.
    Gone,
}

/// How much an answer of an [`Informer`] is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// What it says is what the cluster says, but for the time news travel.
    Synced,
    /// The cluster does not serve the kind.
    NotServed,
    /// The credential may not list or watch the kind; the server's words.
    Forbidden(String),
    /// Nothing is known, or only what was some time ago; why.
    Failing(String),
}

/// A read-only view of one kind on one cluster, from memory.
///
/// Made by [`Cluster::informer`]. Watches as long as it lives and its cluster is connected. In a
/// cluster with declared namespaces, a namespaced kind has one watch for each of them.
pub struct Informer {
    inner: Arc<Inner>,
    _stop: DropGuard,
}

/// How a leg is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting,
    Synced,
    NotServed,
    Forbidden(String),
    Failing(String),
}

// === impl Informer ===

impl Informer {
    /// Starts the watches on the tasks of `cluster`.
    pub(crate) fn start(cluster: &Cluster, spec: InformerSpec) -> Arc<Self> {
        let namespaces: Vec<_> = match cluster.namespaces().filter(|_| spec.kind.namespaced) {
            Some(declared) => declared.iter().cloned().map(Some).collect(),
            None => vec![None],
        };
        let leg = |namespace: &Option<String>| LegState {
            namespace: namespace.clone(),
            phase: watch::Sender::new(Phase::Starting),
        };
        let inner = Arc::new(Inner {
            cluster: cluster.weak(),
            cluster_name: cluster.name().to_owned(),
            metrics: cluster.metrics().clone(),
            budget: cluster.budget(),
            store: RwLock::default(),
            legs: namespaces.iter().map(leg).collect(),
            spec,
        });
        let stop = cluster.stop_token().child_token();
        for index in 0..namespaces.len() {
            cluster.spawn(run(inner.clone(), index, cluster.legs(), stop.clone()));
        }
        Arc::new(Self {
            inner,
            _stop: stop.drop_guard(),
        })
    }

    /// The kind it watches.
    pub fn kind(&self) -> &Kind {
        &self.inner.spec.kind
    }

    /// An object, if it is known. The namespace is `None` for a kind that has none.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<DynamicObject>> {
        self.inner.read().get(namespace.unwrap_or_default(), name)
    }

    /// All objects that are known, of one namespace or of all; by namespace and name.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Arc<DynamicObject>> {
        self.inner.read().list(namespace)
    }

    /// The objects of a namespace whose names begin with `prefix`, by name. Takes no longer where there are many others.
    pub fn list_by_prefix(&self, namespace: Option<&str>, prefix: &str) -> Vec<Arc<DynamicObject>> {
        let namespace = namespace.unwrap_or_default();
        self.inner.read().beginning(namespace, prefix)
    }

    /// What [`Self::get`] and [`Self::list`] are worth for a namespace, or for all.
    ///
    /// While the first list is under way this waits for its end, at most `wait`. It never waits
    /// for anything that has failed.
    pub async fn ready(&self, namespace: Option<&str>, wait: Duration) -> Readiness {
        let until = Instant::now() + wait;
        let covers = |leg: &&LegState| match (namespace, leg.namespace.as_deref()) {
            (Some(wanted), Some(watched)) => wanted == watched,
            _ => true,
        };
        let mut worst = None;
        for leg in self.inner.legs.iter().filter(covers) {
            let readiness = self.settled(leg, until, wait).await;
            if worst
                .as_ref()
                .is_none_or(|worst| rank(&readiness) > rank(worst))
            {
                worst = Some(readiness);
            }
        }
        worst.unwrap_or_else(|| {
            let namespace = namespace.unwrap_or_default();
            Readiness::Failing(format!(
                "namespace {namespace:?} is not among the declared ones"
            ))
        })
    }

    async fn settled(&self, leg: &LegState, until: Instant, wait: Duration) -> Readiness {
        let mut phase = leg.phase.subscribe();
        let settled = phase.wait_for(|phase| *phase != Phase::Starting);
        let phase = match tokio::time::timeout_at(until, settled).await {
            Ok(Ok(phase)) => phase.clone(),
            Ok(Err(_)) | Err(_) => Phase::Starting,
        };
        match phase {
            Phase::Synced => Readiness::Synced,
            Phase::NotServed => Readiness::NotServed,
            Phase::Forbidden(reason) => Readiness::Forbidden(reason),
            Phase::Failing(reason) => Readiness::Failing(reason),
            Phase::Starting => Readiness::Failing(format!(
                "the first list of {} on cluster {:?} has not ended within {}s",
                self.inner.spec.kind.plural,
                self.inner.cluster_name,
                wait.as_secs_f32()
            )),
        }
    }

    /// Folds in the answer of an own read or write, so that the next look does not lag behind it.
    /// Older news than what is known are ignored. Does not call `on_change`. Answers the object, reduced.
    pub fn observe(&self, object: DynamicObject) -> Arc<DynamicObject> {
        // There is room for what we write ourselves.
        self.inner.fold(object, Source::Observed).object
    }

    /// Forgets an object that is certainly gone: the server answered a delete with a status or a
    /// read with 404. Nothing that still arrives about this UID brings it back. A delete that was
    /// answered with the object, because of finalizers, is for [`Self::observe`].
    pub fn forget(&self, namespace: Option<&str>, name: &str, uid: &str) {
        self.inner
            .change(|store| store.bury(namespace.unwrap_or_default(), name, Some(uid), None));
    }
}

impl std::fmt::Debug for Informer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Informer")
            .field("cluster", &self.inner.cluster_name)
            .field("kind", &self.inner.spec.kind)
            .field("objects", &self.inner.read().len())
            .finish_non_exhaustive()
    }
}

const fn rank(readiness: &Readiness) -> u8 {
    match readiness {
        Readiness::Synced => 0,
        Readiness::NotServed => 1,
        Readiness::Forbidden(_) => 2,
        Readiness::Failing(_) => 3,
    }
}
