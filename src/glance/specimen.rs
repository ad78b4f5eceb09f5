//! Glances for tests.
//!
//! The name differs from the product's, so that a label or a name built from the wrong one shows.

use glance_api::Glance;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The least a 2025.2 Glance needs, with its own database; runs eventlet.
pub fn eventlet() -> Glance {
    with(&json!({}))
}

/// The same for 2026.1, which runs uWSGI, on a managed database.
pub fn uwsgi() -> Glance {
    with(&json!({
        "openStackRelease": "2026.1",
        "image": { "tag": "2026.1" },
        "database": { "host": null, "clusterRef": { "name": "openstack-db" } },
    }))
}

/// A Glance that uses what there is.
pub fn everything() -> Glance {
    with(&json!({
        "openStackRelease": "2026.1",
        "image": { "tag": null, "digest": format!("sha256:{}", "ab".repeat(32)) },
        "deployment": {
            "replicas": 4,
            "resources": { "requests": { "cpu": "250m", "memory": "512Mi" }, "limits": { "memory": "2Gi" } },
            "terminationGracePeriodSeconds": 600,
            "preStopSleepSeconds": 15,
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": 0 } },
            "topologySpreadConstraints": [],
            "priorityClassName": "openstack-control-plane",
        },
        "database": {
            "host": null,
            "clusterRef": { "name": "openstack-db" },
            "port": 3307,
            "tls": {
                "mode": "verify-full",
                "caBundleSecretRef": { "name": "db-ca" },
                "clientCertSecretRef": { "name": "db-client" },
            },
        },
        "cache": { "clusterRef": null, "servers": ["mc-0:11211", "mc-1:11212", "mc-2:11211"] },
        "serviceUser": { "secretRef": { "name": "keystone-user", "key": "secret" } },
        "apiServer": { "uwsgi": {
            "processes": 4, "threads": 8, "httpKeepAlive": true, "httpKeepAliveTimeout": 75, "harakiri": 300,
        } },
        "dbPurge": { "retentionDays": 7, "schedule": "@daily", "purgeImagesTable": true, "suspend": true },
        "staging": { "sizeLimit": "20Gi" },
        "imageCache": { "sizeLimit": "256Mi", "maintenanceInterval": "1m" },
        "gateway": {
            "parentRef": { "name": "edge", "namespace": "gateways", "sectionName": "https" },
            "hostname": "image.example.com",
            "path": "image",
            "annotations": { "example.com/owner": "storage" },
        },
        "networkPolicy": {
            "ingress": [
                { "namespaceSelector": { "matchLabels": { "team": "nova" } }, "podSelector": {} },
                { "namespaceSelector": { "matchExpressions": [
                    { "key": "tier", "operator": "In", "values": ["front"] },
                ] } },
            ],
            "additionalEgress": [{ "ports": [{ "protocol": "TCP", "port": 443 }] }],
        },
        "autoscaling": {
            "minReplicas": 2, "maxReplicas": 9, "targetCPUUtilization": 70, "targetMemoryUtilization": 80,
        },
    }))
}

/// The minimal Glance with a merge patch over its spec.
pub fn with(patch: &Value) -> Glance {
    let mut spec = json!({
        "openStackRelease": "2025.2",
        "image": { "repository": "registry.example.com/openstack/glance", "tag": "2025.2" },
        "database": {
            "host": "db.example.com",
            "database": "glance_images",
            "secretRef": { "name": "db-credentials" },
        },
        "cache": { "backend": "dogpile.cache.pymemcache", "clusterRef": { "name": "memcached" } },
        "keystoneEndpoint": "http://keystone.openstack.svc:5000/v3",
        "serviceUser": { "secretRef": { "name": "keystone-user" } },
    });
    json_patch::merge(&mut spec, patch);
    serde_json::from_value(json!({
        "apiVersion": "glance.openstack.c5c3.io/v1alpha1",
        "kind": "Glance",
        "metadata": { "name": "pictures", "namespace": "openstack", "uid": "7f3c0a52" },
        "spec": spec,
    }))
    .unwrap()
}

/// Checks that `object` is what the API server knows as `T`: every field has a known name and type,
/// and nothing is null.
pub fn assert_is<T: Serialize + DeserializeOwned>(object: &Value) {
    let known: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(&serde_json::to_value(known).unwrap(), object);
    assert_no_null(object);
}

/// Checks that no field is null: an applied null claims the field.
pub fn assert_no_null(value: &Value) {
    match value {
        Value::Null => panic!("a null"),
        Value::Array(items) => items.iter().for_each(assert_no_null),
        Value::Object(fields) => fields.values().for_each(assert_no_null),
        _ => {}
    }
}

/// An object as text, for snapshots.
pub fn text(object: &Value) -> String {
    serde_json::to_string_pretty(object).unwrap()
}
