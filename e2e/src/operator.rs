//! The real operator as a child process, with the rights that its chart grants.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, anyhow, bail};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    audit::account,
    charts, checkout,
    cluster::Cluster,
    expect::eventually,
    kinds, patience, ports,
    process::{Plan, Process, in_words},
    progress::Progress,
};

/// The chart, and the base of every name that it makes.
const CHART: &str = "glance-operator";

/// How the operator is to be run. All of it can be changed before a start.
#[derive(Debug, Clone)]
pub struct Operator {
    binary: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
    account: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    log: PathBuf,
}

/// A running operator. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    process: Process,
    metrics: u16,
    health: u16,
}

// === impl Operator ===

impl Operator {
    /// Grants the chart's rights to a new account in `namespace` on the hub and makes a
    /// kubeconfig for it. Files go to `folder`.
    pub async fn install(hub: &Cluster, namespace: &str, folder: &Path) -> Result<Self> {
        Self::install_with(hub, namespace, folder, &json!({})).await
    }

    /// The same with values for the chart.
    pub async fn install_with(
        hub: &Cluster,
        namespace: &str,
        folder: &Path,
        values: &Value,
    ) -> Result<Self> {
        let binary = tokio::task::spawn_blocking(binary).await??;
        hub.namespace(namespace).await?;
        // One release per namespace: cluster roles of two installations must not share a name.
        let release = format!("{CHART}-{namespace}");
        let mut all = json!({ "apiProbe": { "mode": "api-proxy" } });
        if let (Some(all), Some(more)) = (all.as_object_mut(), values.as_object()) {
            all.extend(more.clone());
        }
        let manifests = charts::render(CHART, &release, namespace, &all).await?;
        charts::grant(hub, &manifests).await?;
        let account = manifests
            .iter()
            .find(|m| m["kind"] == "ServiceAccount")
            .and_then(|m| m["metadata"]["name"].as_str())
            .context("the chart renders no service account")?
            .to_owned();
        let kubeconfig = folder.join(format!("operator-{namespace}.kubeconfig"));
        std::fs::write(&kubeconfig, hub.kubeconfig_of(namespace, &account).await?)?;
        let args = ["--enable-webhooks=false", "--local-probe=api-proxy"];
        Ok(Self {
            binary,
            kubeconfig,
            namespace: namespace.to_owned(),
            account,
            args: args.map(str::to_owned).to_vec(),
            env: vec![("POD_NAMESPACE".to_owned(), namespace.to_owned())],
            log: folder.join(format!("operator-{namespace}.log")),
        })
    }

