//! The custom resource definitions as they are shipped.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use crate::{Glance, GlanceBackend};

/// A definition that could not be put into its shipped form.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The derived definition is no JSON. Cannot happen with the types here.
    #[error("the derived definition cannot be read: {0}")]
    Json(#[from] serde_json::Error),
}

/// The definition of `Glance`.
pub fn glance() -> Result<Value, SchemaError> {
    shipped(&Glance::crd())
}

/// The definition of `GlanceBackend`.
pub fn glance_backend() -> Result<Value, SchemaError> {
    shipped(&GlanceBackend::crd())
}

fn shipped(derived: &CustomResourceDefinition) -> Result<Value, SchemaError> {
    let mut definition = serde_json::to_value(derived)?;
    let versions = definition
        .pointer_mut("/spec/versions")
        .and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        if let Some(root) = version.pointer_mut("/schema/openAPIV3Schema") {
            tidy(root);
            // The contract requires nothing at the top, not even `spec`.
            if let Some(root) = root.as_object_mut() {
                root.remove("required");
            }
        }
    }
    Ok(definition)
}

/// Makes a derived schema the one a person would have written.
///
/// Only schema positions are visited: a *property* may well be called
/// `format` or `nullable`.
fn tidy(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    // An explicit null is then dropped, and defaulted, like an absent value.
    schema.remove("nullable");
    if let Some(Value::Array(members)) = schema.get_mut("enum") {
        members.retain(|member| !member.is_null());
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    // API servers know no unsigned formats and warn about them.
    let unsigned = |format: &Value| format.as_str().is_some_and(|f| f.starts_with("uint"));
    if schema.get("format").is_some_and(unsigned) {
        schema.remove("format");
    }
    for bound in ["minimum", "maximum"] {
        if let Some(value) = schema.get_mut(bound) {
            whole(value);
        }
    }
    if schema.get("x-kubernetes-int-or-string") == Some(&json!(true)) {
        schema.insert(
            "anyOf".into(),
            json!([{ "type": "integer" }, { "type": "string" }]),
        );
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = paragraphs(text);
    }
    subschemas(schema, tidy);
}

fn subschemas(schema: &mut Map<String, Value>, visit: fn(&mut Value)) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().for_each(visit);
    }
    for single in ["items", "additionalProperties"] {
        if let Some(value) = schema.get_mut(single) {
            visit(value);
        }
    }
}

/// Bounds are derived as floating point: `1.0` becomes `1`.
fn whole(number: &mut Value) {
    let Some(float) = number.as_f64().filter(|_| !number.is_i64()) else {
        return;
    };
    if let Ok(integer) = format!("{float:.0}").parse::<i64>() {
        *number = integer.into();
    }
}

/// Joins the lines of a doc comment: readers wrap for themselves. An empty
/// line still ends a paragraph.
fn paragraphs(text: &str) -> String {
    text.split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join("\n")
}
