//! The custom resource definitions that a fleet serves: ours out of `crds/`, those of our
//! neighbours out of their Go modules.

use std::sync::{Mutex, PoisonError};

use anyhow::Result;

use crate::assets::Neighbour;

/// Custom resource definitions, YAML by name.
#[derive(Debug, Clone)]
pub struct Definitions {
    nodes: Vec<(String, String)>,
    ours: Vec<(String, String)>,
    neighbours: Vec<(String, String)>,
    gateway_api: Vec<(String, String)>,
}

// === impl Definitions ===

impl Definitions {
    /// Reads all definitions, once per process.
    pub fn read() -> Result<Self> {
        static READ: Mutex<Option<Definitions>> = Mutex::new(None);
        let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = read.as_ref() {
            return Ok(read.clone());
        }
        let found = Self {
            nodes: Neighbour::Kwok.crds()?,
            ours: ours()?,
            neighbours: [
                Neighbour::MariaDb.crds()?,
                Neighbour::ExternalSecrets.crds()?,
            ]
            .concat(),
            gateway_api: Neighbour::GatewayApi.crds()?,
        };
        *read = Some(found.clone());
        Ok(found)
    }

    /// What the node simulator needs to start.
    pub fn nodes(&self) -> &[(String, String)] {
        &self.nodes
    }

    /// Everything, the Gateway API only if wanted.
    pub fn all(&self, gateway_api: bool) -> Vec<(String, String)> {
        let mut all = [
            self.nodes.clone(),
            self.ours.clone(),
            self.neighbours.clone(),
        ]
        .concat();
        if gateway_api {
            all.extend(self.gateway_api.iter().cloned());
        }
        all
    }
}

/// The generated definitions in `crds/`.
pub fn ours() -> Result<Vec<(String, String)>> {
    let folder = crate::checkout().join("crds");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        // GROUP_PLURAL.yaml, as the generators of this field name them.
        let stem = path
            .file_name()
            .and_then(|n| n.to_str())
            .and_then(|n| n.strip_suffix(".yaml"));
        if let Some((group, plural)) = stem.and_then(|stem| stem.split_once('_')) {
            found.push((format!("{plural}.{group}"), std::fs::read_to_string(&path)?));
        }
    }
    Ok(found)
}
