//! Manifests from files.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use glance_api::{Glance, GlanceBackend};
use secrecy::{ExposeSecret as _, SecretSlice};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::policy::{self, Defaults};

/// Namespace and name.
pub type Key = (String, String);

/// Everything the files hold.
#[derive(Debug, Default)]
pub struct Input {
    /// The Glances, in the order of the files.
    pub glances: Vec<Glance>,
    /// The stores of all of them.
    pub backends: Vec<GlanceBackend>,
    /// The Glances as a cluster has them.
    pub live: BTreeMap<Key, Glance>,
    /// The stores that only a cluster has.
    pub live_backends: Vec<GlanceBackend>,
    /// Data of Secrets.
    pub secrets: BTreeMap<Key, BTreeMap<String, SecretSlice<u8>>>,
    /// Data of `ConfigMap`s.
    pub config_maps: BTreeMap<Key, BTreeMap<String, String>>,
    /// What was left out.
    pub notes: Vec<String>,
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no YAML.
    #[error("{}: {cause}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        cause: String,
    },
    /// One of its objects does not have the shape of its kind.
    #[error("{}: {kind} {name}: {cause}", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// What is wrong with it.
        cause: String,
    },
}

// === impl Input ===

impl Input {
    /// Reads files, `-` standing for standard input. Objects without a
    /// namespace get `namespace`.
    pub fn read(files: &[PathBuf], namespace: &str) -> Result<Self, InputError> {
        let mut input = Self::default();
        for path in files {
            let text = text(path).map_err(|source| InputError::Unreadable {
                path: path.clone(),
                source,
            })?;
            input.add(path, &text, namespace)?;
        }
        Ok(input)
    }

    /// The stores of a namespace that are not being deleted, by name.
    pub fn backends_of(&self, namespace: &str) -> Vec<&GlanceBackend> {
        let all = self.backends.iter().chain(&self.live_backends);
        let mut backends: Vec<_> = all
            .filter(|backend| {
                backend.metadata.namespace.as_deref() == Some(namespace)
                    && backend.metadata.deletion_timestamp.is_none()
            })
            .collect();
        backends.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        backends
    }

    /// Adds the documents of one file.
    pub fn add(&mut self, path: &Path, text: &str, namespace: &str) -> Result<(), InputError> {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(text).map_err(|error| InputError::Malformed {
                path: path.to_owned(),
                // The text around the fault may be a Secret's.
                cause: error.without_snippet().to_string(),
            })?;
        for document in documents {
            self.add_object(path, document, namespace)?;
        }
        Ok(())
    }

    /// Writes what a resource leaves out, as the webhook does.
    fn fill_in(
        &mut self,
        path: &Path,
        key: &Key,
        object: &mut Value,
        defaults: &dyn Fn(&Value) -> Defaults,
    ) -> Result<(), InputError> {
        let defaults = defaults(object);
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let warnings = defaults.warnings.iter();
        self.notes
            .extend(warnings.map(|warning| format!("warning: {kind} {}: {warning}", key.1)));
        json_patch::patch(object, &defaults.patch)
            .map_err(|error| shape(path, &kind, key, error.to_string()))
    }

    fn add_object(
        &mut self,
        path: &Path,
        mut object: Value,
        namespace: &str,
    ) -> Result<(), InputError> {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        if let Some(items) = object["items"].as_array_mut() {
            let items = std::mem::take(items);
            return items
                .into_iter()
                .try_for_each(|item| self.add_object(path, item, namespace));
        }
        if object["metadata"]["namespace"].as_str().is_none() {
            object["metadata"]["namespace"] = namespace.into();
        }
        let place = |field: &str| {
            let text = object["metadata"][field].as_str();
            text.unwrap_or_default().to_owned()
        };
        let key = (place("namespace"), place("name"));
        let version = object["apiVersion"].as_str().unwrap_or_default();
        match (version, kind.as_str()) {
            (glance_api::API_VERSION, "Glance") => {
                self.fill_in(path, &key, &mut object, &policy::default_glance)?;
                self.glances.push(typed(path, &kind, &key, object)?);
            }
            (glance_api::API_VERSION, "GlanceBackend") => {
                self.fill_in(path, &key, &mut object, &policy::default_backend)?;
                self.backends.push(typed(path, &kind, &key, object)?);
            }
            ("v1", "Secret") => {
                let data = secret_data(&object).map_err(|cause| shape(path, &kind, &key, cause))?;
                self.secrets.insert(key, data);
            }
            ("v1", "ConfigMap") => {
                let data = object["data"].as_object().into_iter().flatten();
                let data =
                    data.filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())));
                self.config_maps.insert(key, data.collect());
            }
            _ => self
                .notes
                .push(format!("note: {kind} {} is not used", key.1)),
        }
        Ok(())
    }
}

fn text(path: &Path) -> io::Result<String> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    fs::read_to_string(path)
}

fn typed<T: DeserializeOwned>(
    path: &Path,
    kind: &str,
    key: &Key,
    object: Value,
) -> Result<T, InputError> {
    serde_json::from_value(object).map_err(|error| shape(path, kind, key, error.to_string()))
}

fn shape(path: &Path, kind: &str, key: &Key, cause: String) -> InputError {
    InputError::Shape {
        path: path.to_owned(),
        kind: kind.to_owned(),
        name: key.1.clone(),
        cause,
    }
}

/// `stringData` wins over `data`, as on a server.
fn secret_data(object: &Value) -> Result<BTreeMap<String, SecretSlice<u8>>, String> {
    let mut data = BTreeMap::new();
    for (key, value) in object["data"].as_object().into_iter().flatten() {
        let bytes = data_encoding::BASE64
            .decode(value.as_str().unwrap_or_default().as_bytes())
            .map_err(|_| format!("the value of data[{key}] is not base64"))?;
        data.insert(key.clone(), SecretSlice::from(bytes));
    }
    for (key, value) in object["stringData"].as_object().into_iter().flatten() {
        let bytes = value.as_str().unwrap_or_default().as_bytes().to_vec();
        data.insert(key.clone(), SecretSlice::from(bytes));
    }
    data.retain(|_, value| !value.expose_secret().is_empty());
    Ok(data)
}
