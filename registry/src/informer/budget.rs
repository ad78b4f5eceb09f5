//! How much the informers of one cluster may remember.

use std::sync::atomic::{AtomicUsize, Ordering};

use kube::api::{DynamicObject, ObjectMeta};
use serde_json::Value;

/// What an object takes that has nothing in it, with its place in the store.
const OBJECT: usize = 700;

/// What an entry of a map or list takes beside its texts.
const ENTRY: usize = 64;

/// Bytes that the informers of one cluster hold, as far as that can be told.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    used: AtomicUsize,
}

// === impl Budget ===

impl Budget {
    /// Without a limit if there is `None`.
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self {
            limit: limit.unwrap_or(usize::MAX),
            used: AtomicUsize::new(0),
        }
    }

    /// Whether there is a limit at all.
    pub(super) fn is_limited(&self) -> bool {
        self.limit < usize::MAX
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether so much more fits in.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.used.load(Ordering::Relaxed).saturating_add(bytes) <= self.limit
    }

    /// What somebody holds was `before` and is `now`.
    pub(super) fn change(&self, before: usize, now: usize) {
        if now > before {
            self.used.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.used.fetch_sub(before - now, Ordering::Relaxed);
        }
    }
}

/// Roughly the memory of an object, in bytes.
pub(super) fn weight(object: &DynamicObject) -> usize {
    OBJECT + of_metadata(&object.metadata) + of_value(&object.data)
}

fn of_metadata(metadata: &ObjectMeta) -> usize {
    // With the copies that the store keeps them by.
    let texts = [
        (3, &metadata.name),
        (3, &metadata.namespace),
        (1, &metadata.uid),
        (1, &metadata.resource_version),
        (1, &metadata.generate_name),
        (1, &metadata.self_link),
    ];
    let texts = texts.map(|(copies, text)| copies * text.as_ref().map_or(0, String::len));
    let maps = [&metadata.labels, &metadata.annotations];
    let maps = maps.into_iter().flatten().flatten();
    let maps = maps.map(|(key, value)| ENTRY + key.len() + value.len());
    let managers = metadata.managed_fields.iter().flatten().map(|entry| {
        let fields = entry.fields_v1.as_ref();
        let texts = [&entry.manager, &entry.api_version, &entry.subresource];
        let texts = texts.into_iter().flatten().map(String::len);
        4 * ENTRY + texts.sum::<usize>() + fields.map_or(0, |fields| of_value(&fields.0))
    });
    let owners = metadata.owner_references.iter().flatten();
    let owners = owners.map(|owner| {
        let texts = [&owner.name, &owner.uid, &owner.kind, &owner.api_version];
        2 * ENTRY + texts.map(String::len).iter().sum::<usize>()
    });
    let finalizers = metadata.finalizers.iter().flatten();
    let finalizers = finalizers.map(|finalizer| ENTRY + finalizer.len());
    let parts = maps.chain(managers).chain(owners).chain(finalizers);
    parts.chain(texts).sum()
}

fn of_value(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(|value| ENTRY + of_value(value)).sum(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| ENTRY + key.len() + of_value(value))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whatever_grows_an_object_grows_its_weight() {
        let object = |metadata: Value, data: Value| -> DynamicObject {
            let mut object = json!({"metadata": metadata});
            object["spec"] = data;
            serde_json::from_value(object).unwrap()
        };
        let least = weight(&object(json!({"name": "a"}), json!(null)));
        let long = "x".repeat(10_000);
        for (metadata, data) in [
            (json!({"name": long}), json!(null)),
            (json!({"namespace": long}), json!(null)),
            (json!({"uid": long}), json!(null)),
            (json!({"resourceVersion": long}), json!(null)),
            (json!({"managedFields": [{"manager": long}]}), json!(null)),
            (
                json!({"ownerReferences": [{"name": "n", "uid": "u", "kind": long, "apiVersion": "v1"}]}),
                json!(null),
            ),
            (json!({"labels": {"a": long}}), json!(null)),
            (json!({"annotations": {long.clone(): "b"}}), json!(null)),
            (json!({"finalizers": [long]}), json!(null)),
            (
                json!({"managedFields": [{"fieldsV1": {long.clone(): {}}}]}),
                json!(null),
            ),
            (
                json!({"ownerReferences": [{"name": long, "uid": "u", "kind": "K", "apiVersion": "v1"}]}),
                json!(null),
            ),
            (json!({}), json!({"deep": [{"a": long}]})),
            (json!({}), json!(vec![0; 1000])),
        ] {
            let heavy = weight(&object(metadata, data));
            assert!(heavy > least + 9_000, "{heavy}");
        }
    }
}
