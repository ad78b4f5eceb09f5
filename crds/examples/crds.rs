//! Writes the definitions into the files beside this crate's manifest.

use std::fs;
use std::path::Path;

use glance_api::schema;
use kube::CustomResourceExt;
use target_registry::{TargetCluster, target_cluster};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (file, yaml) in schema::crds()? {
        fs::write(directory.join(file), yaml)?;
    }
    let registration = schema::yaml(&schema::shipped(&TargetCluster::crd())?)?;
    fs::write(directory.join(target_cluster::FILE), registration)?;
    Ok(())
}
