//! No text of a resource adds a line or a section to a rendered file.
//!
//! The texts are not listed by hand: they are found in the schemas of both
//! kinds, values and keys of maps alike, so a new field is in here with the day
//! it exists. Each is set to texts that try to break out, alone and several at
//! once, and the files are rendered as they would be for an object that no
//! webhook has seen. Whatever the policy admits has to render, too: otherwise
//! admission and renderer disagree.
//!
//! `FUZZ_CASES` sets how many random objects are tried; `make fuzz` tries many.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use glance_api::{Glance, GlanceBackend, schema};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::oslo::stores::{self, Backends, Credentials, SecretPlace};
use crate::oslo::{self, Projection};
use crate::policy::{Cause, glance_create};

/// Key of every map of the sample.
const KEY: &str = "k";

/// A place that holds a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// A value, by its JSON pointer.
    Value(String),
    /// The one key of the map at this pointer.
    Key(String),
}

const EVIL: &[&str] = &[
    "",
    " ",
    "\n",
    "x\n[evil]\nevil = 1",
    "x\r[evil]\revil = 1",
    "x\r\n[evil]\r\nevil = 1",
    "x\n\tcontinued",
    "x\0y",
    "]\n[evil]\nevil = 1",
    "evil = 1\nx",
    "evil: 1",
    "[evil]",
    "x]",
    "#",
    ";x",
    "%(x)s",
    "$x",
    "\"",
    "'\n'",
    "- a\n- b",
    "\u{85}evil = 1",
    "\u{2028}[evil]",
    "\u{b}evil = 1\u{c}",
    "DEFAULT",
    "keystone_authtoken",
    "paste.filter_factory",
    "\u{feff}",
    "---\nevil: '@'",
    "世\n界",
];

// === Places ===

/// Every place that takes a free text, found in the schema; the sample has a
/// value at each.
fn places(schema: &Value, at: &str, found: &mut Vec<Place>) {
    if let Some(properties) = schema["properties"].as_object() {
        for (name, property) in properties {
            places(property, &format!("{at}/{name}"), found);
        }
    } else if schema["additionalProperties"].is_object() {
        found.push(Place::Key(at.to_owned()));
        places(
            &schema["additionalProperties"],
            &format!("{at}/{KEY}"),
            found,
        );
    } else if schema["items"].is_object() {
        places(&schema["items"], &format!("{at}/0"), found);
    } else if takes_text(schema) && schema["enum"].is_null() {
        found.push(Place::Value(at.to_owned()));
    }
}

fn takes_text(schema: &Value) -> bool {
    schema["type"] == "string" || schema["x-kubernetes-int-or-string"] == true
}

/// An object with everything in it.
fn sample(schema: &Value) -> Value {
    if let Some(properties) = schema["properties"].as_object() {
        let members = properties
            .iter()
            .map(|(name, property)| (name.clone(), sample(property)));
        return Value::Object(members.collect());
    }
    if schema["additionalProperties"].is_object() {
        return json!({ (KEY): sample(&schema["additionalProperties"]) });
    }
    if schema["items"].is_object() {
        return json!([sample(&schema["items"])]);
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

fn definition(definition: &Value) -> &Value {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
}

/// A Glance with everything that can stand beside each other, as the policy
/// admits it.
fn glance_sample() -> Value {
    let definition_of_kind = schema::glance().unwrap();
    let mut spec = sample(definition(&definition_of_kind));
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
    json!({
        "apiVersion": glance_api::API_VERSION, "kind": "Glance",
        "metadata": { "name": "images", "namespace": "ns" }, "spec": spec,
    })
}

/// The halves that exclude each other: setting one takes the other out.
const RIVALS: &[(&str, &str)] = &[
    ("/spec/image/digest", "/spec/image/tag"),
    ("/spec/database/host", "/spec/database/clusterRef"),
    ("/spec/cache/servers", "/spec/cache/clusterRef"),
    (
        "/spec/importFiltering/allowedHosts",
        "/spec/importFiltering/disallowedHosts",
    ),
];

fn remove(object: &mut Value, pointer: &str) {
    if let Some((parent, key)) = pointer.rsplit_once('/')
        && let Some(Value::Object(members)) = object.pointer_mut(parent)
    {
        members.remove(key);
    }
}

/// Sets the value at a pointer, making what is missing on the way.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for step in pointer.split('/').skip(1) {
        at = if step == "0" {
            if at.as_array().is_none_or(Vec::is_empty) {
                *at = json!([null]);
            }
            &mut at[0]
        } else {
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            &mut at[step]
        };
    }
    *at = value;
}

