//! One Kubernetes control plane on loopback: etcd, API server, controller manager,
//! scheduler and node simulator, each a child process of the bed.
//!
//! Authorization is RBAC, so whoever is not the administrator gets what roles give him,
//! and every request ends up in the audit log.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use rustix::process::Signal;
use serde_json::json;

use crate::{
    assets::{Assets, Component},
    audit::{self, Audit},
    certificates::{Authority, write_token_keys},
    cluster::Cluster,
    expect::eventually,
    kubeconfig::{Login, document},
    patience, ports,
    process::{Plan, Process, in_words, tail},
    tokens::{self, ISSUER},
};

/// The controllers that the operator's objects need. The others would only take time from
/// the machine.
const CONTROLLERS: &str = "serviceaccount-controller,serviceaccount-token-controller,\
    root-ca-certificate-publisher-controller,namespace-controller,garbage-collector-controller,\
    deployment-controller,replicaset-controller,job-controller,cronjob-controller,\
    ttl-after-finished-controller,disruption-controller,horizontal-pod-autoscaler-controller,\
    endpointslice-controller,endpoints-controller,pod-garbage-collector-controller,\
    node-lifecycle-controller,clusterrole-aggregation-controller";

/// How many lines of each log a failure shows.
const SHOWN: usize = 15;

