//! The same for a `GlanceBackend`.

use serde_json::{Map, Value, json};

use super::{
    Case,
    Layer::{Cel, Schema, Webhook},
    backend, backend_object,
};

pub fn cases() -> Vec<Case> {
    [rules(), bounds(), stored(), shapes()].concat()
}

fn options(count: usize) -> Value {
    (0..count)
        .map(|n| (format!("s3_store_option_{n}"), json!("v")))
        .collect::<Map<_, _>>()
        .into()
}

fn rules() -> Vec<Case> {
    let option = |name: &str, key: usize, value: usize| {
        backend(name).with(
            "/spec/extraOptions",
            json!({ "k".repeat(key): "v".repeat(value) }),
        )
    };
    let too_long = [
        "spec.extraOptions",
        "each extraOptions key must be <=256 characters and each value <=1024 characters",
    ];
    vec![
        backend("a store can be changed")
            .then()
            .with("/spec/s3/bucket", json!("other"))
            .with("/spec/isDefault", json!(true))
            .admitted(),
        backend("a store cannot move to another Glance")
            .then()
            .with("/spec/glanceRef/name", json!("other"))
            .refused(Cel, &["spec", "glanceRef is immutable"]),
        // One member only, so the enumeration speaks first.
        backend("a store cannot become one of another kind")
            .then()
            .with("/spec/type", json!("Swift"))
            .refused(Schema, &["spec.type", "Unsupported value"]),
        backend("a store of type S3 without its block")
            .without("/spec/s3")
            .refused(
                Cel,
                &["spec", "exactly one backend block matching spec.type must be set (type S3 requires spec.s3)"],
            ),
        option("an option as long as it may be", 256, 1024).admitted(),
        option("an option with too long a name", 257, 1).refused(Cel, &too_long),
        option("an option with too long a value", 1, 1025).refused(Cel, &too_long),
    ]
}

fn bounds() -> Vec<Case> {
    let set = |pointer: &str, value: Value| {
        backend(format!("store: {pointer} is {value}")).with(pointer, value)
    };
    let required = |pointer: &str| backend(format!("store: without {pointer}")).without(pointer);
    let empty = ["should be at least 1 chars long"];
    let unsupported = ["Unsupported value", "supported values"];
    let mut cases = vec![
        required("/spec/glanceRef").refused(Schema, &["spec.glanceRef: Required value"]),
        required("/spec/glanceRef/name").refused(Schema, &["spec.glanceRef.name: Required value"]),
        required("/spec/type").refused(Schema, &["spec.type: Required value"]),
        required("/spec/s3/host").refused(Schema, &["spec.s3.host: Required value"]),
        required("/spec/s3/bucket").refused(Schema, &["spec.s3.bucket: Required value"]),
        required("/spec/s3/credentialsSecretRef")
            .refused(Schema, &["spec.s3.credentialsSecretRef: Required value"]),
        required("/spec/s3/credentialsSecretRef/name").refused(
            Schema,
            &["spec.s3.credentialsSecretRef.name: Required value"],
        ),
        set("/spec/glanceRef/name", json!("")).refused(Schema, &empty),
        set("/spec/s3/host", json!("")).refused(Schema, &empty),
        set("/spec/s3/bucket", json!("")).refused(Schema, &empty),
        set("/spec/s3/credentialsSecretRef/name", json!("")).refused(Schema, &empty),
        set("/spec/type", json!("File")).refused(Schema, &unsupported),
        set("/spec/type", json!("s3")).refused(Schema, &unsupported),
        set("/spec/s3/bucketURLFormat", json!("virtual")).admitted(),
        set("/spec/s3/bucketURLFormat", json!("auto")).refused(Schema, &unsupported),
        set("/spec/s3/host", json!("http://garage.storage.svc:3900")).admitted(),
        set("/spec/s3/host", json!("s3.example.org"))
            .refused(Schema, &["spec.s3.host", "should match '"]),
        set("/spec/s3/host", json!("s3://bucket"))
            .refused(Schema, &["spec.s3.host", "should match '"]),
        set("/spec/s3/largeObjectSize", json!(1)).admitted(),
        set("/spec/s3/largeObjectSize", json!(0))
            .refused(Schema, &["should be greater than or equal to 1"]),
        set("/spec/s3/largeObjectChunkSize", json!(5)).admitted(),
        set("/spec/s3/largeObjectChunkSize", json!(0))
            .refused(Schema, &["should be greater than or equal to 1"]),
        // No part of an upload may be smaller: the driver would not load.
        set("/spec/s3/largeObjectChunkSize", json!(4))
            .refused(Webhook, &["spec.s3.largeObjectChunkSize"]),
        set("/spec/s3/alwaysMultipart", json!(true)).admitted(),
        backend("a store that sends everything in parts and names a size")
            .with("/spec/s3/alwaysMultipart", json!(true))
            .with("/spec/s3/largeObjectSize", json!(100))
            .refused(Webhook, &["spec.s3.alwaysMultipart"]),
        set("/spec/isDefault", json!("true")).refused(Schema, &["spec.isDefault"]),
        backend("a store with 32 options")
            .with("/spec/extraOptions", options(32))
            .admitted(),
        backend("a store with 33 options")
            .with("/spec/extraOptions", options(33))
            .refused(
                Schema,
                &[
                    "spec.extraOptions",
                    "Too many",
                    "must have at most 32 items",
                ],
            ),
    ];
    // References by name only: the Glance's own name rules apply elsewhere.
    cases.push(set("/spec/glanceRef/name", json!("not_a_dns_name")).admitted());
    cases
}

