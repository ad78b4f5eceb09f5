//! Ranges, lengths and unique keys of a Glance.

use serde_json::{Map, Value, json};

use super::{
    Case,
    Layer::{Schema, Webhook},
    full,
};

pub fn cases() -> Vec<Case> {
    [ranges(), lengths(), duplicates()].concat()
}

fn ranges() -> Vec<Case> {
    // (where, lowest, highest): the neighbours outside are refused.
    let bounds: &[(&'static str, i64, Option<i64>)] = &[
        ("/spec/deployment/terminationGracePeriodSeconds", 10, None),
        ("/spec/deployment/preStopSleepSeconds", 0, None),
        ("/spec/database/port", 1, Some(65_535)),
        ("/spec/database/replicas", 1, None),
        ("/spec/cache/replicas", 1, None),
        ("/spec/apiServer/workers", 1, None),
        ("/spec/apiServer/uwsgi/harakiri", 1, None),
        ("/spec/apiServer/uwsgi/httpKeepAliveTimeout", 1, None),
        ("/spec/importFiltering/allowedPorts", 1, Some(65_535)),
        ("/spec/importFiltering/disallowedPorts", 1, Some(65_535)),
        ("/spec/dbPurge/retentionDays", 1, None),
        ("/spec/autoscaling/minReplicas", 1, None),
        ("/spec/autoscaling/maxReplicas", 1, None),
        ("/spec/autoscaling/targetCPUUtilization", 1, Some(100)),
        ("/spec/autoscaling/targetMemoryUtilization", 1, Some(100)),
    ];
    let mut cases = Vec::new();
    for (pointer, lowest, highest) in bounds {
        let put = |number: i64| {
            let value = if pointer.ends_with("Ports") {
                json!([number])
            } else {
                json!(number)
            };
            full(format!("{pointer} is {number}")).with(pointer, value)
        };
        cases.push(put(*lowest).admitted());
        cases.push(put(lowest - 1).refused(
            Schema,
            match lowest {
                10 => &["should be greater than or equal to 10"],
                0 => &["should be greater than or equal to 0"],
                _ => &["should be greater than or equal to 1"],
            },
        ));
        if let Some(highest) = highest {
            cases.push(put(*highest).admitted());
            cases.push(put(highest + 1).refused(
                Schema,
                if *highest == 100 {
                    &["should be less than or equal to 100"]
                } else {
                    &["should be less than or equal to 65535"]
                },
            ));
        }
    }
    // The defaulting webhook takes a zero here for "unset".
    for pointer in [
        "/spec/deployment/replicas",
        "/spec/apiServer/uwsgi/processes",
        "/spec/apiServer/uwsgi/threads",
    ] {
        cases.push(
            full(format!("{pointer} is 1"))
                .with(pointer, json!(1))
                .admitted(),
        );
        cases.push(
            full(format!("{pointer} is 0"))
                .with(pointer, json!(0))
                .without_webhooks()
                .refused(Schema, &["should be greater than or equal to 1"]),
        );
        cases.push(
            full(format!("{pointer} is -1"))
                .with(pointer, json!(-1))
                .refused(Schema, &["should be greater than or equal to 1"]),
        );
    }
    cases
}

fn lengths() -> Vec<Case> {
    let put = |pointer: &str, what: &str, value: Value| {
        full(format!("{pointer}: {what}")).with(pointer, value)
    };
    let roles = "/spec/importPlugins/injectMetadata/ignoreUserRoles";
    let properties = "/spec/importPlugins/injectMetadata/properties";
    let many = |count: usize| -> Vec<String> { (0..count).map(|n| format!("h{n}")).collect() };
    let pairs = |count: usize| -> Value {
        many(count)
            .into_iter()
            .map(|name| (name, json!("v")))
            .collect::<Map<_, _>>()
            .into()
    };
    let ports = |count: usize| -> Value { (1..=count).collect::<Vec<_>>().into() };
    let schemes = |count: usize| -> Value { vec!["https"; count].into() };
    let empty = ["should be at least 1 chars long"];
    let too_many = ["Too many", "must have at most 64 items"];
    let mut cases = vec![
        put(
            "/spec/database/database",
            "64 characters",
            json!("d".repeat(64)),
        )
        .admitted(),
        put(
            "/spec/database/database",
            "65 characters",
            json!("d".repeat(65)),
        )
        .refused(Schema, &["spec.database.database: Too long"]),
        put("/spec/database/database", "empty", json!("")).refused(Schema, &empty),
        put("/spec/image/repository", "empty", json!("")).refused(Schema, &empty),
        put("/spec/keystoneEndpoint", "empty", json!("")).refused(Schema, &empty),
        put("/spec/gateway/hostname", "empty", json!("")).refused(Schema, &empty),
        put("/spec/gateway/parentRef/name", "empty", json!("")).refused(Schema, &empty),
        put("/spec/secretStoreRef/name", "empty", json!("")).refused(Schema, &empty),
        put("/spec/targetClusterRef/name", "empty", json!("")).refused(Schema, &empty),
        put(
            "/spec/database/tls/caBundleSecretRef/name",
            "empty",
            json!(""),
        )
        .refused(Schema, &empty),
        put("/spec/serviceUser/secretRef/name", "empty", json!("")).refused(Schema, &empty),
        put("/spec/database/host", "empty", json!(""))
            .without("/spec/database/clusterRef")
            .refused(Schema, &empty),
        put(
            "/spec/database/tls/clientCertSecretRef/name",
            "empty",
            json!(""),
        )
        .refused(Schema, &empty),
        put("/spec/database/secretRef/name", "empty", json!("")).refused(Schema, &empty),
        put(roles, "64", json!(many(64))).admitted(),
        put(roles, "65", json!(many(65))).refused(Schema, &too_many),
        put(roles, "an empty one", json!([""])).refused(Schema, &empty),
        put(roles, "255 wide characters", json!(["役".repeat(255)])).admitted(),
        put(roles, "256 characters", json!(["r".repeat(256)])).refused(Schema, &["Too long"]),
        put(properties, "64", pairs(64)).admitted(),
        put(properties, "65", pairs(65)).refused(Schema, &too_many),
        put(properties, "none", json!({})).refused(Schema, &["should have at least 1 properties"]),
    ];
    for half in ["allowed", "disallowed"] {
        let hosts = format!("/spec/importFiltering/{half}Hosts");
        cases.extend([
            put(&hosts, "64", json!(many(64))).admitted(),
            put(&hosts, "65", json!(many(65))).refused(Schema, &too_many),
            put(&hosts, "an empty one", json!([""])).refused(Schema, &empty),
            put(&hosts, "254 characters", json!(["h".repeat(254)])).refused(Schema, &["Too long"]),
            put(
                &format!("/spec/importFiltering/{half}Ports"),
                "64",
                ports(64),
            )
            .admitted(),
            put(
                &format!("/spec/importFiltering/{half}Ports"),
                "65",
                ports(65),
            )
            .refused(Schema, &too_many),
            put(
                &format!("/spec/importFiltering/{half}Schemes"),
                "64",
                schemes(64),
            )
            .admitted(),
            put(
                &format!("/spec/importFiltering/{half}Schemes"),
                "65",
                schemes(65),
            )
            .refused(Schema, &too_many),
        ]);
    }
    cases
}

fn duplicates() -> Vec<Case> {
    let plugin = |name: &str, section: &str| json!({ "name": name, "configSection": section });
    let filter = json!({ "name": "audit", "filterFactory": "a:b", "position": "after" });
    vec![
        full("two plugins with sections of their own".to_owned())
            .with(
                "/spec/plugins",
                json!([plugin("a", "quota"), plugin("a", "audit")]),
            )
            .admitted(),
        full("two plugins with one section".to_owned())
            .with(
                "/spec/plugins",
                json!([plugin("a", "quota"), plugin("b", "quota")]),
            )
            .refused(Schema, &["spec.plugins[1]", "Duplicate value"]),
        full("two resource claims with one name".to_owned())
            .with(
                "/spec/deployment/resources/claims",
                json!([{ "name": "gpu" }, { "name": "gpu" }]),
            )
            .refused(
                Schema,
                &["spec.deployment.resources.claims[1]", "Duplicate value"],
            ),
        full("two middlewares with one name".to_owned())
            .with("/spec/middleware", json!([filter, filter]))
            .refused(Webhook, &["spec.middleware[1].name"]),
    ]
}
