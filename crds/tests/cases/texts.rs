//! Patterns and enumerations of a Glance.

use serde_json::json;

use super::{Case, Layer::Schema, full};

pub fn cases() -> Vec<Case> {
    [patterns(), image_and_hosts(), enumerations()].concat()
}

/// (where, texts that are admitted, texts that are not)
const PATTERNS: &[(&str, &[&str], &[&str])] = &[
    (
        "/spec/openStackRelease",
        &["2025.2", "2026.1"],
        &[
            "2025.3",
            "2025.0",
            "banana",
            "queens",
            "2025.2-p1",
            " 2025.2",
            "٢٠٢٥.2",
        ],
    ),
    (
        "/spec/image/repository",
        &["glance", "localhost:5000/openstack/glance", "a.b-c_d/e"],
        &["Glance", "glance/", "/glance", "glance:", "gl ance", "a//b"],
    ),
    (
        "/spec/image/tag",
        &["v1", "_x", "2025.2-1"],
        &["", "-v1", ".v1", "v 1", "v:1"],
    ),
    (
        "/spec/keystoneEndpoint",
        &["https://keystone:5000"],
        &["ftp://k", "keystone", " http://k"],
    ),
    (
        "/spec/keystonePublicEndpoint",
        &["https://identity.example.org/v3", "http://k"],
        &["", "identity.example.org", "HTTPS://k"],
    ),
    (
        "/spec/database/database",
        &["glance_2"],
        &["glance-2", "gl`ance", "gl ance"],
    ),
    (
        "/spec/database/secretRef/name",
        &["a.b-c"],
        &["A", "a_b", "-a", "a.", "a/b"],
    ),
    ("/spec/serviceUser/secretRef/name", &["a"], &["A", "a\nb"]),
    (
        "/spec/database/tls/caBundleSecretRef/name",
        &["ca"],
        &["CA"],
    ),
    (
        "/spec/database/tls/clientCertSecretRef/name",
        &["client"],
        &["Client"],
    ),
    (
        "/spec/database/storageSize",
        &["100Gi", "512Mi", "1Ti"],
        &["100", "1.5Gi", "100G", "Gi", ""],
    ),
    (
        "/spec/secretStoreRef/name",
        &["openbao-cluster-store"],
        &["Open", "a_b"],
    ),
    (
        "/spec/targetClusterRef/name",
        &["edge-1.example"],
        &["Edge", "edge/1"],
    ),
    (
        "/spec/deployment/resources/requests/cpu",
        &["100m", "1"],
        &["much", "1 core"],
    ),
    (
        "/spec/deployment/resources/limits/memory",
        &["1Gi", "512M"],
        &["1GB", "1 Gi"],
    ),
    (
        "/spec/staging/sizeLimit",
        &["1Mi", "10Gi", "1.5Gi", "1e9", "12000000"],
        &["abc", "10 Gi", "10gi", "Gi", "1Gi2", ""],
    ),
    ("/spec/imageCache/sizeLimit", &["2Gi"], &["2GB"]),
];