    /// The operator of a Deployment that a chart installed: its arguments, under its account. The Deployment's own
    /// pods are simulated and run nothing.
    pub async fn deployed(
        hub: &Cluster,
        namespace: &str,
        deployment: &str,
        folder: &Path,
    ) -> Result<Self> {
        let binary = tokio::task::spawn_blocking(binary).await??;
        let (version, kind) = kinds::DEPLOYMENT;
        let found = hub
            .any(version, kind, Some(namespace))
            .get(deployment)
            .await
            .with_context(|| format!("the Deployment {namespace}/{deployment}"))?;
        let pod = &found.data["spec"]["template"]["spec"];
        let account = pod["serviceAccountName"]
            .as_str()
            .context("the Deployment names no service account")?
            .to_owned();
        let args = pod["containers"][0]["args"].as_array();
        let args = args.into_iter().flatten().filter_map(Value::as_str);
        let kubeconfig = folder.join(format!("operator-{namespace}.kubeconfig"));
        std::fs::write(&kubeconfig, hub.kubeconfig_of(namespace, &account).await?)?;
        Ok(Self {
            binary,
            kubeconfig,
            namespace: namespace.to_owned(),
            account,
            args: args.map(str::to_owned).collect(),
            env: vec![("POD_NAMESPACE".to_owned(), namespace.to_owned())],
            log: folder.join(format!("operator-{namespace}.log")),
        })
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Reaches its hub by another URL than the cluster's own.
    pub fn by_way_of(self, hub: &Cluster, url: &str) -> Result<Self> {
        let kubeconfig = std::fs::read_to_string(&self.kubeconfig)?;
        std::fs::write(&self.kubeconfig, kubeconfig.replace(&hub.server(), url))?;
        Ok(self)
    }

    /// Logs to another file, so that two processes of one installation can be told apart.
    #[must_use]
    pub fn log(mut self, name: &str) -> Self {
        self.log.set_file_name(format!("{name}.log"));
        self
    }

    /// The operator's user name in audit logs of the hub.
    pub fn user(&self) -> String {
        account(&self.namespace, &self.account)
    }

    /// Everything that every process of this installation has printed.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Starts it and waits until it says that it is ready.
    pub async fn start(&self) -> Result<Running> {
        let mut running = self.launch()?;
        let outcome = eventually(
            patience::seconds(60),
            "the operator to be ready",
            async || {
                if let Some(status) = running.process.exited() {
                    // Not worth waiting for.
                    return Ok(Err(anyhow!("the operator {}", in_words(status))));
                }
                get(running.health, "/readyz").await.map(Ok)
            },
        )
        .await;
        match outcome.and_then(|inner| inner) {
            Ok(_) => Ok(running),
            Err(error) => Err(error.context(running.process.tail(20))),
        }
    }

    /// Starts it and does not wait.
    pub fn launch(&self) -> Result<Running> {
        let (metrics, health) = (ports::free()?, ports::free()?);
        let mut args = self.args.clone();
        args.push(format!("--metrics-bind-address=127.0.0.1:{metrics}"));
        args.push(format!("--health-probe-bind-address=127.0.0.1:{health}"));
        let mut env = self.env.clone();
        env.push((
            "KUBECONFIG".to_owned(),
            self.kubeconfig.to_string_lossy().into_owned(),
        ));
        let process = Process::start(&Plan {
            name: CHART,
            program: &self.binary,
            args: &args,
            env: &env,
            folder: self.log.parent().unwrap_or(Path::new("/")),
            log: &self.log,
        })?;
        Ok(Running {
            process,
            metrics,
            health,
        })
    }
}

// === impl Running ===

impl Running {
    /// Asks it to end, as Kubernetes does, and says how it ended.
    pub fn stop(mut self) -> Result<ExitStatus> {
        Ok(self.process.stop(patience::seconds(35))?)
    }

    /// Asks it to end and does not wait.
    pub fn ask_to_stop(&mut self) {
        self.process.signal(Signal::TERM);
    }

    /// Kills it without a word.
    pub fn kill(mut self) -> Result<()> {
        self.process.kill()?;
        Ok(())
    }

    /// Stops its clock; connections stay open.
    pub fn freeze(&mut self) {
        self.process.signal(Signal::STOP);
    }

    /// Ends a freeze.
    pub fn thaw(&mut self) {
        self.process.signal(Signal::CONT);
    }

    /// How it ended, if it has.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.process.exited()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The last lines of its log.
    pub fn tail(&self, lines: usize) -> String {
        self.process.tail(lines)
    }

    /// Its resident memory, in bytes.
    pub fn resident(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.split_whitespace().next())
            .context("no VmRSS")?;
        Ok(kib.parse::<u64>()? * 1024)
    }

    /// A page of its health listener.
    pub async fn health(&self, path: &str) -> Result<String> {
        get(self.health, path).await
    }

    /// Has it log at another level from now on, and says what it says that level is.
    pub async fn set_log_level(&self, level: &str) -> Result<String> {
        ask(http::Method::PUT, self.health, "/debug/log-level", level).await?;
        self.health("/debug/log-level").await
    }

    /// Where its metrics are, for a scraper.
    pub fn metrics_address(&self) -> String {
        format!("127.0.0.1:{}", self.metrics)
    }

    /// The text of its metrics.
    pub async fn metrics(&self) -> Result<String> {
        get(self.metrics, "/metrics").await
    }

    /// The sum of a metric over all series that carry these labels; `None` without any.
    pub async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<Option<f64>> {
        Ok(sum(&self.metrics().await?, name, labels))
    }

