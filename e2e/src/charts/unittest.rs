//! helm-unittest, the runner of the suites in `charts/*/tests`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    checkout,
    go::{self, Build},
    process::tail,
    progress::Progress,
};

/// Free space for a cold build, in bytes.
const BUILD_SPACE: u64 = 1 << 30;

/// helm-unittest, built once per machine.
fn build() -> Result<PathBuf, go::Error> {
    go::build(
        &Build {
            name: "helm-unittest",
            what: "helm-unittest (about a minute on a cold cache)",
            module: &checkout().join("e2e/helm-unittest"),
            package: "github.com/helm-unittest/helm-unittest/cmd/helm-unittest",
            ldflags: "-s -w",
            toolchain: None,
            space: BUILD_SPACE,
        },
        &Progress::start(),
    )
}

/// Runs all suites of a chart and returns what the runner printed.
pub fn run(chart: &Path) -> Result<String> {
    let scratch = tempfile::tempdir()?;
    let output = Command::new(build()?)
        .args(["--strict", "--file", "tests/*_test.yaml"])
        .arg(chart)
        .env("HELM_CACHE_HOME", scratch.path())
        .env("HELM_CONFIG_HOME", scratch.path())
        .env("HELM_DATA_HOME", scratch.path())
        .env("NO_COLOR", "1")
        .output()
        .context("running helm-unittest")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("a suite failed:\n{}\n{}", tail(&text, 80), tail(&words, 10));
    }
    Ok(text)
}
