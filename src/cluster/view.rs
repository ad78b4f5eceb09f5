//! The watches on one cluster: one informer per kind of child and of input.
//!
//! They run only on clusters that a CR lives on, start when the kind appears, and keep of each object what a pass
//! reads: metadata, or the status as well; never a Secret's payload.

use std::{sync::Arc, time::Duration};

use kube::core::DynamicObject;
use target_registry::{Change, Cluster, Informer, InformerSpec, Kind, Payload, Readiness};

use super::{
    kinds::{CHILDREN, INPUTS, JOB},
    ledger::{self, Ledger},
    reduce::reduce,
    runs,
    shared_list::SharedLists,
};
use glance_api::keys::labels::OWNER_KIND;

/// How long a pass waits for watches that are starting.
pub(super) const START_WAIT: Duration = Duration::from_secs(5);

/// Who wants to know of changes; the Glance and backend controllers.
pub trait Routes: Send + Sync + 'static {
    /// Whether an object is a child or an input of some CR, and so worth remembering.
    fn wants(&self, cluster: &str, kind: &Kind, object: &DynamicObject) -> bool;
    /// An object appeared or changed, or is gone.
    fn changed(&self, cluster: &str, kind: &Kind, object: &DynamicObject, is_gone: bool);
    /// A kind came to be served, or ceased to be.
    fn capability_changed(&self, cluster: &str, kind: &Kind);
}

/// The watches on one generation of one cluster.
pub struct View {
    informers: Vec<(Kind, Arc<Informer>)>,
    /// Runs of the purge, where the watch of Jobs does not show them.
    runs: Option<Arc<Informer>>,
    /// What is remembered of the cluster.
    pub ledger: Arc<Ledger>,
    /// The lists that teardowns wait for.
    pub lists: SharedLists,
}

// === impl View ===

impl View {
    /// Starts the watches; they end with the cluster's generation.
    pub fn start(cluster: &Cluster, routes: &Arc<dyn Routes>, ledger: Arc<Ledger>) -> Self {
        let mut informers = Vec::with_capacity(CHILDREN.len() + INPUTS.len());
        for child in CHILDREN {
            let selector = (child.selected && !cluster.is_hub())
                .then(|| format!("{OWNER_KIND}={}", super::ownership::OWNER_KIND));
            let spec = spec(
                child.kind,
                child.payload,
                selector,
                routes,
                &ledger,
                cluster,
            );
            informers.push((child.kind, cluster.informer(spec)));
        }
        for kind in INPUTS {
            let spec = spec(kind, Payload::Full, None, routes, &ledger, cluster);
            informers.push((kind, cluster.informer(spec)));
        }
        // On the hub the watch of Jobs is not narrowed to marked ones and shows the runs as well.
        let runs = (!cluster.is_hub()).then(|| {
            let selector = Some(runs::selector());
            cluster.informer(spec(JOB, Payload::Full, selector, routes, &ledger, cluster))
        });
        Self {
            informers,
            runs,
            ledger,
            lists: SharedLists::default(),
        }
    }

    /// The watch that shows the runs of the purge.
    pub fn runs(&self) -> Option<&Arc<Informer>> {
        self.runs.as_ref().or_else(|| self.informer(&JOB))
    }

    /// The watch of a kind of [`CHILDREN`] or [`INPUTS`].
    pub fn informer(&self, kind: &Kind) -> Option<&Arc<Informer>> {
        self.informers
            .iter()
            .find(|(known, _)| known.kind == kind.kind && known.group == kind.group)
            .map(|(_, informer)| informer)
    }

    /// How far the watch of a kind can be trusted in a namespace.
    pub async fn readiness(&self, kind: &Kind, namespace: Option<&str>) -> Readiness {
        match self.informer(kind) {
            Some(informer) => informer.ready(namespace, START_WAIT).await,
            None => Readiness::Failing("no such watch".into()),
        }
    }

    /// Folds in the answer to a write or read of our own. The object, as far as it is remembered.
    pub fn observe(&self, kind: &Kind, object: DynamicObject) -> Arc<DynamicObject> {
        match self.informer(kind) {
            Some(informer) => informer.observe(object),
            None => Arc::new(object),
        }
    }
}

fn spec(
    kind: Kind,
    payload: Payload,
    selector: Option<String>,
    routes: &Arc<dyn Routes>,
    ledger: &Arc<Ledger>,
    cluster: &Cluster,
) -> InformerSpec {
    let name = cluster.name().to_owned();
    let keep = {
        let routes = Arc::clone(routes);
        let name = name.clone();
        Arc::new(move |object: &DynamicObject| routes.wants(&name, &kind, object))
    };
    let on_change = {
        let routes = Arc::clone(routes);
        let ledger = Arc::clone(ledger);
        Arc::new(move |_: &Cluster, change: &Change| match change {
            Change::Applied(object) => {
                let key = object_key(&kind, object);
                let version = object.metadata.resource_version.as_deref();
                if !ledger.is_own_write(&key, version) {
                    routes.changed(&name, &kind, object, false);
                }
            }
            Change::Deleted(object) => {
                ledger.forget(&object_key(&kind, object));
                routes.changed(&name, &kind, object, true);
            }
            // Whose it was until now has lost it.
            Change::Relabelled(before) => routes.changed(&name, &kind, before, true),
            Change::Served | Change::Gone => routes.capability_changed(&name, &kind),
            Change::Synced => {}
        })
    };
    InformerSpec {
        kind,
        selector,
        payload,
        keep,
        reduce: Arc::new(move |object: &mut DynamicObject| reduce(&kind, object)),
        on_change,
    }
}

fn object_key(kind: &Kind, object: &DynamicObject) -> ledger::ObjectKey {
    ledger::key(
        kind,
        object.metadata.namespace.as_deref().unwrap_or_default(),
        object.metadata.name.as_deref().unwrap_or_default(),
    )
}
