//! Writes the table of values into the README of each chart; `make generate` runs it.

use anyhow::Result;
use e2e::{charts::table, checkout};

fn main() -> Result<()> {
    for entry in std::fs::read_dir(checkout().join("charts"))? {
        let chart = entry?.path();
        std::fs::write(chart.join("README.md"), table::readme(&chart)?)?;
    }
    Ok(())
}
