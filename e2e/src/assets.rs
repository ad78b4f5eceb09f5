//! Where the control plane comes from: one binary that Go builds from
//! `e2e/control-plane`, and the custom resource definitions of our neighbours out
//! of their Go modules. Nothing of either is copied into the repository.
//!
//! The binary lands in a cache folder outside the checkout and is found again as
//! long as the module's files do not change. A folder in `KUBEBUILDER_ASSETS` wins
//! for the components that it holds.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Instant,
};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::progress::Progress;

/// Free space that a cold build needs, in bytes: the modules, Go's build cache and the binary.
const BUILD_SPACE: u64 = 6 << 30;

/// A program of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// The store of one cluster.
    Etcd,
    /// `kube-apiserver`.
    ApiServer,
    /// `kube-controller-manager`.
    ControllerManager,
    /// `kube-scheduler`.
    Scheduler,
    /// The node simulator.
    Kwok,
    /// The command line client.
    Kubectl,
}

/// A project whose custom resources the operator uses or whose stages the bed plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Neighbour {
    /// Gateway API, standard channel.
    GatewayApi,
    /// The `MariaDB` operator.
    MariaDb,
    /// The External Secrets operator.
    ExternalSecrets,
    /// The node simulator's own `Stage`.
    Kwok,
}

/// The programs of this machine's control plane.
#[derive(Debug, Clone)]
pub struct Assets {
    binary: PathBuf,
    kubebuilder: Option<PathBuf>,
}

/// Why the control plane cannot be had. Each text is one sentence with the way out.
#[derive(Debug, Error)]
pub enum Error {
    /// No `go` on the path.
    #[error(
        "Go was not found on the PATH, and the test bed builds its Kubernetes with it: install Go {0} or newer from https://go.dev/dl and try again"
    )]
    NoGo(String),
    /// The `go` on the path is too old for the module.
    #[error(
        "the Go on the PATH is too old ({0}): install a newer one from https://go.dev/dl and try again"
    )]
    OldGo(String),
    /// The disk is full, or would be.
    #[error(
        "{} has {} MiB free and the build of the control plane needs {} MiB: free some space, or point XDG_CACHE_HOME and GOCACHE to a larger disk",
        .path.display(), .free >> 20, .needed >> 20
    )]
    NoSpace {
        /// The folder in question.
        path: PathBuf,
        /// Bytes free.
        free: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// Neither `XDG_CACHE_HOME` nor `HOME` is set.
    #[error(
        "there is no folder for the control plane binary: set XDG_CACHE_HOME to a folder that you may write to"
    )]
    NoCache,
    /// A module could not be fetched.
    #[error(
        "Go could not fetch {module}: {cause}; check the network connection and GOPROXY, then try again"
    )]
    Download {
        /// `path@version`.
        module: String,
        /// Go's own words.
        cause: String,
    },
    /// The build failed for another reason.
    #[error(
        "building the control plane failed: {0}; run `go build ./...` in e2e/control-plane to see all of it"
    )]
    Build(String),
    /// A file of the cache or the module could not be used.
    #[error("{} cannot be used ({cause}): make it accessible for this user and try again", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        cause: io::Error,
    },
}

/// What `go mod download -json` says about one module.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Download {
    #[serde(default)]
    dir: PathBuf,
    #[serde(default)]
    error: String,
}

// === impl Component ===

impl Component {
    /// The name of the program, also its first argument in the one binary.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::Kubectl => "kubectl",
        }
    }
}

// === impl Neighbour ===

impl Neighbour {
    /// Module path, version and the folder with the definitions.
    fn module(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::GatewayApi => ("sigs.k8s.io/gateway-api", "v1.6.1", "config/crd/standard"),
            Self::MariaDb => (
                "github.com/mariadb-operator/mariadb-operator",
                "v0.38.1",
                "config/crd/bases",
            ),
            Self::ExternalSecrets => (
                "github.com/external-secrets/external-secrets",
                "v1.3.2",
                "config/crds/bases",
            ),
            Self::Kwok => ("sigs.k8s.io/kwok", "v0.8.0", "kustomize/crd/bases"),
        }
    }

    /// The kinds that the bed installs, as `plural.group`; a module has many more.
    fn definitions(self) -> &'static [&'static str] {
        match self {
            Self::GatewayApi => &[
                "gatewayclasses.gateway.networking.k8s.io",
                "gateways.gateway.networking.k8s.io",
                "httproutes.gateway.networking.k8s.io",
            ],
            Self::MariaDb => &[
                "mariadbs.k8s.mariadb.com",
                "databases.k8s.mariadb.com",
                "users.k8s.mariadb.com",
                "grants.k8s.mariadb.com",
            ],
            Self::ExternalSecrets => &[
                "clustersecretstores.external-secrets.io",
                "secretstores.external-secrets.io",
                "externalsecrets.external-secrets.io",
            ],
            Self::Kwok => &["stages.kwok.x-k8s.io"],
        }
    }

    /// The definitions as YAML, by name, fetched on first use.
    pub fn crds(self) -> Result<Vec<(String, String)>, Error> {
        let (path, version, folder) = self.module();
        let folder = download(&format!("{path}@{version}"))?.join(folder);
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).map_err(|e| file(&folder, e))? {
            let path = entry.map_err(|e| file(&folder, e))?.path();
            if path.extension().is_none_or(|x| x != "yaml") {
                continue;
            }
            let text = fs::read_to_string(&path).map_err(|e| file(&path, e))?;
            let name = self.definitions().iter().find(|name| {
                // The name stands in the two-space metadata block of a definition.
                text.lines()
                    .any(|line| line.strip_prefix("  name: ") == Some(name))
            });
            if let Some(name) = name {
                found.push(((*name).to_owned(), text));
            }
        }
        if found.len() == self.definitions().len() {
            Ok(found)
        } else {
            Err(file(
                &folder,
                io::Error::other("some definitions are missing"),
            ))
        }
    }
}

