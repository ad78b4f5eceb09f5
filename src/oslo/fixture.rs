//! Resources for the tests of this folder.

use ::glance_api::backend::GlanceBackendSpec;
use ::glance_api::glance::{Glance, GlanceSpec};
use serde_json::{Value, json};

use super::Projection;

/// A Glance as the contract's test vectors have it, with `changes` merged into
/// its spec; null removes a field.
pub fn glance(name: &str, changes: &Value) -> Glance {
    let mut spec = json!({
        "openStackRelease": "2025.2",
        "image": { "repository": "registry.example.com/glance", "tag": "2025.2" },
        "database": {
            "clusterRef": { "name": "openstack-db" },
            "database": "glance_basic",
            "secretRef": { "name": "glance-db" },
        },
        "cache": {
            "backend": "dogpile.cache.pymemcache",
            "clusterRef": { "name": "openstack-memcached" },
        },
        "keystoneEndpoint": "http://keystone.openstack.svc.cluster.local:5000/v3",
        "serviceUser": {
            "username": "admin",
            "projectName": "admin",
            "userDomainName": "Default",
            "projectDomainName": "Default",
            "secretRef": { "name": "glance-user", "key": "password" },
        },
    });
    json_patch::merge(&mut spec, changes);
    serde_json::from_value(json!({
        "apiVersion": "glance.openstack.c5c3.io/v1alpha1",
        "kind": "Glance",
        "metadata": { "name": name, "namespace": "openstack" },
        "spec": spec,
    }))
    .unwrap()
}

/// The spec of [`glance`].
pub fn spec(changes: &Value) -> GlanceSpec {
    glance("glance-basic", changes).spec
}

/// A spec with every conditional option switched on.
pub fn full_spec() -> GlanceSpec {
    spec(&json!({
        "region": "RegionOne",
        "apiServer": { "workers": 4 },
        "logging": { "format": "json", "perLoggerLevels": { "glance": "DEBUG" } },
        "imageCache": {},
        "importPlugins": {
            "decompression": {},
            "conversion": {},
            "injectMetadata": { "properties": { "a": "b" } },
        },
        "gateway": { "parentRef": { "name": "gw" }, "hostname": "image.example.com" },
        "policyOverrides": { "rules": { "get_image": "@" } },
    }))
}

/// One default store.
pub fn projection(store: &str) -> Projection {
    Projection {
        enabled_backends: format!("{store}:s3"),
        default_backend: store.to_owned(),
    }
}

/// A store as the contract's test vectors have it, with `changes` merged into
/// its spec.
pub fn backend(changes: &Value) -> GlanceBackendSpec {
    let mut spec = json!({
        "glanceRef": { "name": "glance-basic" },
        "type": "S3",
        "isDefault": true,
        "s3": {
            "host": "http://garage.shared-services.svc.cluster.local:3900",
            "bucket": "glance-images",
            "region": "garage",
            "credentialsSecretRef": { "name": "glance-s3" },
        },
    });
    json_patch::merge(&mut spec, changes);
    serde_json::from_value(spec).unwrap()
}
