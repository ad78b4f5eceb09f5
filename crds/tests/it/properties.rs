//! Every property by name, type, need and default, against a list that was
//! written from the contract by hand: a wrong rename cannot hide.

use std::collections::BTreeSet;

use glance_api::schema;
use serde_json::{Map, Value, json};

/// The lines of `properties.txt` that describe a schema.
fn lines(path: &str, required: bool, schema: &Value, into: &mut BTreeSet<String>) {
    let node = schema.as_object().unwrap();
    let kind = kind(node);
    if !path.is_empty() {
        let need = if required { " !" } else { "" };
        let default = node
            .get("default")
            .map(|d| format!(" ={d}"))
            .unwrap_or_default();
        into.insert(format!("{path} {kind}{need}{default}"));
    }
    if kind == "selector" || kind == "condition" {
        return;
    }
    let needed = |name: &str| {
        let list = node.get("required").and_then(Value::as_array);
        list.is_some_and(|list| list.contains(&json!(name)))
    };
    for (name, property) in node
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let dot = if path.is_empty() { "" } else { "." };
        lines(&format!("{path}{dot}{name}"), needed(name), property, into);
    }
    if let Some(items) = node.get("items") {
        lines(&format!("{path}[]"), false, items, into);
    }
    if let Some(values) = node.get("additionalProperties") {
        lines(&format!("{path}{{}}"), false, values, into);
    }
}

fn kind(node: &Map<String, Value>) -> String {
    let mark = |key: &str| node.get(key).and_then(Value::as_str).unwrap_or_default();
    if node.contains_key("x-kubernetes-int-or-string") {
        let either = if node.contains_key("pattern") {
            "quantity"
        } else {
            "int-or-string"
        };
        return either.to_owned();
    }
    match mark("type") {
        "object" if is_selector(node) => "selector".to_owned(),
        "object" if is_condition(node) => "condition".to_owned(),
        "object" if node.contains_key("additionalProperties") => "map".to_owned(),
        "object" if mark("x-kubernetes-map-type") == "atomic" => "object(atomic)".to_owned(),
        "array" => match (
            mark("x-kubernetes-list-type"),
            node.get("x-kubernetes-list-map-keys"),
        ) {
            ("", None) => "list".to_owned(),
            ("map", Some(keys)) => format!("list(map:{})", keys[0].as_str().unwrap()),
            (other, None) => format!("list({other})"),
            (other, Some(keys)) => panic!("{other} with {keys}"),
        },
        "integer" => mark("format").to_owned(),
        other => match node.get("enum").and_then(Value::as_array) {
            Some(members) => {
                let members: Vec<&str> = members.iter().filter_map(Value::as_str).collect();
                format!("{other}({})", members.join(","))
            }
            None => other.to_owned(),
        },
    }
}

/// A whole label selector, with the marks server-side apply needs.
fn is_selector(node: &Map<String, Value>) -> bool {
    let strings = json!({ "type": "string" });
    let Some(labels) = node.get("properties").and_then(|p| p.get("matchLabels")) else {
        return false;
    };
    let terms = &node["properties"]["matchExpressions"];
    assert_eq!(node["x-kubernetes-map-type"], "atomic");
    assert_eq!(labels["additionalProperties"], strings);
    assert_eq!(terms["x-kubernetes-list-type"], "atomic");
    assert_eq!(terms["items"]["required"], json!(["key", "operator"]));
    assert_eq!(terms["items"]["properties"]["values"]["items"], strings);
    assert_eq!(
        terms["items"]["properties"]["values"]["x-kubernetes-list-type"],
        "atomic"
    );
    true
}

/// The standard condition, bound by bound.
fn is_condition(node: &Map<String, Value>) -> bool {
    if node
        .get("properties")
        .is_none_or(|p| p.get("lastTransitionTime").is_none())
    {
        return false;
    }
    let mut bare = Value::Object(node.clone());
    bare.as_object_mut().unwrap().remove("description");
    for property in bare["properties"].as_object_mut().unwrap().values_mut() {
        property.as_object_mut().unwrap().remove("description");
    }
    assert_eq!(
        bare,
        json!({
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": { "type": "string", "maxLength": 32768 },
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
            },
        })
    );
    true
}

#[test]
fn the_properties_are_the_contracts() {
    let contract = include_str!("properties.txt");
    let halves = contract.split("---\n");
    for (half, definition) in
        halves.zip([schema::glance().unwrap(), schema::glance_backend().unwrap()])
    {
        let expected: BTreeSet<String> = half
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .map(str::to_owned)
            .collect();
        let mut found = BTreeSet::new();
        let root = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        lines("", false, root, &mut found);
        let missing: Vec<_> = expected.difference(&found).collect();
        let surplus: Vec<_> = found.difference(&expected).collect();
        assert!(
            missing.is_empty() && surplus.is_empty(),
            "missing: {missing:#?}\nsurplus: {surplus:#?}"
        );
    }
}