fn stored() -> Vec<Case> {
    vec![
        backend("a bucket is addressed by path").stored(vec![
            ("/spec/s3/bucketURLFormat", json!("path")),
            ("/spec/isDefault", Value::Null),
            ("/spec/s3/createBucketOnPut", Value::Null),
            ("/spec/s3/largeObjectSize", Value::Null),
            ("/spec/s3/alwaysMultipart", Value::Null),
            ("/spec/extraOptions", Value::Null),
        ]),
        backend("a bucket whose form of address is empty")
            .with("/spec/s3/bucketURLFormat", json!(""))
            .with_webhooks()
            .stored(vec![("/spec/s3/bucketURLFormat", json!("path"))]),
        backend("a bucket whose form of address is empty, without webhooks")
            .with("/spec/s3/bucketURLFormat", json!(""))
            .without_webhooks()
            .refused(Schema, &["spec.s3.bucketURLFormat", "Unsupported value"]),
        backend("a bucket whose form of address is null")
            .with("/spec/s3/bucketURLFormat", Value::Null)
            .stored(vec![("/spec/s3/bucketURLFormat", json!("path"))]),
        backend("a store takes no cluster of its own")
            .with("/spec/targetClusterRef", json!({ "name": "edge-1" }))
            .with("/spec/s3/credentialsSecretRef/key", json!("other"))
            .stored(vec![
                ("/spec/targetClusterRef", Value::Null),
                ("/spec/s3/credentialsSecretRef/key", Value::Null),
            ]),
    ]
}

fn default_store(name: &str, glance: &str) -> Value {
    let mut store = backend_object(name);
    store["spec"]["isDefault"] = json!(true);
    store["spec"]["glanceRef"]["name"] = json!(glance);
    store
}

fn shapes() -> Vec<Case> {
    vec![
        backend("a store of a Glance that does not exist")
            .with("/spec/glanceRef/name", json!("nowhere"))
            .admitted(),
        backend("a store with an option of the driver")
            .with(
                "/spec/extraOptions",
                json!({ "s3_store_thread_pools": "20" }),
            )
            .admitted(),
        backend("the one default store can be changed")
            .with("/spec/isDefault", json!(true))
            .then()
            .with("/spec/s3/region", json!("garage"))
            .admitted(),
        backend("a default store of another Glance")
            .given(default_store("garage-b", "other"))
            .with("/spec/isDefault", json!(true))
            .admitted(),
        backend("a store whose name is almost reserved")
            .named("os-glance")
            .admitted(),
    ]
}
