//! Fixtures for unit tests.

use glance_api::glance::Glance;
use serde_json::{Value, json};

/// The smallest manifest that the schema admits, with a managed database. The name differs from every label and
/// product name, so that a mix-up shows.
pub fn minimal_glance(name: &str) -> Value {
    json!({
        "apiVersion": "glance.openstack.c5c3.io/v1alpha1",
        "kind": "Glance",
        "metadata": {
            "name": name,
            "namespace": "tenant",
            "uid": "11111111-2222-3333-4444-555555555555",
            "generation": 1,
            "resourceVersion": "1",
        },
        "spec": {
            "openStackRelease": "2025.2",
            "image": { "repository": "registry.example.org/glance", "tag": "2025.2" },
            "database": {
                "clusterRef": { "name": "openstack-db" },
                "database": "glance",
                "secretRef": { "name": "glance-db" },
            },
            "cache": { "clusterRef": { "name": "openstack-memcached" }, "backend": "dogpile.cache.pymemcache" },
            "keystoneEndpoint": "http://keystone.openstack.svc.cluster.local:5000/v3",
            "serviceUser": { "secretRef": { "name": "glance-service-user" } },
        },
    })
}

/// The same as a typed object.
pub fn glance(name: &str) -> Glance {
    serde_json::from_value(minimal_glance(name)).expect("the fixture decodes")
}