fn with(object: &Value, place: &Place, text: &str) -> Value {
    let mut object = object.clone();
    let (Place::Value(pointer) | Place::Key(pointer)) = place;
    for (one, other) in RIVALS {
        if pointer.starts_with(one) {
            remove(&mut object, other);
        }
    }
    match place {
        Place::Value(pointer) => set(&mut object, pointer, text.into()),
        Place::Key(pointer) => {
            let map = object.pointer_mut(pointer).and_then(Value::as_object_mut);
            if let Some(map) = map
                && let Some(value) = map.remove(KEY)
            {
                map.insert(text.to_owned(), value);
            }
        }
    }
    object
}

// === Files ===

/// What a file looks like to its readers: how many lines, and how many of them
/// begin a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    lines: usize,
    sections: usize,
}

type Shapes = BTreeMap<String, Shape>;

fn shape(text: &str) -> Shape {
    // Python reads lines to any of the three ends.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    Shape {
        lines: text.lines().count(),
        sections: text.lines().filter(|line| line.starts_with('[')).count(),
    }
}

fn shapes<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Shapes {
    files
        .into_iter()
        .map(|(name, text)| (name.to_owned(), shape(text)))
        .collect()
}

/// The files of a Glance; nothing when it cannot be read or rendered.
fn files(object: &Value) -> Option<Result<Shapes, String>> {
    let glance: Glance = serde_json::from_value(object.clone()).ok()?;
    let stores = Projection {
        enabled_backends: "store:s3".to_owned(),
        default_backend: "store".to_owned(),
    };
    let config = match oslo::render(&glance, &stores, Some("{}")) {
        Ok(config) => config,
        Err(error) => return Some(Err(error.to_string())),
    };
    if let Some(policy) = config.data.get(oslo::policy::KEY) {
        let read: Result<BTreeMap<String, String>, _> = serde_saphyr::from_str(policy);
        assert!(read.is_ok(), "{policy}");
        assert_eq!(
            read.map(|rules| rules.len()).ok(),
            Some(policy.lines().count())
        );
    }
    let data = config.data.iter();
    Some(Ok(shapes(
        data.map(|(name, text)| (name.as_str(), text.as_str())),
    )))
}

/// The file of one store.
fn backend_file(object: &Value) -> Option<Result<Shapes, String>> {
    use secrecy::ExposeSecret as _;
    let backend: GlanceBackend = serde_json::from_value(object.clone()).ok()?;
    let place = SecretPlace {
        namespace: "ns",
        name: "s",
    };
    let credentials =
        Credentials::read(place, |key| (!key.starts_with("ca")).then_some(b"x")).ok()?;
    let name = backend.metadata.name.clone().unwrap_or_default();
    let section = stores::section(&name, &backend.spec, "ns", &credentials, "2026.2");
    Some(match section {
        Ok(section) => {
            let backends = Backends::new([section]);
            let text = backends.data[stores::KEY].expose_secret();
            Ok(shapes([(stores::KEY, text)]))
        }
        Err(fault) => Err(fault.to_string()),
    })
}

/// Whether the files are no larger than any of the plain ones.
fn is_contained(shapes: &Shapes, plain: &[Shapes]) -> bool {
    shapes.iter().all(|(name, shape)| {
        let allowed = plain.iter().filter_map(|plain| plain.get(name));
        let lines = allowed.clone().map(|shape| shape.lines).max();
        let sections = allowed.map(|shape| shape.sections).max();
        lines.is_some_and(|lines| shape.lines <= lines)
            && sections.is_some_and(|sections| shape.sections <= sections)
    })
}

struct Kind {
    sample: Value,
    places: Vec<Place>,
    files: fn(&Value) -> Option<Result<Shapes, String>>,
}

static GLANCES: LazyLock<Kind> = LazyLock::new(glances);
static BACKENDS: LazyLock<Kind> = LazyLock::new(backends);

fn glances() -> Kind {
    let mut found = Vec::new();
    places(definition(&schema::glance().unwrap()), "/spec", &mut found);
    Kind {
        sample: glance_sample(),
        places: found,
        files,
    }
}

