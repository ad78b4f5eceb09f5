//! What only the validating webhook refuses of a Glance, and what it has to let
//! by: the rules of the contract's "Glance validation", read one by one.
//!
//! The fragments are the load-bearing parts of the messages. Every case is
//! admitted where there is no webhook, and an object that was stored that way
//! can still be changed elsewhere where there is one.

use serde_json::{Value, json};

use super::{Case, Layer::Webhook, glance};

pub fn cases() -> Vec<Case> {
    [
        pods(),
        urls(),
        texts(),
        traffic(),
        hosts(),
        properties(),
        space(),
        schedules(),
        filters(),
        plugins(),
        free(),
        updates(),
    ]
    .concat()
}

fn at(name: &str, pointer: &str, value: Value) -> super::Draft {
    glance(format!("policy: {name}")).with(pointer, value)
}

fn pods() -> Vec<Case> {
    let spread = |name: &str, selector: Value| {
        at(
            name,
            "/spec/deployment/topologySpreadConstraints",
            json!([{
                "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": selector,
            }]),
        )
    };
    let labels = json!({
        "app.kubernetes.io/name": "glance", "app.kubernetes.io/instance": "images",
    });
    let size = |request: &str, limit: &str| json!({ "requests": { "cpu": request }, "limits": { "cpu": limit } });
    vec![
        at(
            "a request above its limit",
            "/spec/deployment/resources",
            size("1", "999m"),
        )
        .refused(
            Webhook,
            &[
                "spec.deployment.resources.requests.cpu",
                "cpu request must not exceed limit (999m)",
            ],
        ),
        at(
            "a request equal to its limit",
            "/spec/deployment/resources",
            size("0.5", "500m"),
        )
        .admitted(),
        at(
            "Recreate with bounds of a rolling update",
            "/spec/deployment/strategy",
            json!({ "type": "Recreate", "rollingUpdate": { "maxSurge": 1 } }),
        )
        .refused(
            Webhook,
            &[
                "spec.deployment.strategy.rollingUpdate",
                "rollingUpdate must not be set when strategy.type is Recreate",
            ],
        ),
        at(
            "Recreate",
            "/spec/deployment/strategy",
            json!({ "type": "Recreate" }),
        )
        .admitted(),
        at(
            "a spread without a selector",
            "/spec/deployment/topologySpreadConstraints",
            json!([{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway" }]),
        )
        .refused(
            Webhook,
            &[
                "spec.deployment.topologySpreadConstraints[0].labelSelector: Required value",
                "labelSelector is required on each TopologySpreadConstraint",
            ],
        ),
        spread(
            "a spread over other pods",
            json!({ "matchLabels": { "app": "glance" } }),
        )
        .refused(
            Webhook,
            &["labelSelector.matchLabels must equal the Deployment selector labels"],
        ),
        spread(
            "a spread with an expression",
            json!({
                "matchLabels": labels,
                "matchExpressions": [{ "key": "tier", "operator": "Exists" }],
            }),
        )
        .refused(
            Webhook,
            &[
                "spec.deployment.topologySpreadConstraints[0].labelSelector.matchExpressions",
                "matchExpressions are not allowed; labelSelector must use matchLabels only",
            ],
        ),
        at(
            "no spread at all",
            "/spec/deployment/topologySpreadConstraints",
            json!([]),
        )
        .admitted(),
        at("a dot in the name", "/metadata/name", json!("images.prod"))
            .refused(Webhook, &["metadata.name", "must not contain a dot"]),
    ]
}

fn urls() -> Vec<Case> {
    let keystone = |name: &str, url: &str| at(name, "/spec/keystoneEndpoint", json!(url));
    vec![
        keystone("Keystone without a host", "http:///v3").refused(
            Webhook,
            &["spec.keystoneEndpoint", "URL must include a host"],
        ),
        keystone("Keystone with a port and no host", "http://:5000/v3").refused(
            Webhook,
            &["spec.keystoneEndpoint", "URL must include a host"],
        ),
        keystone(
            "Keystone with a port that is none",
            "http://keystone:five/v3",
        )
        .refused(Webhook, &["spec.keystoneEndpoint", "must be a valid URL: "]),
        keystone(
            "Keystone with a line break",
            "http://keystone:5000/v3\n[DEFAULT]",
        )
        .refused(Webhook, &["spec.keystoneEndpoint", "must be a valid URL: "]),
        keystone("Keystone with an address", "https://[::1]:5000/v3").admitted(),
        at(
            "a public Keystone without a host",
            "/spec/keystonePublicEndpoint",
            json!("https://?x"),
        )
        .refused(
            Webhook,
            &["spec.keystonePublicEndpoint", "URL must include a host"],
        ),
    ]
}

fn texts() -> Vec<Case> {
    let mut cases = Vec::new();
    for field in [
        "region",
        "serviceUser/username",
        "serviceUser/projectName",
        "serviceUser/userDomainName",
        "serviceUser/projectDomainName",
    ] {
        let path: &'static str = match field {
            "region" => "spec.region",
            "serviceUser/username" => "spec.serviceUser.username",
            "serviceUser/projectName" => "spec.serviceUser.projectName",
            "serviceUser/userDomainName" => "spec.serviceUser.userDomainName",
            _ => "spec.serviceUser.projectDomainName",
        };
        cases.push(
            at(
                &format!("a line break in {field}"),
                &format!("/spec/{field}"),
                json!("x\nauth_url = http://evil"),
            )
            .refused(Webhook, &[path, "must not contain control characters"]),
        );
    }
    cases.push(
        at(
            "a line break in a logger's name",
            "/spec/logging/perLoggerLevels",
            json!({ "glance\n[x]": "DEBUG" }),
        )
        .refused(
            Webhook,
            &[
                "spec.logging.perLoggerLevels[",
                "must not contain control characters",
            ],
        ),
    );
    cases.push(
        at(
            "a region of several words",
            "/spec/region",
            json!("Region Öst"),
        )
        .admitted(),
    );
    cases
}

fn traffic() -> Vec<Case> {
    vec![
        at(
            "fewer pods at most than there are without scaling",
            "/spec/autoscaling",
            json!({ "maxReplicas": 2, "targetCPUUtilization": 80 }),
        )
        .with("/spec/deployment/replicas", json!(3))
        .refused(
            Webhook,
            &[
                "spec.autoscaling.maxReplicas",
                "maxReplicas must be >= spec.deployment.replicas (3) when minReplicas is not set",
            ],
        ),
        at(
            "as many pods at most as there are without scaling",
            "/spec/autoscaling",
            json!({ "maxReplicas": 3, "targetCPUUtilization": 80 }),
        )
        .with("/spec/deployment/replicas", json!(3))
        .admitted(),
        at(
            "a lower bound of its own below the replicas",
            "/spec/autoscaling",
            json!({ "minReplicas": 1, "maxReplicas": 2, "targetMemoryUtilization": 80 }),
        )
        .with("/spec/deployment/replicas", json!(3))
        .admitted(),
    ]
}

fn hosts() -> Vec<Case> {
    let denied = |name: &str, host: &str| {
        at(
            &format!("an import host: {name}"),
            "/spec/importFiltering/disallowedHosts",
            json!(["ok.example.org", host]),
        )
    };
    let fragments = [
        "spec.importFiltering.disallowedHosts[1]",
        "host must be an IP address or a host name",
    ];
    vec![
        denied("a wildcard", "*.example.org").refused(Webhook, &fragments),
        denied("a network", "10.0.0.0/8").refused(Webhook, &fragments),
        denied("a port", "example.org:443").refused(Webhook, &fragments),
        denied("an underscore", "foo_bar").refused(Webhook, &fragments),
        denied("a blank", "example.org ").refused(Webhook, &fragments),
        denied("two in one", "a.example.org,b.example.org").refused(Webhook, &fragments),
        denied("a bracket", "a.example.org]").refused(Webhook, &fragments),
        denied("a carriage return", "a.example.org\r[x]").refused(
            Webhook,
            &["host must not contain newline or carriage-return characters"],
        ),
        denied("an address", "2001:db8::1").admitted(),
        denied("a final dot", "example.org.").admitted(),
        denied("capitals", "Example.ORG").admitted(),
    ]
}

fn properties() -> Vec<Case> {
    let inject = |name: &str, properties: Value| {
        at(
            &format!("an injected property: {name}"),
            "/spec/importPlugins/injectMetadata/properties",
            properties,
        )
    };
    let roles = |name: &str, roles: Value| {
        inject(name, json!({ "k": "v" }))
            .with("/spec/importPlugins/injectMetadata/ignoreUserRoles", roles)
    };
    vec![
        inject("an empty name", json!({ "": "v" }))
            .refused(Webhook, &["property name must not be empty"]),
        inject("a line break in the name", json!({ "k\n[x]": "v" })).refused(
            Webhook,
            &["property name must not contain newline or carriage-return characters"],
        ),
        inject("a comma in the name", json!({ "a,b": "v" }))
            .refused(Webhook, &["property name must not contain a comma"]),
        inject("a padded name", json!({ " k": "v" })).refused(
            Webhook,
            &["property name must not start or end with whitespace"],
        ),
        inject("a line break in the value", json!({ "k": "v\r[x]" })).refused(
            Webhook,
            &[
                "spec.importPlugins.injectMetadata.properties[k]",
                "property value must not contain newline or carriage-return characters",
            ],
        ),
        inject("a comma in the value", json!({ "k": "a,b" }))
            .refused(Webhook, &["property value must not contain a comma"]),
        inject("a padded value", json!({ "k": "v " })).refused(
            Webhook,
            &["property value must not start or end with whitespace"],
        ),
        inject(
            "a URL as the value",
            json!({ "k": "https://example.org:8443/x" }),
        )
        .admitted(),
        roles("a role with a comma", json!(["admin", "a,b"])).refused(
            Webhook,
            &[
                "spec.importPlugins.injectMetadata.ignoreUserRoles[1]",
                "role must not contain a comma",
            ],
        ),
        roles("a role with a line break", json!(["a\nb"])).refused(
            Webhook,
            &["role must not contain newline or carriage-return characters"],
        ),
        roles("nobody exempt", json!([])).admitted(),
    ]
}

fn space() -> Vec<Case> {
    vec![
        at(
            "decompression with a block that chooses nothing",
            "/spec/importPlugins/decompression",
            json!({}),
        )
        .with("/spec/staging", json!({ "unbounded": false }))
        .refused(
            Webhook,
            &[
                "spec.staging.sizeLimit: Required value",
                "10Gi",
                "staging.unbounded",
            ],
        ),
        at(
            "decompression without a bound",
            "/spec/importPlugins/decompression",
            json!({}),
        )
        .with("/spec/staging/unbounded", json!(true))
        .admitted(),
        at(
            "a cache just too small",
            "/spec/imageCache/sizeLimit",
            json!("1023Ki"),
        )
        .refused(
            Webhook,
            &[
                "spec.imageCache.sizeLimit",
                "\"1023Ki\"",
                "must be at least 1Mi",
            ],
        ),
        at(
            "an interval below zero",
            "/spec/imageCache/maintenanceInterval",
            json!("-5m"),
        )
        .refused(Webhook, &["must be at least 1m0s"]),
    ]
}

fn schedules() -> Vec<Case> {
    let schedule = |text: &str| {
        at(
            &format!("the schedule {text:?}"),
            "/spec/dbPurge/schedule",
            json!(text),
        )
    };
    let fragments = ["spec.dbPurge.schedule", "invalid cron expression: "];
    vec![
        schedule("TZ=UTC").refused(Webhook, &fragments),
        schedule("CRON_TZ=Europe/Berlin 1 0 * * *").refused(Webhook, &fragments),
        schedule("0 0 * * 7").refused(Webhook, &fragments),
        schedule("0 0 * *").refused(Webhook, &fragments),
        schedule("@reboot").refused(Webhook, &fragments),
        schedule("@every often").refused(Webhook, &fragments),
        schedule("*/15 0-6 1,15 JAN-mar Sun").admitted(),
        schedule("@every 12h").admitted(),
    ]
}

fn filters() -> Vec<Case> {
    let filter = |name: &str, filter: Value| {
        at(
            &format!("a filter: {name}"),
            "/spec/middleware",
            json!([filter]),
        )
    };
    let plain = |name: &str| json!({ "name": name, "filterFactory": "a:b", "position": "after" });
    let with = |key: &str, value: &str| json!({ "name": "audit", "filterFactory": "a:b", "position": "before", "config": { key: value } });
    vec![
        filter("without a name", plain(""))
            .refused(Webhook, &["spec.middleware[0].name: Required value"]),
        filter(
            "without a factory",
            json!({ "name": "audit", "filterFactory": "", "position": "after" }),
        )
        .refused(
            Webhook,
            &["spec.middleware[0].filterFactory: Required value"],
        ),
        filter(
            "with a section for a name",
            plain("audit]\n[filter:authtoken"),
        )
        .refused(Webhook, &["spec.middleware[0].name"]),
        filter("with a blank in its name", plain("audit log")).refused(
            Webhook,
            &["spec.middleware[0].name", "must not contain blanks"],
        ),
        filter("with the name of an application", plain("healthcheck"))
            .refused(Webhook, &["spec.middleware[0].name"]),
        filter("with the name of a built-in one", plain("cors")).admitted(),
        filter(
            "with a line break in a value",
            with("level", "x\n[filter:authtoken]"),
        )
        .refused(
            Webhook,
            &[
                "spec.middleware[0].config[level]",
                "a newline or carriage return",
            ],
        ),
        filter("with a line break in a key", with("level\nx", "1"))
            .refused(Webhook, &["spec.middleware[0].config["]),
        filter("with options", with("audit_map_file", "/etc/audit.conf")).admitted(),
    ]
}

fn plugins() -> Vec<Case> {
    let plugin = |name: &str, section: &str, key: &str, value: &str| {
        at(
            &format!("a plugin: {name}"),
            "/spec/plugins",
            json!([{ "name": "p", "configSection": section, "config": { key: value } }]),
        )
    };
    vec![
        plugin(
            "with the service user's password",
            "keystone_authtoken",
            "password",
            "s3cr3t",
        )
        .refused(
            Webhook,
            &[
                "spec.plugins[0].config[password]: Forbidden",
                "password is managed via spec.serviceUser.secretRef and must not be set in plugins",
            ],
        ),
        plugin(
            "with a key of the cache",
            "DEFAULT",
            "image_cache_dir",
            "/tmp",
        )
        .refused(Webhook, &["image_cache_dir is managed via spec.imageCache"]),
        plugin("with a line break in its section", "a\n[b", "k", "v")
            .refused(Webhook, &["spec.plugins[0].configSection"]),
        plugin("with a line break in a value", "quota", "k", "v\n[b]")
            .refused(Webhook, &["spec.plugins[0].config[k]"]),
        at(
            "a plugin: without a name",
            "/spec/plugins",
            json!([{ "name": "", "configSection": "quota" }]),
        )
        .refused(Webhook, &["spec.plugins[0].name: Required value"]),
        at(
            "a plugin: without a section",
            "/spec/plugins",
            json!([{ "name": "p", "configSection": "" }]),
        )
        .refused(Webhook, &["spec.plugins[0].configSection: Required value"]),
        plugin(
            "that opens a section of Glance for what it does not list",
            "DEFAULT",
            "mine",
            "1",
        )
        .with("/spec/extraConfig", json!({ "DEFAULT": { "other": "1" } }))
        .refused(
            Webhook,
            &["spec.extraConfig[DEFAULT][other]", "no such option"],
        ),
        plugin("whose option is set again", "DEFAULT", "mine", "1")
            .with("/spec/extraConfig", json!({ "DEFAULT": { "mine": "2" } }))
            .admitted(),
    ]
}

fn free() -> Vec<Case> {
    let option = |name: &str, section: &str, key: &str, value: &str| {
        at(
            &format!("free configuration: {name}"),
            "/spec/extraConfig",
            json!({ section: { key: value } }),
        )
    };
    vec![
        option("a section with a line break", "x\n[y", "k", "v").refused(
            Webhook,
            &["extraConfig section name must not contain a newline or carriage return"],
        ),
        option("a section with a bracket", "x]y", "k", "v")
            .refused(Webhook, &["extraConfig section name must not contain a closing bracket"]),
        option("a key with a line break", "DEFAULT", "debug\nx", "1").refused(
            Webhook,
            &["extraConfig key and value must not contain a newline or carriage return"],
        ),
        option("a password in another spelling", "Keystone_AuthToken", "password", "x")
            .refused(Webhook, &["password is managed via spec.serviceUser.secretRef"]),
        option("a password for a release without a catalog", "keystone_authtoken", "password", "x")
            .with("/spec/openStackRelease", json!("2031.1"))
            .with("/spec/image/tag", json!("2031.1"))
            .refused(Webhook, &["password is managed via spec.serviceUser.secretRef"]),
        option("anything else for a release without a catalog", "whatever", "k", "v")
            .with("/spec/openStackRelease", json!("2031.1"))
            .with("/spec/image/tag", json!("2031.1"))
            .admitted(),
        option("a slip in an option", "DEFAULT", "debgu", "true").refused(
            Webhook,
            &[
                "spec.extraConfig[DEFAULT][debgu]",
                "no such option in the glance 2025.2 option catalog; did you mean debug?",
            ],
        ),
        option("a slip in a section", "keystone_authtokn", "trust_id", "x").refused(
            Webhook,
            &[
                "no such section in the glance 2025.2 option catalog; did you mean [keystone_authtoken]?",
                "spec.plugins",
            ],
        ),
        option("an option in the wrong section", "DEFAULT", "stores", "file").refused(
            Webhook,
            &["no such option in the glance 2025.2 option catalog; it belongs to [glance_store]"],
        ),
        option("dashes for underscores", "DEFAULT", "log-file", "/dev/null").refused(
            Webhook,
            &["did you mean log_file?"],
        ),
        option("capitals", "DEFAULT", "Debug", "true")
            .refused(Webhook, &["did you mean debug?"]),
        option("a section of a typed field", "image_import_opts", "unheard_of", "1").refused(
            Webhook,
            &["no such section in the glance 2025.2 option catalog"],
        ),
        option("an option that a later release dropped", "healthcheck", "path", "/x")
            .with("/spec/openStackRelease", json!("2026.1"))
            .with("/spec/image/tag", json!("2026.1"))
            .refused(
                Webhook,
                &["no such option in the glance 2026.1 option catalog"],
            ),
        option("the same option while it was there", "healthcheck", "path", "/x").admitted(),
        option("a login option of the auth plugin", "keystone_authtoken", "trust_id", "x")
            .admitted(),
        option("a real option that few know", "glance_download_properties", "extra_properties", "a")
            .admitted(),
        option("an option of a store's template", "glance.store.s3.store", "s3_store_bucket", "b")
            .admitted(),
        option("a value that is not of the type", "DEFAULT", "delayed_delete", "maybe").admitted(),
        option("an option that will go", "DEFAULT", "show_multiple_locations", "true").admitted(),
    ]
}

fn updates() -> Vec<Case> {
    let stale = json!({ "DEFAULT": { "gone_option": "1" } });
    let placed = |name: &str| at(name, "/spec/targetClusterRef/name", json!("edge-1"));
    vec![
        placed("a placed Glance changes elsewhere")
            .then()
            .with("/spec/deployment/replicas", json!(2))
            .admitted(),
        at("a healthy Glance gets a fault", "/spec/region", json!("a"))
            .then()
            .with("/spec/extraConfig", stale)
            .refused(
                Webhook,
                &["spec.extraConfig[DEFAULT][gone_option]", "no such option"],
            ),
        at(
            "a release takes an option away",
            "/spec/extraConfig",
            json!({ "healthcheck": { "path": "/x" } }),
        )
        .then()
        .with("/spec/openStackRelease", json!("2026.1"))
        .with("/spec/image/tag", json!("2026.1"))
        .refused(
            Webhook,
            &["no such option in the glance 2026.1 option catalog"],
        ),
        at("a password comes later", "/spec/region", json!("a"))
            .then()
            .with(
                "/spec/extraConfig",
                json!({ "keystone_authtoken": { "password": "x" } }),
            )
            .refused(
                Webhook,
                &["password is managed via spec.serviceUser.secretRef"],
            ),
    ]
}
