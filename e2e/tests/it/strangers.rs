//! Objects that others have: harmless ones of every kind that a Glance owns.

use kube::api::DynamicObject;
use serde_json::{Value, json};

/// An object of this kind that its owner is content with, and that does nothing.
pub fn impostor(kind: (&str, &str), metadata: &Value) -> Value {
    let pods = json!({
        "metadata": { "labels": { "app": "stranger" } },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "c", "image": "registry.example/stranger:1" }],
        },
    });
    let server = json!({ "name": "elsewhere" });
    let mut object = json!({ "apiVersion": kind.0, "kind": kind.1, "metadata": metadata });
    match kind.1 {
        "Secret" => object["stringData"] = json!({ "connection": "theirs" }),
        "ConfigMap" => object["data"] = json!({ "glance-api.conf": "theirs" }),
        "Deployment" => {
            let mut pods = pods;
            pods["spec"]["restartPolicy"] = json!("Always");
            object["spec"] = json!({
                "replicas": 0, "selector": { "matchLabels": { "app": "stranger" } }, "template": pods,
            });
        }
        "Job" => object["spec"] = json!({ "suspend": true, "template": pods }),
        "CronJob" => {
            object["spec"] = json!({
                "suspend": true, "schedule": "0 5 1 1 *",
                "jobTemplate": { "spec": { "template": pods } },
            });
        }
        "Service" => object["spec"] = json!({ "ports": [{ "port": 80 }] }),
        "PodDisruptionBudget" => {
            object["spec"] = json!({ "maxUnavailable": 1, "selector": { "matchLabels": { "app": "stranger" } } });
        }
        "HorizontalPodAutoscaler" => {
            object["spec"] = json!({ "maxReplicas": 2, "scaleTargetRef": {
                "apiVersion": "apps/v1", "kind": "Deployment", "name": "stranger",
            } });
        }
        "NetworkPolicy" => object["spec"] = json!({ "podSelector": {} }),
        "HTTPRoute" => object["spec"] = json!({ "hostnames": ["stranger.example.com"] }),
        "Database" => object["spec"] = json!({ "mariaDbRef": server }),
        "User" => {
            object["spec"] = json!({
                "mariaDbRef": server,
                "passwordSecretKeyRef": { "name": "stranger", "key": "password" },
            });
        }
        "Grant" => {
            object["spec"] = json!({
                "mariaDbRef": server, "privileges": ["SELECT"], "username": "stranger",
            });
        }
        other => panic!("no impostor of {other}"),
    }
    object
}

/// An object without what the cluster itself writes.
pub fn essence(object: &DynamicObject) -> Value {
    let mut essence = serde_json::to_value(object).unwrap();
    let fields = essence.as_object_mut().unwrap();
    fields.remove("status");
    let metadata = fields["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    metadata.remove("managedFields");
    metadata.remove("finalizers");
    if let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.retain(|key, _| !key.starts_with("deployment.kubernetes.io/"));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    essence
}
