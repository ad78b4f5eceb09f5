//! Every CEL rule of a Glance from both sides.

use serde_json::json;

use super::{Case, Layer::Cel, glance};

pub fn cases() -> Vec<Case> {
    [
        placement(),
        timing(),
        sources(),
        filtering(),
        imports(),
        traffic(),
        texts(),
    ]
    .concat()
}

fn placement() -> Vec<Case> {
    let placed =
        |name: &str| glance(name).with("/spec/targetClusterRef", json!({ "name": "edge-1" }));
    let immutable = ["spec", "targetClusterRef is immutable"];
    vec![
        placed("a Glance may name a cluster that nobody registered yet").admitted(),
        placed("a placed Glance can be changed otherwise")
            .then()
            .with("/spec/region", json!("north"))
            .admitted(),
        placed("a placed Glance cannot move to another cluster")
            .then()
            .with("/spec/targetClusterRef/name", json!("edge-2"))
            .refused(Cel, &immutable),
        placed("a placed Glance cannot come home")
            .then()
            .without("/spec/targetClusterRef")
            .refused(Cel, &immutable),
        glance("a Glance at home cannot move to a cluster")
            .then()
            .with("/spec/targetClusterRef", json!({ "name": "edge-1" }))
            .refused(Cel, &immutable),
        glance("a Glance at home can be changed")
            .then()
            .with("/spec/region", json!("north"))
            .admitted(),
    ]
}

fn timing() -> Vec<Case> {
    const MESSAGE: &str =
        "preStopSleepSeconds must be strictly less than terminationGracePeriodSeconds";
    let sleep = "/spec/deployment/preStopSleepSeconds";
    let grace = "/spec/deployment/terminationGracePeriodSeconds";
    vec![
        glance("a sleep below the default grace period")
            .with(sleep, json!(29))
            .admitted(),
        glance("a sleep as long as the default grace period")
            .with(sleep, json!(30))
            .refused(Cel, &["spec.deployment", MESSAGE]),
        glance("the default sleep below a short grace period")
            .with(grace, json!(10))
            .admitted(),
        glance("a sleep below its grace period")
            .with(grace, json!(60))
            .with(sleep, json!(59))
            .admitted(),
        glance("a sleep as long as its grace period")
            .with(grace, json!(60))
            .with(sleep, json!(60))
            .refused(Cel, &["spec.deployment", MESSAGE]),
        glance("a sleep longer than its grace period")
            .with(grace, json!(10))
            .with(sleep, json!(11))
            .refused(Cel, &[MESSAGE]),
        glance("a keep-alive timeout without keep-alive")
            .with("/spec/apiServer/uwsgi/httpKeepAlive", json!(false))
            .with("/spec/apiServer/uwsgi/httpKeepAliveTimeout", json!(30))
            .refused(
                Cel,
                &[
                    "spec.apiServer.uwsgi",
                    "httpKeepAliveTimeout may only be set when httpKeepAlive is true",
                ],
            ),
        glance("a keep-alive timeout with keep-alive")
            .with("/spec/apiServer/uwsgi/httpKeepAlive", json!(true))
            .with("/spec/apiServer/uwsgi/httpKeepAliveTimeout", json!(30))
            .admitted(),
        glance("a keep-alive timeout with the default keep-alive")
            .with("/spec/apiServer/uwsgi/httpKeepAliveTimeout", json!(30))
            .admitted(),
        glance("no keep-alive and no timeout")
            .with("/spec/apiServer/uwsgi/httpKeepAlive", json!(false))
            .stored(vec![("/spec/apiServer/uwsgi/httpKeepAlive", json!(false))]),
    ]
}

