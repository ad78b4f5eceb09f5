//! Nodes and pods, played by the node simulator from stages of ours.
//!
//! Every pod gets this machine's own address, so that a request through the API server's
//! service proxy arrives at the double of the Glance API (see [`super::glance_api`]):
//! endpoints refuse loopback addresses, and other addresses would need root.

use std::{collections::BTreeSet, sync::atomic::AtomicU64, sync::atomic::Ordering, time::Duration};

use anyhow::{Result, anyhow};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use self::stages::stages;
use crate::{
    cluster::{Cluster, code, told},
    expect::eventually,
    patience,
};

mod stages;

/// The label of the nodes that we simulate.
pub const NODE_LABEL: &str = "e2e.c5c3.io/simulated=true";

/// The simulator follows changed stages by a watch; this is how long we give it.
const SETTLE: Duration = Duration::from_millis(300);

/// The nodes of a cluster.
#[derive(Debug)]
pub struct Kubelet {
    cluster: Cluster,
    address: String,
    moods: Mutex<Moods>,
    touches: AtomicU64,
}

/// The namespaces in which pods do not go well.
#[derive(Debug, Clone, Default)]
struct Moods {
    held: BTreeSet<String>,
    jobs_held: BTreeSet<String>,
    jobs_failing: BTreeSet<String>,
    unready: BTreeSet<String>,
}

// === impl Kubelet ===

impl Kubelet {
    /// Makes two nodes in two zones and the stages that bring pods to life.
    pub async fn start(cluster: Cluster, address: &str) -> Result<Self> {
        let kubelet = Self {
            cluster,
            address: address.to_owned(),
            moods: Mutex::default(),
            touches: AtomicU64::new(0),
        };
        kubelet.write_stages(&Moods::default()).await?;
        for (name, zone) in [("node-a", "a"), ("node-b", "b")] {
            kubelet.cluster.apply(&node(name, zone)).await?;
        }
        Ok(kubelet)
    }

    /// Waits until the nodes take pods.
    pub async fn ready(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.cluster.client());
        eventually(patience::seconds(60), "the simulated nodes", async || {
            let found = nodes.list(&ListParams::default().labels(NODE_LABEL)).await;
            let found = found.map_err(|e| told(&e))?;
            let waiting = found.items.iter().find(|node| {
                let ready = node
                    .status
                    .iter()
                    .flat_map(|s| s.conditions.iter().flatten());
                let tainted = node.spec.iter().flat_map(|s| s.taints.iter().flatten());
                !ready
                    .clone()
                    .any(|c| c.type_ == "Ready" && c.status == "True")
                    || tainted
                        .clone()
                        .any(|t| t.key == "node.kubernetes.io/not-ready")
            });
            match waiting {
                Some(node) => Err(format!("{:?} is not ready", node.metadata.name)),
                None if found.items.is_empty() => Err("there are none".to_owned()),
                None => Ok(()),
            }
        })
        .await
    }

    /// New pods of the namespace stay pending.
    pub async fn hold(&self, namespace: &str) -> Result<()> {
        self.change(namespace, |m| m.held.insert(namespace.to_owned()))
            .await
    }

    /// Ends a hold, and nothing else.
    pub async fn release(&self, namespace: &str) -> Result<()> {
        self.change(namespace, |m| m.held.remove(namespace)).await
    }

    /// Pods of Jobs in the namespace run and do not end.
    pub async fn hold_jobs(&self, namespace: &str) -> Result<()> {
        self.change(namespace, |m| m.jobs_held.insert(namespace.to_owned()))
            .await
    }

    /// Pods of Jobs in the namespace end with exit code 1.
    pub async fn fail_jobs(&self, namespace: &str) -> Result<()> {
        self.change(namespace, |m| m.jobs_failing.insert(namespace.to_owned()))
            .await
    }

    /// Running pods of the namespace are not ready.
    pub async fn unready(&self, namespace: &str) -> Result<()> {
        self.change(namespace, |m| m.unready.insert(namespace.to_owned()))
            .await
    }

    /// Everything goes well again in the namespace.
    pub async fn heal(&self, namespace: &str) -> Result<()> {
        self.change(namespace, |m| {
            let sets = [
                &mut m.held,
                &mut m.jobs_held,
                &mut m.jobs_failing,
                &mut m.unready,
            ];
            // Every set, not only up to the first that knows the namespace.
            sets.map(|set| set.remove(namespace)).contains(&true)
        })
        .await
    }

    async fn change(&self, namespace: &str, edit: impl FnOnce(&mut Moods) -> bool) -> Result<()> {
        let mut moods = self.moods.lock().await;
        if edit(&mut moods) {
            self.write_stages(&moods).await?;
            tokio::time::sleep(SETTLE).await;
            self.touch(namespace).await?;
        }
        Ok(())
    }

    /// The simulator looks at a pod again when the pod changes.
    async fn touch(&self, namespace: &str) -> Result<()> {
        let pods: Api<Pod> = self.cluster.api(namespace);
        let number = self.touches.fetch_add(1, Ordering::Relaxed);
        let patch =
            json!({ "metadata": { "annotations": { "e2e.c5c3.io/touched": number.to_string() } } });
        for pod in pods.list_metadata(&ListParams::default()).await?.items {
            let name = pod.metadata.name.unwrap_or_default();
            match pods
                .patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
            {
                Ok(_) => {}
                Err(e) if code(&e) == Some(404) => {}
                Err(e) => return Err(anyhow!("touching {name}: {}", told(&e))),
            }
        }
        Ok(())
    }

    async fn write_stages(&self, moods: &Moods) -> Result<()> {
        let stages = stages(&self.address, moods);
        try_join_all(stages.iter().map(|stage| self.cluster.apply(stage))).await?;
        Ok(())
    }
}

fn node(name: &str, zone: &str) -> Value {
    let (label, value) = NODE_LABEL.split_once('=').unwrap_or((NODE_LABEL, ""));
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                (label): value,
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/region": "e2e",
                "topology.kubernetes.io/zone": zone,
            },
            // Cluster services of a real cluster have no business on these nodes.
            "annotations": { "kwok.x-k8s.io/node": "fake" },
        },
    })
}
