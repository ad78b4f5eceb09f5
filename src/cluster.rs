//! Where the children of a Glance live, and the only ways to read and write them.
//!
//! A [`Target`] is one cluster seen by one pass: the hub itself, or a registered target. [`children`] is the only
//! writer of child objects and stamps ownership by placement, so no step knows where it runs; [`inputs`] reads what
//! others provide; [`view`] holds the watches behind both. Nothing here knows what is rendered.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use glance_api::glance::Glance;
use target_registry::{Cluster, LOCAL};

use self::{
    inputs::Payload,
    ownership::{Owner, Placement},
    view::View,
};

pub mod children;
pub mod inputs;
pub mod kinds;
pub mod ledger;
pub mod needs;
pub mod ownership;
pub mod probe;
pub mod reads;
pub mod reduce;
pub mod runs;
pub mod shared_list;
pub mod sweep;
pub mod view;

/// One cluster, for one pass over one Glance.
pub struct Target {
    /// The cluster's connection and bulkhead.
    pub cluster: Arc<Cluster>,
    /// Its watches.
    pub view: Arc<View>,
    /// Whose children are read and written.
    pub owner: Owner,
    /// Secret payloads read in this pass, so that two steps see one version of a Secret.
    payloads: Mutex<HashMap<String, Option<Arc<Payload>>>>,
}

// === impl Target ===

impl Target {
    /// The cluster as the pass over `glance` sees it.
    pub fn new(
        glance: &Glance,
        cluster: Arc<Cluster>,
        view: Arc<View>,
        hub_uid: Option<String>,
    ) -> Self {
        let placement = if placed_on(glance).is_some() {
            Placement::Remote
        } else {
            Placement::Local
        };
        Self {
            owner: Owner::of(glance, placement, hub_uid),
            cluster,
            view,
            payloads: Mutex::default(),
        }
    }

    /// The cluster as it was left by a Glance that is gone.
    pub fn left_by(
        (namespace, name, uid): (&str, &str, &str),
        cluster: Arc<Cluster>,
        view: Arc<View>,
        hub_uid: Option<String>,
    ) -> Self {
        Self {
            owner: Owner {
                name: name.to_owned(),
                namespace: namespace.to_owned(),
                uid: uid.to_owned(),
                placement: Placement::Remote,
                hub_uid,
                adopts_from: None,
            },
            cluster,
            view,
            payloads: Mutex::default(),
        }
    }

    /// Namespace of the CR and of all its children.
    pub fn namespace(&self) -> &str {
        &self.owner.namespace
    }

    /// Whether the children live on another cluster than the CR.
    pub fn is_remote(&self) -> bool {
        self.owner.placement == Placement::Remote
    }
}

/// The target cluster a Glance names, if it names one.
pub fn placed_on(glance: &Glance) -> Option<&str> {
    glance
        .spec
        .target_cluster_ref
        .as_ref()
        .map(|target| target.name.as_str())
}

/// The label of the cluster a Glance runs on in metrics and logs.
pub fn cluster_label(glance: &Glance) -> &str {
    placed_on(glance).unwrap_or(LOCAL)
}
