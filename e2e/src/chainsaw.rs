//! The Chainsaw suites of this repository, run by the real Chainsaw. On kind, people run
//! them by themselves; here they run on a fleet.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};

use crate::{
    assets::Assets,
    checkout,
    cluster::Cluster,
    go::{self, Build},
    process::tail,
    progress::Progress,
};

/// Free space for a cold build, in bytes.
const BUILD_SPACE: u64 = 2 << 30;

/// The folder of the suites, which is also the module that pins Chainsaw.
fn folder() -> PathBuf {
    checkout().join("e2e/chainsaw")
}

/// Chainsaw, built once per machine.
pub fn build(progress: &Progress) -> Result<PathBuf, go::Error> {
    go::build(
        &Build {
            name: "chainsaw",
            what: "Chainsaw (about three minutes on a cold cache)",
            module: &folder(),
            package: "github.com/kyverno/chainsaw",
            ldflags: "-s -w",
            // A later Go changed an internal interface that Chainsaw uses.
            toolchain: Some("go1.25.5"),
            space: BUILD_SPACE,
        },
        progress,
    )
}

/// Runs suites by name in one namespace of a cluster. What they made is removed by them.
pub async fn run(
    cluster: &Cluster,
    namespace: &str,
    suites: &[&str],
    assets: &Assets,
    scratch: &Path,
) -> Result<String> {
    let tools = scratch.join("bin");
    assets.write_kubectl(&tools)?;
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", tools.display());
    let kubeconfig = cluster.kubeconfig().to_owned();
    let (namespace, scratch) = (namespace.to_owned(), scratch.to_owned());
    let suites: Vec<_> = suites.iter().map(|suite| folder().join(suite)).collect();
    tokio::task::spawn_blocking(move || {
        let output = Command::new(build(&Progress::start())?)
            .arg("test")
            .args(&suites)
            .arg("--config")
            .arg(folder().join(".chainsaw.yaml"))
            .args(["--namespace", &namespace, "--no-color"])
            .env("KUBECONFIG", kubeconfig)
            .env("PATH", path)
            .current_dir(scratch)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            bail!("a suite failed:\n{}\n{}", tail(&text, 80), tail(&words, 10));
        }
        Ok(text)
    })
    .await?
}
