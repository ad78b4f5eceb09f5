//! What is stored of a Glance: defaults, pruned fields, kept forms.

use serde_json::{Value, json};

use super::{Case, Layer::Schema, glance};

pub fn cases() -> Vec<Case> {
    [defaults(), left_out(), lists(), forms(), webhook()].concat()
}

fn defaults() -> Vec<Case> {
    vec![
        glance("blocks the user wrote get their defaults")
            .with("/spec/deployment", json!({}))
            .with("/spec/apiServer/uwsgi", json!({}))
            .with("/spec/logging", json!({}))
            .with("/spec/secretStoreRef", json!({ "name": "openbao" }))
            .stored(vec![
                ("/spec/deployment/replicas", json!(3)),
                ("/spec/database/replicas", json!(3)),
                ("/spec/database/storageSize", json!("100Gi")),
                ("/spec/cache/replicas", json!(3)),
                ("/spec/apiServer/uwsgi/processes", json!(2)),
                ("/spec/apiServer/uwsgi/threads", json!(1)),
                ("/spec/logging/format", json!("text")),
                ("/spec/logging/level", json!("INFO")),
                ("/spec/secretStoreRef/kind", json!("ClusterSecretStore")),
            ]),
        glance("a null means unset")
            .with("/spec/deployment/replicas", Value::Null)
            .with("/spec/deployment/topologySpreadConstraints", Value::Null)
            .with("/spec/database/credentialsMode", Value::Null)
            .with("/spec/database/port", Value::Null)
            .with("/spec/region", Value::Null)
            .with("/spec/logging", json!({ "format": null }))
            .with("/spec/gateway", Value::Null)
            .stored(vec![
                ("/spec/deployment/replicas", json!(3)),
                ("/spec/deployment/topologySpreadConstraints", Value::Null),
                ("/spec/database/credentialsMode", Value::Null),
                ("/spec/database/port", Value::Null),
                ("/spec/region", Value::Null),
                ("/spec/logging/format", json!("text")),
                ("/spec/gateway", Value::Null),
            ]),
    ]
}

/// Presence alone switches features on: nothing may appear by itself.
fn left_out() -> Vec<Case> {
    let absent = |pointers: &[&'static str]| -> Vec<(&'static str, Value)> {
        pointers
            .iter()
            .map(|pointer| (*pointer, Value::Null))
            .collect()
    };
    vec![
        glance("features nobody asked for stay off").stored(absent(&[
            "/spec/keystonePublicEndpoint",
            "/spec/region",
            "/spec/apiServer",
            "/spec/importFiltering",
            "/spec/importPlugins",
            "/spec/dbPurge",
            "/spec/staging",
            "/spec/imageCache",
            "/spec/gateway",
            "/spec/networkPolicy",
            "/spec/autoscaling",
            "/spec/secretStoreRef",
            "/spec/targetClusterRef",
            "/spec/policyOverrides",
            "/spec/middleware",
            "/spec/plugins",
            "/spec/extraConfig",
            "/spec/database/port",
            "/spec/database/credentialsMode",
            "/spec/database/tls",
            "/spec/deployment/strategy",
            "/spec/deployment/terminationGracePeriodSeconds",
            "/spec/deployment/preStopSleepSeconds",
            "/spec/deployment/topologySpreadConstraints",
        ])),
        glance("empty blocks stay empty")
            .with("/spec/importFiltering", json!({}))
            .with("/spec/importPlugins/conversion", json!({}))
            .with("/spec/dbPurge", json!({}))
            .with("/spec/staging", json!({}))
            .with("/spec/imageCache", json!({}))
            .with("/spec/apiServer", json!({}))
            .stored(vec![
                ("/spec/importFiltering", json!({})),
                ("/spec/importPlugins", json!({ "conversion": {} })),
                ("/spec/dbPurge", json!({})),
                ("/spec/staging", json!({})),
                ("/spec/imageCache", json!({})),
                ("/spec/apiServer", json!({})),
            ]),
        glance("logging without webhooks gets no debug switch")
            .with("/spec/logging", json!({}))
            .without_webhooks()
            .stored(vec![("/spec/logging/debug", Value::Null)]),
        glance("unknown fields are dropped")
            .with("/spec/bogus", json!(1))
            .with("/spec/image/pullPolicy", json!("Always"))
            .with("/spec/importPlugins/decompression", json!({ "level": 9 }))
            .with("/spec/staging/unbounded", json!(true))
            .stored(vec![
                ("/spec/bogus", Value::Null),
                ("/spec/image/pullPolicy", Value::Null),
                ("/spec/importPlugins/decompression", json!({})),
            ]),
    ]
}

/// Lists in which "none" and "not said" are two answers.
fn lists() -> Vec<Case> {
    [
        "/spec/deployment/topologySpreadConstraints",
        "/spec/importFiltering/allowedSchemes",
        "/spec/importFiltering/disallowedSchemes",
        "/spec/importFiltering/allowedHosts",
        "/spec/importFiltering/disallowedHosts",
        "/spec/importFiltering/allowedPorts",
        "/spec/importFiltering/disallowedPorts",
        "/spec/importPlugins/injectMetadata/ignoreUserRoles",
    ]
    .into_iter()
    .map(|pointer| {
        glance(format!("an empty {pointer} stays"))
            .with(
                "/spec/importPlugins/injectMetadata/properties",
                json!({ "k": "v" }),
            )
            .with(pointer, json!([]))
            .stored(vec![(pointer, json!([]))])
    })
    .collect()
}

