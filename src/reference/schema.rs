//! A custom resource, field by field.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::cell;

/// The page of a definition.
pub fn page(definition: &Value) -> String {
    let kind = text(definition, "/spec/names/kind");
    let group = text(definition, "/spec/group");
    let version = &definition["spec"]["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    let mut page = format!(
        "# {kind}\n\n`{group}/{}`, {}. {}\n\n`kubectl explain {}` shows the same on a cluster. \
         **Bold** fields are required where their parent is given.\n",
        text(version, "/name"),
        text(definition, "/spec/scope").to_lowercase(),
        cell(text(schema, "/description")),
        text(definition, "/spec/names/singular"),
    );
    for part in ["spec", "status"] {
        let schema = &schema["properties"][part];
        let _ = write!(
            page,
            "\n## {part}\n\n| Field | Type | Meaning |\n| --- | --- | --- |\n"
        );
        fields(&mut page, "", schema);
        rules(&mut page, schema);
    }
    page
}

/// Rows of an object's fields and of what is below them.
fn fields(page: &mut String, prefix: &str, schema: &Value) {
    let required: Vec<_> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let none = Map::new();
    for (name, field) in schema["properties"].as_object().unwrap_or(&none) {
        let path = format!("{prefix}{name}");
        let shown = if required.contains(&name.as_str()) {
            format!("**`{path}`**")
        } else {
            format!("`{path}`")
        };
        let description = field["description"].as_str().unwrap_or_default();
        let _ = writeln!(
            page,
            "| {shown} | {} | {} |",
            type_of(field),
            cell(description)
        );
        match field["type"].as_str() {
            Some("array") => fields(page, &format!("{path}[]."), &field["items"]),
            _ => fields(page, &format!("{path}."), field),
        }
    }
}

fn type_of(field: &Value) -> String {
    let mut parts = Vec::new();
    let name = match field["type"].as_str() {
        _ if field["x-kubernetes-int-or-string"] == true => "integer or string".to_owned(),
        Some("array") => format!(
            "list of {}",
            field["items"]["type"].as_str().unwrap_or("any")
        ),
        Some("object") if field["additionalProperties"].is_object() => "map".to_owned(),
        Some(name) => name.to_owned(),
        None => "any".to_owned(),
    };
    parts.push(name);
    if let Some(values) = field["enum"].as_array() {
        let values: Vec<_> = values.iter().map(|v| format!("`{}`", plain(v))).collect();
        parts.push(values.join(", "));
    }
    for (key, word) in [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("maxLength", "length at most"),
        ("maxItems", "entries at most"),
    ] {
        if let Some(bound) = field[key].as_i64() {
            parts.push(format!("{word} {bound}"));
        }
    }
    if let Some(pattern) = field["pattern"].as_str()
        && field["x-kubernetes-int-or-string"] != true
    {
        parts.push(format!("`{}`", cell(pattern)));
    }
    if !field["default"].is_null() && field["default"] != "" {
        parts.push(format!("default `{}`", plain(&field["default"])));
    }
    parts.join("; ")
}

/// What must hold between fields.
fn rules(page: &mut String, schema: &Value) {
    let mut found = Vec::new();
    collect(schema, "", &mut found);
    if found.is_empty() {
        return;
    }
    page.push_str("\nWhat must hold besides:\n\n| Where | Rule |\n| --- | --- |\n");
    for (place, message) in found {
        let place = if place.is_empty() {
            "the whole".to_owned()
        } else {
            format!("`{place}`")
        };
        let _ = writeln!(page, "| {place} | {} |", cell(&message));
    }
}

fn collect(schema: &Value, place: &str, found: &mut Vec<(String, String)>) {
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let message = rule["message"].as_str().or(rule["rule"].as_str());
        found.push((place.to_owned(), message.unwrap_or_default().to_owned()));
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let dot = if place.is_empty() { "" } else { "." };
        collect(field, &format!("{place}{dot}{name}"), found);
    }
    if schema["items"].is_object() {
        collect(&schema["items"], &format!("{place}[]"), found);
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or(value.to_string(), str::to_owned)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}
