//! What an informer holds, and how its legs change it.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use kube::api::DynamicObject;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Change, InformerSpec, Phase,
    budget::{Budget, weight},
    feed::Feed,
    leg::{self, Full, Legs, Sink},
    store::{Source, Store, key, version},
};
use crate::{Cluster, metrics::ClusterMetrics};

/// What one informer is made of.
pub(super) struct Inner {
    pub(super) cluster: Weak<Cluster>,
    pub(super) cluster_name: String,
    pub(super) spec: InformerSpec,
    pub(super) metrics: Arc<ClusterMetrics>,
    pub(super) budget: Arc<Budget>,
    pub(super) store: RwLock<Store>,
    pub(super) legs: Vec<LegState>,
}

pub(super) struct LegState {
    pub(super) namespace: Option<String>,
    pub(super) phase: watch::Sender<Phase>,
}

/// What became of an object.
pub(super) struct Folded {
    /// It, reduced.
    pub(super) object: Arc<DynamicObject>,
    /// What was known of its name.
    known: Option<Arc<DynamicObject>>,
    /// Whether there was room for it.
    fits: bool,
}

/// Leads the events of one leg into the store and to the owner.
pub(super) struct IntoStore {
    inner: Arc<Inner>,
    leg: usize,
}

/// Runs a leg until it is stopped.
pub(super) async fn run(inner: Arc<Inner>, leg: usize, legs: Legs, stop: CancellationToken) {
    let sink = IntoStore {
        inner: inner.clone(),
        leg,
    };
    let spec = &inner.spec;
    let make = || {
        legs.leg(Feed {
            kind: spec.kind,
            namespace: sink.scope().map(str::to_owned),
            selector: spec.selector.clone(),
            payload: spec.payload,
        })
    };
    stop.run_until_cancelled(leg::supervise(make, &sink)).await;
    // What was known stays readable: a pass that still holds this generation must not take its end
    // for the absence of everything.
    sink.phase(Phase::Failing("the connection has ended".to_owned()));
    inner.close();
}

// === impl Inner ===

impl Inner {
    // The store is consistent between any two of its methods, so a poisoned lock is still good.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Store> {
        self.store.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the store and counts what it holds.
    pub(super) fn change<T>(&self, act: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = self.write();
        let result = act(&mut store);
        self.count(&mut store);
        result
    }

    /// Counts nothing any more.
    fn close(&self) {
        let mut store = self.write();
        store.closed = true;
        self.count(&mut store);
    }

    fn count(&self, store: &mut Store) {
        let held = store.weight();
        let before = std::mem::replace(&mut store.weighed, held);
        self.budget.change(before, held);
        let now = if store.closed { 0 } else { store.len() };
        let before = std::mem::replace(&mut store.counted, now);
        if before != now {
            let count = |len| i64::try_from(len).unwrap_or(i64::MAX);
            self.metrics
                .objects(self.spec.kind.kind, count(now) - count(before));
        }
    }

    /// Folds in an object, unless it came from outside and there is no room for it.
    pub(super) fn fold(&self, mut object: DynamicObject, source: Source) -> Folded {
        let kept = (self.spec.keep)(&object);
        (self.spec.reduce)(&mut object);
        // Nobody asks what the objects of the hub weigh.
        let is_asked = kept && self.budget.is_limited();
        let weight = if is_asked { weight(&object) } else { 0 };
        let fits = source == Source::Observed || self.budget.has_room(weight);
        let object = Arc::new(object);
        let known = self.change(|store| {
            let (namespace, name) = key(&object);
            let known = store.get(namespace, name);
            if fits && store.accepts(&object, source) {
                store.put(object.clone(), kept.then_some(weight), source);
            }
            known
        });
        Folded {
            object,
            known,
            fits,
        }
    }

    fn notify(&self, change: &Change) {
        if let Some(cluster) = self.cluster.upgrade() {
            (self.spec.on_change)(&cluster, change);
        }
    }
}

// === impl IntoStore ===

impl IntoStore {
    fn scope(&self) -> Option<&str> {
        self.inner
            .legs
            .get(self.leg)
            .and_then(|leg| leg.namespace.as_deref())
    }
}

impl Sink for IntoStore {
    fn begin(&self) {
        self.inner.change(|store| store.begin(self.scope()));
    }

    fn put(&self, object: DynamicObject, listed: bool) -> Result<(), Full> {
        let source = if listed { Source::List } else { Source::Watch };
        let Folded {
            object,
            known,
            fits,
        } = self.inner.fold(object, source);
        if !fits {
            return Err(Full(self.inner.budget.limit()));
        }
        let is_news = known.as_ref().is_none_or(|known| {
            known.metadata.uid != object.metadata.uid
                || known.metadata.resource_version != object.metadata.resource_version
        });
        if listed && !is_news {
            return Ok(());
        }
        let before = known.filter(|known| {
            known.metadata.labels != object.metadata.labels
                || known.metadata.owner_references != object.metadata.owner_references
        });
        self.inner.notify(&Change::Applied(object));
        if let Some(before) = before {
            self.inner.notify(&Change::Relabelled(before));
        }
        Ok(())
    }

    fn remove(&self, mut object: DynamicObject) {
        (self.inner.spec.reduce)(&mut object);
        let (namespace, name) = key(&object);
        let uid = object.metadata.uid.as_deref();
        let at = version(&object);
        self.inner
            .change(|store| store.bury(namespace, name, uid, at));
        self.inner.notify(&Change::Deleted(Arc::new(object)));
    }

    fn end(&self) {
        let gone = self.inner.change(|store| store.end(self.scope()));
        for object in gone {
            self.inner.notify(&Change::Deleted(object));
        }
        self.inner.notify(&Change::Synced);
    }

    fn forget(&self) {
        let gone = self.inner.change(|store| store.clear(self.scope()));
        for object in gone {
            self.inner.notify(&Change::Deleted(object));
        }
    }

    fn served(&self) {
        self.inner.notify(&Change::Served);
    }

    fn gone(&self) {
        self.forget();
        self.inner.notify(&Change::Gone);
    }

    fn phase(&self, phase: Phase) {
        let Some(leg) = self.inner.legs.get(self.leg) else {
            return;
        };
        leg.phase.send_if_modified(|now| {
            let changed = *now != phase;
            *now = phase;
            changed
        });
    }
}
