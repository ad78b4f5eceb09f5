//! The rejection corpus of the contract, by its numbers.
//!
//! The scaffold leaves `spec.cache.backend` out where webhooks fill it in; here
//! it is set, so that the same fixture says the same without them.

use serde_json::{Value, json};

use super::{
    Case,
    Layer::{Cel, Schema, Webhook},
    backend, backend_object, glance,
};

pub fn cases() -> Vec<Case> {
    [up_to_07(), up_to_19(), up_to_30(), backends()].concat()
}

fn fixture(number: &str, pointer: &str, value: Value) -> super::Draft {
    glance(format!("corpus {number}")).with(pointer, value)
}

fn up_to_07() -> Vec<Case> {
    vec![
        fixture(
            "00",
            "/spec/image/digest",
            json!(format!("sha256:{}", "ab".repeat(32))),
        )
        .refused(Cel, &["image", "exactly one of image.tag or image.digest"]),
        fixture("01", "/spec/openStackRelease", json!("queens"))
            .refused(Schema, &["openStackRelease"]),
        fixture("02", "/spec/database/host", json!("db.example.org"))
            .refused(Cel, &["database", "exactly one of clusterRef or host"]),
        fixture("03", "/spec/cache/servers", json!(["mc:11211"]))
            .refused(Cel, &["cache", "exactly one of clusterRef or servers"]),
        fixture(
            "04",
            "/spec/keystoneEndpoint",
            json!("ftp://keystone:5000/v3"),
        )
        .refused(Schema, &["keystoneEndpoint"]),
        fixture(
            "05",
            "/spec/autoscaling",
            json!({ "minReplicas": 5, "maxReplicas": 2, "targetCPUUtilization": 80 }),
        )
        .refused(Cel, &["minReplicas must not exceed maxReplicas"]),
        fixture(
            "06",
            "/spec/gateway",
            json!({ "parentRef": { "name": "gw" }, "hostname": "" }),
        )
        .refused(Schema, &["hostname"]),
        fixture(
            "07",
            "/spec/apiServer/uwsgi",
            json!({ "httpKeepAlive": false, "httpKeepAliveTimeout": 30 }),
        )
        .refused(
            Cel,
            &["httpKeepAliveTimeout may only be set when httpKeepAlive is true"],
        ),
    ]
}

fn up_to_19() -> Vec<Case> {
    let free = |number: &str, section: &str, key: &str, value: &str| {
        fixture(
            number,
            "/spec/extraConfig",
            json!({ section: { key: value } }),
        )
    };
    vec![
        free("08", "", "foo", "bar")
            .refused(Webhook, &["extraConfig section name must not be empty"]),
        free("09", "image_import_opts", "", "bar")
            .refused(Webhook, &["extraConfig key must not be empty"]),
        free("10", "keystone_authtoken", "password", "secret").refused(
            Webhook,
            &["password is managed via spec.serviceUser.secretRef"],
        ),
        free("11", "glance_store", "default_backend_typo", "x").refused(
            Webhook,
            &["no such option in the glance 2025.2 option catalog"],
        ),
        free("12", "glance_stor", "default_backend", "x").refused(
            Webhook,
            &["no such section in the glance 2025.2 option catalog"],
        ),
        fixture(
            "13",
            "/spec/importFiltering",
            json!({ "allowedHosts": ["a.example.org"], "disallowedHosts": ["b.example.org"] }),
        )
        .refused(
            Cel,
            &["allowedHosts and disallowedHosts are mutually exclusive"],
        ),
        fixture(
            "14",
            "/spec/importFiltering/disallowedHosts",
            json!(["evil.example.org\n[keystone_authtoken]"]),
        )
        .refused(
            Webhook,
            &["must not contain newline or carriage-return characters"],
        ),
        free("15", "import_filtering_opts", "disallowed_hosts", "").refused(
            Webhook,
            &["disallowed_hosts is managed via spec.importFiltering"],
        ),
        free("16", "DEFAULT", "debug", "true\nauth_url = http://evil")
            .named(&"n".repeat(45))
            .refused(
                Webhook,
                &["extraConfig key and value must not contain a newline or carriage return"],
            ),
        fixture("17", "/spec/dbPurge/retentionDays", json!(0)).refused(
            Schema,
            &[
                "dbPurge.retentionDays",
                "should be greater than or equal to 1",
            ],
        ),
        fixture("18", "/spec/dbPurge/schedule", json!("totally-not-cron"))
            .refused(Webhook, &["invalid cron expression"]),
        glance("corpus 19")
            .named(&"n".repeat(44))
            .refused(Webhook, &["name must be at most 43 characters"]),
    ]
}

