//! The structural half of an API server's admission: pruning, and every check
//! of the schema that is no CEL rule. Texts are the server's.

use std::collections::HashSet;

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

/// The errors of a pruned and defaulted object.
pub fn check(schema: &Value, value: &Value) -> Vec<String> {
    let mut errors = Errors::default();
    errors.visit("", schema.as_object().unwrap(), value);
    errors.0
}

#[derive(Default)]
struct Errors(Vec<String>);

// === impl Errors ===

impl Errors {
    fn add(&mut self, path: &str, text: &str) {
        self.0.push(format!("{path}: {text}"));
    }

    /// As [`Errors::add`], in the words of the server's value checks.
    fn add_invalid(&mut self, path: &str, text: &str) {
        self.add(path, &format!("Invalid value: {path} in body {text}"));
    }

    fn visit(&mut self, path: &str, schema: &Schema, value: &Value) {
        if !has_type(schema, value) {
            let wanted = schema.get("type").and_then(Value::as_str);
            let wanted = wanted.unwrap_or("integer,string");
            return self.add(path, &format!("Invalid value: must be of type {wanted}"));
        }
        if let Some(members) = schema.get("enum").and_then(Value::as_array)
            && !members.contains(value)
        {
            let members: Vec<String> = members.iter().map(Value::to_string).collect();
            let members = members.join(", ");
            self.add(
                path,
                &format!("Unsupported value: {value}: supported values: {members}"),
            );
        }
        match value {
            Value::Object(members) => self.object(path, schema, members),
            Value::Array(items) => self.list(path, schema, items),
            Value::String(text) => self.text(path, schema, text),
            Value::Number(number) => self.number(path, schema, number.as_i64().unwrap()),
            _ => {}
        }
    }

    fn object(&mut self, path: &str, schema: &Schema, members: &Map<String, Value>) {
        let child = |key: &str| match path {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        };
        let required = schema.get("required").and_then(Value::as_array);
        for key in required.into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(key) {
                self.add(&child(key), "Required value");
            }
        }
        self.count(path, schema, "maxProperties", members.len());
        if let Some(least) = bound(schema, "minProperties")
            && members.len() < usize::try_from(least).unwrap()
        {
            self.add_invalid(path, &format!("should have at least {least} properties"));
        }
        for (key, member) in members {
            let schema = member_schema(schema, key).unwrap();
            self.visit(&child(key), schema.as_object().unwrap(), member);
        }
    }

    fn list(&mut self, path: &str, schema: &Schema, items: &[Value]) {
        self.count(path, schema, "maxItems", items.len());
        let keys = schema
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array);
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            self.visit(&path, schema["items"].as_object().unwrap(), item);
            if let Some(keys) = keys {
                let key: Vec<&Value> = keys.iter().map(|k| &item[k.as_str().unwrap()]).collect();
                if !seen.insert(format!("{key:?}")) {
                    self.add(&path, "Duplicate value");
                }
            }
        }
    }

    fn count(&mut self, path: &str, schema: &Schema, keyword: &str, count: usize) {
        if let Some(most) = bound(schema, keyword)
            && count > usize::try_from(most).unwrap()
        {
            self.add(
                path,
                &format!("Too many: {count}: must have at most {most} items"),
            );
        }
    }

    /// A server names the first fault of a text only.
    fn text(&mut self, path: &str, schema: &Schema, text: &str) {
        let length = i64::try_from(text.chars().count()).unwrap();
        if let Some(most) = bound(schema, "maxLength").filter(|most| length > *most) {
            self.add(
                path,
                &format!("Too long: may not be more than {most} bytes"),
            );
        } else if bound(schema, "minLength").is_some_and(|least| length < least) {
            self.add_invalid(path, "should be at least 1 chars long");
        } else if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
            && !go_regex(pattern).is_match(text.as_bytes())
        {
            self.add_invalid(path, &format!("should match '{pattern}'"));
        }
    }

    fn number(&mut self, path: &str, schema: &Schema, number: i64) {
        if let Some(least) = bound(schema, "minimum").filter(|least| number < *least) {
            self.add_invalid(path, &format!("should be greater than or equal to {least}"));
        }
        if let Some(most) = bound(schema, "maximum").filter(|most| number > *most) {
            self.add_invalid(path, &format!("should be less than or equal to {most}"));
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
