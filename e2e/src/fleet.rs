//! One hub and its targets, ready for tests: definitions installed, neighbours at work.

use std::{
    env,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use futures::future::try_join_all;

use crate::{
    assets::{Assets, Component},
    cluster::Cluster,
    control_plane::{ControlPlane, node_simulator},
    definitions::Definitions,
    doubles::{
        Doubles,
        glance_api::{GlanceApi, machine_address},
    },
    process::{Plan, Process},
    progress::Progress,
    workdir::Workdir,
};

/// A hub and targets.
#[derive(Debug)]
pub struct Fleet {
    // Declared in the order in which they have to go.
    members: Vec<Member>,
    glance_api: Arc<GlanceApi>,
    assets: Assets,
    folder: Arc<Workdir>,
    took: Duration,
}

/// One cluster of a fleet with its neighbours.
#[derive(Debug)]
pub struct Member {
    doubles: Doubles,
    cluster: Cluster,
    plane: Option<ControlPlane>,
    // The simulator of an existing cluster; our own have it among their components.
    _nodes: Mutex<Option<Process>>,
}

/// What a fleet is made of.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Names of the targets.
    pub targets: Vec<String>,
    /// The clusters that start without the Gateway API.
    pub without_gateway_api: Vec<String>,
    /// How long to wait when another bed on this machine has the port of the Glance API.
    pub patience: Duration,
    /// What is said on the way.
    pub progress: Progress,
}

// === impl Shape ===

impl Shape {
    /// A hub and `count` targets named `edge-1`, `edge-2`, …
    pub fn targets(count: usize) -> Self {
        Self {
            targets: (1..=count).map(|n| format!("edge-{n}")).collect(),
            without_gateway_api: Vec::new(),
            patience: Duration::ZERO,
            progress: Progress::start(),
        }
    }

    /// Leaves the Gateway API out on one cluster.
    #[must_use]
    pub fn without_gateway_api(mut self, cluster: &str) -> Self {
        self.without_gateway_api.push(cluster.to_owned());
        self
    }
}

// === impl Fleet ===

impl Fleet {
    /// The clusters that `E2E_HUB_KUBECONFIG` and `E2E_TARGET_KUBECONFIGS` (a list with colons)
    /// name, or control planes of our own. Of clusters that exist there may be fewer than asked
    /// for; a test that needs a missing one says so.
    pub async fn start(shape: Shape) -> Result<Self> {
        match env::var_os("E2E_HUB_KUBECONFIG") {
            Some(hub) => {
                let targets = env::var_os("E2E_TARGET_KUBECONFIGS").unwrap_or_default();
                let targets: Vec<_> = env::split_paths(&targets).collect();
                if targets.is_empty() {
                    bail!(
                        "E2E_TARGET_KUBECONFIGS names no cluster: set it to the kubeconfig files of the \
                         targets, or unset E2E_HUB_KUBECONFIG to run on control planes of our own"
                    );
                }
                Self::existing(Path::new(&hub), &targets, shape).await
            }
            None => Self::own(shape).await,
        }
    }

    /// Starts control planes of our own.
    pub async fn own(shape: Shape) -> Result<Self> {
        let progress = shape.progress;
        let glance_api = peer(&shape).await?;
        let assets = blocking(move || Ok(Assets::find_or_build(&progress)?)).await?;
        let definitions = Arc::new(blocking(Definitions::read).await?);
        let folder = Arc::new(Workdir::create()?);
        progress.say(format_args!(
            "starting the hub and {} targets",
            shape.targets.len()
        ));
        let started = Instant::now();
        let names = std::iter::once("hub".to_owned()).chain(shape.targets.iter().cloned());
        let members = try_join_all(names.map(|name| {
            let parts = Parts {
                name: name.clone(),
                folder: folder.path().join(&name),
                assets: assets.clone(),
                definitions: definitions.clone(),
                gateway_api: !shape.without_gateway_api.contains(&name),
                address: glance_api.address().to_string(),
            };
            Member::own(parts)
        }))
        .await;
        let members = members.inspect_err(|_| folder.keep())?;
        progress.say("the fleet is up");
        Ok(Self {
            members,
            glance_api,
            assets,
            folder,
            took: started.elapsed(),
        })
    }