fn up_to_30() -> Vec<Case> {
    vec![
        fixture("20", "/spec/staging/sizeLimit", json!(0))
            .refused(Webhook, &["staging.sizeLimit", "must be at least 1Mi"]),
        fixture(
            "21",
            "/spec/staging",
            json!({ "unbounded": true, "sizeLimit": "40Gi" }),
        )
        .refused(Cel, &["mutually exclusive"]),
        fixture("22", "/spec/imageCache/sizeLimit", json!(0))
            .refused(Webhook, &["imageCache.sizeLimit", "must be at least 1Mi"]),
        fixture("23", "/spec/imageCache/maintenanceInterval", json!("59s")).refused(
            Webhook,
            &["imageCache.maintenanceInterval", "must be at least 1m"],
        ),
        fixture("24", "/spec/imageCache", json!({}))
            .with(
                "/spec/middleware",
                json!([{ "name": "cache", "filterFactory": "a:b", "position": "after" }]),
            )
            .refused(
                Webhook,
                &[
                    "spec.middleware[0].name",
                    "owns that filter name while spec.imageCache is set",
                ],
            ),
        fixture(
            "25",
            "/spec/importPlugins/conversion/outputFormat",
            json!("qcow3"),
        )
        .refused(Schema, &["outputFormat", "qcow2"]),
        fixture(
            "26",
            "/spec/importPlugins/injectMetadata/properties",
            json!({ "hw:disk_bus": "virtio" }),
        )
        .refused(
            Webhook,
            &[
                "property name must not contain a colon",
                "splits each pair on the first colon",
            ],
        ),
        fixture(
            "27",
            "/spec/importPlugins/injectMetadata/properties",
            json!({}),
        )
        .refused(Schema, &["importPlugins.injectMetadata.properties"]),
        fixture(
            "28",
            "/spec/extraConfig",
            json!({ "image_import_opts": { "image_import_plugins": "[image_conversion]" } }),
        )
        .refused(
            Webhook,
            &[
                "image_import_plugins is managed via spec.importPlugins",
                "bypasses the fixed decompression-before-conversion order",
            ],
        ),
        fixture("29", "/spec/importPlugins/decompression", json!({}))
            .named(&"n".repeat(50))
            .refused(
                Webhook,
                &[
                    "spec.staging.sizeLimit",
                    "importPlugins.decompression is enabled",
                ],
            ),
        fixture("30", "/spec/targetClusterRef/name", json!("")).refused(
            Schema,
            &["targetClusterRef.name", "should be at least 1 chars long"],
        ),
    ]
}

fn backends() -> Vec<Case> {
    let store = |number: &str| backend(format!("store corpus {number}"));
    let mut first_default = backend_object("garage-b");
    first_default["spec"]["isDefault"] = json!(true);
    vec![
        store("00")
            .without("/spec/s3")
            .refused(Cel, &["exactly one backend block matching spec.type"]),
        store("01").named("default").refused(
            Webhook,
            &["reserved or operator-managed Glance store section"],
        ),
        store("02")
            .named("os-glance-staging-store")
            .refused(Webhook, &["store-section prefix"]),
        store("03")
            .with("/spec/extraOptions", json!({ "s3_store_access_key": "AK" }))
            .refused(Webhook, &["option \"s3_store_access_key\" is owned by"]),
        store("04")
            .with("/spec/extraOptions", json!({ "s3-store-timeout": "5" }))
            .refused(Webhook, &["option name must match"]),
        store("05 then 06")
            .then()
            .with("/spec/glanceRef/name", json!("other"))
            .refused(Cel, &["glanceRef is immutable"]),
        store("07 then 08")
            .given(first_default)
            .with("/spec/isDefault", json!(true))
            .refused(Webhook, &["exactly one default store is allowed"]),
    ]
}