fn backends() -> Kind {
    let definition_of_kind = schema::glance_backend().unwrap();
    let mut found = vec![Place::Value("/metadata/name".to_owned())];
    places(definition(&definition_of_kind), "/spec", &mut found);
    let mut spec = sample(definition(&definition_of_kind));
    json_patch::merge(&mut spec, &json!({ "s3": { "host": "http://s3" } }));
    Kind {
        sample: json!({
            "apiVersion": glance_api::API_VERSION, "kind": "GlanceBackend",
            "metadata": { "name": "store", "namespace": "ns" }, "spec": spec,
        }),
        places: found,
        files: backend_file,
    }
}

impl Kind {
    /// The files with harmless texts at the places.
    fn plain(&self, places: &[Place]) -> Vec<Shapes> {
        let sample = (self.files)(&self.sample).and_then(Result::ok).into_iter();
        let other = ["x", "zz", "2031.1", "1Gi", "http://x"]
            .into_iter()
            .filter_map(|text| {
                let object = places.iter().fold(self.sample.clone(), |object, place| {
                    with(&object, place, text)
                });
                (self.files)(&object)?.ok()
            });
        sample.chain(other).collect()
    }
}

fn admitted(object: &Value) -> Result<(), String> {
    let glance: Glance = serde_json::from_value(object.clone()).map_err(|e| e.to_string())?;
    let causes = glance_create(&glance).causes;
    let texts: Vec<String> = causes.iter().map(Cause::to_string).collect();
    if texts.is_empty() {
        Ok(())
    } else {
        Err(texts.join("; "))
    }
}

fn cases() -> ProptestConfig {
    let cases = std::env::var("FUZZ_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases.unwrap_or(256))
    }
}

fn evil() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(EVIL).prop_map(str::to_owned),
        "[\\x00-\\x20\\]\\[=:#;%$\"'\\\\A-Za-z\u{85}\u{2028}\u{2029}\u{feff}-]{0,12}",
        "(?s).{0,24}",
        "[a-z]{1,4}[\r\n]{1,2}\\[?evil\\]? ?[=:]? ?[0-9\r\n]{0,3}",
    ]
}

#[test]
fn every_text_of_both_kinds_is_known_and_the_sample_has_it() {
    for (kind, least, some) in [
        (
            &*GLANCES,
            70,
            [
                "/spec/region",
                "/spec/plugins/0/configSection",
                "/spec/extraConfig/k/k",
            ],
        ),
        (
            &*BACKENDS,
            7,
            ["/metadata/name", "/spec/s3/bucket", "/spec/extraOptions/k"],
        ),
    ] {
        assert!(kind.places.len() >= least, "{}", kind.places.len());
        for pointer in some {
            assert!(
                kind.places.contains(&Place::Value(pointer.to_owned())),
                "{pointer}"
            );
        }
        let files = (kind.files)(&kind.sample).unwrap();
        assert!(files.is_ok(), "{files:?}");
    }
    assert_eq!(admitted(&glance_sample()), Ok(()));
}

#[test]
fn no_text_of_either_kind_adds_a_line_or_is_admitted_and_cannot_be_rendered() {
    for kind in [&*GLANCES, &*BACKENDS] {
        for place in &kind.places {
            let plain = kind.plain(std::slice::from_ref(place));
            for text in EVIL {
                let object = with(&kind.sample, place, text);
                match (kind.files)(&object) {
                    Some(Ok(shapes)) => assert!(
                        is_contained(&shapes, &plain),
                        "{place:?} {text:?}: {shapes:?}, plain {plain:?}"
                    ),
                    Some(Err(error)) if object["kind"] == "Glance" => assert!(
                        admitted(&object).is_err(),
                        "{place:?} {text:?} is admitted and not rendered: {error}"
                    ),
                    _ => {}
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn fuzz_no_texts_together_add_a_line_or_a_section(
        is_glance in any::<bool>(),
        texts in prop::collection::vec((any::<prop::sample::Index>(), evil()), 1..4),
    ) {
        let kind = if is_glance { &*GLANCES } else { &*BACKENDS };
        let chosen: Vec<(Place, String)> = texts
            .into_iter()
            .map(|(index, text)| (index.get(&kind.places).clone(), text))
            .collect();
        let object = chosen
            .iter()
            .fold(kind.sample.clone(), |object, (place, text)| with(&object, place, text));
        let places: Vec<Place> = chosen.iter().map(|(place, _)| place.clone()).collect();
        match (kind.files)(&object) {
            Some(Ok(shapes)) => prop_assert!(is_contained(&shapes, &kind.plain(&places)), "{chosen:?}"),
            Some(Err(error)) if is_glance => {
                prop_assert!(admitted(&object).is_err(), "{chosen:?} is admitted and not rendered: {error}");
            }
            _ => {}
        }
    }
}
