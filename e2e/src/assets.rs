//! Where the control plane comes from: one binary that Go builds from
//! `e2e/control-plane`, and the custom resource definitions of our neighbours out
//! of their Go modules. Nothing of either is copied into the repository.
//!
//! The binary lands in a cache folder outside the checkout and is found again as
//! long as the module's files do not change. A folder in `KUBEBUILDER_ASSETS` wins
//! for the components that it holds.

use std::{
    env, fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::{
    go::{self, Build, Error},
    progress::Progress,
};

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
    /// What installs charts.
    Helm,
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
    /// cert-manager, whose objects the operator's chart renders.
    CertManager,
    /// The Prometheus operator, likewise.
    PrometheusOperator,
}

/// The programs of this machine's control plane.
#[derive(Debug, Clone)]
pub struct Assets {
    binary: PathBuf,
    kubebuilder: Option<PathBuf>,
}

// === impl Component ===

impl Component {
    /// All of them.
    const ALL: [Self; 7] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kwok,
        Self::Kubectl,
        Self::Helm,
    ];

    /// The name of the program, also its first argument in the one binary.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
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
            Self::CertManager => (
                "github.com/cert-manager/cert-manager",
                "v1.20.2",
                "deploy/crds",
            ),
            Self::PrometheusOperator => (
                "github.com/prometheus-operator/prometheus-operator",
                "v0.85.0",
                "example/prometheus-operator-crd",
            ),
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
            Self::CertManager => &["certificates.cert-manager.io", "issuers.cert-manager.io"],
            Self::PrometheusOperator => &[
                "prometheusrules.monitoring.coreos.com",
                "servicemonitors.monitoring.coreos.com",
            ],
        }
    }

    /// The definitions as YAML, by name, fetched on first use.
    pub fn crds(self) -> Result<Vec<(String, String)>, Error> {
        let (path, version, folder) = self.module();
        let folder = go::download(&module_folder(), &format!("{path}@{version}"))?.join(folder);
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).map_err(|e| go::file(&folder, e))? {
            let path = entry.map_err(|e| go::file(&folder, e))?.path();
            if path.extension().is_none_or(|x| x != "yaml") {
                continue;
            }
            let text = fs::read_to_string(&path).map_err(|e| go::file(&path, e))?;
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
            Err(go::file(
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
        let complete = |folder: &PathBuf| {
            Component::ALL
                .iter()
                .all(|c| folder.join(c.name()).is_file())
        };
        if let Some(folder) = kubebuilder.as_ref().filter(|folder| complete(folder)) {
            return Ok(Self {
                binary: folder.join(Component::Kubectl.name()),
                kubebuilder,
            });
        }
        let module = module_folder();
        let version = kubernetes_version(&module)?;
        let minor = version.split('.').nth(1).unwrap_or_default();
        let binary = go::build(
            &Build {
                name: "control-plane",
                what: "the control plane (etcd and Kubernetes: about five minutes on a cold cache)",
                module: &module,
                package: ".",
                // Without these, clients see a version of zero.
                ldflags: &format!(
                    "-s -w -X k8s.io/component-base/version.gitVersion={version} \
                     -X k8s.io/component-base/version.gitMajor=1 \
                     -X k8s.io/component-base/version.gitMinor={minor}"
                ),
                toolchain: None,
                space: BUILD_SPACE,
            },
            progress,
        )?;
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

    /// Puts a `kubectl` into a folder, for scripts and people: the one of this control plane.
    pub fn write_kubectl(&self, folder: &Path) -> io::Result<()> {
        self.write(Component::Kubectl, folder)
    }

    /// Writes a program under its usual name into a folder that is to be on a `PATH`.
    pub fn write(&self, component: Component, folder: &Path) -> io::Result<()> {
        let (program, args) = self.program(component);
        fs::create_dir_all(folder)?;
        let path = folder.join(component.name());
        fs::write(
            &path,
            format!(
                "#!/bin/sh\nexec '{}' {} \"$@\"\n",
                program.display(),
                args.join(" ")
            ),
        )?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
    }

    /// The binary that holds every component.
    pub fn binary(&self) -> &Path {
        &self.binary
    }
}

/// The Go module of the control plane in this checkout.
fn module_folder() -> PathBuf {
    crate::checkout().join("e2e/control-plane")
}

/// The version of Kubernetes that the module asks for, `v1.36.3`.
fn kubernetes_version(module: &Path) -> Result<String, Error> {
    let path = module.join("go.mod");
    let text = fs::read_to_string(&path).map_err(|e| go::file(&path, e))?;
    text.lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))
        .map(str::to_owned)
        .ok_or_else(|| {
            go::file(
                &path,
                io::Error::other("it does not name k8s.io/kubernetes"),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_names_its_kubernetes() {
        let version = kubernetes_version(&module_folder()).unwrap();
        assert!(version.starts_with("v1."), "{version}");
    }
}
