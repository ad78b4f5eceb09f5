//! The stages: what the node simulator makes of nodes and pods, given the moods.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Moods;

/// A list for an expression; the simulator wants at least one value.
fn values(namespaces: &BTreeSet<String>) -> Vec<&str> {
    std::iter::once("-")
        .chain(namespaces.iter().map(String::as_str))
        .collect()
}

/// All stages for these moods. Of the stages of a pod at most one matches at any time.
pub(super) fn stages(address: &str, moods: &Moods) -> Vec<Value> {
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
