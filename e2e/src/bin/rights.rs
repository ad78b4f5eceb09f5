//! Compares what the charts grant with what a run on control planes used: `rights FOLDER`, the folder that
//! `E2E_AUDIT_FOLDER` named for the run. `.ci/run` does it behind the tests.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use e2e::{checkout, rights::Comparison};

#[tokio::main]
async fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.context("usage: rights FOLDER")?;
    let list = checkout().join("e2e/unused-rights.txt");
    let excuses =
        std::fs::read_to_string(&list).with_context(|| format!("reading {}", list.display()))?;
    let comparison = Comparison::of(&folder).await?;
    for remark in comparison.remarks(&excuses)? {
        println!("{remark}");
    }
    let complaints = comparison.complaints(&excuses)?;
    if !complaints.is_empty() {
        bail!(
            "the charts do not grant what is used and no more:\n{}\ntake the right out of the chart, test what \
             needs it, or explain it in {}",
            complaints.join("\n"),
            list.display()
        );
    }
    Ok(())
}
