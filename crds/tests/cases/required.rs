//! Required fields and types of a Glance.

use serde_json::json;

use super::{Case, Layer::Schema, full, glance};

pub fn cases() -> Vec<Case> {
    [required(), types()].concat()
}

const REQUIRED: &[(&str, &str)] = &[
    (
        "/spec/openStackRelease",
        "spec.openStackRelease: Required value",
    ),
    ("/spec/image", "spec.image: Required value"),
    (
        "/spec/image/repository",
        "spec.image.repository: Required value",
    ),
    ("/spec/database", "spec.database: Required value"),
    (
        "/spec/database/database",
        "spec.database.database: Required value",
    ),
    (
        "/spec/database/secretRef",
        "spec.database.secretRef: Required value",
    ),
    (
        "/spec/database/secretRef/name",
        "spec.database.secretRef.name: Required value",
    ),
    (
        "/spec/database/tls/caBundleSecretRef",
        "spec.database.tls.caBundleSecretRef: Required value",
    ),
    (
        "/spec/keystoneEndpoint",
        "spec.keystoneEndpoint: Required value",
    ),
    (
        "/spec/serviceUser/secretRef/name",
        "spec.serviceUser.secretRef.name: Required value",
    ),
    (
        "/spec/importPlugins/injectMetadata/properties",
        "spec.importPlugins.injectMetadata.properties: Required value",
    ),
    (
        "/spec/gateway/parentRef",
        "spec.gateway.parentRef: Required value",
    ),
    (
        "/spec/gateway/parentRef/name",
        "spec.gateway.parentRef.name: Required value",
    ),
    (
        "/spec/gateway/hostname",
        "spec.gateway.hostname: Required value",
    ),
    (
        "/spec/autoscaling/maxReplicas",
        "spec.autoscaling.maxReplicas: Required value",
    ),
    (
        "/spec/secretStoreRef/name",
        "spec.secretStoreRef.name: Required value",
    ),
    (
        "/spec/targetClusterRef/name",
        "spec.targetClusterRef.name: Required value",
    ),
];

fn required() -> Vec<Case> {
    REQUIRED
        .iter()
        .map(|(pointer, fragment)| {
            full(format!("without {pointer}"))
                .without(pointer)
                .refused(Schema, &[fragment])
        })
        .chain([
            // The defaulting webhook fills these in, or makes the object that lacks.
            full("without /spec/cache")
                .without("/spec/cache")
                .without_webhooks()
                .refused(Schema, &["spec.cache: Required value"]),
            full("without /spec/cache/backend")
                .without("/spec/cache/backend")
                .without_webhooks()
                .refused(Schema, &["spec.cache.backend: Required value"]),
            full("without /spec/serviceUser")
                .without("/spec/serviceUser")
                .without_webhooks()
                .refused(Schema, &["spec.serviceUser: Required value"]),
            full("a network policy without ingress")
                .with("/spec/networkPolicy", json!({}))
                .refused(Schema, &["spec.networkPolicy.ingress: Required value"]),
            full("an ingress source without namespaces")
                .with(
                    "/spec/networkPolicy/ingress",
                    json!([{ "podSelector": {} }]),
                )
                .refused(
                    Schema,
                    &["spec.networkPolicy.ingress[0].namespaceSelector: Required value"],
                ),
            full("a middleware without a position")
                .with(
                    "/spec/middleware",
                    json!([{ "name": "audit", "filterFactory": "a:b" }]),
                )
                .refused(Schema, &["spec.middleware[0].position: Required value"]),
            full("a plugin without a section")
                .with("/spec/plugins", json!([{ "name": "quota" }]))
                .refused(Schema, &["spec.plugins[0].configSection: Required value"]),
            full("a spread constraint without its places")
                .with(
                    "/spec/deployment/topologySpreadConstraints",
                    json!([{ "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule" }]),
                )
                .refused(
                    Schema,
                    &["spec.deployment.topologySpreadConstraints[0].topologyKey: Required value"],
                ),
        ])
        .collect()
}

fn types() -> Vec<Case> {
    [
        (
            "/spec/deployment/replicas",
            json!("three"),
            "spec.deployment.replicas",
        ),
        (
            "/spec/deployment/replicas",
            json!(1.5),
            "spec.deployment.replicas",
        ),
        ("/spec/region", json!(5), "spec.region"),
        ("/spec/logging/debug", json!("yes"), "spec.logging.debug"),
        (
            "/spec/cache/servers",
            json!("cache-0:11211"),
            "spec.cache.servers",
        ),
        (
            "/spec/extraConfig",
            json!({ "DEFAULT": "debug" }),
            "spec.extraConfig.DEFAULT",
        ),
        (
            "/spec/extraConfig",
            json!({ "DEFAULT": { "debug": true } }),
            "spec.extraConfig.DEFAULT.debug",
        ),
        (
            "/spec/importPlugins/decompression",
            json!(true),
            "spec.importPlugins.decompression",
        ),
        (
            "/spec/staging/sizeLimit",
            json!(true),
            "spec.staging.sizeLimit",
        ),
        (
            "/spec/imageCache/maintenanceInterval",
            json!(300),
            "spec.imageCache.maintenanceInterval",
        ),
        (
            "/spec/deployment/strategy/rollingUpdate/maxSurge",
            json!([1]),
            "spec.deployment.strategy.rollingUpdate.maxSurge",
        ),
    ]
    .into_iter()
    .map(|(pointer, value, fragment)| {
        glance(format!("{pointer} is {value}"))
            .with(pointer, value)
            .refused(Schema, &[fragment])
    })
    .collect()
}