fn forms() -> Vec<Case> {
    vec![
        glance("quantities keep the form they were written in")
            .with("/spec/staging/sizeLimit", json!("1024Mi"))
            .with("/spec/imageCache/sizeLimit", json!(2_147_483_648_i64))
            .with(
                "/spec/deployment/resources",
                json!({ "requests": { "cpu": 1 }, "limits": { "cpu": "2.0", "memory": "1e9" } }),
            )
            .stored(vec![
                ("/spec/staging/sizeLimit", json!("1024Mi")),
                ("/spec/imageCache/sizeLimit", json!(2_147_483_648_i64)),
                ("/spec/deployment/resources/requests/cpu", json!(1)),
                ("/spec/deployment/resources/limits/cpu", json!("2.0")),
                ("/spec/deployment/resources/limits/memory", json!("1e9")),
            ]),
        glance("durations keep the form they were written in")
            .with("/spec/imageCache/maintenanceInterval", json!("90m"))
            .stored(vec![("/spec/imageCache/maintenanceInterval", json!("90m"))]),
        glance("a roll-out strategy in numbers and percentages")
            .with(
                "/spec/deployment/strategy",
                json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": 1 } }),
            )
            .stored(vec![
                ("/spec/deployment/strategy/rollingUpdate/maxSurge", json!("25%")),
                ("/spec/deployment/strategy/rollingUpdate/maxUnavailable", json!(1)),
            ]),
        glance("further egress as Kubernetes writes it")
            .with(
                "/spec/networkPolicy",
                json!({
                    "ingress": [{
                        "namespaceSelector": { "matchLabels": { "team": "cloud" } },
                        "podSelector": { "matchExpressions": [{ "key": "app", "operator": "In", "values": ["a", "b"] }] },
                    }],
                    "additionalEgress": [
                        { "ports": [{ "port": 443, "protocol": "TCP" }, { "port": "https" }, { "port": 8000, "endPort": 8080 }] },
                        { "to": [{ "ipBlock": { "cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"] } }, { "namespaceSelector": {}, "podSelector": {} }] },
                    ],
                }),
            )
            .stored(vec![
                ("/spec/networkPolicy/additionalEgress/0/ports/0/port", json!(443)),
                ("/spec/networkPolicy/additionalEgress/0/ports/1/port", json!("https")),
                ("/spec/networkPolicy/additionalEgress/1/to/1", json!({ "namespaceSelector": {}, "podSelector": {} })),
            ]),
        glance("a number where free configuration takes texts")
            .with("/spec/extraConfig/DEFAULT", json!({ "workers": 4 }))
            .refused(Schema, &["spec.extraConfig.DEFAULT.workers"]),
    ]
}

/// What the defaulting webhook adds to the schema's work.
fn webhook() -> Vec<Case> {
    vec![
        glance("a minimal service user is filled in")
            .with_webhooks()
            .stored(vec![
                ("/spec/serviceUser/username", json!("glance")),
                ("/spec/serviceUser/projectName", json!("service")),
                ("/spec/serviceUser/userDomainName", json!("Default")),
                ("/spec/serviceUser/projectDomainName", json!("Default")),
                ("/spec/serviceUser/secretRef/key", json!("password")),
            ]),
        glance("a token cache without a backend is filled in")
            .without("/spec/cache/backend")
            .with_webhooks()
            .stored(vec![(
                "/spec/cache/backend",
                json!("dogpile.cache.pymemcache"),
            )]),
        glance("a token cache with an empty backend is filled in")
            .with("/spec/cache/backend", json!(""))
            .with_webhooks()
            .stored(vec![(
                "/spec/cache/backend",
                json!("dogpile.cache.pymemcache"),
            )]),
        glance("a Glance without a deployment block gets pods of a size")
            .without("/spec/deployment")
            .with_webhooks()
            .stored(vec![
                ("/spec/deployment/replicas", json!(3)),
                (
                    "/spec/deployment/resources",
                    json!({
                        "requests": { "cpu": "100m", "memory": "512Mi" },
                        "limits": { "cpu": "500m", "memory": "1Gi" },
                    }),
                ),
                (
                    "/spec/logging",
                    json!({ "format": "text", "level": "INFO", "debug": false }),
                ),
            ]),
        glance("resources with one entry are taken as they are")
            .with(
                "/spec/deployment/resources",
                json!({ "limits": { "memory": "2Gi" } }),
            )
            .with_webhooks()
            .stored(vec![(
                "/spec/deployment/resources",
                json!({ "limits": { "memory": "2Gi" } }),
            )]),
        glance("zero replicas mean the default")
            .with("/spec/deployment/replicas", json!(0))
            .with(
                "/spec/apiServer/uwsgi",
                json!({ "processes": 0, "threads": 0 }),
            )
            .with_webhooks()
            .stored(vec![
                ("/spec/deployment/replicas", json!(3)),
                ("/spec/apiServer/uwsgi/processes", json!(2)),
                ("/spec/apiServer/uwsgi/threads", json!(1)),
                ("/spec/apiServer/uwsgi/httpKeepAlive", json!(true)),
            ]),
        glance("a TLS block without a mode never means plaintext")
            .with("/spec/database/tls/caBundleSecretRef/name", json!("db-ca"))
            .with_webhooks()
            .stored(vec![("/spec/database/tls/mode", json!("require"))]),
    ]
}
