//! The structural half of an API server's admission: pruning, and every check
//! of the schema that is no CEL rule. Texts are the server's.

use std::collections::{BTreeSet, HashSet};

use regex::bytes::{Regex, RegexBuilder};
use serde_json::{Map, Value};

type Schema = Map<String, Value>;

/// What is stored of `value`: unknown fields and nulls are dropped.
pub fn prune(schema: &Value, value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let keep = |(key, member): (&String, &Value)| {
                let schema = member_schema(schema.as_object()?, key)?;
                (!member.is_null()).then(|| (key.clone(), prune(schema, member)))
            };
            Value::Object(members.iter().filter_map(keep).collect())
        }
        Value::Array(items) => {
            let schema = schema.get("items").unwrap_or(&Value::Null);
            items.iter().map(|item| prune(schema, item)).collect()
        }
        scalar => scalar.clone(),
    }
}

/// One check that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The keyword of the schema that refused, with its place in the schema:
    /// `spec.cache.servers[] pattern`.
    pub check: String,
    /// What a server says.
    pub text: String,
}

/// The faults of a pruned and defaulted object.
pub fn check(schema: &Value, value: &Value) -> Vec<Fault> {
    let mut errors = Errors::default();
    errors.visit(&At::default(), schema.as_object().unwrap(), value);
    errors.0
}

/// A place in an object, and the one in the schema that describes it.
#[derive(Default)]
struct At {
    path: String,
    place: String,
}

// === impl At ===

impl At {
    fn member(&self, schema: &Schema, key: &str) -> Self {
        let known = schema
            .get("properties")
            .is_some_and(|p| p.get(key).is_some());
        let dot = if self.path.is_empty() { "" } else { "." };
        let place = if known {
            format!("{dot}{key}")
        } else {
            "{}".to_owned()
        };
        Self {
            path: format!("{}{dot}{key}", self.path),
            place: format!("{}{place}", self.place),
        }
    }

    fn item(&self, index: usize) -> Self {
        Self {
            path: format!("{}[{index}]", self.path),
            place: format!("{}[]", self.place),
        }
    }
}

#[derive(Default)]
struct Errors(Vec<Fault>);

// === impl Errors ===

impl Errors {
    fn add(&mut self, at: &At, keyword: &str, text: &str) {
        self.0.push(Fault {
            check: format!("{} {keyword}", at.place),
            text: format!("{}: {text}", at.path),
        });
    }

    /// As [`Errors::add`], in the words of the server's value checks.
    fn add_invalid(&mut self, at: &At, keyword: &str, text: &str) {
        let text = format!("Invalid value: {} in body {text}", at.path);
        self.add(at, keyword, &text);
    }

    fn visit(&mut self, at: &At, schema: &Schema, value: &Value) {
        if !has_type(schema, value) {
            let wanted = schema.get("type").and_then(Value::as_str);
            let wanted = wanted.unwrap_or("integer,string");
            return self.add(
                at,
                "type",
                &format!("Invalid value: must be of type {wanted}"),
            );
        }
        if let Some(members) = schema.get("enum").and_then(Value::as_array)
            && !members.contains(value)
        {
            let members: Vec<String> = members.iter().map(Value::to_string).collect();
            let members = members.join(", ");
            let text = format!("Unsupported value: {value}: supported values: {members}");
            self.add(at, "enum", &text);
        }
        match value {
            Value::Object(members) => self.object(at, schema, members),
            Value::Array(items) => self.list(at, schema, items),
            Value::String(text) => self.text(at, schema, text),
            Value::Number(number) => self.number(at, schema, number.as_i64().unwrap()),
            _ => {}
        }
    }

