//! API servers estimate what a rule costs and refuse the whole definition when
//! it is too much; whatever has no bound counts with its worst size.

use glance_api::schema;
use serde_json::{Map, Value};

/// A rule with its place and the unbounded lists and maps around it.
struct Rule {
    path: String,
    text: String,
    unbounded_around: usize,
}

fn rules(path: &str, schema: &Value, unbounded: usize, found: &mut Vec<Rule>) {
    let node = schema.as_object().unwrap();
    let here = node
        .get("x-kubernetes-validations")
        .and_then(Value::as_array);
    for rule in here.into_iter().flatten() {
        found.push(Rule {
            path: path.to_owned(),
            text: rule["rule"].as_str().unwrap().to_owned(),
            unbounded_around: unbounded,
        });
    }
    for (name, property) in node
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        rules(&format!("{path}.{name}"), property, unbounded, found);
    }
    let inner =
        |bound: &str, node: &Map<String, Value>| unbounded + usize::from(!node.contains_key(bound));
    if let Some(items) = node.get("items") {
        rules(&format!("{path}[]"), items, inner("maxItems", node), found);
    }
    if let Some(values) = node.get("additionalProperties") {
        rules(
            &format!("{path}{{}}"),
            values,
            inner("maxProperties", node),
            found,
        );
    }
}

fn all_rules() -> Vec<Rule> {
    let mut found = Vec::new();
    for definition in [schema::glance().unwrap(), schema::glance_backend().unwrap()] {
        let root = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        rules("", root, 0, &mut found);
    }
    found
}

#[test]
fn every_rule_of_the_contract_is_there() {
    // C1 to C26, of which C1 and C2 share a message.
    assert_eq!(all_rules().len(), 26);
}

#[test]
fn no_rule_multiplies_unbounded_sizes() {
    for rule in all_rules() {
        assert_eq!(
            rule.unbounded_around, 0,
            "{} is evaluated once for each item of an unbounded list: {}",
            rule.path, rule.text
        );
        let loops = rule.text.matches(".all(").count() + rule.text.matches(".exists").count();
        assert!(loops <= 1, "{} iterates twice: {}", rule.path, rule.text);
    }
}
