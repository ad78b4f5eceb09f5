//! Shapes that have to be admitted, by name (contract: shapes that must be admitted).

use serde_json::json;

use super::{Case, Layer::Webhook, glance};

pub fn cases() -> Vec<Case> {
    [
        imports(),
        space(),
        purge(),
        names(),
        free_configuration(),
        references(),
    ]
    .concat()
}

fn imports() -> Vec<Case> {
    let filter = |name: &str, block| {
        glance(format!("import filtering: {name}")).with("/spec/importFiltering", block)
    };
    let plugins = |name: &str, block| {
        glance(format!("import plugins: {name}")).with("/spec/importPlugins", block)
    };
    vec![
        filter("empty", json!({})).admitted(),
        filter("schemes denied only", json!({ "disallowedSchemes": ["http"] })).admitted(),
        filter("hosts allowed only", json!({ "allowedHosts": ["mirror.example.org"] })).admitted(),
        filter(
            "no scheme allowed by name, hosts denied",
            json!({ "allowedSchemes": [], "disallowedHosts": ["evil.example.org"] }),
        )
        .admitted(),
        filter(
            "wider than the default",
            json!({ "allowedSchemes": ["http", "https"], "allowedPorts": [80, 443] }),
        )
        .admitted(),
        plugins("empty", json!({})).admitted(),
        plugins("conversion by default", json!({ "conversion": {} })).admitted(),
        plugins(
            "a property with a URL",
            json!({ "injectMetadata": { "properties": { "origin": "https://mirror.example.org" } } }),
        )
        .admitted(),
        plugins(
            "nobody exempt",
            json!({ "injectMetadata": { "properties": { "k": "v" }, "ignoreUserRoles": [] } }),
        )
        .admitted(),
        plugins("decompression with a limit", json!({ "decompression": {} }))
            .with("/spec/staging/sizeLimit", json!("40Gi"))
            .admitted(),
        plugins("decompression without one, said aloud", json!({ "decompression": {} }))
            .with("/spec/staging/unbounded", json!(true))
            .admitted(),
        plugins(
            "all three",
            json!({
                "decompression": {},
                "conversion": { "outputFormat": "qcow2" },
                "injectMetadata": { "properties": { "k": "v" } },
            }),
        )
        .with("/spec/staging/sizeLimit", json!("40Gi"))
        .admitted(),
    ]
}

fn space() -> Vec<Case> {
    let filter = json!([{ "name": "cache", "filterFactory": "a:b", "position": "after" }]);
    vec![
        glance("staging: the smallest limit")
            .with("/spec/staging/sizeLimit", json!("1Mi"))
            .admitted(),
        glance("staging: a tenth of a byte")
            .with("/spec/staging/sizeLimit", json!("100m"))
            .refused(Webhook, &["spec.staging.sizeLimit", "must be at least 1Mi"]),
        glance("staging: unbounded")
            .with("/spec/staging/unbounded", json!(true))
            .admitted(),
        glance("image cache: by default")
            .with("/spec/imageCache", json!({}))
            .admitted(),
        glance("image cache: the smallest")
            .with(
                "/spec/imageCache",
                json!({ "sizeLimit": "1Mi", "maintenanceInterval": "1m" }),
            )
            .admitted(),
        glance("image cache: an interval that is no duration")
            .with("/spec/imageCache/maintenanceInterval", json!("fast"))
            .refused(Webhook, &["spec.imageCache.maintenanceInterval"]),
        glance("a filter named cache without an image cache")
            .with("/spec/middleware", filter)
            .admitted(),
    ]
}

fn purge() -> Vec<Case> {
    let purge = |name: &str, block| glance(format!("purge: {name}")).with("/spec/dbPurge", block);
    vec![
        purge("empty", json!({})).admitted(),
        purge("days only", json!({ "retentionDays": 1 })).admitted(),
        purge("a descriptor", json!({ "schedule": "@daily" })).admitted(),
        purge("images too", json!({ "purgeImagesTable": true })).admitted(),
        purge("suspended", json!({ "suspend": true })).admitted(),
    ]
}

fn names() -> Vec<Case> {
    let long = "g".repeat(44);
    vec![
        glance("a name of 43 characters")
            .named(&"g".repeat(43))
            .admitted(),
        glance("a name of 44 characters")
            .named(&long)
            .refused(Webhook, &["name must be at most 43 characters"]),
        glance("timings: harakiri below the default bound")
            .with("/spec/apiServer/uwsgi/harakiri", json!(24))
            .admitted(),
        glance("timings: harakiri at the default bound")
            .with("/spec/apiServer/uwsgi/harakiri", json!(25))
            .refused(
                Webhook,
                &[
                    "spec.apiServer.uwsgi.harakiri",
                    "must be strictly less than",
                ],
            ),
        glance("timings: harakiri below a longer bound")
            .with("/spec/apiServer/uwsgi/harakiri", json!(40))
            .with("/spec/deployment/terminationGracePeriodSeconds", json!(60))
            .with("/spec/deployment/preStopSleepSeconds", json!(10))
            .admitted(),
        glance("a spread over zones with the labels of the pods")
            .with(
                "/spec/deployment/topologySpreadConstraints",
                json!([{
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": { "matchLabels": {
                        "app.kubernetes.io/name": "glance",
                        "app.kubernetes.io/instance": "images",
                    } },
                }]),
            )
            .admitted(),
    ]
}

fn free_configuration() -> Vec<Case> {
    let free = |name: &str, sections| {
        glance(format!("free configuration: {name}")).with("/spec/extraConfig", sections)
    };
    vec![
        free(
            "an option registered at run time",
            json!({ "os_glance_staging_store": { "filesystem_store_chunk_size": "65536" } }),
        )
        .admitted(),
        free(
            "a login option",
            json!({ "keystone_authtoken": { "username": "other" } }),
        )
        .admitted(),
        free(
            "a plugin's section",
            json!({ "quota": { "anything": "goes" } }),
        )
        .with(
            "/spec/plugins",
            json!([{ "name": "quota", "configSection": "quota" }]),
        )
        .admitted(),
        free(
            "a deprecated name",
            json!({ "DEFAULT": { "logfile": "/dev/null" } }),
        )
        .admitted(),
        free(
            "a plain option",
            json!({ "DEFAULT": { "allow_anonymous_access": "false" } }),
        )
        .admitted(),
    ]
}

fn references() -> Vec<Case> {
    vec![
        glance("a database cluster without a name")
            .with("/spec/database/clusterRef", json!({}))
            .refused(Webhook, &["spec.database.clusterRef.name"]),
        glance("a token cache without a name")
            .with("/spec/cache/clusterRef", json!({}))
            .refused(Webhook, &["spec.cache.clusterRef.name"]),
        glance("a policy ConfigMap without a name")
            .with("/spec/policyOverrides/configMapRef", json!({}))
            .refused(Webhook, &["spec.policyOverrides.configMapRef.name"]),
        glance("TLS to the database without a client certificate")
            .with("/spec/database/tls/caBundleSecretRef/name", json!("db-ca"))
            .with("/spec/database/tls/mode", json!("verify-full"))
            .admitted(),
        glance("TLS to the database with a client certificate")
            .with("/spec/database/tls/caBundleSecretRef/name", json!("db-ca"))
            .with(
                "/spec/database/tls/clientCertSecretRef/name",
                json!("db-client"),
            )
            .with("/spec/database/tls/mode", json!("require"))
            .admitted(),
        glance("no spec at all")
            .without("/spec")
            .without_webhooks()
            .admitted(),
    ]
}