    /// Waits until a metric is what `judge` wants.
    pub async fn metric_becomes(
        &self,
        limit: Duration,
        (name, labels): (&str, &[(&str, &str)]),
        judge: impl Fn(f64) -> bool,
    ) -> Result<f64> {
        eventually(limit, &format!("{name} {labels:?}"), async || {
            let value = self.metric(name, labels).await?.unwrap_or(0.0);
            if judge(value) {
                Ok(value)
            } else {
                Err(anyhow!("{value}"))
            }
        })
        .await
    }
}

/// Adds up the series of a metric in Prometheus' text format.
fn sum(text: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let wanted: Vec<_> = labels.iter().map(|(k, v)| format!("{k}=\"{v}\"")).collect();
    let mut found = None;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(name) else {
            continue;
        };
        let (series, value) = match rest.split_once('}') {
            Some((series, value)) if series.starts_with('{') => (&series[1..], value),
            _ if rest.starts_with(' ') => ("", rest),
            _ => continue,
        };
        let value: Option<f64> = value.split_whitespace().next().and_then(|v| v.parse().ok());
        if let Some(value) = value
            && wanted
                .iter()
                .all(|w| series.split(',').any(|label| label == w))
        {
            *found.get_or_insert(0.0) += value;
        }
    }
    found
}

/// A page from a listener of the operator; a code that is no success is an error.
async fn get(port: u16, path: &str) -> Result<String> {
    ask(http::Method::GET, port, path, "").await
}

pub(crate) async fn ask(method: http::Method, port: u16, path: &str, body: &str) -> Result<String> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("host", "127.0.0.1")
        .body(Full::<bytes::Bytes>::from(body.to_owned()))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    connection.abort();
    let text = String::from_utf8_lossy(&body).into_owned();
    if !status.is_success() {
        bail!("{path} answers {status}: {}", text.trim());
    }
    Ok(text)
}

/// The operator's binary: the one in `E2E_OPERATOR`, or that of this build. A build that
/// is older than the sources is brought up to date first.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os("E2E_OPERATOR") {
        return Ok(PathBuf::from(path));
    }
    // A test runs from `PROFILE/deps`, a program from `PROFILE`.
    let exe = env::current_exe()?;
    let folder = exe.parent().context("no folder")?;
    let folder = if folder.ends_with("deps") {
        folder.parent().unwrap_or(folder)
    } else {
        folder
    };
    let path = folder.join(CHART);
    let built = std::fs::metadata(&path).and_then(|m| m.modified()).ok();
    if built.is_none_or(|built| newest_source().is_some_and(|source| source > built)) {
        build(folder)?;
    }
    Ok(path)
}

fn build(folder: &Path) -> Result<()> {
    let profile = if folder.ends_with("release") {
        "release"
    } else {
        "dev"
    };
    let target = folder.parent().context("no target folder")?;
    Progress::start().say("building the operator, since its sources are newer than its binary");
    // The whole workspace: the features that its members share are those of every other build.
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(checkout())
        .args([
            "build",
            "--quiet",
            "--locked",
            "--workspace",
            "--bins",
            "--profile",
            profile,
        ])
        .arg("--target-dir")
        .arg(target)
        .status()
        .context(
            "cargo could not be run: install Rust from https://rustup.rs, or set E2E_OPERATOR",
        )?;
    if !status.success() {
        bail!("the operator did not build: run `cargo build --workspace --bins` to see why");
    }
    Ok(())
}

/// When the newest file that the operator is made of was written.
fn newest_source() -> Option<SystemTime> {
    let mut folders: Vec<_> = ["src", "crds/src", "registry/src"]
        .map(|f| checkout().join(f))
        .into();
    let mut newest = None;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(data) if data.is_dir() => folders.push(entry.path()),
                Ok(data) => newest = newest.max(data.modified().ok()),
                Err(_) => {}
            }
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_added_up_by_label() {
        let text =
            "# HELP a x\na{k=\"1\",m=\"x\"} 2\na{k=\"1\",m=\"y\"} 3\na{k=\"2\",m=\"y\"} 5\nab 7\n";
        assert_eq!(sum(text, "a", &[("k", "1")]), Some(5.0));
        assert_eq!(sum(text, "a", &[]), Some(10.0));
        assert_eq!(sum(text, "a", &[("k", "9")]), None);
        assert_eq!(sum(text, "ab", &[]), Some(7.0));
    }
}