/// (where, members, whether the defaulting webhook takes "" for unset)
const ENUMERATIONS: &[(&str, &[&str], bool)] = &[
    (
        "/spec/database/credentialsMode",
        &["Static", "Dynamic"],
        false,
    ),
    (
        "/spec/database/tls/mode",
        &["disabled", "prefer", "require", "verify-ca", "verify-full"],
        true,
    ),
    (
        "/spec/importPlugins/conversion/outputFormat",
        &["qcow2", "raw", "vmdk"],
        false,
    ),
    ("/spec/logging/format", &["text", "json"], true),
    (
        "/spec/logging/level",
        &["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
        true,
    ),
    (
        "/spec/secretStoreRef/kind",
        &["ClusterSecretStore", "SecretStore"],
        false,
    ),
];

fn patterns() -> Vec<Case> {
    let mut cases = Vec::new();
    for (pointer, good, bad) in PATTERNS {
        for text in *good {
            cases.push(
                full(format!("{pointer} is {text:?}"))
                    .with(pointer, json!(text))
                    .admitted(),
            );
        }
        for text in *bad {
            cases.push(
                full(format!("{pointer} is {text:?}"))
                    .with(pointer, json!(text))
                    .refused(Schema, &["should match '"]),
            );
        }
    }
    cases
}

/// What needs its alternative out of the way.
fn image_and_hosts() -> Vec<Case> {
    let digest = format!("sha256:{}", "a1".repeat(32));
    let mut cases = Vec::new();
    let by_digest = |text: &str| {
        full(format!("/spec/image/digest is {text:?}"))
            .without("/spec/image/tag")
            .with("/spec/image/digest", json!(text))
    };
    cases.push(by_digest(&digest).admitted());
    for text in [
        &digest[..70],
        &digest.to_uppercase(),
        &format!("{digest}0"),
        "sha512:00",
    ] {
        cases.push(by_digest(text).refused(Schema, &["spec.image.digest", "should match '"]));
    }
    let by_host = |text: &str| {
        full(format!("/spec/database/host is {text:?}"))
            .without("/spec/database/clusterRef")
            .with("/spec/database/host", json!(text))
    };
    for text in ["db", "10.0.0.7", "fd00::7", "db_1.example.org"] {
        cases.push(by_host(text).admitted());
    }
    for text in ["db/x", "db 1", "user@db", "db\n"] {
        cases.push(by_host(text).refused(Schema, &["spec.database.host", "should match '"]));
    }
    let tag = full("an image tag of 128 characters");
    cases.push(
        tag.with("/spec/image/tag", json!("t".repeat(128)))
            .admitted(),
    );
    let tag = full("an image tag of 129 characters");
    cases.push(
        tag.with("/spec/image/tag", json!("t".repeat(129)))
            .refused(Schema, &["spec.image.tag"]),
    );
    let servers = full("a cache server that smuggles in a line").without("/spec/cache/clusterRef");
    cases.push(
        servers
            .with(
                "/spec/cache/servers",
                json!(["mc:11211\nauth_url = http://evil"]),
            )
            .refused(Schema, &["spec.cache.servers[0]", "should match '"]),
    );
    cases
}

fn enumerations() -> Vec<Case> {
    let unsupported = ["Unsupported value", "supported values"];
    let mut cases = Vec::new();
    for (pointer, members, repaired) in ENUMERATIONS {
        for member in *members {
            cases.push(
                full(format!("{pointer} is {member:?}"))
                    .with(pointer, json!(member))
                    .admitted(),
            );
        }
        let other = members[0].to_uppercase() + "x";
        cases.push(
            full(format!("{pointer} is {other:?}"))
                .with(pointer, json!(other))
                .refused(Schema, &unsupported),
        );
        let empty = full(format!("{pointer} is empty")).with(pointer, json!(""));
        let empty = if *repaired {
            empty.without_webhooks()
        } else {
            empty
        };
        cases.push(empty.refused(Schema, &unsupported));
    }
    for half in ["allowed", "disallowed"] {
        let pointer = format!("/spec/importFiltering/{half}Schemes");
        cases.push(
            full(format!("{pointer} with ftp"))
                .with(&pointer, json!(["ftp"]))
                .refused(
                    Schema,
                    &["Unsupported value: \"ftp\"", "\"http\", \"https\""],
                ),
        );
    }
    let filter = |position: &str| {
        full(format!("a middleware {position} the others")).with(
            "/spec/middleware",
            json!([{ "name": "audit", "filterFactory": "a:b", "position": position }]),
        )
    };
    cases.push(filter("before").admitted());
    cases.push(filter("after").admitted());
    cases.push(filter("beside").refused(
        Schema,
        &["spec.middleware[0].position", "Unsupported value"],
    ));
    cases
}