/// A running control plane. Dropping it ends every process of it.
#[derive(Debug)]
pub struct ControlPlane {
    folder: PathBuf,
    assets: Assets,
    arguments: BTreeMap<&'static str, Vec<String>>,
    processes: Mutex<BTreeMap<&'static str, Process>>,
    cluster: Cluster,
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Starts etcd and the API server and waits until it is ready, then starts the
    /// controller manager and the scheduler.
    pub async fn start(name: &str, folder: PathBuf, assets: Assets) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let (client_port, peer_port, api_port) = (ports::free()?, ports::free()?, ports::free()?);
        let server = format!("https://127.0.0.1:{api_port}");
        let log = audit_log(&folder, name)?;
        write_keys(&folder, name, &server)?;
        let arguments = BTreeMap::from([
            (
                Component::Etcd.name(),
                etcd(&folder, client_port, peer_port),
            ),
            (
                Component::ApiServer.name(),
                api_server(&folder, client_port, api_port, &log),
            ),
            (
                Component::ControllerManager.name(),
                controller_manager(&folder),
            ),
            (Component::Scheduler.name(), scheduler(&folder)),
        ]);
        let audit = Audit::new(log);
        let cluster = Cluster::open(name, folder.join("admin.kubeconfig"), Some(audit)).await?;
        let plane = Self {
            folder,
            assets,
            arguments,
            processes: Mutex::default(),
            cluster,
        };
        plane.run(Component::Etcd)?;
        plane.run(Component::ApiServer)?;
        plane.ready().await?;
        plane.run(Component::ControllerManager)?;
        plane.run(Component::Scheduler)?;
        Ok(plane)
    }

    /// Access to the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A kubeconfig that logs a service account in with a token of this life, which was issued `age`
    /// ago.
    pub async fn kubeconfig_of_age(
        &self,
        namespace: &str,
        account: &str,
        (age, life): (Duration, Duration),
    ) -> Result<String> {
        let accounts = self.cluster.api::<ServiceAccount>(namespace);
        let uid = accounts.get(account).await?.metadata.uid;
        let issued = jiff::Timestamp::now() - age;
        let claims = json!({
            "iss": ISSUER, "aud": [ISSUER],
            "sub": format!("system:serviceaccount:{namespace}:{account}"),
            "iat": issued.as_second(), "nbf": issued.as_second(),
            "exp": (issued + life).as_second(),
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": { "name": account, "uid": uid },
            },
        });
        let key = fs::read_to_string(self.folder.join("sa.key"))?;
        let token = tokens::sign(&key, &claims)?;
        Ok(self.cluster.kubeconfig_with(account, token))
    }

    /// Starts the node simulator; the cluster must serve its `Stage` by now.
    pub fn start_nodes(&mut self, address: &str) -> Result<()> {
        let kubeconfig = self.folder.join("admin.kubeconfig");
        self.arguments
            .insert(Component::Kwok.name(), node_simulator(&kubeconfig, address));
        self.run(Component::Kwok)
    }

    /// Waits until the API server says that it is ready.
    pub async fn ready(&self) -> Result<()> {
        let client: Client = self.cluster.client();
        let what = format!("the API server of {}", self.cluster.name());
        let outcome = eventually(patience::seconds(90), &what, async || {
            if let Some(gone) = self.dead() {
                // Not worth waiting for; the caller sees it below.
                return Ok(Err(gone));
            }
            let request = http::Request::get("/readyz").body(Vec::new());
            let answer = client
                .request_text(request.map_err(|e| e.to_string())?)
                .await;
            answer.map(|_| Ok(())).map_err(|e| crate::cluster::told(&e))
        })
        .await;
        match outcome {
            Ok(Ok(())) => Ok(()),
            Ok(Err(gone)) => bail!("{gone}"),
            Err(error) => Err(anyhow!("{error}\n{}", self.logs())),
        }
    }

    /// Stops a component and leaves it stopped.
    pub fn stop(&self, component: Component) -> Result<()> {
        if let Some(mut process) = self.locked().remove(component.name()) {
            process.stop(Duration::from_secs(10))?;
        }
        Ok(())
    }

    /// Starts a component that is not running, with the arguments of the first time.
    pub fn run(&self, component: Component) -> Result<()> {
        let name = component.name();
        let (program, mut args) = self.assets.program(component);
        args.extend(self.arguments.get(name).into_iter().flatten().cloned());
        let folder = self.folder.to_string_lossy().into_owned();
        let process = Process::start(&Plan {
            name,
            program: &program,
            args: &args,
            // Neither a proxy of the machine nor the user's own files have a say here.
            env: &[
                ("HOME".to_owned(), folder),
                ("NO_PROXY".to_owned(), "*".to_owned()),
                ("no_proxy".to_owned(), "*".to_owned()),
            ],
            folder: &self.folder,
            log: &self.folder.join(format!("{name}.log")),
        })
        .with_context(|| format!("starting {name}"))?;
        self.locked().insert(name, process);
        Ok(())
    }

    /// Freezes a component: connections stay open, nothing answers.
    pub fn freeze(&self, component: Component) {
        self.signal(component, Signal::STOP);
    }

    /// Ends a freeze.
    pub fn thaw(&self, component: Component) {
        self.signal(component, Signal::CONT);
    }

    fn signal(&self, component: Component, signal: Signal) {
        if let Some(process) = self.locked().get_mut(component.name()) {
            process.signal(signal);
        }
    }

    /// The first component that ended by itself, with its last words.
    fn dead(&self) -> Option<String> {
        let name = self.cluster.name();
        self.locked().values_mut().find_map(|process| {
            let status = process.exited()?;
            let words = process.tail(SHOWN);
            Some(format!(
                "{} of {name} {}:\n{words}",
                process.name(),
                in_words(status)
            ))
        })
    }

    /// The process ids of the components.
    pub fn process_ids(&self) -> Vec<u32> {
        self.locked().values().map(Process::id).collect()
    }

    /// The ends of all logs, for a failure.
    pub fn logs(&self) -> String {
        let components = self.arguments.keys().map(|name| {
            let log = fs::read(self.folder.join(format!("{name}.log"))).unwrap_or_default();
            let end = tail(&String::from_utf8_lossy(&log), SHOWN);
            format!("--- {} of {}\n{end}\n", name, self.cluster.name())
        });
        components.collect()
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<&'static str, Process>> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let mut processes = self.locked();
        // The clients of the API server first, or they fill their logs with its absence;
        // killed all the same, since nothing of it is needed any more.
        for name in [
            "kwok",
            "kube-scheduler",
            "kube-controller-manager",
            "kube-apiserver",
            "etcd",
        ] {
            processes.remove(name);
        }
    }
}

/// Everything in the cluster's folder that is not data or log.
fn write_keys(folder: &Path, name: &str, server: &str) -> Result<()> {
    let authority = Authority::new(name)?;
    fs::write(folder.join("ca.crt"), authority.pem())?;
    let names = ["localhost", "127.0.0.1", "kubernetes.default.svc"];
    authority.server(&names)?.write(folder, "server")?;
    write_token_keys(folder)?;
    let logins = [
        ("admin", "admin", Some("system:masters")),
        ("controller-manager", "system:kube-controller-manager", None),
        ("scheduler", "system:kube-scheduler", None),
    ];
    for (file, user, group) in logins {
        let login = Login::Certificate(authority.client(user, group)?);
        let text = document(name, server, authority.pem(), &login);
        fs::write(folder.join(format!("{file}.kubeconfig")), text)?;
    }
    fs::write(folder.join("audit-policy.yaml"), audit::POLICY)?;
    Ok(())
}

