//! What is remembered of a cluster between passes, so that a converged pass sends no request.
//!
//! Keyed by the cluster's name, not by its connection: a rotated registration forgets nothing. Holds hashes, names and
//! versions, never a secret value.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use glance_api::keys::FIELD_MANAGER;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ObjectMeta};
use serde::Serialize;
use serde_json::{Value, json};
use target_registry::Kind;
use tokio::time::Instant;

use crate::hash::sha256_hex;

/// The replica count among the fields of a manager.
const REPLICAS: &str = "/f:spec/f:replicas";

/// How long an optional right that was refused is not asked for again.
const REFUSED: Duration = Duration::from_mins(1);

/// Kind, namespace and name of an object on one cluster.
pub type ObjectKey = (&'static str, String, String);

/// The state in which an apply was a no-op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Identity of the live object.
    pub uid: String,
    /// Hash of what we want.
    pub desired: String,
    /// Hash of our `managedFields` entry after the apply: it moves as soon as anybody changes a field of ours, or puts
    /// an older state of the object back.
    pub managed: String,
}

/// Which version of an object was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// Identity.
    pub uid: String,
    /// Version.
    pub resource_version: String,
}

/// What is known of a Secret that others write: its keys, not its values.
#[derive(Clone, Debug)]
pub struct SecretFacts {
    /// The version these facts are of.
    pub version: Version,
    /// Data keys, and whether each has a value that is not empty.
    pub keys: BTreeMap<String, bool>,
}

/// The memory of one cluster.
#[derive(Debug, Default)]
pub struct Ledger {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    applied: HashMap<ObjectKey, Applied>,
    own_writes: HashMap<ObjectKey, String>,
    secrets: HashMap<(String, String), SecretFacts>,
    config_maps: HashMap<(String, String), (Version, BTreeMap<String, String>)>,
    outputs: HashMap<(String, &'static str), (String, String)>,
    sections: HashMap<String, BTreeSet<String>>,
    genuine: HashSet<String>,
    pods_refused: HashMap<String, Instant>,
}

/// The ledgers of all clusters.
#[derive(Clone, Debug, Default)]
pub struct Ledgers {
    by_cluster: Arc<Mutex<HashMap<String, Arc<Ledger>>>>,
}

// === impl Ledgers ===

impl Ledgers {
    /// The ledger of the cluster of this name.
    pub fn of(&self, cluster: &str) -> Arc<Ledger> {
        Arc::clone(
            lock(&self.by_cluster)
                .entry(cluster.to_owned())
                .or_default(),
        )
    }

    /// Forgets the clusters that are not `known`. Who still works on one keeps what it has.
    pub fn retain(&self, known: impl Fn(&str) -> bool) {
        lock(&self.by_cluster).retain(|cluster, _| known(cluster));
    }
}

// === impl Ledger ===

impl Ledger {
    /// Remembers that the pods of a namespace may not be looked at.
    pub fn pods_refused(&self, namespace: &str) {
        self.lock()
            .pods_refused
            .insert(namespace.to_owned(), Instant::now());
    }

    /// Whether the pods of a namespace may be asked for: not soon after that was refused.
    pub fn may_ask_for_pods(&self, namespace: &str) -> bool {
        let inner = self.lock();
        let refused = inner.pods_refused.get(namespace);
        refused.is_none_or(|refused| refused.elapsed() > REFUSED)
    }

    /// The state in which the last apply of this object ended.
    pub fn applied(&self, key: &ObjectKey) -> Option<Applied> {
        self.lock().applied.get(key).cloned()
    }

    /// Remembers how an apply ended.
    pub fn record(&self, key: ObjectKey, applied: Applied) {
        self.lock().applied.insert(key, applied);
    }

    /// Remembers a version that we wrote ourselves: its event is no news.
    pub fn wrote(&self, key: ObjectKey, resource_version: String) {
        self.lock().own_writes.insert(key, resource_version);
    }

    /// Whether an event only shows what we wrote.
    pub fn is_own_write(&self, key: &ObjectKey, resource_version: Option<&str>) -> bool {
        self.lock().own_writes.get(key).map(String::as_str) == resource_version
            && resource_version.is_some()
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, key: &ObjectKey) {
        let mut inner = self.lock();
        inner.applied.remove(key);
        inner.own_writes.remove(key);
        if key.0 == "Secret" {
            inner.secrets.remove(&(key.1.clone(), key.2.clone()));
        }
        if key.0 == "ConfigMap" {
            inner.config_maps.remove(&(key.1.clone(), key.2.clone()));
        }
    }

