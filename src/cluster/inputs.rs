//! What others provide next to the children: credential Secrets, stores, the database cluster, a policy `ConfigMap`.
//!
//! Secrets are watched by metadata; the payload is read live when its version is new, lives for one pass, and leaves
//! only key names behind.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, ResourceExt,
    core::{DynamicObject, TypeMeta},
};
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use serde_json::{Map, Value};
use target_registry::{Kind, Readiness};

use super::{
    Target,
    kinds::{CONFIG_MAP, EXTERNAL_SECRET, SECRET},
    ledger::{self, SecretFacts, Version},
};
use crate::pipeline::report::{ErrorKind, StepError};

/// One version of a Secret, values included.
#[derive(Debug)]
pub struct Payload {
    /// Which version.
    pub version: Version,
    data: BTreeMap<String, SecretSlice<u8>>,
}

/// What an `ExternalSecret` says about a Secret that is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// There is no `ExternalSecret` of that name (or no such kind).
    Absent,
    /// It has not synced.
    NotReady,
    /// It says that it has.
    Ready,
}

/// Whether an object that others run is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputState {
    /// Its condition `Ready` is True.
    Ready,
    /// It is absent or not ready.
    NotReady,
    /// The cluster does not serve its kind.
    NotServed,
}

// === impl Payload ===

impl Payload {
    fn of(secret: Secret) -> Self {
        let version = ledger::version(&secret.metadata);
        let data = secret
            .data
            .unwrap_or_default()
            .into_iter()
            .map(|(key, value)| (key, SecretSlice::from(value.0)))
            .collect();
        Self { version, data }
    }

    /// The value of a key; an empty one counts as missing.
    pub fn get(&self, key: &str) -> Option<&SecretSlice<u8>> {
        self.data
            .get(key)
            .filter(|value| !value.expose_secret().is_empty())
    }

    /// The value of a key as text.
    pub fn text(&self, key: &str) -> Result<Option<SecretString>, std::str::Utf8Error> {
        self.get(key)
            .map(|value| {
                std::str::from_utf8(value.expose_secret())
                    .map(|text| SecretString::from(text.to_owned()))
            })
            .transpose()
    }

    /// The keys there are, empty values marked.
    pub fn facts(&self) -> SecretFacts {
        SecretFacts {
            version: self.version.clone(),
            keys: self
                .data
                .iter()
                .map(|(key, value)| (key.clone(), !value.expose_secret().is_empty()))
                .collect(),
        }
    }

    /// All keys, empty ones included.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.data.keys().map(String::as_str)
    }
}

// === impl SecretFacts ===

impl SecretFacts {
    /// The keys of `wanted` that are absent or empty.
    pub fn missing<'a>(&self, wanted: &[&'a str]) -> Vec<&'a str> {
        wanted
            .iter()
            .filter(|key| self.keys.get(**key) != Some(&true))
            .copied()
            .collect()
    }
}

// === impl Target ===

impl Target {
    /// Fails where the registration does not cover the CR's namespace.
    pub fn check_scope(&self, name: &str) -> Result<(), StepError> {
        self.cluster
            .check_scope(self.namespace(), name)
            .map_err(|error| StepError::new(ErrorKind::OutOfScope, error.to_string()))
    }

    /// What is known of a Secret in the CR's namespace. `None`: there is none.
    pub async fn secret(&self, name: &str) -> Result<Option<SecretFacts>, StepError> {
        self.check_scope(name)?;
        if let Some(facts) = self.known_secret(name).await {
            return Ok(Some(facts));
        }
        Ok(self.payload(name).await?.map(|payload| payload.facts()))
    }

    /// A Secret in the CR's namespace with its values: read live, once per pass.
    pub async fn payload(&self, name: &str) -> Result<Option<Arc<Payload>>, StepError> {
        self.check_scope(name)?;
        let known = self.lock_payloads().get(name).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let api: Api<Secret> = Api::namespaced(self.cluster.client(), self.namespace());
        let read = match api.get(name).await {
            Ok(secret) => {
                let meta = metadata_only(&SECRET, secret.metadata.clone());
                self.view.observe(&SECRET, meta);
                let payload = Arc::new(Payload::of(secret));
                self.view
                    .ledger
                    .learn_secret(self.namespace(), name, payload.facts());
                Some(payload)
            }
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => return Err(StepError::from(error).context(&self.reading("Secret", name))),
        };
        self.lock_payloads().insert(name.to_owned(), read.clone());
        Ok(read)
    }

    /// Why a Secret may not be usable.
    ///
    /// The watch remembers an `ExternalSecret` only from the moment on that some CR names its Secret. One that was
    /// there before has to be read once, or it would count as absent until its next event.
    pub async fn explain(&self, name: &str) -> Result<Explanation, StepError> {
        let namespace = Some(self.namespace());
        let known = match self.input(&EXTERNAL_SECRET, namespace, name).await? {
            None if self.is_watched(&EXTERNAL_SECRET).await => {
                let read = self.read_input(&EXTERNAL_SECRET, namespace, name).await?;
                if let Some(object) = &read {
                    self.view.observe(&EXTERNAL_SECRET, object.as_ref().clone());
                }
                read
            }
            known => known,
        };
        Ok(match known {
            None => Explanation::Absent,
            Some(object) if is_ready(&object) => Explanation::Ready,
            Some(_) => Explanation::NotReady,
        })
    }