fn sources() -> Vec<Case> {
    let digest = format!("sha256:{}", "0f".repeat(32));
    let host = |name: &str| {
        glance(name)
            .without("/spec/database/clusterRef")
            .with("/spec/database/host", json!("db.example.org"))
    };
    let image = [
        "spec.image",
        "exactly one of image.tag or image.digest must be set",
    ];
    let database = [
        "spec.database",
        "exactly one of clusterRef or host must be set",
    ];
    let cache = [
        "spec.cache",
        "exactly one of clusterRef or servers must be set",
    ];
    let newline = [
        "spec.cache",
        "clusterRef.name must not contain a newline or carriage return",
    ];
    let servers = json!(["cache-0:11211", "cache-1:11211"]);
    vec![
        glance("an image by digest")
            .without("/spec/image/tag")
            .with("/spec/image/digest", json!(digest))
            .admitted(),
        glance("an image by tag and digest")
            .with("/spec/image/digest", json!(digest))
            .refused(Cel, &image),
        glance("an image by neither tag nor digest")
            .without("/spec/image/tag")
            .refused(Cel, &image),
        host("a database by host").admitted(),
        glance("a database by cluster and host")
            .with("/spec/database/host", json!("db.example.org"))
            .refused(Cel, &database),
        glance("a database by neither cluster nor host")
            .without("/spec/database/clusterRef")
            .refused(Cel, &database),
        glance("dynamic credentials on a managed database")
            .with("/spec/database/credentialsMode", json!("Dynamic"))
            .admitted(),
        host("static credentials on any database")
            .with("/spec/database/credentialsMode", json!("Static"))
            .admitted(),
        host("dynamic credentials on a foreign database")
            .with("/spec/database/credentialsMode", json!("Dynamic"))
            .refused(
                Cel,
                &[
                    "spec.database",
                    "credentialsMode Dynamic requires clusterRef (managed mode)",
                ],
            ),
        glance("a token cache by servers")
            .without("/spec/cache/clusterRef")
            .with("/spec/cache/servers", servers.clone())
            .admitted(),
        glance("a token cache by cluster and servers")
            .with("/spec/cache/servers", servers)
            .refused(Cel, &cache),
        glance("a token cache by cluster and no servers")
            .with("/spec/cache/servers", json!([]))
            .admitted(),
        glance("a token cache by neither cluster nor servers")
            .without("/spec/cache/clusterRef")
            .refused(Cel, &cache),
        glance("a token cache by an empty list of servers")
            .without("/spec/cache/clusterRef")
            .with("/spec/cache/servers", json!([]))
            .refused(Cel, &cache),
        glance("a token cache whose name smuggles in a line")
            .with(
                "/spec/cache/clusterRef/name",
                json!("mc\nauth_url = http://evil"),
            )
            .refused(Cel, &newline),
        glance("a token cache whose name holds a carriage return")
            .with("/spec/cache/clusterRef/name", json!("mc\rx"))
            .refused(Cel, &newline),
    ]
}

fn filtering() -> Vec<Case> {
    let pairs = [
        (
            "Schemes",
            json!(["https"]),
            "allowedSchemes and disallowedSchemes are mutually exclusive: glance ignores the deny-list when the allow-list is non-empty",
        ),
        (
            "Hosts",
            json!(["mirror.example.org"]),
            "allowedHosts and disallowedHosts are mutually exclusive: glance ignores the deny-list when the allow-list is non-empty",
        ),
        (
            "Ports",
            json!([8443]),
            "allowedPorts and disallowedPorts are mutually exclusive: glance ignores the deny-list when the allow-list is non-empty",
        ),
    ];
    let mut cases = Vec::new();
    for (what, entries, message) in pairs {
        let allowed = format!("/spec/importFiltering/allowed{what}");
        let disallowed = format!("/spec/importFiltering/disallowed{what}");
        let both = |name: &str| glance(format!("import filtering, {what}: {name}"));
        cases.extend([
            both("allowed and disallowed")
                .with(&allowed, entries.clone())
                .with(&disallowed, entries.clone())
                .refused(Cel, &["spec.importFiltering", message]),
            both("allowed only")
                .with(&allowed, entries.clone())
                .admitted(),
            both("disallowed only")
                .with(&disallowed, entries.clone())
                .admitted(),
            both("nothing allowed by name, some disallowed")
                .with(&allowed, json!([]))
                .with(&disallowed, entries.clone())
                .admitted(),
            both("some allowed, nothing disallowed")
                .with(&allowed, entries.clone())
                .with(&disallowed, json!([]))
                .admitted(),
        ]);
    }
    cases
}

