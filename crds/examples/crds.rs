//! Writes the definitions into the files beside this crate's manifest.

use std::fs;
use std::path::Path;

use glance_api::schema;
use kube::CustomResourceExt;
use target_registry::{TargetCluster, target_cluster};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Cargo's, or the Makefile's; not the one compiled in, which another checkout may have built.
    let directory = std::env::var("CARGO_MANIFEST_DIR")?;
    let directory = Path::new(&directory);
    for (file, yaml) in schema::crds()? {
        fs::write(directory.join(file), yaml)?;
    }
    let registration = schema::yaml(&schema::shipped(&TargetCluster::crd())?)?;
    fs::write(directory.join(target_cluster::FILE), registration)?;
    Ok(())
}
