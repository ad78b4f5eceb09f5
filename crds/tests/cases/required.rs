//! Required fields and types of a Glance.

use serde_json::{Value, json};

use super::{Case, Layer::Schema, full, glance};

pub fn cases() -> Vec<Case> {
    [required(), types(), inside_lists(), selectors()].concat()
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
        "/spec/database/tls/caBundleSecretRef/name",
        "spec.database.tls.caBundleSecretRef.name: Required value",
    ),
    (
        "/spec/database/tls/clientCertSecretRef/name",
        "spec.database.tls.clientCertSecretRef.name: Required value",
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
            // A webhook that fills in the password's key makes this object first.
            full("without /spec/serviceUser/secretRef")
                .without("/spec/serviceUser/secretRef")
                .refused(Schema, &["spec.serviceUser.secretRef"]),
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

/// Everything that is required inside a list: one item without it.
fn inside_lists() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut without = |pointer: &str, key: &str, item: Value, fragment: &'static str| {
        let mut item = item;
        item.as_object_mut().into_iter().for_each(|item| {
            item.remove(key);
        });
        cases.push(
            full(format!("an item of {pointer} without {key}"))
                .with(pointer, json!([item]))
                .refused(Schema, &[fragment]),
        );
    };
    let filter = json!({ "name": "audit", "filterFactory": "a:b", "position": "after" });
    let filters = "/spec/middleware";
    without(
        filters,
        "name",
        filter.clone(),
        "spec.middleware[0].name: Required value",
    );
    without(
        filters,
        "filterFactory",
        filter,
        "spec.middleware[0].filterFactory: Required value",
    );
    let plugin = json!({ "name": "quota", "configSection": "quota" });
    without(
        "/spec/plugins",
        "name",
        plugin,
        "spec.plugins[0].name: Required value",
    );
    without(
        "/spec/deployment/resources/claims",
        "name",
        json!({ "name": "gpu", "request": "one" }),
        "spec.deployment.resources.claims[0].name: Required value",
    );
    let spread =
        json!({ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" });
    for (key, fragment) in [
        (
            "maxSkew",
            "topologySpreadConstraints[0].maxSkew: Required value",
        ),
        (
            "whenUnsatisfiable",
            "topologySpreadConstraints[0].whenUnsatisfiable: Required value",
        ),
    ] {
        without(
            "/spec/deployment/topologySpreadConstraints",
            key,
            spread.clone(),
            fragment,
        );
    }
    cases.push(
        full("a destination by addresses without a range")
            .with(
                "/spec/networkPolicy",
                json!({
                    "ingress": [{ "namespaceSelector": {} }],
                    "additionalEgress": [{ "to": [{ "ipBlock": { "except": ["10.1.0.0/16"] } }] }],
                }),
            )
            .refused(Schema, &["to[0].ipBlock.cidr: Required value"]),
    );
    cases
}

/// A selector's term stands in five places.
fn selectors() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, term, fragment) in [
        (
            "a key",
            json!({ "operator": "Exists" }),
            "matchExpressions[0].key: Required value",
        ),
        (
            "an operator",
            json!({ "key": "team" }),
            "matchExpressions[0].operator: Required value",
        ),
    ] {
        let selector = json!({ "matchExpressions": [term] });
        let spread = json!([{
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }]);
        let to = |peer: Value| {
            json!({
                "ingress": [{ "namespaceSelector": {} }],
                "additionalEgress": [{ "to": [peer] }],
            })
        };
        let from = |source: Value| json!({ "ingress": [source] });
        for (place, pointer, value) in [
            (
                "a spread constraint",
                "/spec/deployment/topologySpreadConstraints",
                spread,
            ),
            (
                "the namespaces of a source",
                "/spec/networkPolicy",
                from(json!({ "namespaceSelector": selector })),
            ),
            (
                "the pods of a source",
                "/spec/networkPolicy",
                from(json!({ "namespaceSelector": {}, "podSelector": selector })),
            ),
            (
                "the namespaces of a destination",
                "/spec/networkPolicy",
                to(json!({ "namespaceSelector": selector })),
            ),
            (
                "the pods of a destination",
                "/spec/networkPolicy",
                to(json!({ "podSelector": selector })),
            ),
        ] {
            cases.push(
                full(format!("{place}, selected by a term without {name}"))
                    .with(pointer, value)
                    .refused(Schema, &[fragment]),
            );
        }
    }
    cases
}