    /// Facts of a Secret, if they are of this version.
    pub fn secret(&self, namespace: &str, name: &str, version: &Version) -> Option<SecretFacts> {
        let inner = self.lock();
        let facts = inner
            .secrets
            .get(&(namespace.to_owned(), name.to_owned()))?;
        (facts.version == *version).then(|| facts.clone())
    }

    /// Remembers facts of a Secret.
    pub fn learn_secret(&self, namespace: &str, name: &str, facts: SecretFacts) {
        self.lock()
            .secrets
            .insert((namespace.to_owned(), name.to_owned()), facts);
    }

    /// Data of a `ConfigMap`, if it is of this version.
    pub fn config_map(
        &self,
        namespace: &str,
        name: &str,
        version: &Version,
    ) -> Option<BTreeMap<String, String>> {
        let inner = self.lock();
        let (known, data) = inner
            .config_maps
            .get(&(namespace.to_owned(), name.to_owned()))?;
        (known == version).then(|| data.clone())
    }

    /// Remembers the data of a `ConfigMap`.
    pub fn learn_config_map(
        &self,
        namespace: &str,
        name: &str,
        version: Version,
        data: BTreeMap<String, String>,
    ) {
        self.lock()
            .config_maps
            .insert((namespace.to_owned(), name.to_owned()), (version, data));
    }

    /// What a step came to for these inputs, so that it need not read payloads again.
    pub fn output(&self, owner_uid: &str, step: &'static str, inputs: &str) -> Option<String> {
        let inner = self.lock();
        let (known, output) = inner.outputs.get(&(owner_uid.to_owned(), step))?;
        (known == inputs).then(|| output.clone())
    }

    /// Remembers what a step came to.
    pub fn learn_output(
        &self,
        owner_uid: &str,
        step: &'static str,
        inputs: String,
        output: String,
    ) {
        self.lock()
            .outputs
            .insert((owner_uid.to_owned(), step), (inputs, output));
    }

    /// The section names of a rendered backends Secret (immutable, so the UID says it all).
    pub fn sections(&self, secret_uid: &str) -> Option<BTreeSet<String>> {
        self.lock().sections.get(secret_uid).cloned()
    }

    /// Remembers the section names of a rendered backends Secret.
    pub fn learn_sections(&self, secret_uid: &str, sections: BTreeSet<String>) {
        let mut inner = self.lock();
        // A hostile rate of rotations must not grow this without bound; reading one again costs one request.
        if inner.sections.len() > 10_000 {
            inner.sections.clear();
        }
        inner.sections.insert(secret_uid.to_owned(), sections);
    }

    /// Whether an immutable object of this UID was seen to hold what its name stands for.
    pub fn is_genuine(&self, uid: &str) -> bool {
        self.lock().genuine.contains(uid)
    }

    /// Remembers that an immutable object holds what its name stands for.
    pub fn learn_genuine(&self, uid: &str) {
        let mut inner = self.lock();
        if inner.genuine.len() > 10_000 {
            inner.genuine.clear();
        }
        inner.genuine.insert(uid.to_owned());
    }

