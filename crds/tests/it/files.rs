//! The committed definitions and their form.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use glance_api::schema;
use serde_json::{Map, Value, json};

fn definitions() -> Vec<(&'static str, Value)> {
    vec![
        (schema::GLANCE_FILE, schema::glance().unwrap()),
        (
            schema::GLANCE_BACKEND_FILE,
            schema::glance_backend().unwrap(),
        ),
    ]
}

pub fn root(definition: &Value) -> &Value {
    definition
        .pointer("/spec/versions/0/schema/openAPIV3Schema")
        .unwrap()
}

/// Calls `visit` for every schema with its path.
pub fn walk(path: &str, schema: &Value, visit: &mut dyn FnMut(&str, &Map<String, Value>)) {
    let schema = schema.as_object().unwrap();
    visit(path, schema);
    if let Some(properties) = schema.get("properties") {
        for (name, property) in properties.as_object().unwrap() {
            walk(&format!("{path}.{name}"), property, visit);
        }
    }
    if let Some(items) = schema.get("items") {
        walk(&format!("{path}[]"), items, visit);
    }
    if let Some(values) = schema.get("additionalProperties") {
        walk(&format!("{path}{{}}"), values, visit);
    }
}

#[test]
fn the_committed_files_are_what_the_types_say() {
    for (file, yaml) in schema::crds().unwrap() {
        let path = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join(file);
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == yaml,
            "{file} is stale: run `cargo run -p glance-api --example crds`"
        );
    }
}

#[test]
fn the_yaml_reads_back_as_the_definition() {
    for ((_, definition), (_, yaml)) in definitions().iter().zip(schema::crds().unwrap()) {
        let read: Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(&read, definition);
    }
}

#[test]
fn identity_is_the_contracts() {
    let expected = [
        ("glances", "glance", "Glance"),
        ("glancebackends", "glancebackend", "GlanceBackend"),
    ];
    for ((_, definition), (plural, singular, kind)) in definitions().into_iter().zip(expected) {
        let spec = &definition["spec"];
        assert_eq!(
            definition["metadata"]["name"],
            format!("{plural}.glance.openstack.c5c3.io")
        );
        assert_eq!(spec["group"], glance_api::GROUP);
        assert_eq!(spec["scope"], "Namespaced");
        assert_eq!(spec["names"]["plural"], plural);
        assert_eq!(spec["names"]["singular"], singular);
        assert_eq!(spec["names"]["kind"], kind);
        assert_eq!(spec["names"]["categories"], json!(["openstack"]));
        assert!(spec.get("conversion").is_none());

        let versions = spec["versions"].as_array().unwrap();
        assert_eq!(versions.len(), 1);
        assert_eq!(versions[0]["name"], glance_api::VERSION);
        assert_eq!(versions[0]["served"], true);
        assert_eq!(versions[0]["storage"], true);
        assert_eq!(versions[0]["subresources"], json!({ "status": {} }));
        assert!(root(&definition).get("required").is_none());
    }
}

#[test]
fn the_printed_columns_are_the_contracts_and_further_ones_are_wide() {
    let ready = ".status.conditions[?(@.type=='Ready')].status";
    let expected = [
        json!([
            ["Ready", "string", ready],
            ["Release", "string", ".status.installedRelease"],
            ["Endpoint", "string", ".status.endpoint"],
            ["Age", "date", ".metadata.creationTimestamp"],
        ]),
        json!([
            ["Ready", "string", ready],
            ["Type", "string", ".spec.type"],
            ["Default", "boolean", ".spec.isDefault"],
            ["Glance", "string", ".spec.glanceRef.name"],
            ["Age", "date", ".metadata.creationTimestamp"],
        ]),
    ];
    for ((_, definition), expected) in definitions().into_iter().zip(expected) {
        let columns: Vec<Value> = definition["spec"]["versions"][0]["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|column| column.get("priority").is_none())
            .map(|column| json!([column["name"], column["type"], column["jsonPath"]]))
            .collect();
        assert_eq!(json!(columns), expected);
    }
}

#[test]
fn the_references_can_be_selected_by() {
    let fields: Vec<Value> = definitions()
        .iter()
        .map(|(_, definition)| definition["spec"]["versions"][0]["selectableFields"].clone())
        .collect();
    assert_eq!(
        fields,
        [
            json!([{ "jsonPath": ".spec.targetClusterRef.name" }]),
            json!([{ "jsonPath": ".spec.glanceRef.name" }]),
        ]
    );
}

#[test]
fn no_schema_carries_what_changes_its_meaning_on_a_server() {
    let mut all = definitions();
    all.push(crate::target_cluster::definition());
    for (file, definition) in all {
        walk("", root(&definition), &mut |path, schema| {
            let at = format!("{file}{path}");
            for unwanted in [
                "nullable", "title", "$ref", "oneOf", "allOf", "not", "const",
            ] {
                assert!(!schema.contains_key(unwanted), "{at} has {unwanted}");
            }
            assert!(
                !schema.contains_key("x-kubernetes-preserve-unknown-fields"),
                "{at} keeps unknown fields"
            );
            assert_ne!(schema.get("default"), Some(&Value::Null), "{at}");
            let members = schema.get("enum").and_then(Value::as_array);
            assert!(
                members.is_none_or(|m| m.iter().all(Value::is_string)),
                "{at}"
            );
            if let Some(format) = schema.get("format") {
                let known = ["int32", "int64", "date-time"];
                assert!(known.contains(&format.as_str().unwrap()), "{at}: {format}");
            }
            for bound in ["minimum", "maximum"] {
                assert!(schema.get(bound).is_none_or(Value::is_i64), "{at} {bound}");
            }
            let either = schema.contains_key("x-kubernetes-int-or-string");
            assert_eq!(schema.contains_key("anyOf"), either, "{at}");
            assert_eq!(schema.contains_key("type"), !either, "{at}");
        });
    }
}

#[test]
fn every_field_explains_itself() {
    let mut bare = BTreeSet::new();
    let mut all = definitions();
    all.push(crate::target_cluster::definition());
    for (file, definition) in all {
        walk("", root(&definition), &mut |path, schema| {
            let description = schema.get("description").and_then(Value::as_str);
            let is_value = path.ends_with("[]") || path.ends_with("{}");
            let is_object = schema.contains_key("properties");
            let good = description.is_some_and(|text| {
                text.len() > 10
                    && text.ends_with('.')
                    && !text.contains('\n')
                    && !text.contains("[`")
                    && text.starts_with(|c: char| !c.is_lowercase() || text.starts_with("uWSGI"))
                    || text.starts_with('`')
            });
            if !good && (!is_value || is_object) && !path.is_empty() {
                bare.insert(format!("{file}{path}: {description:?}"));
            }
        });
    }
    assert!(bare.is_empty(), "{bare:#?}");
}
