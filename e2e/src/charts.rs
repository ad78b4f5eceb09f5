//! The charts of this repository, rendered by the real Helm: what the operator may do in a
//! test is what a user's installation grants, to the verb.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

use crate::{
    assets::{Assets, Component},
    checkout,
    cluster::Cluster,
    process::tail,
    progress::Progress,
};

pub mod table;
#[cfg(test)]
mod tests;
pub mod unittest;

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

/// Renders a chart of `charts/`. `values` is merged over the chart's own.
pub async fn render(
    chart: &str,
    release: &str,
    namespace: &str,
    values: &Value,
) -> Result<Vec<Value>> {
    let folder = checkout().join("charts").join(chart);
    let (release, namespace) = (release.to_owned(), namespace.to_owned());
    let values = values.clone();
    tokio::task::spawn_blocking(move || template(&folder, &release, &namespace, &values, &[]))
        .await?
}

fn template(
    chart: &Path,
    release: &str,
    namespace: &str,
    values: &Value,
    more: &[&str],
) -> Result<Vec<Value>> {
    let command = ["template", release, "--namespace", namespace];
    let text = helm(chart, values, &[&command, more].concat())?;
    let all: Vec<Value> = serde_saphyr::from_multiple(&text)
        .map_err(|e| anyhow!("what helm rendered of {} is not YAML: {e}", chart.display()))?;
    Ok(all.into_iter().filter(Value::is_object).collect())
}

/// Runs a command of Helm on a chart with values over its own.
fn helm(chart: &Path, values: &Value, command: &[&str]) -> Result<String> {
    let scratch = tempfile::tempdir()?;
    let file = scratch.path().join("values.yaml");
    // JSON is YAML.
    std::fs::write(&file, values.to_string())?;
    let (program, component) = Assets::find_or_build(&Progress::start())?.program(Component::Helm);
    let output = Command::new(program)
        .args(component)
        .args(command)
        .arg(chart)
        .arg("--values")
        .arg(&file)
        // Neither the user's repositories nor his plugins have a say here.
        .env("HELM_CACHE_HOME", scratch.path())
        .env("HELM_CONFIG_HOME", scratch.path())
        .env("HELM_DATA_HOME", scratch.path())
        .env_remove("KUBECONFIG")
        .output()
        .context("running helm")?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!(
            "helm could not render {}: {}",
            chart.display(),
            tail(&words, 3)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
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
