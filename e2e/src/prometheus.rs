//! Debian's Prometheus as a child: what our dashboard asks and our alerts say is tried on the real one.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{
    checkout,
    expect::eventually,
    go::cache_folder,
    operator::ask,
    patience, ports,
    process::{Plan, Process, tail},
};

/// The package that holds both programs.
const PACKAGE: &str = "prometheus";

/// A running Prometheus. Dropping it kills it.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    port: u16,
}

/// A program of the package: on the `PATH`, or out of the package, which is fetched once and unpacked
/// into the cache. Nothing is installed. The error says in one line why it cannot be had.
pub fn find(program: &str) -> Result<PathBuf> {
    let on_path = env::var_os("PATH").and_then(|path| {
        env::split_paths(&path)
            .map(|folder| folder.join(program))
            .find(|file| file.is_file())
    });
    if let Some(found) = on_path {
        return Ok(found);
    }
    let folder = cache_folder()?.join("debian");
    let unpacked = folder.join("usr/bin").join(program);
    if !unpacked.is_file() {
        fetch(&folder).with_context(|| {
            format!("{program} cannot be had: install the Debian package {PACKAGE}, or put it on the PATH")
        })?;
    }
    ensure!(
        unpacked.is_file(),
        "the package {PACKAGE} holds no {program}"
    );
    Ok(unpacked)
}

/// Unpacks beside the folder and renames, so that nobody sees half of it.
fn fetch(folder: &Path) -> Result<()> {
    let parent = folder.parent().context("the cache has no folder")?;
    fs::create_dir_all(parent)?;
    let scratch = tempfile::tempdir_in(parent)?;
    command("apt-get", ["download", PACKAGE], scratch.path())?;
    let package = fs::read_dir(scratch.path())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension() == Some(OsStr::new("deb")))
        .context("apt-get downloaded no package")?;
    let fresh = scratch.path().join("debian");
    command(
        "dpkg-deb",
        [OsStr::new("-x"), package.as_os_str(), fresh.as_os_str()],
        scratch.path(),
    )?;
    match fs::rename(&fresh, folder) {
        // Another run was faster.
        Err(_) if folder.is_dir() => Ok(()),
        renamed => Ok(renamed?),
    }
}

fn command<S: AsRef<OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = S>,
    folder: &Path,
) -> Result<()> {
    let output = Command::new(program)
        .args(args)
        .current_dir(folder)
        .output()
        .with_context(|| format!("{program} cannot be run"))?;
    if !output.status.success() {
        bail!(
            "{program}: {}",
            tail(&String::from_utf8_lossy(&output.stderr), 1)
        );
    }
    Ok(())
}

/// Runs `promtool` in the checkout; what it printed is the error.
pub fn promtool(args: &[&str]) -> Result<String> {
    let output = Command::new(find("promtool")?)
        .args(args)
        .current_dir(checkout())
        .output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    ensure!(output.status.success(), "{said}");
    Ok(said)
}

// === impl Prometheus ===

impl Prometheus {
    /// Starts one that scrapes `targets` every second and evaluates the chart's rules as often.
    pub async fn start(targets: &[String], folder: &Path) -> Result<Self> {
        // As a ServiceMonitor with `honorLabels` has it.
        let job = json!({
            "job_name": "glance-operator", "honor_labels": true,
            "static_configs": [{ "targets": targets }],
        });
        Self::start_with(&[job], folder).await
    }

    /// The same with scrape configurations of one's own.
    pub async fn start_with(jobs: &[Value], folder: &Path) -> Result<Self> {
        let program = tokio::task::spawn_blocking(|| find("prometheus")).await??;
        let port = ports::free()?;
        let folder = folder.join(format!("prometheus-{port}"));
        fs::create_dir_all(&folder)?;
        let rules = checkout().join("charts/glance-operator/rules/*.yaml");
        // JSON is YAML.
        let config = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [rules],
            "scrape_configs": jobs,
        });
        let file = folder.join("prometheus.yaml");
        fs::write(&file, config.to_string())?;
        let args = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        let process = Process::start(&Plan {
            name: "prometheus",
            program: &program,
            args: &args,
            env: &[],
            folder: &folder,
            log: &folder.join("log"),
        })?;
        let running = Self { process, port };
        eventually(
            patience::seconds(30),
            "Prometheus to be ready",
            async || {
                let ready = ask(http::Method::GET, port, "/-/ready", "").await;
                ready.map_err(|error| error.context(running.process.tail(3)))
            },
        )
        .await?;
        Ok(running)
    }

    /// Its own address, `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What a query gives now: one value per series.
    pub async fn query(&self, query: &str) -> Result<Vec<Value>> {
        let answer = self
            .get(&format!("/api/v1/query?query={}", escaped(query)))
            .await?;
        let result = answer["data"]["result"].as_array();
        Ok(result.with_context(|| answer.to_string())?.clone())
    }

    /// The alerts that are pending or firing.
    pub async fn alerts(&self) -> Result<Vec<Value>> {
        let answer = self.get("/api/v1/alerts").await?;
        let alerts = answer["data"]["alerts"].as_array();
        Ok(alerts.with_context(|| answer.to_string())?.clone())
    }

    /// What became of the last scrape of each job: its error, empty when there was none.
    pub async fn scrapes(&self) -> Result<Vec<(String, String)>> {
        let answer = self.get("/api/v1/targets").await?;
        let targets = answer["data"]["activeTargets"].as_array();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = |target: &Value| (text(&target["scrapePool"]), text(&target["lastError"]));
        Ok(targets
            .with_context(|| answer.to_string())?
            .iter()
            .map(of)
            .collect())
    }

    /// All rules with their health.
    pub async fn rules(&self) -> Result<Vec<Value>> {
        let answer = self.get("/api/v1/rules").await?;
        let groups = answer["data"]["groups"].as_array();
        let groups = groups.with_context(|| answer.to_string())?;
        let rules = groups.iter().filter_map(|group| group["rules"].as_array());
        Ok(rules.flatten().cloned().collect())
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let text = ask(http::Method::GET, self.port, path, "").await?;
        Ok(serde_json::from_str(&text)?)
    }
}

fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            escaped.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}
