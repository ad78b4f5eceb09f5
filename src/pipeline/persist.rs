//! The only place that writes a status.
//!
//! One merge patch of the `status` subresource with the `resourceVersion` the pass started from as precondition; no
//! request at all when nothing changed. Fields that vanish are sent as `null`, since a merge patch keeps what it
//! does not name.

use kube::{
    Api, Resource,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::report::StepError;

/// Writes `status` over `object`'s stored one, unless both are equal. The object as the server answered it.
pub async fn status<K>(
    api: &Api<K>,
    object: &K,
    stored: &Value,
    status: &Value,
) -> Result<Option<K>, StepError>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    if stored == status {
        return Ok(None);
    }
    let meta = object.meta();
    let patch = json!({
        "metadata": { "resourceVersion": meta.resource_version, "uid": meta.uid },
        "status": merge(stored, status),
    });
    let name = meta.name.as_deref().unwrap_or_default();
    let written = api
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(Some(written))
}

/// The JSON value of a status, an absent one as an empty object.
pub fn value(status: Option<&impl Serialize>) -> Value {
    status
        .and_then(|status| serde_json::to_value(status).ok())
        .unwrap_or_else(|| Value::Object(Map::new()))
}

/// The merge patch that turns `stored` into `wanted`, at the top level of a status.
fn merge(stored: &Value, wanted: &Value) -> Value {
    let mut patch = wanted.as_object().cloned().unwrap_or_default();
    for key in stored.as_object().into_iter().flat_map(Map::keys) {
        patch.entry(key.clone()).or_insert(Value::Null);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_vanishes_is_sent_as_null() {
        let patch = merge(
            &json!({"upgradePhase": "Contracting", "endpoint": "a"}),
            &json!({"endpoint": "b"}),
        );
        assert_eq!(patch, json!({"upgradePhase": null, "endpoint": "b"}));
    }
}
