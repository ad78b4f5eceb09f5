//! The custom resource definitions as they are shipped.
//!
//! The derived schema is put into the form a person would have written (see
//! [`glance`]) and rendered as YAML. The YAML files beside this crate's
//! manifest are generated from here and committed; a test compares them, and
//! `cargo run -p glance-api --example crds` writes them anew.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use serde_saphyr::FoldStr;

use crate::{Glance, GlanceBackend};

/// File of the `Glance` definition.
pub const GLANCE_FILE: &str = "glance.openstack.c5c3.io_glances.yaml";
/// File of the `GlanceBackend` definition.
pub const GLANCE_BACKEND_FILE: &str = "glance.openstack.c5c3.io_glancebackends.yaml";

/// Length from which a description is folded.
const FOLD_FROM: usize = 60;

const HEADER: &str = "# Generated from Rust types by `make generate`. Do not edit.\n---\n";

/// A definition that could not be put into its shipped form. With the types
/// of this crate neither can happen.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The derived definition is no JSON.
    #[error("the derived definition cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// The definition cannot be written as YAML.
    #[error("the definition cannot be written as YAML: {0}")]
    Yaml(#[from] serde_saphyr::ser::Error),
}

/// Every definition of this crate as (file name, YAML).
pub fn crds() -> Result<Vec<(&'static str, String)>, SchemaError> {
    Ok(vec![
        (GLANCE_FILE, yaml(&glance()?)?),
        (GLANCE_BACKEND_FILE, yaml(&glance_backend()?)?),
    ])
}

/// The definition of `Glance`.
pub fn glance() -> Result<Value, SchemaError> {
    shipped(&Glance::crd())
}

/// The definition of `GlanceBackend`.
pub fn glance_backend() -> Result<Value, SchemaError> {
    shipped(&GlanceBackend::crd())
}

/// A definition as the text of its file: keys in alphabetical order, long
/// texts folded.
pub fn yaml(definition: &Value) -> Result<String, SchemaError> {
    // The writer's folded form ends a text with a line feed of its own.
    let body = serde_saphyr::to_string(&Readable(definition))?
        .replace("description: >\n", "description: >-\n");
    Ok(format!("{HEADER}{}\n", body.trim_end()))
}

/// A definition derived from a Rust type in the form in which it is shipped.
pub fn shipped(derived: &CustomResourceDefinition) -> Result<Value, SchemaError> {
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
                root.remove("title");
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
        *text = one_line(text);
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

/// Joins the lines of a doc comment: readers wrap for themselves.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A JSON value that is written with its long descriptions folded. Left to
/// itself the writer puts a text with a colon on one line in quotes, and a
/// changed word then shows as a changed screen.
struct Readable<'a>(&'a Value);

// === impl Readable ===

impl Serialize for Readable<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (key, member) in members {
                    match member.as_str() {
                        Some(text) if key == "description" && text.len() > FOLD_FROM => {
                            map.serialize_entry(key, &FoldStr(text))?;
                        }
                        _ => map.serialize_entry(key, &Readable(member))?,
                    }
                }
                map.end()
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Readable)),
            scalar => scalar.serialize(serializer),
        }
    }
}
