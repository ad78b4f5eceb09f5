//! The charts of this repository, rendered by the real Helm: what the operator may do in a
//! test is what a user's installation grants, to the verb.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

use crate::{
    checkout,
    cluster::Cluster,
    go::{self, Build},
    process::tail,
    progress::Progress,
};

/// Free space for a cold build of Helm, in bytes.
const BUILD_SPACE: u64 = 2 << 30;

/// Kinds that grant rights, in the order in which they can be applied.
const RIGHTS: [&str; 7] = [
    "Namespace",
    "ServiceAccount",
    "Secret",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
];

/// Helm, built once per machine from the module in `e2e/tools`.
pub fn helm(progress: &Progress) -> Result<PathBuf> {
    let module = checkout().join("e2e/tools");
    Ok(go::build(
        &Build {
            name: "helm",
            what: "Helm (about two minutes on a cold cache)",
            module: &module,
            package: "helm.sh/helm/v4/cmd/helm",
            ldflags: "-s -w",
            toolchain: None,
            space: BUILD_SPACE,
        },
        progress,
    )?)
}

/// Renders a chart of `charts/`. `values` is merged over the chart's own.
pub async fn render(
    chart: &str,
    release: &str,
    namespace: &str,
    values: &Value,
) -> Result<Vec<Value>> {
    let folder = checkout().join("charts").join(chart);
    let (release, namespace) = (release.to_owned(), namespace.to_owned());
    let values = serde_json::to_string(values)?;
    tokio::task::spawn_blocking(move || template(&folder, &release, &namespace, &values)).await?
}

fn template(chart: &Path, release: &str, namespace: &str, values: &str) -> Result<Vec<Value>> {
    let scratch = tempfile::tempdir()?;
    let file = scratch.path().join("values.yaml");
    std::fs::write(&file, values)?;
    let output = Command::new(helm(&Progress::start())?)
        .args(["template", release])
        .arg(chart)
        .args(["--namespace", namespace, "--values"])
        .arg(&file)
        // Neither the user's repositories nor his plugins have a say here.
        .env("HELM_CACHE_HOME", scratch.path())
        .env("HELM_CONFIG_HOME", scratch.path())
        .env("HELM_DATA_HOME", scratch.path())
        .env_remove("KUBECONFIG")
        .output()
        .context("running helm")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!(
            "helm could not render {}: {}",
            chart.display(),
            tail(&words, 3)
        );
    }
    let all: Vec<Value> = serde_saphyr::from_multiple(&text)
        .map_err(|e| anyhow!("what helm rendered of {} is not YAML: {e}", chart.display()))?;
    Ok(all.into_iter().filter(Value::is_object).collect())
}

/// Applies what grants rights and leaves the rest: the operator runs beside the cluster.
pub async fn grant(cluster: &Cluster, manifests: &[Value]) -> Result<()> {
    for kind in RIGHTS {
        for manifest in manifests.iter().filter(|m| m["kind"] == kind) {
            cluster.apply(manifest).await?;
        }
    }
    Ok(())
}
