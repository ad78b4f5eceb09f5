//! The External Secrets operator: stores are valid, and each `ExternalSecret` becomes a
//! Secret with what the vault holds for it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::FutureExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::status::{Behaviour, Errand, Role, Wish, condition};
use crate::{cluster::Cluster, kinds};

/// The contents of all stores, by namespace and name of the `ExternalSecret`. A key without an
/// entry gets a text made of namespace, name and key.
#[derive(Debug, Clone, Default)]
pub struct Vault {
    entries: Arc<Mutex<Entries>>,
}

/// Values by key, by namespace and name of the `ExternalSecret`.
type Entries = HashMap<(String, String), BTreeMap<String, String>>;

// === impl Vault ===

impl Vault {
    /// Puts values for one `ExternalSecret`. They reach the Secret at its next event.
    pub fn put(&self, namespace: &str, name: &str, values: &[(&str, &str)]) {
        let values = values
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        self.locked()
            .insert((namespace.to_owned(), name.to_owned()), values);
    }

    fn value(&self, namespace: &str, name: &str, key: &str) -> String {
        self.locked()
            .get(&(namespace.to_owned(), name.to_owned()))
            .and_then(|values| values.get(key).cloned())
            .unwrap_or_else(|| format!("{key}-of-{name}-in-{namespace}"))
    }

    #[allow(
        clippy::type_complexity,
        reason = "the type stands in the struct, five lines up"
    )]
    fn locked(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kinds of this operator.
pub fn roles(vault: &Vault) -> [Role; 3] {
    let vault = vault.clone();
    let errand: Errand = Arc::new(move |cluster, object| {
        let vault = vault.clone();
        async move { synchronise(&cluster, &object, &vault).await }.boxed()
    });
    [
        Role {
            kind: kinds::CLUSTER_SECRET_STORE,
            wish: store,
            errand: None,
        },
        Role {
            kind: kinds::SECRET_STORE,
            wish: store,
            errand: None,
        },
        Role {
            kind: kinds::EXTERNAL_SECRET,
            wish: secret,
            errand: Some(errand),
        },
    ]
}

fn store(_: &DynamicObject, behaviour: Behaviour) -> Wish {
    let ready = match behaviour {
        Behaviour::Broken => condition(
            "Ready",
            false,
            "InvalidProviderConfig",
            "unable to log in to the vault",
        ),
        _ => condition("Ready", true, "Valid", "store validated"),
    };
    Wish {
        status: Some(json!({ "conditions": [ready] })),
        finalizer: None,
    }
}

fn secret(_: &DynamicObject, behaviour: Behaviour) -> Wish {
    let ready = match behaviour {
        Behaviour::Broken => condition(
            "Ready",
            false,
            "SecretSyncedError",
            "could not get secret data from provider",
        ),
        _ => condition("Ready", true, "SecretSynced", "secret synced"),
    };
    Wish {
        status: Some(json!({ "conditions": [ready] })),
        finalizer: None,
    }
}

/// Writes the Secret that an `ExternalSecret` asks for.
async fn synchronise(
    cluster: &Cluster,
    object: &DynamicObject,
    vault: &Vault,
) -> Result<(), String> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let target = object
        .data
        .pointer("/spec/target/name")
        .and_then(Value::as_str)
        .unwrap_or(name);
    let keys = object.data.pointer("/spec/data").and_then(Value::as_array);
    let data: BTreeMap<&str, String> = keys
        .into_iter()
        .flatten()
        .filter_map(|entry| entry["secretKey"].as_str())
        .map(|key| (key, vault.value(namespace, name, key)))
        .collect();
    let applied = cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "namespace": namespace, "name": target,
                "ownerReferences": [{
                    "apiVersion": kinds::EXTERNAL_SECRET.0, "kind": kinds::EXTERNAL_SECRET.1,
                    "name": name, "uid": object.metadata.uid,
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "stringData": data,
        }))
        .await;
    applied.map(drop).map_err(|e| format!("{e:#}"))
}