// === impl Assets ===

impl Assets {
    /// Finds the binary of this checkout's module, or builds it: minutes when Go has to
    /// compile everything, seconds when only the link step is left.
    pub fn find_or_build(progress: &Progress) -> Result<Self, Error> {
        let kubebuilder = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let module = module_folder();
        let cache = cache_folder()?;
        let binary = cache.join(format!("control-plane-{}", fingerprint(&module)?));
        if !binary.is_file() {
            fs::create_dir_all(&cache).map_err(|e| file(&cache, e))?;
            build_once(&module, &cache, &binary, progress)?;
        }
        Ok(Self {
            binary,
            kubebuilder,
        })
    }

    /// The program of a component and the arguments that come before its own.
    pub fn program(&self, component: Component) -> (PathBuf, Vec<String>) {
        let name = component.name();
        if let Some(path) = self.kubebuilder.as_ref().map(|folder| folder.join(name))
            && path.is_file()
        {
            return (path, Vec::new());
        }
        (self.binary.clone(), vec![name.to_owned()])
    }

    /// The binary that holds every component.
    pub fn binary(&self) -> &Path {
        &self.binary
    }
}

/// The Go module of the control plane in this checkout.
fn module_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("control-plane")
}

/// The folder for everything that is built once per machine.
pub(crate) fn cache_folder() -> Result<PathBuf, Error> {
    let absolute = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|folder| folder.join("glance-operator"))
        .ok_or(Error::NoCache)
}

/// Twelve hex digits over what the binary is made of.
pub(crate) fn fingerprint(module: &Path) -> Result<String, Error> {
    let mut hash = Sha256::new();
    for name in ["go.mod", "go.sum", "main.go"] {
        let path = module.join(name);
        hash.update(fs::read(&path).map_err(|e| file(&path, e))?);
        hash.update([0]);
    }
    Ok(data_encoding::HEXLOWER.encode(&hash.finalize()[..6]))
}

/// Builds under a lock, so that of two test runs that start together one waits.
fn build_once(
    module: &Path,
    cache: &Path,
    binary: &Path,
    progress: &Progress,
) -> Result<(), Error> {
    let path = cache.join("build.lock");
    let lock = fs::File::create(&path).map_err(|e| file(&path, e))?;
    if lock.try_lock().is_err() {
        progress.say("another run is building the control plane, waiting for it");
        lock.lock().map_err(|e| file(&path, e))?;
    }
    if binary.is_file() {
        return Ok(());
    }
    check_space(cache)?;
    let started = Instant::now();
    progress.say(
        "building the control plane (etcd and Kubernetes, once per machine): about five minutes \
         on a cold cache, half a minute otherwise",
    );
    let version = kubernetes_version(module)?;
    let minor = version.split('.').nth(1).unwrap_or_default();
    let flags = format!(
        "-s -w -X k8s.io/component-base/version.gitVersion={version} \
         -X k8s.io/component-base/version.gitMajor=1 \
         -X k8s.io/component-base/version.gitMinor={minor}"
    );
    // Built beside its final name: an interrupted build must not look finished.
    let partial = binary.with_extension("partial");
    let output = go(Command::new("go")
        .current_dir(module)
        .args([
            "build",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags",
            &flags,
            "-o",
        ])
        .arg(&partial)
        .arg("."))?;
    if !output.status.success() {
        return Err(build_error(cache, &output));
    }
    fs::rename(&partial, binary).map_err(|e| file(binary, e))?;
    progress.say(format_args!(
        "built {} in {:.0} s",
        binary.display(),
        started.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// Refuses to start a build that would fill the disk. A warm Go cache needs far less, so
/// the check is skipped when the cache folder already holds a binary.
fn check_space(cache: &Path) -> Result<(), Error> {
    let warm = fs::read_dir(cache).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|e| e.file_name().to_string_lossy().starts_with("control-plane"))
    });
    let needed = if warm { BUILD_SPACE / 8 } else { BUILD_SPACE };
    let free = free_space(cache)?;
    if free < needed {
        return Err(Error::NoSpace {
            path: cache.to_owned(),
            free,
            needed,
        });
    }
    Ok(())
}