fn etcd(folder: &Path, client: u16, peer: u16) -> Vec<String> {
    let (client, peer) = (
        format!("http://127.0.0.1:{client}"),
        format!("http://127.0.0.1:{peer}"),
    );
    arguments(&[
        ("name", "default"),
        ("data-dir", &folder.join("etcd").to_string_lossy()),
        ("listen-client-urls", &client),
        ("advertise-client-urls", &client),
        ("listen-peer-urls", &peer),
        ("initial-advertise-peer-urls", &peer),
        ("initial-cluster", &format!("default={peer}")),
        // The data live as long as the test.
        ("unsafe-no-fsync", "true"),
        ("log-level", "warn"),
    ])
}

/// The cluster's folder goes with the cluster; logs in `E2E_AUDIT_FOLDER` stay, so that what a whole run asked
/// for can be looked at in the end.
fn audit_log(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = match std::env::var_os("E2E_AUDIT_FOLDER") {
        None => folder.join("audit.log"),
        Some(kept) => {
            let fleet = folder
                .parent()
                .and_then(Path::file_name)
                .unwrap_or_default();
            PathBuf::from(kept).join(format!("{}-{name}.log", fleet.to_string_lossy()))
        }
    };
    fs::write(&path, "").with_context(|| format!("beginning {}", path.display()))?;
    Ok(path)
}

fn api_server(folder: &Path, etcd: u16, port: u16, audit_log: &Path) -> Vec<String> {
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    arguments(&[
        ("etcd-servers", &format!("http://127.0.0.1:{etcd}")),
        ("bind-address", "127.0.0.1"),
        ("secure-port", &port.to_string()),
        ("service-cluster-ip-range", "10.96.0.0/16"),
        ("client-ca-file", &file("ca.crt")),
        ("tls-cert-file", &file("server.crt")),
        ("tls-private-key-file", &file("server.key")),
        ("service-account-issuer", ISSUER),
        ("service-account-key-file", &file("sa.pub")),
        ("service-account-signing-key-file", &file("sa.key")),
        ("authorization-mode", "RBAC,Node"),
        ("allow-privileged", "true"),
        // A child that blocks the deletion of its owner needs a right on the owner.
        (
            "enable-admission-plugins",
            "OwnerReferencesPermissionEnforcement",
        ),
        ("endpoint-reconciler-type", "none"),
        ("audit-policy-file", &file("audit-policy.yaml")),
        ("audit-log-path", &audit_log.to_string_lossy()),
        // Blocking: what was answered is in the log.
        ("audit-log-mode", "blocking"),
        ("audit-log-maxsize", "0"),
        ("profiling", "false"),
    ])
}

fn controller_manager(folder: &Path) -> Vec<String> {
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    arguments(&[
        ("kubeconfig", &file("controller-manager.kubeconfig")),
        ("service-account-private-key-file", &file("sa.key")),
        ("root-ca-file", &file("ca.crt")),
        ("use-service-account-credentials", "true"),
        ("leader-elect", "false"),
        ("secure-port", "0"),
        ("controllers", CONTROLLERS),
    ])
}

fn scheduler(folder: &Path) -> Vec<String> {
    let kubeconfig = folder.join("scheduler.kubeconfig");
    arguments(&[
        ("kubeconfig", &kubeconfig.to_string_lossy()),
        ("leader-elect", "false"),
        ("secure-port", "0"),
    ])
}

/// Simulates the nodes with our label, for a cluster of ours or an existing one.
pub fn node_simulator(kubeconfig: &Path, address: &str) -> Vec<String> {
    arguments(&[
        ("kubeconfig", &kubeconfig.to_string_lossy()),
        (
            "manage-nodes-with-label-selector",
            crate::doubles::kubelet::NODE_LABEL,
        ),
        ("enable-crds", "Stage"),
        ("node-ip", address),
        // Without a lease the node lifecycle controller takes a node for lost after 50 seconds, and its pods with it.
        ("node-lease-duration-seconds", "40"),
        ("server-address", ""),
    ])
}

fn arguments(pairs: &[(&str, &str)]) -> Vec<String> {
    pairs
        .iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect()
}
