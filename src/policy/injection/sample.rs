//! Objects with everything in them, made from the schemas.

use glance_api::schema::{self, SchemaError};
use serde_json::{Value, json};

use super::places::{self, KEY, Place};

/// A Glance with everything that can stand beside each other, as the policy admits it.
pub(super) fn glance() -> Result<(Value, Vec<Place>), SchemaError> {
    let definition = schema::glance()?;
    let (mut spec, places) = whole(&definition);
    json_patch::merge(
        &mut spec,
        &json!({
            "openStackRelease": "2025.2",
            "keystoneEndpoint": "http://k:5000/v3",
            "keystonePublicEndpoint": "http://k:5000/v3",
            "image": { "digest": null },
            "database": { "host": null },
            "cache": { "servers": null },
            "deployment": { "topologySpreadConstraints": [], "preStopSleepSeconds": 1,
                            "strategy": { "type": "RollingUpdate" } },
            "apiServer": { "uwsgi": { "harakiri": 1 } },
            "importFiltering": { "allowedSchemes": null, "allowedHosts": null, "allowedPorts": null,
                                 "disallowedHosts": ["h"] },
            "dbPurge": { "schedule": "@daily" },
            "staging": { "unbounded": null },
            "imageCache": { "maintenanceInterval": "5m" },
            "logging": { "format": "json", "perLoggerLevels": { (KEY): "DEBUG" } },
            "plugins": [{ "name": "x", "configSection": KEY, "config": { (KEY): "x" } }],
            "policyOverrides": { "configMapRef": null },
        }),
    );
    let object = json!({
        "apiVersion": glance_api::API_VERSION, "kind": "Glance",
        "metadata": { "name": "images", "namespace": "ns" }, "spec": spec,
    });
    Ok((object, places))
}

/// A backend with everything that can stand beside each other, as the policy admits it.
pub(super) fn backend() -> Result<(Value, Vec<Place>), SchemaError> {
    let definition = schema::glance_backend()?;
    let (mut spec, mut places) = whole(&definition);
    places.push(Place::Value("/metadata/name".to_owned()));
    let s3 = json!({ "host": "http://s3", "alwaysMultipart": false, "largeObjectSize": null, "largeObjectChunkSize": 5 });
    json_patch::merge(&mut spec, &json!({ "s3": s3 }));
    let object = json!({
        "apiVersion": glance_api::API_VERSION, "kind": "GlanceBackend",
        "metadata": { "name": "store", "namespace": "ns" }, "spec": spec,
    });
    Ok((object, places))
}

/// Whether the API server takes a text as the name of an object.
pub(super) fn is_object_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 253
        && name.split('.').all(|label| {
            label.starts_with(is_plain)
                && label.ends_with(is_plain)
                && label.chars().all(|c| is_plain(c) || c == '-')
        })
}

fn whole(definition: &Value) -> (Value, Vec<Place>) {
    let spec =
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut found = Vec::new();
    places::find(spec, "/spec", &mut found);
    (of(spec), found)
}

fn of(schema: &Value) -> Value {
    if let Some(properties) = schema["properties"].as_object() {
        let members = properties
            .iter()
            .map(|(name, property)| (name.clone(), of(property)));
        return Value::Object(members.collect());
    }
    if schema["additionalProperties"].is_object() {
        return json!({ (KEY): of(&schema["additionalProperties"]) });
    }
    if schema["items"].is_object() {
        return json!([of(&schema["items"])]);
    }
    if let Some(member) = schema["enum"].get(0) {
        return member.clone();
    }
    match schema["type"].as_str() {
        Some("integer") => schema["minimum"].as_i64().unwrap_or(1).into(),
        Some("boolean") => true.into(),
        Some("object") => json!({}),
        _ if schema["x-kubernetes-int-or-string"] == true => "1Gi".into(),
        _ => "x".into(),
    }
}