    /// Forgets what belongs to a Glance that is gone.
    pub fn forget_owner(&self, owner_uid: &str) {
        self.lock().outputs.retain(|(uid, _), _| uid != owner_uid);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

/// Hash of a value as JSON; the maps of a [`Value`] are ordered, so equal values hash equally.
pub fn of_json(value: &impl Serialize) -> String {
    // Texts, numbers and maps with texts for keys: there is nothing to fail.
    sha256_hex(serde_json::to_vec(value).unwrap_or_default())
}

/// The key of an object.
pub fn key(kind: &Kind, namespace: &str, name: &str) -> ObjectKey {
    (kind.kind, namespace.to_owned(), name.to_owned())
}

/// The version of an object.
pub fn version(meta: &ObjectMeta) -> Version {
    Version {
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
    }
}

/// Hash of our server-side-apply entry, whether reduced by [`reduce_managed_fields`] or whole: the fields, and the time
/// of the last apply that changed one. A cluster that was restored from a backup has our fields with older values.
pub fn managed_hash(meta: &ObjectMeta) -> Option<String> {
    meta.managed_fields
        .iter()
        .flatten()
        .filter(|entry| {
            entry.manager.as_deref() == Some(FIELD_MANAGER)
                && entry.operation.as_deref() == Some("Apply")
                && entry.subresource.is_none()
        })
        .find_map(|entry| match &entry.fields_v1 {
            Some(FieldsV1(Value::String(hash))) => Some(hash.clone()),
            Some(FieldsV1(fields)) => Some(of_json(&(fields, &entry.time))),
            None => None,
        })
}

/// Keeps of `managedFields` only what is read later, since they are most of the bytes of an object's metadata: the
/// hash of our entry for [`managed_hash`], and who else asserts the replica count.
pub fn reduce_managed_fields(meta: &mut ObjectMeta) {
    let hash = managed_hash(meta);
    let entries = meta.managed_fields.take().into_iter().flatten();
    let kept: Vec<_> = entries
        .filter_map(|mut entry| {
            let ours = entry.manager.as_deref() == Some(FIELD_MANAGER);
            let fields = if ours
                && entry.operation.as_deref() == Some("Apply")
                && entry.subresource.is_none()
            {
                Value::String(hash.clone()?)
            } else if !ours && entry.fields_v1.as_ref()?.0.pointer(REPLICAS).is_some() {
                json!({ "f:spec": { "f:replicas": {} } })
            } else {
                return None;
            };
            entry.fields_v1 = Some(FieldsV1(fields));
            Some(entry)
        })
        .collect();
    meta.managed_fields = (!kept.is_empty()).then_some(kept);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while holding the lock cannot leave the maps half written: each method is one insertion or removal.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(manager: &str, operation: &str, fields: &Value) -> ObjectMeta {
        serde_json::from_value(json!({
            "managedFields": [
                {"manager": "kubelet", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}},
                {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields},
            ]
        }))
        .unwrap()
    }

    #[test]
    fn reducing_keeps_the_hash_of_our_entry_and_nothing_of_others() {
        let mut ours = meta(
            FIELD_MANAGER,
            "Apply",
            &json!({"f:spec": {"f:replicas": {}}}),
        );
        let before = managed_hash(&ours).unwrap();
        reduce_managed_fields(&mut ours);
        assert_eq!(ours.managed_fields.as_ref().unwrap().len(), 1);
        assert_eq!(managed_hash(&ours).unwrap(), before);
        reduce_managed_fields(&mut ours);
        assert_eq!(managed_hash(&ours).unwrap(), before);
    }

    #[test]
    fn who_else_scales_a_deployment_is_not_forgotten() {
        let mut scaled = meta(
            "autoscaler",
            "Update",
            &json!({"f:spec": {"f:replicas": {}, "f:paused": {}}}),
        );
        reduce_managed_fields(&mut scaled);
        let kept = scaled.managed_fields.unwrap();
        assert_eq!(kept.len(), 1);
        assert_eq!(
            kept[0].fields_v1.as_ref().unwrap().0,
            json!({"f:spec": {"f:replicas": {}}})
        );
    }

    #[test]
    fn a_field_that_moves_to_another_manager_changes_the_hash() {
        let before = managed_hash(&meta(
            FIELD_MANAGER,
            "Apply",
            &json!({"f:a": {}, "f:b": {}}),
        ));
        let after = managed_hash(&meta(FIELD_MANAGER, "Apply", &json!({"f:a": {}})));
        assert_ne!(before, after);
        assert_eq!(
            managed_hash(&meta(FIELD_MANAGER, "Update", &json!({}))),
            None
        );
    }

    #[test]
    fn an_older_state_of_the_same_object_is_another_one() {
        let applied_at = |time: &str| {
            let mut meta = meta(FIELD_MANAGER, "Apply", &json!({"f:a": {}}));
            meta.managed_fields.as_mut().unwrap()[1].time =
                Some(serde_json::from_value(json!(time)).unwrap());
            reduce_managed_fields(&mut meta);
            managed_hash(&meta)
        };
        let newer = applied_at("2026-01-01T00:00:02Z");
        assert_eq!(newer, applied_at("2026-01-01T00:00:02Z"));
        assert_ne!(newer, applied_at("2026-01-01T00:00:01Z"));
    }

    #[test]
    fn what_is_remembered_of_a_cluster_lasts_as_long_as_its_registration() {
        let ledgers = Ledgers::default();
        ledgers.of("edge-1").learn_genuine("u");
        ledgers.of("edge-2").learn_genuine("u");
        ledgers.retain(|name| name == "edge-2");
        assert!(!ledgers.of("edge-1").is_genuine("u"), "registered anew");
        assert!(ledgers.of("edge-2").is_genuine("u"));
    }

    #[test]
    fn facts_count_for_their_version_only() {
        let ledger = Ledger::default();
        let version = Version {
            uid: "u".into(),
            resource_version: "1".into(),
        };
        let facts = SecretFacts {
            version: version.clone(),
            keys: BTreeMap::from([("password".into(), true)]),
        };
        ledger.learn_secret("ns", "db", facts);
        assert!(ledger.secret("ns", "db", &version).is_some());
        let newer = Version {
            resource_version: "2".into(),
            ..version
        };
        assert!(ledger.secret("ns", "db", &newer).is_none());
    }
}