    fn object(&mut self, at: &At, schema: &Schema, members: &Map<String, Value>) {
        let required = schema.get("required").and_then(Value::as_array);
        for key in required.into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(key) {
                self.add(&at.member(schema, key), "required", "Required value");
            }
        }
        self.count(at, schema, "maxProperties", members.len());
        if let Some(least) = bound(schema, "minProperties")
            && members.len() < usize::try_from(least).unwrap()
        {
            let text = format!("should have at least {least} properties");
            self.add_invalid(at, "minProperties", &text);
        }
        for (key, member) in members {
            let inner = member_schema(schema, key).unwrap();
            self.visit(&at.member(schema, key), inner.as_object().unwrap(), member);
        }
    }

    fn list(&mut self, at: &At, schema: &Schema, items: &[Value]) {
        self.count(at, schema, "maxItems", items.len());
        let keys = schema
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array);
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let at = at.item(index);
            self.visit(&at, schema["items"].as_object().unwrap(), item);
            if let Some(keys) = keys {
                let key: Vec<&Value> = keys.iter().map(|k| &item[k.as_str().unwrap()]).collect();
                if !seen.insert(format!("{key:?}")) {
                    self.add(&at, "unique", "Duplicate value");
                }
            }
        }
    }

    fn count(&mut self, at: &At, schema: &Schema, keyword: &str, count: usize) {
        if let Some(most) = bound(schema, keyword)
            && count > usize::try_from(most).unwrap()
        {
            let text = format!("Too many: {count}: must have at most {most} items");
            self.add(at, keyword, &text);
        }
    }

    /// A server names the first fault of a text only.
    fn text(&mut self, at: &At, schema: &Schema, text: &str) {
        let length = i64::try_from(text.chars().count()).unwrap();
        if let Some(most) = bound(schema, "maxLength").filter(|most| length > *most) {
            let text = format!("Too long: may not be more than {most} bytes");
            self.add(at, "maxLength", &text);
        } else if bound(schema, "minLength").is_some_and(|least| length < least) {
            self.add_invalid(at, "minLength", "should be at least 1 chars long");
        } else if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
            && !go_regex(pattern).is_match(text.as_bytes())
        {
            self.add_invalid(at, "pattern", &format!("should match '{pattern}'"));
        }
    }

    fn number(&mut self, at: &At, schema: &Schema, number: i64) {
        if let Some(least) = bound(schema, "minimum").filter(|least| number < *least) {
            let text = format!("should be greater than or equal to {least}");
            self.add_invalid(at, "minimum", &text);
        }
        if let Some(most) = bound(schema, "maximum").filter(|most| number > *most) {
            let text = format!("should be less than or equal to {most}");
            self.add_invalid(at, "maximum", &text);
        }
    }
}

/// Every check below `spec` that can refuse, written as [`Fault::check`] is.
/// Types are left out: each property has one.
pub fn checks(schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let spec = schema["properties"]["spec"].as_object().unwrap();
    list_checks("spec", spec, &mut found);
    found
}

fn list_checks(place: &str, schema: &Schema, found: &mut BTreeSet<String>) {
    for keyword in [
        "enum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minLength",
        "minProperties",
        "minimum",
        "pattern",
    ] {
        if schema.contains_key(keyword) {
            found.insert(format!("{place} {keyword}"));
        }
    }
    if schema.contains_key("x-kubernetes-list-map-keys") {
        found.insert(format!("{place}[] unique"));
    }
    let required = schema.get("required").and_then(Value::as_array);
    for key in required.into_iter().flatten().filter_map(Value::as_str) {
        found.insert(format!("{place}.{key} required"));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, property) in properties.into_iter().flatten() {
        list_checks(
            &format!("{place}.{key}"),
            property.as_object().unwrap(),
            found,
        );
    }
    for (keyword, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(inner) = schema.get(keyword) {
            list_checks(&format!("{place}{mark}"), inner.as_object().unwrap(), found);
        }
    }
}

fn member_schema<'a>(schema: &'a Schema, key: &str) -> Option<&'a Value> {
    let known = schema.get("properties").and_then(|known| known.get(key));
    known.or_else(|| schema.get("additionalProperties"))
}

fn has_type(schema: &Schema, value: &Value) -> bool {
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64(),
        None => value.is_i64() || value.is_string(),
        Some(other) => panic!("no schema of ours has the type {other}"),
    }
}

fn bound(schema: &Schema, keyword: &str) -> Option<i64> {
    schema.get(keyword).map(|bound| bound.as_i64().unwrap())
}

/// A server reads patterns as Go does: classes such as `\d` are ASCII.
fn go_regex(pattern: &str) -> Regex {
    RegexBuilder::new(pattern).unicode(false).build().unwrap()
}
