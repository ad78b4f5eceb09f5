//! A hub and a registry that watches it, and what most tests need of them.

use std::{sync::Arc, time::Duration};

use target_registry::{
    Cause, Cluster, ClusterState, Informer, InformerSpec, Kind, Payload, ProbeOptions, Readiness,
    Registry, RegistryOptions, State, Unresolved,
};
use tokio_util::sync::CancellationToken;

use crate::{eventually, fake::Fake};

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");
pub const SHORT: Duration = Duration::from_secs(8);

/// A hub and a registry that watches it.
pub struct Rig {
    pub name: &'static str,
    pub hub: Fake,
    pub cluster: Arc<Cluster>,
    pub registry: Registry,
    pub stop: CancellationToken,
}

// === impl Rig ===

impl Rig {
    pub fn start(hub: Fake) -> Self {
        Self::with(hub, |_| {})
    }

    pub fn with(hub: Fake, change: impl FnOnce(&mut RegistryOptions)) -> Self {
        let mut options = RegistryOptions::new("clusters");
        // The fakes speak plain HTTP.
        options.allow_insecure = true;
        options.engage_timeout = Duration::from_secs(1);
        options.client.request_timeout = Duration::from_secs(1);
        options.probe.first_retry = Duration::from_millis(200);
        change(&mut options);
        let cluster = Cluster::hub(hub.config(), None, &options.client).unwrap();
        let stop = CancellationToken::new();
        let registry = Registry::start(&cluster, options, stop.clone());
        Self {
            name: "blue",
            hub,
            cluster,
            registry,
            stop,
        }
    }

    pub fn register(&self, data: &[(&str, &str)]) {
        self.hub.register(self.name, "true", data);
    }

    pub fn state(&self) -> Option<ClusterState> {
        self.registry
            .snapshot()
            .into_iter()
            .find(|state| state.name == self.name)
    }

    pub async fn until(&self, state: State, cause: Option<Cause>) -> ClusterState {
        eventually(&format!("{state} {cause:?}"), SHORT, || {
            self.state()
                .filter(|now| now.state == state && now.cause == cause)
        })
        .await
    }

    pub async fn engaged(&self) -> Arc<Cluster> {
        self.until(State::Connected, None).await;
        self.registry.resolve(self.name).unwrap()
    }

    pub fn error(&self) -> Unresolved {
        self.registry.resolve(self.name).unwrap_err()
    }

    pub async fn generation(&self, generation: u64) -> Arc<Cluster> {
        eventually(&format!("generation {generation}"), SHORT, || {
            self.registry
                .resolve(self.name)
                .ok()
                .filter(|c| c.generation() >= generation)
        })
        .await
    }
}

/// Probes so often that a test takes seconds.
pub fn quick() -> ProbeOptions {
    ProbeOptions {
        interval: Duration::from_millis(50),
        timeout: Duration::from_millis(300),
        first_retry: Duration::from_millis(50),
        longest_retry: Duration::from_millis(200),
        ..ProbeOptions::default()
    }
}

pub fn informer(cluster: &Cluster) -> Arc<Informer> {
    cluster.informer(InformerSpec {
        kind: CONFIG_MAP,
        selector: None,
        payload: Payload::Metadata,
        keep: Arc::new(|_| true),
        reduce: Arc::new(|_| {}),
        on_change: Arc::new(|_, _| {}),
    })
}

pub async fn synced(cluster: &Cluster) -> Arc<Informer> {
    let informer = informer(cluster);
    assert_eq!(informer.ready(None, SHORT).await, Readiness::Synced);
    informer
}

pub async fn version_of(cluster: &Cluster) -> Result<String, kube::Error> {
    Ok(cluster.client().apiserver_version().await?.git_version)
}

/// A server that accepts connections and never says a word.
pub async fn black_hole() -> (String, tokio::net::TcpListener) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    (
        format!("https://{}", listener.local_addr().unwrap()),
        listener,
    )
}