    async fn is_watched(&self, kind: &Kind) -> bool {
        let readiness = self.view.readiness(kind, Some(self.namespace())).await;
        readiness == Readiness::Synced
    }

    /// Whether an input is ready; `namespace` is `None` for a cluster-scoped kind.
    pub async fn input_state(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<InputState, StepError> {
        if namespace.is_some() {
            self.check_scope(name)?;
        }
        if let Readiness::NotServed = self.view.readiness(kind, namespace).await {
            return Ok(InputState::NotServed);
        }
        let ready = self
            .input(kind, namespace, name)
            .await?
            .is_some_and(|object| is_ready(&object));
        Ok(if ready {
            InputState::Ready
        } else {
            InputState::NotReady
        })
    }

    /// Data of a `ConfigMap` in the CR's namespace. `None`: there is none.
    pub async fn config_map(
        &self,
        name: &str,
    ) -> Result<Option<BTreeMap<String, String>>, kube::Error> {
        let namespace = self.namespace();
        if let Readiness::Synced = self.view.readiness(&CONFIG_MAP, Some(namespace)).await
            && let Some(object) = self
                .view
                .informer(&CONFIG_MAP)
                .and_then(|informer| informer.get(Some(namespace), name))
            && let Some(data) =
                self.view
                    .ledger
                    .config_map(namespace, name, &ledger::version(&object.metadata))
        {
            return Ok(Some(data));
        }
        let api: Api<ConfigMap> = Api::namespaced(self.cluster.client(), namespace);
        match api.get(name).await {
            Ok(object) => {
                let version = ledger::version(&object.metadata);
                let data = object.data.unwrap_or_default();
                self.view
                    .observe(&CONFIG_MAP, metadata_only(&CONFIG_MAP, object.metadata));
                self.view
                    .ledger
                    .learn_config_map(namespace, name, version, data.clone());
                Ok(Some(data))
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn known_secret(&self, name: &str) -> Option<SecretFacts> {
        let namespace = self.namespace();
        let Readiness::Synced = self.view.readiness(&SECRET, Some(namespace)).await else {
            return None;
        };
        let object = self.view.informer(&SECRET)?.get(Some(namespace), name)?;
        self.view
            .ledger
            .secret(namespace, name, &ledger::version(&object.metadata))
    }

    /// An input as the watch knows it, or read live where there is no watch to trust.
    pub async fn input(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<DynamicObject>>, StepError> {
        match self.view.readiness(kind, namespace).await {
            Readiness::Synced => Ok(self
                .view
                .informer(kind)
                .and_then(|informer| informer.get(namespace, name))),
            Readiness::NotServed => Ok(None),
            Readiness::Forbidden(_) | Readiness::Failing(_) => {
                self.read_input(kind, namespace, name).await
            }
        }
    }

    async fn read_input(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<DynamicObject>>, StepError> {
        let resource = kind.api_resource();
        let client = self.cluster.client();
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        match api.get(name).await {
            Ok(object) => Ok(Some(Arc::new(object))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(StepError::from(error).context(&self.reading(kind.kind, name))),
        }
    }

    fn reading(&self, kind: &str, name: &str) -> String {
        format!("getting {kind} {}/{name}", self.namespace())
    }

    fn lock_payloads(
        &self,
    ) -> std::sync::MutexGuard<'_, std::collections::HashMap<String, Option<Arc<Payload>>>> {
        self.payloads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an object's condition `Ready` is True.
pub fn is_ready(object: &DynamicObject) -> bool {
    object.data["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// An object of which only the metadata is kept.
pub fn metadata_only(
    kind: &Kind,
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> DynamicObject {
    let mut object = DynamicObject::new(
        metadata.name.as_deref().unwrap_or_default(),
        &kind.api_resource(),
    );
    object.types = Some(TypeMeta {
        api_version: kind.api_resource().api_version,
        kind: kind.kind.to_owned(),
    });
    object.metadata = metadata;
    object.data = Value::Object(Map::new());
    debug_assert!(!object.name_any().is_empty());
    object
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn a_payload_can_be_logged_without_harm() {
        let data = [("password", "hunter2"), ("empty", "")]
            .map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())));
        let payload = Payload::of(Secret {
            data: Some(data.into()),
            ..Secret::default()
        });
        let text = payload.text("password").unwrap();
        let shown = format!(
            "{payload:?} {:?} {text:?} {:?}",
            payload.get("password"),
            payload.facts()
        );
        let bytes = format!("{:?}", b"hunter2");
        for secret in ["hunter2", "aHVudGVyMg", bytes.trim_matches(['[', ']'])] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(shown.contains("password"));
        assert_eq!(payload.facts().missing(&["password", "empty"]), ["empty"]);
    }
}