    /// Uses clusters that exist. What is missing on them is installed; nothing is removed.
    pub async fn existing(hub: &Path, targets: &[PathBuf], shape: Shape) -> Result<Self> {
        let progress = shape.progress;
        let glance_api = peer(&shape).await?;
        let assets = blocking(move || Ok(Assets::find_or_build(&progress)?)).await?;
        let definitions = blocking(Definitions::read).await?;
        let folder = Arc::new(Workdir::create()?);
        let started = Instant::now();
        let mut members = Vec::new();
        let named = std::iter::once(("hub", hub)).chain(
            shape
                .targets
                .iter()
                .map(String::as_str)
                .zip(targets.iter().map(PathBuf::as_path)),
        );
        for (name, kubeconfig) in named {
            progress.say(format_args!("preparing {name} ({})", kubeconfig.display()));
            let cluster = Cluster::open(name, kubeconfig.to_owned(), None).await?;
            cluster.install(&definitions.all(true)).await?;
            let address = glance_api.address().to_string();
            let doubles = Doubles::start(&cluster, &address).await?;
            let (program, mut args) = assets.program(Component::Kwok);
            args.extend(node_simulator(kubeconfig, &address));
            let nodes = Process::start(&Plan {
                name: "kwok",
                program: &program,
                args: &args,
                env: &[],
                folder: folder.path(),
                log: &folder.path().join(format!("kwok-{name}.log")),
            })?;
            doubles.kubelet().ready().await?;
            members.push(Member {
                doubles,
                cluster,
                plane: None,
                _nodes: Mutex::new(Some(nodes)),
            });
        }
        Ok(Self {
            members,
            glance_api,
            assets,
            folder,
            took: started.elapsed(),
        })
    }

    /// Starts one more control plane, which goes when its handle goes.
    pub async fn another(&self, name: &str, gateway_api: bool) -> Result<Member> {
        Member::own(Parts {
            name: name.to_owned(),
            folder: self.folder.path().join(name),
            assets: self.assets.clone(),
            definitions: Arc::new(blocking(Definitions::read).await?),
            gateway_api,
            address: self.glance_api.address().to_string(),
        })
        .await
    }

    /// The hub.
    pub fn hub(&self) -> &Cluster {
        self.members[0].cluster()
    }

    /// The targets in the order of their names.
    pub fn targets(&self) -> impl Iterator<Item = &Cluster> {
        self.members.iter().skip(1).map(Member::cluster)
    }

    /// All members, the hub first.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// A member by name.
    pub fn member(&self, name: &str) -> Result<&Member> {
        let found = self
            .members
            .iter()
            .find(|member| member.cluster.name() == name);
        found.with_context(|| format!("the fleet has no cluster {name}"))
    }

    /// A cluster by name.
    pub fn cluster(&self, name: &str) -> Result<&Cluster> {
        Ok(self.member(name)?.cluster())
    }

    /// The neighbours on a cluster.
    pub fn doubles(&self, name: &str) -> Result<&Doubles> {
        Ok(self.member(name)?.doubles())
    }

    /// The Glance API behind every Service of the fleet.
    pub fn glance_api(&self) -> &GlanceApi {
        &self.glance_api
    }

    /// The programs.
    pub fn assets(&self) -> &Assets {
        &self.assets
    }

    /// How long the clusters took to come up, builds and downloads aside.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// The folder for logs and the like, kept when a test fails.
    pub fn folder(&self) -> &Workdir {
        &self.folder
    }

    /// The ends of all logs.
    pub fn logs(&self) -> String {
        self.members
            .iter()
            .filter_map(|m| m.plane.as_ref())
            .map(ControlPlane::logs)
            .collect()
    }
}

/// Everything that a member of our own needs to start.
struct Parts {
    name: String,
    folder: PathBuf,
    assets: Assets,
    definitions: Arc<Definitions>,
    gateway_api: bool,
    address: String,
}

// === impl Member ===

impl Member {
    async fn own(parts: Parts) -> Result<Self> {
        let Parts {
            name,
            folder,
            assets,
            definitions,
            gateway_api,
            address,
        } = parts;
        let mut plane = ControlPlane::start(&name, folder, assets).await?;
        let outcome = async {
            let cluster = plane.cluster().clone();
            // The simulator needs its own definition only; the others take longer.
            cluster.install(definitions.nodes()).await?;
            plane.start_nodes(&address)?;
            let (installed, doubles) = tokio::join!(
                async { cluster.install(&definitions.all(gateway_api)).await },
                Doubles::start(&cluster, &address),
            );
            installed?;
            let doubles = doubles?;
            doubles.kubelet().ready().await?;
            Ok::<_, anyhow::Error>((cluster, doubles))
        }
        .await;
        match outcome {
            Ok((cluster, doubles)) => Ok(Self {
                doubles,
                cluster,
                plane: Some(plane),
                _nodes: Mutex::default(),
            }),
            Err(error) => Err(error.context(format!("starting {name}\n{}", plane.logs()))),
        }
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Its neighbours.
    pub fn doubles(&self) -> &Doubles {
        &self.doubles
    }

    /// Its processes, if it is one of ours.
    pub fn plane(&self) -> Option<&ControlPlane> {
        self.plane.as_ref()
    }
}

async fn peer(shape: &Shape) -> Result<Arc<GlanceApi>> {
    let address = machine_address()?;
    Ok(Arc::new(
        GlanceApi::start(address, shape.patience, shape.progress).await?,
    ))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .context("a task of the bed panicked")?
}