fn imports() -> Vec<Case> {
    let properties = "/spec/importPlugins/injectMetadata/properties";
    let too_long = [
        "spec.importPlugins.injectMetadata.properties",
        "each injected property name and value must be at most 255 characters",
    ];
    let long = "x".repeat(256);
    // Three bytes each: the bound counts characters.
    let wide = "像".repeat(255);
    vec![
        glance("an injected property of 255 wide characters")
            .with(properties, json!({ wide.as_str(): wide }))
            .admitted(),
        glance("an injected property with a name of 256 characters")
            .with(properties, json!({ long.as_str(): "v" }))
            .refused(Cel, &too_long),
        glance("an injected property with a value of 256 characters")
            .with(properties, json!({ "k": long }))
            .refused(Cel, &too_long),
        glance("unbounded staging with a limit")
            .with("/spec/staging", json!({ "unbounded": true, "sizeLimit": "40Gi" }))
            .refused(
                Cel,
                &[
                    "spec.staging",
                    "unbounded and sizeLimit are mutually exclusive: an unbounded staging area has no size limit to configure",
                ],
            ),
        glance("bounded staging that says so")
            .with("/spec/staging", json!({ "unbounded": false, "sizeLimit": "40Gi" }))
            .admitted(),
    ]
}

fn traffic() -> Vec<Case> {
    let target = [
        "spec.autoscaling",
        "at least one of targetCPUUtilization or targetMemoryUtilization must be set",
    ];
    let scaling = |name: &str, block| glance(name).with("/spec/autoscaling", block);
    vec![
        glance("a network policy that lets nobody in")
            .with("/spec/networkPolicy", json!({ "ingress": [] }))
            .refused(
                Cel,
                &[
                    "spec.networkPolicy",
                    "at least one ingress source must be specified",
                ],
            ),
        glance("a network policy that lets everybody in")
            .with(
                "/spec/networkPolicy",
                json!({ "ingress": [{ "namespaceSelector": {} }] }),
            )
            .admitted(),
        scaling("autoscaling by nothing", json!({ "maxReplicas": 3 })).refused(Cel, &target),
        scaling(
            "autoscaling by CPU",
            json!({ "maxReplicas": 3, "targetCPUUtilization": 80 }),
        )
        .admitted(),
        scaling(
            "autoscaling by memory",
            json!({ "maxReplicas": 3, "targetMemoryUtilization": 80 }),
        )
        .admitted(),
        scaling(
            "autoscaling between equal bounds",
            json!({ "minReplicas": 3, "maxReplicas": 3, "targetCPUUtilization": 80 }),
        )
        .admitted(),
        scaling(
            "autoscaling between crossed bounds",
            json!({ "minReplicas": 5, "maxReplicas": 2, "targetCPUUtilization": 80 }),
        )
        .refused(
            Cel,
            &[
                "spec.autoscaling",
                "minReplicas must not exceed maxReplicas",
            ],
        ),
    ]
}

fn texts() -> Vec<Case> {
    let levels = "/spec/logging/perLoggerLevels";
    let policy = |name: &str, block| glance(name).with("/spec/policyOverrides", block);
    let none = [
        "spec.policyOverrides",
        "at least one of rules or configMapRef must be set",
    ];
    vec![
        glance("levels of single loggers")
            .with(
                levels,
                json!({ "sqlalchemy": "WARNING", "glance.api": "DEBUG" }),
            )
            .admitted(),
        glance("the level of a logger without a name")
            .with(levels, json!({ "": "INFO" }))
            .refused(
                Cel,
                &[
                    "spec.logging.perLoggerLevels",
                    "logger name must not be empty",
                ],
            ),
        glance("a level that no logger has")
            .with(levels, json!({ "sqlalchemy": "LOUD" }))
            .refused(
                Cel,
                &[
                    "spec.logging.perLoggerLevels",
                    "per-logger level must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL",
                ],
            ),
        policy("policy overrides that override nothing", json!({})).refused(Cel, &none),
        policy(
            "policy overrides with an empty set of rules",
            json!({ "rules": {} }),
        )
        .refused(Cel, &none),
        policy(
            "policy rules",
            json!({ "rules": { "get_images": "role:reader" } }),
        )
        .admitted(),
        policy(
            "a policy from a ConfigMap",
            json!({ "configMapRef": { "name": "policy" } }),
        )
        .admitted(),
        policy(
            "a policy from both",
            json!({ "rules": { "get_images": "@" }, "configMapRef": { "name": "policy" } }),
        )
        .admitted(),
        policy(
            "a policy rule without a name",
            json!({ "rules": { "": "@" } }),
        )
        .refused(
            Cel,
            &["spec.policyOverrides", "policy rule name must not be empty"],
        ),
        policy(
            "a policy rule without a text",
            json!({ "rules": { "get_images": "" } }),
        )
        .refused(
            Cel,
            &[
                "spec.policyOverrides",
                "policy rule value must not be empty",
            ],
        ),
    ]
}
