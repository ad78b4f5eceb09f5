//! The case list, run without a server.

use std::collections::BTreeSet;

use glance_api::schema;
use kube_cel::{CompiledSchema, Validator, apply_defaults, compile_schema};
use serde_json::{Value, json};

use crate::cases::{self, Case, Expect, Kind, Layer, Setup};
use crate::structure;

/// What an API server without webhooks does with a definition's objects.
pub struct Server {
    schema: Value,
    rules: CompiledSchema,
    validator: Validator,
}

/// Cases in which the CEL interpreter of these tests is wrong and a server is
/// right: it takes `size()` of a text in bytes, where CEL takes characters.
const INTERPRETER_IS_WRONG: [&str; 1] = ["an injected property of 255 wide characters"];

#[derive(Debug, PartialEq)]
enum Verdict {
    Stored(Value),
    Refused(Layer, Vec<String>),
}

// === impl Server ===

impl Server {
    pub fn of(kind: Kind) -> Self {
        let definition = match kind {
            Kind::Glance => schema::glance(),
            Kind::GlanceBackend => schema::glance_backend(),
        };
        Self::serving(&definition.unwrap())
    }

    /// The same for any definition.
    pub fn serving(definition: &Value) -> Self {
        let mut schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
        // A server knows these by itself.
        schema["properties"]["apiVersion"] = json!({ "type": "string" });
        schema["properties"]["kind"] = json!({ "type": "string" });
        schema["properties"]["metadata"] =
            json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        let rules = compile_schema(&schema);
        assert!(!rules.has_errors());
        Self {
            schema,
            rules,
            validator: Validator::new(),
        }
    }

    /// An object as it is stored, when nothing refuses it.
    pub fn read(&self, object: &Value) -> Value {
        apply_defaults(&self.schema, &structure::prune(&self.schema, object))
    }

    /// Why a new object is refused; empty when it is not.
    pub fn complaints(&self, object: &Value) -> Vec<String> {
        match self.admit(None, object) {
            Verdict::Stored(_) => Vec::new(),
            Verdict::Refused(_, errors) => errors,
        }
    }

    fn admit(&self, old: Option<&Value>, new: &Value) -> Verdict {
        let new = self.read(new);
        let old = old.map(|old| self.read(old));
        // A case breaks one rule only, so the CEL rules need no hearing then.
        let faults = structure::check(&self.schema, &new);
        if !faults.is_empty() {
            let errors = faults.into_iter().map(|fault| fault.text).collect();
            return Verdict::Refused(Layer::Schema, errors);
        }
        match self
            .validator
            .validate_compiled(&self.rules, &new, old.as_ref())
        {
            Ok(()) => Verdict::Stored(new),
            Err(errors) => Verdict::Refused(
                Layer::Cel,
                errors.as_slice().iter().map(ToString::to_string).collect(),
            ),
        }
    }

    /// What is wrong with the outcome of a case.
    fn complaint(&self, case: &Case) -> Option<String> {
        for earlier in case.given.iter().chain(&case.old) {
            let verdict = self.admit(None, earlier);
            if !matches!(verdict, Verdict::Stored(_)) {
                return Some(format!(
                    "{}: not even the beginning: {verdict:?}",
                    case.name
                ));
            }
        }
        let verdict = self.admit(case.old.as_ref(), &case.new);
        let right = match (&case.expect, &verdict) {
            (Expect::Admitted(values), Verdict::Stored(stored)) => values
                .iter()
                .all(|(pointer, value)| stored.pointer(pointer).unwrap_or(&Value::Null) == value),
            // Only a webhook can refuse these; the definition has to let them by.
            (Expect::Refused(Layer::Webhook, _), Verdict::Stored(_)) => true,
            (Expect::Refused(layer, fragments), Verdict::Refused(by, errors)) => {
                layer == by
                    && errors
                        .iter()
                        .any(|error| fragments.iter().all(|f| error.contains(f)))
            }
            _ => false,
        };
        let right = right != INTERPRETER_IS_WRONG.contains(&case.name.as_str());
        (!right).then(|| format!("{}: expected {:?}, got {verdict:?}", case.name, case.expect))
    }
}

#[test]
fn every_case_ends_as_the_list_says() {
    let glances = Server::of(Kind::Glance);
    let backends = Server::of(Kind::GlanceBackend);
    let complaints: Vec<String> = cases::all()
        .iter()
        .filter(|case| case.setup != Setup::WithWebhooks)
        .filter_map(|case| match case.kind {
            Kind::Glance => glances.complaint(case),
            Kind::GlanceBackend => backends.complaint(case),
        })
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

#[test]
fn names_of_cases_are_unique() {
    let mut seen = BTreeSet::new();
    for case in cases::all() {
        assert!(seen.insert(case.name.clone()), "{}", case.name);
    }
}

/// The list would not notice a bound that nobody wrote a case for.
#[test]
fn every_bound_of_the_definitions_refuses_a_case() {
    let cases = cases::all();
    for kind in [Kind::Glance, Kind::GlanceBackend] {
        let server = Server::of(kind);
        let mut unheard = structure::checks(&server.schema);
        for case in cases.iter().filter(|case| case.kind == kind) {
            for fault in structure::check(&server.schema, &server.read(&case.new)) {
                unheard.remove(&fault.check);
            }
        }
        assert!(unheard.is_empty(), "{unheard:#?}");
    }
}

/// The list would not notice a rule that nobody wrote a case for.
#[test]
fn every_rule_of_the_definitions_refuses_a_case() {
    let cases = cases::all();
    let mut unheard = BTreeSet::new();
    for (definition, kind) in [
        (schema::glance().unwrap(), Kind::Glance),
        (schema::glance_backend().unwrap(), Kind::GlanceBackend),
    ] {
        collect_messages(&definition, &mut |message| {
            let heard = cases.iter().any(|case| {
                case.kind == kind
                    && matches!(&case.expect, Expect::Refused(Layer::Cel, fragments)
                        if fragments.contains(&message))
            });
            if !heard {
                unheard.insert(message.to_owned());
            }
        });
    }
    // One member in the enumeration: the schema always speaks first.
    assert_eq!(unheard, BTreeSet::from(["type is immutable".to_owned()]));
}

fn collect_messages(value: &Value, visit: &mut dyn FnMut(&str)) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                if key == "x-kubernetes-validations" {
                    for rule in member.as_array().unwrap() {
                        visit(rule["message"].as_str().unwrap());
                    }
                } else {
                    collect_messages(member, visit);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_messages(item, visit)),
        _ => {}
    }
}
