//! What only the validating webhook can judge of a `GlanceBackend`, and of what a Glance names on the cluster.

use serde_json::{Value, json};

use super::{Case, Layer::Webhook, backend, backend_object, glance};

pub fn cases() -> Vec<Case> {
    [classes(), stores()].concat()
}

/// Only a cluster knows its classes.
fn classes() -> Vec<Case> {
    let class = |name: &str, class: &str| {
        glance(format!("judged: {name}"))
            .with("/spec/deployment/priorityClassName", json!(class))
            .with_webhooks()
    };
    vec![
        class("a class that does not exist", "nobody-knows").refused(
            Webhook,
            &["spec.deployment.priorityClassName: Not found: \"nobody-knows\""],
        ),
        class("a class that always exists", "system-cluster-critical").admitted(),
    ]
}

fn stores() -> Vec<Case> {
    let option = |key: &str, text: &'static str| {
        backend(format!("judged: the option {key:?}"))
            .with("/spec/extraOptions", json!({ key: "x" }))
            .refused(Webhook, &["spec.extraOptions", text])
    };
    let store = |name: &str, pointer: &str, value: Value| {
        backend(format!("judged: a store {name}")).with(pointer, value)
    };
    let mut first = backend_object("garage-b");
    first["spec"]["isDefault"] = json!(true);
    vec![
        option("", "option name must not be empty"),
        option("s3_store_host ", "option name must match ^[A-Za-z0-9_]+$"),
        option("s3_store_host", "is owned by spec.s3.host and must not be set via extraOptions"),
        option("s3_store_secret_key", "is owned by spec.s3.credentialsSecretRef"),
        option("store_description", "is owned by the operator (store section wiring)"),
        store("with a line in an option", "/spec/extraOptions", json!({ "k": "a\r\n[x]" }))
            .refused(Webhook, &["value must not contain newline or carriage-return characters"]),
        store("with a line in its bucket", "/spec/s3/bucket", json!("a\nb"))
            .refused(Webhook, &["spec.s3.bucket", "control characters"]),
        store("with a line in its region", "/spec/s3/region", json!("a\nb"))
            .refused(Webhook, &["spec.s3.region", "control characters"]),
        store("without a host", "/spec/s3/host", json!("http://:9000"))
            .refused(Webhook, &["spec.s3.host", "URL must include a host"]),
        backend("judged: a store named database").named("database").refused(
            Webhook,
            &["name \"database\" collides with the reserved or operator-managed Glance store section"],
        ),
        backend("judged: a store in the space of Glance").named("os-glance-foo").refused(
            Webhook,
            &["name must not use the reserved \"os_glance_\" / \"os-glance-\" store-section prefix"],
        ),
        backend("judged: a store that becomes the second default")
            .given(first)
            .then()
            .with("/spec/isDefault", json!(true))
            .refused(Webhook, &["GlanceBackend \"garage-b\" attached to the same Glance \"images\" is already marked isDefault"]),
    ]
}