/// Bytes that this user may still write below `path`.
pub(crate) fn free_space(path: &Path) -> Result<u64, Error> {
    let stat = rustix::fs::statvfs(path).map_err(|e| file(path, e.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The version of Kubernetes that the module asks for, `v1.36.3`.
fn kubernetes_version(module: &Path) -> Result<String, Error> {
    let path = module.join("go.mod");
    let text = fs::read_to_string(&path).map_err(|e| file(&path, e))?;
    text.lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))
        .map(str::to_owned)
        .ok_or_else(|| {
            file(
                &path,
                io::Error::other("it does not name k8s.io/kubernetes"),
            )
        })
}

/// The folder of a module in Go's module cache, downloaded if it is not there.
fn download(module: &str) -> Result<PathBuf, Error> {
    let output = go(Command::new("go")
        .current_dir(module_folder())
        .args(["mod", "download", "-json", module]))?;
    let answer: Result<Download, _> = serde_json::from_slice(&output.stdout);
    let cause = match answer {
        Ok(found) if found.error.is_empty() && output.status.success() => return Ok(found.dir),
        Ok(found) => found.error,
        Err(_) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    };
    Err(Error::Download {
        module: module.to_owned(),
        cause: one_line(&cause),
    })
}

/// Runs Go and turns its absence into the sentence for it.
pub(crate) fn go(command: &mut Command) -> Result<Output, Error> {
    command.output().map_err(|cause| match cause.kind() {
        io::ErrorKind::NotFound => Error::NoGo("1.26".to_owned()),
        _ => file(Path::new("go"), cause),
    })
}

/// Reads the reason out of what Go printed.
pub(crate) fn build_error(cache: &Path, output: &Output) -> Error {
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("no space left on device") {
        let free = free_space(cache).unwrap_or_default();
        return Error::NoSpace {
            path: cache.to_owned(),
            free,
            needed: BUILD_SPACE,
        };
    }
    if let Some(line) = text.lines().find(|line| line.contains("requires go >= ")) {
        return Error::OldGo(line.trim().to_owned());
    }
    let network = |line: &&str| line.contains("dial tcp") || line.contains("proxyconnect");
    if let Some(line) = text.lines().find(network) {
        return Error::Download {
            module: "a module".to_owned(),
            cause: one_line(line),
        };
    }
    Error::Build(one_line(text.lines().last().unwrap_or("no message")))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn file(path: &Path, cause: io::Error) -> Error {
    Error::File {
        path: path.to_owned(),
        cause,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn failed(stderr: &str) -> Error {
        let output = Output {
            status: std::process::ExitStatus::from_raw(256),
            stdout: Vec::new(),
            stderr: stderr.as_bytes().to_vec(),
        };
        build_error(Path::new("/"), &output)
    }

    #[test]
    fn a_failed_build_names_its_cause_in_one_sentence() {
        let disk = failed("# net/http\nwrite /tmp/x.a: no space left on device\n");
        assert!(matches!(disk, Error::NoSpace { .. }), "{disk}");
        let old = failed("go: go.mod requires go >= 1.26.0 (running go 1.22.1; GOTOOLCHAIN=local)");
        assert!(matches!(old, Error::OldGo(_)), "{old}");
        let offline = failed("go: k8s.io/api@v0.36.3: Get \"x\": dial tcp: lookup proxy: no host");
        assert!(matches!(offline, Error::Download { .. }), "{offline}");
        let other = failed("main.go:3:1: syntax error");
        for error in [disk, old, offline, other] {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }

    #[test]
    fn the_fingerprint_follows_the_module() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["go.mod", "go.sum", "main.go"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let before = fingerprint(folder.path()).unwrap();
        assert_eq!(before, fingerprint(folder.path()).unwrap());
        fs::write(folder.path().join("main.go"), "other").unwrap();
        assert_ne!(before, fingerprint(folder.path()).unwrap());
    }

    #[test]
    fn the_module_names_its_kubernetes() {
        let version = kubernetes_version(&module_folder()).unwrap();
        assert!(version.starts_with("v1."), "{version}");
    }
}
