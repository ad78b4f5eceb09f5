//! Our two charts, rendered by Helm's own engine, so that tests and demo run the operator
//! under the rights that an installation gets, not under a copy of them.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use thiserror::Error;

use crate::assets::Assets;

#[cfg(test)]
mod tests;

/// A chart of this repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chart {
    /// The operator on a hub.
    GlanceOperator,
    /// What a target grants to its hub.
    TargetClusterAccess,
}

/// One installation of a chart.
#[derive(Debug, Clone)]
pub struct Release<'a> {
    /// What is installed.
    pub chart: Chart,
    /// The name of the release.
    pub name: &'a str,
    /// The namespace of the release.
    pub namespace: &'a str,
    /// Values over the chart's own, an object.
    pub values: Value,
}

/// Why a chart did not render.
#[derive(Debug, Error)]
pub enum Error {
    /// Helm refused it; its own words.
    #[error("the chart {chart} was refused: {message}")]
    Refused {
        /// The chart's name.
        chart: &'static str,
        /// What Helm printed.
        message: String,
    },
    /// What Helm printed is not a list of manifests.
    #[error("the chart {chart} renders something that is no manifest: {message}")]
    Unreadable {
        /// The chart's name.
        chart: &'static str,
        /// Where and why.
        message: String,
    },
    /// Helm could not be run.
    #[error("Helm did not run ({0}): build the control plane anew by removing its binary from the cache folder")]
    Run(#[from] io::Error),
}

// === impl Chart ===

impl Chart {
    /// The name of the chart, also its folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::GlanceOperator => "glance-operator",
            Self::TargetClusterAccess => "target-cluster-access",
        }
    }

    /// Where the chart lies in this checkout.
    pub fn folder(self) -> PathBuf {
        Path::new(crate::checkout()).join("charts").join(self.name())
    }
}

// === impl Release ===

impl Release<'_> {
    /// The objects of the release, without the custom resource definitions of its `crds/`.
    pub fn render(&self, assets: &Assets) -> Result<Vec<Value>, Error> {
        let text = self.helm(assets, "template", &[])?;
        serde_saphyr::from_multiple(&text).map_err(|cause| Error::Unreadable {
            chart: self.chart.name(),
            message: cause.to_string(),
        })
    }

    /// Runs one command of Helm on the chart with the values of the release.
    fn helm(&self, assets: &Assets, command: &str, more: &[&str]) -> Result<String, Error> {
        let mut helm = Command::new(assets.binary());
        helm.args(["helm", command]);
        if command == "template" {
            helm.arg(self.name);
        }
        let mut child = helm
            .arg(self.chart.folder())
            .args(["--namespace", self.namespace, "--values", "-"])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // JSON is YAML. A chart that is refused early closes the pipe, and then says why.
            let _ = stdin.write_all(self.values.to_string().as_bytes());
        }
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(Error::Refused {
            chart: self.chart.name(),
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }
}
