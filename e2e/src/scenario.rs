//! A Glance with everything around it: the database cluster, the secret store, the
//! credentials, the backends. Inputs go to the cluster where the Glance runs, the Glance
//! and its backends to the hub.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{cluster::Cluster, kinds};

/// The store that a Glance uses unless it says otherwise.
pub const DEFAULT_STORE: &str = "openbao-cluster-store";

/// A Glance to be.
#[derive(Debug, Clone)]
pub struct Scenario {
    namespace: String,
    name: String,
    target: Option<String>,
    backends: Vec<Backend>,
    spec: Value,
}

/// A backend to be.
#[derive(Debug, Clone)]
pub struct Backend {
    name: String,
    default: bool,
}

// === impl Scenario ===

impl Scenario {
    /// A Glance of release 2025.2 in managed mode, on the hub, without backends.
    pub fn new(namespace: &str, name: &str) -> Self {
        let spec = json!({
            "openStackRelease": "2025.2",
            "deployment": { "replicas": 2 },
            "image": { "repository": "registry.example/openstack/glance", "tag": "2025.2" },
            "database": {
                "clusterRef": { "name": "mariadb" },
                "database": "glance",
                "secretRef": { "name": format!("{name}-db") },
            },
            "cache": { "backend": "dogpile.cache.pymemcache", "clusterRef": { "name": "memcached" } },
            "keystoneEndpoint": "http://keystone.openstack.svc:5000/v3",
            "serviceUser": {
                "username": "glance",
                "projectName": "service",
                "userDomainName": "Default",
                "projectDomainName": "Default",
                "secretRef": { "name": format!("{name}-service-user"), "key": "password" },
            },
        });
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            target: None,
            backends: Vec::new(),
            spec,
        }
    }

    /// Places it on a target.
    #[must_use]
    pub fn on(mut self, target: &str) -> Self {
        self.target = Some(target.to_owned());
        self.spec["targetClusterRef"] = json!({ "name": target });
        self
    }

    /// Of this release, with an image of the same tag.
    #[must_use]
    pub fn release(mut self, release: &str) -> Self {
        self.spec["openStackRelease"] = json!(release);
        self.spec["image"]["tag"] = json!(release);
        self
    }

    /// With one more S3 backend.
    #[must_use]
    pub fn backend(mut self, name: &str, default: bool) -> Self {
        self.backends.push(Backend {
            name: name.to_owned(),
            default,
        });
        self
    }

    /// With a field of the spec set to a value; `null` removes it.
    #[must_use]
    pub fn with(mut self, field: &str, value: Value) -> Self {
        if value.is_null() {
            if let Some(spec) = self.spec.as_object_mut() {
                spec.remove(field);
            }
        } else {
            self.spec[field] = value;
        }
        self
    }

    /// The namespace of everything.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name of the Glance.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the cluster that it is placed on, `None` for the hub.
    pub fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }

    /// The Glance as a manifest.
    pub fn glance(&self) -> Value {
        json!({
            "apiVersion": kinds::GLANCE.0, "kind": kinds::GLANCE.1,
            "metadata": { "namespace": self.namespace, "name": self.name },
            "spec": self.spec,
        })
    }

    /// The backends as manifests.
    pub fn backends(&self) -> Vec<Value> {
        let manifest = |b: &Backend| backend(&self.namespace, &self.name, &b.name, b.default);
        self.backends.iter().map(manifest).collect()
    }

    /// The namespace, the database cluster and the secret store, on the cluster where the
    /// Glance runs.
    pub async fn apply_surroundings(&self, children: &Cluster) -> Result<()> {
        children.namespace(&self.namespace).await?;
        children.apply(&cluster_secret_store(DEFAULT_STORE)).await?;
        children.apply(&mariadb(&self.namespace, "mariadb")).await?;
        Ok(())
    }

    /// The credentials as plain Secrets, on the cluster where the Glance runs.
    pub async fn apply_credentials(&self, children: &Cluster) -> Result<()> {
        let (ns, name) = (&self.namespace, &self.name);
        let login = [("username", "glance"), ("password", "db-password")];
        children.secret(ns, &format!("{name}-db"), &login).await?;
        let password = [("password", "service-password")];
        children
            .secret(ns, &format!("{name}-service-user"), &password)
            .await?;
        for backend in &self.backends {
            let keys = [
                ("access-key-id", "AKIAEXAMPLE"),
                ("secret-access-key", "s3-secret"),
            ];
            children
                .secret(ns, &format!("{}-credentials", backend.name), &keys)
                .await?;
        }
        Ok(())
    }

    /// The Glance and its backends, on the hub.
    pub async fn apply_resources(&self, hub: &Cluster) -> Result<()> {
        hub.namespace(&self.namespace).await?;
        for backend in self.backends() {
            hub.apply(&backend).await?;
        }
        hub.apply(&self.glance()).await?;
        Ok(())
    }

    /// All of it. `children` is the cluster where the Glance runs, which may be the hub.
    pub async fn apply(&self, hub: &Cluster, children: &Cluster) -> Result<()> {
        self.apply_surroundings(children).await?;
        self.apply_credentials(children).await?;
        self.apply_resources(hub).await
    }
}

