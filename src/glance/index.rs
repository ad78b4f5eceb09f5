//! What each CR depends on, the other way round: from a Secret or a store to the CRs that a change of it concerns.

use std::collections::{BTreeSet, HashMap};

use glance_api::{
    backend::GlanceBackend,
    defaults,
    glance::{Glance, SecretStoreKind},
};
use kube::ResourceExt;

/// Namespace and name of a CR.
pub type CrKey = (String, String);

/// Something outside a CR that its outcome depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dependency {
    /// A Secret in the CR's namespace.
    Secret(String, String),
    /// A `ConfigMap` in the CR's namespace.
    ConfigMap(String, String),
    /// A MariaDB cluster in the CR's namespace.
    MariaDb(String, String),
    /// A store in the CR's namespace.
    SecretStore(String, String),
    /// A store of the whole cluster.
    ClusterSecretStore(String),
}

/// A CR that depends on something.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dependent {
    /// A Glance.
    Glance(CrKey),
    /// A backend.
    Backend(CrKey),
}

/// The index over the specs of all CRs.
#[derive(Debug, Default)]
pub struct Index {
    by_dependency: HashMap<Dependency, BTreeSet<Dependent>>,
    by_dependent: HashMap<Dependent, Vec<Dependency>>,
    backends: HashMap<CrKey, BTreeSet<String>>,
    parents: HashMap<CrKey, String>,
}

// === impl Index ===

impl Index {
    /// Takes in a Glance as its spec stands.
    pub fn put_glance(&mut self, glance: &Glance) {
        let namespace = glance.namespace().unwrap_or_default();
        let spec = &glance.spec;
        let mut dependencies = vec![
            Dependency::Secret(namespace.clone(), spec.database.secret_ref.name.clone()),
            Dependency::Secret(namespace.clone(), spec.service_user.secret_ref.name.clone()),
        ];
        let (kind, store) = defaults::secret_store(spec);
        dependencies.push(match kind {
            SecretStoreKind::ClusterSecretStore => Dependency::ClusterSecretStore(store.to_owned()),
            SecretStoreKind::SecretStore => {
                Dependency::SecretStore(namespace.clone(), store.to_owned())
            }
        });
        if let Some(cluster) = &spec.database.cluster_ref {
            dependencies.push(Dependency::MariaDb(namespace.clone(), cluster.name.clone()));
        }
        if let Some(policy) = spec
            .policy_overrides
            .as_ref()
            .and_then(|policy| policy.config_map_ref.as_ref())
        {
            dependencies.push(Dependency::ConfigMap(
                namespace.clone(),
                policy.name.clone(),
            ));
        }
        self.put(
            Dependent::Glance((namespace, glance.name_any())),
            dependencies,
        );
    }

    /// Takes in a backend as its spec stands.
    pub fn put_backend(&mut self, backend: &GlanceBackend) {
        let namespace = backend.namespace().unwrap_or_default();
        let name = backend.name_any();
        let key = (namespace.clone(), name.clone());
        let dependencies = backend
            .spec
            .s3
            .iter()
            .map(|s3| Dependency::Secret(namespace.clone(), s3.credentials_secret_ref.name.clone()))
            .collect();
        self.remove_backend(&key);
        self.put(Dependent::Backend(key.clone()), dependencies);
        let parent = backend.spec.glance_ref.name.clone();
        if !parent.is_empty() {
            self.backends
                .entry((namespace, parent.clone()))
                .or_default()
                .insert(name);
            self.parents.insert(key, parent);
        }
    }

    /// Drops a Glance.
    pub fn remove_glance(&mut self, key: &CrKey) {
        self.remove(&Dependent::Glance(key.clone()));
    }

    /// Drops a backend.
    pub fn remove_backend(&mut self, key: &CrKey) {
        self.remove(&Dependent::Backend(key.clone()));
        if let Some(parent) = self.parents.remove(key) {
            let parent = (key.0.clone(), parent);
            if let Some(names) = self.backends.get_mut(&parent) {
                names.remove(&key.1);
                if names.is_empty() {
                    self.backends.remove(&parent);
                }
            }
        }
    }

    /// The CRs that depend on this.
    pub fn dependents(&self, dependency: &Dependency) -> Vec<Dependent> {
        self.by_dependency
            .get(dependency)
            .map(|dependents| dependents.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Whether any CR depends on this.
    pub fn is_named(&self, dependency: &Dependency) -> bool {
        self.by_dependency.contains_key(dependency)
    }

    /// The backends attached to a Glance.
    pub fn backends_of(&self, glance: &CrKey) -> Vec<CrKey> {
        self.backends
            .get(glance)
            .into_iter()
            .flatten()
            .map(|name| (glance.0.clone(), name.clone()))
            .collect()
    }

    /// The Glance a backend is attached to.
    pub fn parent_of(&self, backend: &CrKey) -> Option<CrKey> {
        let parent = self.parents.get(backend)?;
        Some((backend.0.clone(), parent.clone()))
    }

    fn put(&mut self, dependent: Dependent, dependencies: Vec<Dependency>) {
        self.remove(&dependent);
        for dependency in &dependencies {
            self.by_dependency
                .entry(dependency.clone())
                .or_default()
                .insert(dependent.clone());
        }
        self.by_dependent.insert(dependent, dependencies);
    }

    fn remove(&mut self, dependent: &Dependent) {
        for dependency in self.by_dependent.remove(dependent).into_iter().flatten() {
            if let Some(dependents) = self.by_dependency.get_mut(&dependency) {
                dependents.remove(dependent);
                if dependents.is_empty() {
                    self.by_dependency.remove(&dependency);
                }
            }
        }
    }
}
