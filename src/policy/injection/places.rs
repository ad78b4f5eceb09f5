//! Where a resource takes a text.

use serde_json::{Map, Value, json};

/// Key of every map of the samples.
pub(super) const KEY: &str = "k";

/// A place that holds a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A value, by its JSON pointer.
    Value(String),
    /// The one key of the map at this pointer.
    Key(String),
}

/// Values that name a section of a file.
const NAMES: [&str; 3] = [
    "/metadata/name",
    "/spec/middleware/0/name",
    "/spec/plugins/0/configSection",
];

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

// === impl Place ===

impl Place {
    /// Its JSON pointer.
    pub(super) fn pointer(&self) -> &str {
        let (Self::Value(pointer) | Self::Key(pointer)) = self;
        pointer
    }

    /// Whether what stands here is the name of a section or of an option.
    pub(super) fn is_named(&self) -> bool {
        matches!(self, Self::Key(_)) || NAMES.contains(&self.pointer())
    }
}

/// Every place of a schema that takes a free text; the sample has a value at each.
pub(super) fn find(schema: &Value, at: &str, found: &mut Vec<Place>) {
    if let Some(properties) = schema["properties"].as_object() {
        for (name, property) in properties {
            find(property, &format!("{at}/{name}"), found);
        }
    } else if schema["additionalProperties"].is_object() {
        found.push(Place::Key(at.to_owned()));
        let values = &schema["additionalProperties"];
        find(values, &format!("{at}/{KEY}"), found);
    } else if schema["items"].is_object() {
        find(&schema["items"], &format!("{at}/0"), found);
    } else if takes_text(schema) && schema["enum"].is_null() {
        found.push(Place::Value(at.to_owned()));
    }
}

fn takes_text(schema: &Value) -> bool {
    schema["type"] == "string" || schema["x-kubernetes-int-or-string"] == true
}

/// The object with texts at places. Keys come last, the inner ones first, since they move what is below them.
pub(super) fn with_all(object: &Value, texts: &[(&Place, &str)]) -> Value {
    let mut ordered = texts.to_vec();
    ordered.sort_by_key(|(place, _)| match place {
        Place::Value(_) => (0, 0),
        Place::Key(pointer) => (1, usize::MAX - pointer.len()),
    });
    let mut object = object.clone();
    for (place, text) in ordered {
        put(&mut object, place, text);
    }
    object
}

fn put(object: &mut Value, place: &Place, text: &str) {
    let pointer = place.pointer();
    for (one, other) in RIVALS {
        if pointer.starts_with(one) {
            remove(object, other);
        }
    }
    match place {
        Place::Value(_) => set(object, pointer, text.into()),
        Place::Key(_) => {
            let map = object.pointer_mut(pointer).and_then(Value::as_object_mut);
            if let Some(map) = map
                && let Some(value) = map.remove(KEY)
            {
                map.insert(text.to_owned(), value);
            }
        }
    }
}

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
