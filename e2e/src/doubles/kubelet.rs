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

use crate::{
    cluster::{Cluster, code, told},
    expect::eventually,
    patience,
};

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

/// A list for an expression; the simulator wants at least one value.
fn values(namespaces: &BTreeSet<String>) -> Vec<&str> {
    std::iter::once("-")
        .chain(namespaces.iter().map(String::as_str))
        .collect()
}

/// All stages for these moods. Of the stages of a pod at most one matches at any time.
fn stages(address: &str, moods: &Moods) -> Vec<Value> {
    let alive = json!({ "key": ".metadata.deletionTimestamp", "operator": "DoesNotExist" });
    let phase = |phase| json!({ "key": ".status.phase", "operator": "In", "values": [phase] });
    let owner = |operator, kind| {
        json!({
            "key": ".metadata.ownerReferences.[].kind", "operator": operator, "values": [kind],
        })
    };
    let namespace = |operator, set: Vec<&str>| {
        json!({
            "key": ".metadata.namespace", "operator": operator, "values": set,
        })
    };
    let ready = |operator| {
        json!({
            "key": ".status.conditions.[] | select( .type == \"Ready\" ) | .status",
            "operator": operator, "values": ["True"],
        })
    };
    let jobs_kept: BTreeSet<String> = moods
        .jobs_held
        .union(&moods.jobs_failing)
        .cloned()
        .collect();
    let pod =
        |name: &str, expressions: &[Value], next: &Value| stage(name, "Pod", expressions, next);
    let status = |text: String| json!({ "statusTemplate": text });
    vec![
        stage(
            "node-initialize",
            "Node",
            &[ready("NotIn")],
            &status(NODE_STATUS.replace("ADDRESS", address)),
        ),
        pod(
            "pod-start",
            &[
                alive.clone(),
                phase("Pending"),
                namespace("NotIn", values(&moods.held)),
            ],
            &status(STARTED.replace("ADDRESS", address)),
        ),
        pod(
            "pod-complete",
            &[
                alive.clone(),
                phase("Running"),
                owner("In", "Job"),
                namespace("NotIn", values(&jobs_kept)),
            ],
            &status(ended("Succeeded", "Completed", 0)),
        ),
        pod(
            "pod-fail",
            &[
                alive.clone(),
                phase("Running"),
                owner("In", "Job"),
                namespace("In", values(&moods.jobs_failing)),
            ],
            &status(ended("Failed", "Error", 1)),
        ),
        pod(
            "pod-unready",
            &[
                alive.clone(),
                phase("Running"),
                ready("In"),
                namespace("In", values(&moods.unready)),
            ],
            &status(readiness("False")),
        ),
        pod(
            "pod-ready-again",
            &[
                alive,
                phase("Running"),
                ready("NotIn"),
                namespace("NotIn", values(&moods.unready)),
            ],
            &status(readiness("True")),
        ),
        pod(
            "pod-delete",
            &[json!({ "key": ".metadata.deletionTimestamp", "operator": "Exists" })],
            &json!({ "delete": true }),
        ),
    ]
}

fn stage(name: &str, kind: &str, expressions: &[Value], next: &Value) -> Value {
    json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage",
        "metadata": { "name": format!("e2e-{name}") },
        "spec": {
            "resourceRef": { "apiGroup": "v1", "kind": kind },
            "selector": { "matchExpressions": expressions },
            "next": next,
        },
    })
}

const NODE_STATUS: &str = r#"
{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
  message: {{ .message | Quote }}
  reason: {{ .reason | Quote }}
  status: {{ .status | Quote }}
  type: {{ .type | Quote }}
{{ end }}
addresses:
- address: "ADDRESS"
  type: InternalIP
allocatable: { cpu: 64, memory: 256Gi, ephemeral-storage: 1Ti, pods: 2000 }
capacity: { cpu: 64, memory: 256Gi, ephemeral-storage: 1Ti, pods: 2000 }
nodeInfo:
  architecture: amd64
  bootID: ""
  containerRuntimeVersion: simulated
  kernelVersion: simulated
  kubeProxyVersion: simulated
  kubeletVersion: simulated
  machineID: ""
  operatingSystem: linux
  osImage: ""
  systemUUID: ""
phase: Running
"#;

/// Containers run, init containers that do not stay have ended.
const STARTED: &str = r#"
{{ $now := Now }}
conditions:
- { lastTransitionTime: {{ $now | Quote }}, status: "True", type: Initialized }
- { lastTransitionTime: {{ $now | Quote }}, status: "True", type: Ready }
- { lastTransitionTime: {{ $now | Quote }}, status: "True", type: ContainersReady }
containerStatuses:
{{ range .spec.containers }}
- image: {{ .image | Quote }}
  imageID: ""
  name: {{ .name | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: { running: { startedAt: {{ $now | Quote }} } }
{{ end }}
initContainerStatuses:
{{ range .spec.initContainers }}
- image: {{ .image | Quote }}
  imageID: ""
  name: {{ .name | Quote }}
  ready: true
  restartCount: 0
  {{ if eq .restartPolicy "Always" }}
  started: true
  state: { running: { startedAt: {{ $now | Quote }} } }
  {{ else }}
  state:
    terminated: { exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }} }
  {{ end }}
{{ end }}
hostIP: "ADDRESS"
hostIPs: [ { ip: "ADDRESS" } ]
podIP: "ADDRESS"
podIPs: [ { ip: "ADDRESS" } ]
phase: Running
startTime: {{ $now | Quote }}
"#;

fn ended(phase: &str, reason: &str, exit_code: u8) -> String {
    format!(
        r#"
{{{{ $now := Now }}}}
conditions:
- {{ lastTransitionTime: {{{{ $now | Quote }}}}, status: "False", type: Ready, reason: PodCompleted }}
- {{ lastTransitionTime: {{{{ $now | Quote }}}}, status: "False", type: ContainersReady, reason: PodCompleted }}
containerStatuses:
{{{{ range .spec.containers }}}}
- image: {{{{ .image | Quote }}}}
  imageID: ""
  name: {{{{ .name | Quote }}}}
  ready: false
  started: false
  restartCount: 0
  state:
    terminated: {{ exitCode: {exit_code}, reason: {reason}, startedAt: {{{{ $now | Quote }}}}, finishedAt: {{{{ $now | Quote }}}} }}
{{{{ end }}}}
phase: {phase}
"#
    )
}

fn readiness(status: &str) -> String {
    format!(
        r#"
{{{{ $now := Now }}}}
conditions:
- {{ lastTransitionTime: {{{{ $now | Quote }}}}, status: "{status}", type: Ready }}
- {{ lastTransitionTime: {{{{ $now | Quote }}}}, status: "{status}", type: ContainersReady }}
"#
    )
}
