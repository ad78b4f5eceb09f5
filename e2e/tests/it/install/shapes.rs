//! The values with which the charts are documented to be installed.

use serde_json::{Value, json};

/// The documented shapes of an installation.
pub fn installations() -> Vec<(&'static str, Value)> {
    let policy = json!({
        "enabled": true,
        "kubeApiServer": { "cidrs": ["10.0.0.1/32", "fd00::1/128"], "ports": [443, 6443] },
        "allowMetricsFrom": [{ "namespaceSelector": { "matchLabels": { "team": "monitoring" } } }],
        "webhookClients": { "cidrs": ["10.9.0.0/16"] },
    });
    let scoped = json!({ "namespaceScoped": true });
    let off = json!({ "enabled": false });
    let on = json!({ "enabled": true });
    vec![
        ("default", json!({})),
        (
            "one replica",
            json!({ "replicas": 1, "leaderElection": off }),
        ),
        ("without webhooks", json!({ "webhook": off })),
        ("scoped", json!({ "rbac": scoped, "webhook": off })),
        (
            "scoped, with stores and webhooks",
            json!({
                "rbac": scoped, "webhook": off, "apiProbe": { "mode": "api-proxy" },
                "scoped": { "clusterSecretStores": true, "webhooks": true },
            }),
        ),
        ("hardened", json!({ "hardenedRBAC": true })),
        (
            "guarded",
            json!({
                "secureMetrics": on, "monitoring": { "serviceMonitor": on },
                "targetClusters": { "requireGrants": true, "authorizeUse": true },
            }),
        ),
        (
            "hardened and scoped",
            json!({ "hardenedRBAC": true, "rbac": scoped, "webhook": off }),
        ),
        ("network policy", json!({ "networkPolicy": policy })),
        (
            "network policy, all of it",
            json!({
                "networkPolicy": policy,
                "targetClusters": { "namespace": "edges", "cidrs": ["192.0.2.0/24"], "ports": [6443] },
                "apiProbe": { "namespaceSelector": { "kubernetes.io/metadata.name": "openstack" } },
            }),
        ),
        (
            "monitoring",
            json!({
                "monitoring": { "serviceMonitor": { "enabled": true, "interval": "1m30s" } },
                "serviceMonitorLabels": { "release": "prometheus" },
                "dashboard": on, "alerts": on,
            }),
        ),
        (
            "names that look like numbers, labels that the chart sets as well",
            json!({
                "nameOverride": "34", "fullnameOverride": "null", "serviceAccount": { "name": "12" },
                "pod": { "labels": { "app.kubernetes.io/name": "other", "tier": "7" } },
                "monitoring": { "serviceMonitor": on },
                "serviceMonitorLabels": { "app.kubernetes.io/instance": "prometheus" },
                "dashboard": { "enabled": true, "labels": { "app.kubernetes.io/managed-by": "people" } },
                "alerts": { "enabled": true, "labels": { "app.kubernetes.io/name": "true" } },
            }),
        ),
        (
            "authority",
            json!({ "webhookCertificate": { "mode": "ca" } }),
        ),
        (
            "certificate of one's own",
            json!({ "webhookCertificate": { "mode": "existing", "secretName": "mine", "caBundle": "AUTHORITY" } }),
        ),
        (
            "pod",
            json!({
                "image": { "digest": format!("sha256:{}", "a".repeat(64)) },
                "logging": { "development": true, "level": "3", "encoder": "console" },
                "pod": {
                    "annotations": { "team": "images" }, "labels": { "tier": "control" },
                    "nodeSelector": { "pool": "infra" },
                    "tolerations": [{ "key": "infra", "operator": "Exists" }],
                    "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "pool", "operator": "Exists" }] }],
                    }}},
                    "priorityClassName": "system-cluster-critical",
                    "imagePullSecrets": [{ "name": "registry" }],
                    "env": [{ "name": "HTTPS_PROXY", "value": "http://proxy.example:3128" }],
                    "args": ["--abandon-after=1m"],
                },
            }),
        ),
    ]
}

/// The documented shapes of an access.
pub fn accesses(namespace: &str) -> Vec<(&'static str, Value)> {
    let with = |more: Value| {
        let mut values = json!({ "namespaces": [namespace] });
        if let (Some(values), Some(more)) = (values.as_object_mut(), more.as_object()) {
            values.extend(more.clone());
        }
        values
    };
    vec![
        ("default", with(json!({}))),
        (
            "existing namespaces",
            with(json!({ "createNamespaces": false })),
        ),
        (
            "optional rights",
            with(json!({ "optional": { "identity": true, "causes": true } })),
        ),
        (
            "shared",
            with(json!({ "profile": "shared", "authDelegatorBinding": true })),
        ),
        ("cluster-wide", json!({ "clusterWide": true })),
        (
            "names that look like numbers",
            with(json!({ "serviceAccount": { "name": "77" }, "renewCredentials": true })),
        ),
        (
            "labels that the chart sets as well",
            with(json!({ "namespaceLabels": { "app.kubernetes.io/name": "images" } })),
        ),
        (
            "confined",
            with(
                json!({ "namespaceLabels": { "pod-security.kubernetes.io/enforce": "restricted" } }),
            ),
        ),
    ]
}
