//! The fleet as the hub tells of it: registrations, what is known of them, and who needs them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use target_registry::{Registration, TargetCluster, is_registration};

/// A Glance that names a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its namespace, on the hub and on the cluster.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The cluster.
    pub cluster: String,
    /// Whether it has a route through a Gateway.
    pub gateway: bool,
    /// Whether its database is made by the MariaDB operator.
    pub managed_database: bool,
}

/// Everything about one name.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// The Secret of that name, registration or not; `None` also when Secrets may not be read.
    pub secret: Option<Secret>,
    /// The object of that name.
    pub target: Option<TargetCluster>,
    /// The Glances that name it; `None` when they may not be listed.
    pub glances: Option<Vec<Placed>>,
    /// The Secrets with renewed tokens, of all names.
    pub renewals: Arc<[Secret]>,
}

/// The whole fleet as the hub tells of it.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// By name.
    pub entries: Vec<Entry>,
    /// Whether the kind `TargetCluster` is installed.
    pub serves_targets: bool,
    /// Whether the user may read the Secrets.
    pub reads_secrets: bool,
}

// === impl Placed ===

impl Placed {
    pub(super) fn read(glance: &DynamicObject) -> Option<Self> {
        let spec = glance.data.get("spec")?;
        let set = |pointer: &str| spec.pointer(pointer).is_some_and(|value| !value.is_null());
        Some(Self {
            namespace: glance.metadata.namespace.clone()?,
            name: glance.metadata.name.clone()?,
            cluster: spec.pointer("/targetClusterRef/name")?.as_str()?.to_owned(),
            gateway: set("/gateway"),
            managed_database: set("/database/clusterRef"),
        })
    }
}

impl std::fmt::Display for Placed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

// === impl Fleet ===

impl Fleet {
    /// Another registration that leads to the cluster of this identity and works in all of it with this account.
    pub fn at_home(&self, name: &str, uid: &str, account: &(String, String)) -> Option<String> {
        let mut others = self.entries.iter().filter(|entry| entry.name != name);
        let same = others.find(|other| {
            let target = other.target.as_ref();
            let status = target.and_then(|target| target.status.as_ref());
            status.is_some_and(|status| status.cluster_uid.as_deref() == Some(uid))
                && other.in_use().is_some_and(|registration| {
                    registration.claims().account.as_ref() == Some(account)
                        && registration.namespaces().is_none()
                })
        });
        same.map(|entry| entry.name.clone())
    }

    /// Another registration that leads to the cluster of this one and logs in with this account and, if one is named, with
    /// the token of this Secret.
    pub fn twin(
        &self,
        name: &str,
        account: &(String, String),
        token: Option<&str>,
    ) -> Option<String> {
        let own = self.entries.iter().find(|entry| entry.name == name)?;
        let mut others = self.entries.iter().filter(|entry| entry.name != name);
        let same = others.find(|other| {
            let claims = other.in_use().map(|registration| registration.claims());
            claims.is_some_and(|claims| {
                claims.account.as_ref() == Some(account)
                    && token.is_none_or(|token| claims.secret.as_deref() == Some(token))
            }) && own.leads_where(other)
        });
        same.map(|entry| entry.name.clone())
    }

    /// Other registrations with this account of which it is not known which cluster they lead to.
    pub fn unidentified(
        &self,
        name: &str,
        account: &(String, String),
    ) -> impl Iterator<Item = (&str, Registration)> {
        let others = self.entries.iter();
        let others = others.filter(move |entry| entry.name != name && entry.uid().is_none());
        others.filter_map(move |entry| {
            let registration = entry.in_use()?;
            let is_of_it = registration.claims().account.as_ref() == Some(account);
            is_of_it.then_some((entry.name.as_str(), registration))
        })
    }
}

// === impl Entry ===

impl Entry {
    /// The registration Secret, if there is one that counts.
    pub fn registration(&self) -> Option<&Secret> {
        let secret = self.secret.as_ref();
        secret.filter(|secret| is_registration(&secret.metadata))
    }

    /// The registration as the operator uses it, with a renewed token where there is one.
    pub fn in_use(&self) -> Option<Registration> {
        // What the operator was allowed by its flags is not known here; it has the last word.
        let written = Registration::from_secret(self.registration()?, true).ok()?;
        let mut renewals = self.renewals.iter();
        let renewed = renewals.find_map(|secret| written.renewed_by(secret));
        Some(renewed.unwrap_or(written))
    }

    /// Whether both lead to one cluster: by the address, or, under two addresses, by who answers there.
    fn leads_where(&self, other: &Self) -> bool {
        let server = |entry: &Self| entry.in_use().map(|registration| registration.server());
        let alike = |a: Option<String>, b: Option<String>| a.is_some() && a == b;
        alike(server(self), server(other)) || alike(self.uid(), other.uid())
    }

    /// Identity of the cluster, as far as the operator has said.
    fn uid(&self) -> Option<String> {
        self.target.as_ref()?.status.as_ref()?.cluster_uid.clone()
    }

    /// A data key of the Secret, registration or not.
    pub fn data(&self, key: &str) -> Option<&[u8]> {
        let data = self.secret.as_ref()?.data.as_ref()?;
        data.get(key).map(|bytes| bytes.0.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_glances_that_name_a_cluster_are_placed() {
        let read = |spec: Value| {
            let glance: DynamicObject = serde_json::from_value(json!({
                "metadata": { "namespace": "openstack", "name": "images" }, "spec": spec,
            }))
            .unwrap();
            Placed::read(&glance)
        };
        assert_eq!(read(json!({ "gateway": {} })), None);
        let placed = read(json!({
            "targetClusterRef": { "name": "edge-1" },
            "gateway": { "hostname": "x" },
            "database": { "host": "db.example" },
        }))
        .unwrap();
        assert_eq!(placed.to_string(), "openstack/images");
        assert!(placed.gateway && !placed.managed_database);
    }
}
