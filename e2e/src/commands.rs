//! The command line of people, run as they run it: the real binary, their own kubeconfig, kubectl
//! beside it on the PATH.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::{fleet::Fleet, operator::binary, site::Site};

/// A user with a terminal.
#[derive(Debug, Clone)]
pub struct Commands {
    tools: PathBuf,
    kubeconfig: String,
    clusters_namespace: String,
}

/// The end of a command.
#[derive(Debug, Clone)]
pub struct Output {
    /// Its exit code.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it said beside that.
    pub stderr: String,
}

// === impl Commands ===

impl Commands {
    /// Of an administrator of the hub and of all targets, with contexts named as the clusters.
    pub async fn of(site: &Site<'_>) -> Result<Self> {
        Self::with(site.fleet(), &site.clusters_namespace()).await
    }

    /// The same for any namespace of registrations.
    pub async fn with(fleet: &Fleet, clusters_namespace: &str) -> Result<Self> {
        let tools = fleet
            .folder()
            .path()
            .join(format!("tools-{clusters_namespace}"));
        fleet.assets().write_kubectl(&tools)?;
        let binary = tokio::task::spawn_blocking(binary).await??;
        for name in ["glance-operator", "kubectl-glance"] {
            symlink_to(&binary, &tools.join(name))?;
        }
        let members = fleet.members().iter();
        let files: Vec<_> = members
            .map(|member| member.cluster().kubeconfig().display().to_string())
            .collect();
        Ok(Self {
            tools,
            kubeconfig: files.join(":"),
            clusters_namespace: clusters_namespace.to_owned(),
        })
    }

    /// Where the programs are.
    pub fn tools(&self) -> &Path {
        &self.tools
    }

    /// The user's files.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// `glance-operator clusters …` on the hub, for the registrations of this site.
    pub async fn clusters(&self, args: &[&str]) -> Result<Output> {
        let fixed = ["--context", "hub", "-n", &self.clusters_namespace];
        let args = [&["clusters"], args, &fixed].concat();
        self.run("glance-operator", &args).await
    }

    /// The same, which must succeed.
    pub async fn clusters_ok(&self, args: &[&str]) -> Result<Output> {
        let output = self.clusters(args).await?;
        ensure!(output.code == 0, "clusters {args:?} failed: {output}");
        Ok(output)
    }

    /// Any program with its arguments.
    pub async fn run(&self, program: &str, args: &[&str]) -> Result<Output> {
        let mut command = self.command(&self.tools.join(program).display().to_string());
        command.args(args);
        finish(command).await
    }

    /// A script, as somebody pastes it into a shell.
    pub async fn paste(&self, script: &str) -> Result<Output> {
        let mut command = self.command("/bin/sh");
        command.args(["-euc", script]);
        finish(command).await
    }

    fn command(&self, program: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command
            .env("PATH", format!("{}:{path}", self.tools.display()))
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }
}

// === impl Output ===

impl Output {
    /// What it printed, as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout).with_context(|| format!("not JSON: {self}"))
    }

    /// What it printed, as YAML documents.
    pub fn yaml(&self) -> Result<Vec<Value>> {
        match serde_saphyr::from_multiple(&self.stdout) {
            Ok(documents) => Ok(documents),
            Err(error) => bail!("not YAML ({error}): {self}"),
        }
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "exit code {}\n--- stdout\n{}\n--- stderr\n{}",
            self.code, self.stdout, self.stderr
        )
    }
}

async fn finish(mut command: Command) -> Result<Output> {
    let output = command.output().await.context("running a command")?;
    Ok(Output {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn symlink_to(target: &Path, link: &Path) -> Result<()> {
    match symlink(target, link) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made.with_context(|| format!("linking {}", link.display())),
    }
}