/// An S3 backend of a Glance.
pub fn backend(namespace: &str, glance: &str, name: &str, default: bool) -> Value {
    json!({
        "apiVersion": kinds::BACKEND.0, "kind": kinds::BACKEND.1,
        "metadata": { "namespace": namespace, "name": name },
        "spec": {
            "glanceRef": { "name": glance },
            "type": "S3",
            "isDefault": default,
            "s3": {
                "host": format!("https://{name}.s3.example"),
                "bucket": "images",
                "credentialsSecretRef": { "name": format!("{name}-credentials") },
            },
        },
    })
}

/// A `MariaDB` cluster.
pub fn mariadb(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": kinds::MARIADB.0, "kind": kinds::MARIADB.1,
        "metadata": { "namespace": namespace, "name": name },
        "spec": { "replicas": 1, "storage": { "size": "1Gi" } },
    })
}

/// A store of secrets for all namespaces.
pub fn cluster_secret_store(name: &str) -> Value {
    json!({
        "apiVersion": kinds::CLUSTER_SECRET_STORE.0, "kind": kinds::CLUSTER_SECRET_STORE.1,
        "metadata": { "name": name },
        "spec": provider(),
    })
}

/// A store of secrets for one namespace.
pub fn secret_store(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": kinds::SECRET_STORE.0, "kind": kinds::SECRET_STORE.1,
        "metadata": { "namespace": namespace, "name": name },
        "spec": provider(),
    })
}

fn provider() -> Value {
    json!({ "provider": { "fake": { "data": [{ "key": "a", "value": "b" }] } } })
}

/// A request for a Secret with these keys from the default store.
pub fn external_secret(namespace: &str, name: &str, keys: &[&str]) -> Value {
    let data: Vec<_> = keys
        .iter()
        .map(|key| json!({ "secretKey": key, "remoteRef": { "key": format!("{name}/{key}") } }))
        .collect();
    json!({
        "apiVersion": kinds::EXTERNAL_SECRET.0, "kind": kinds::EXTERNAL_SECRET.1,
        "metadata": { "namespace": namespace, "name": name },
        "spec": {
            "secretStoreRef": { "kind": "ClusterSecretStore", "name": DEFAULT_STORE },
            "data": data,
        },
    })
}

/// A Gateway with one listener for HTTPS, and the class it needs.
pub fn gateway(namespace: &str, name: &str) -> [Value; 2] {
    [
        json!({
            "apiVersion": kinds::GATEWAY.0, "kind": "GatewayClass",
            "metadata": { "name": "e2e" },
            "spec": { "controllerName": "e2e.c5c3.io/gateway" },
        }),
        json!({
            "apiVersion": kinds::GATEWAY.0, "kind": kinds::GATEWAY.1,
            "metadata": { "namespace": namespace, "name": name },
            "spec": {
                "gatewayClassName": "e2e",
                "listeners": [{ "name": "http", "port": 80, "protocol": "HTTP" }],
            },
        }),
    ]
}
