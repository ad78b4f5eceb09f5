//! Writes the definitions into the files beside this crate's manifest.

use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (file, yaml) in glance_api::schema::crds()? {
        fs::write(directory.join(file), yaml)?;
    }
    Ok(())
}
