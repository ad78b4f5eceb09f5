//! What a Glance owns on a cluster, found by the marks of ownership alone: a controller
//! reference on the hub, three labels on a target.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use glance_api::keys::labels;
use kube::api::{DynamicObject, ListParams};

use crate::{
    cluster::{Cluster, code, told},
    kinds,
};

/// The kinds that a Glance may own.
pub const KINDS: [(&str, &str); 13] = [
    kinds::DEPLOYMENT,
    kinds::SERVICE,
    kinds::CONFIG_MAP,
    kinds::SECRET,
    kinds::JOB,
    kinds::CRON_JOB,
    kinds::DISRUPTION_BUDGET,
    kinds::AUTOSCALER,
    kinds::NETWORK_POLICY,
    kinds::DATABASE,
    kinds::USER,
    kinds::GRANT,
    kinds::HTTP_ROUTE,
];

/// Objects by `Kind/name`.
pub type Children = BTreeMap<String, DynamicObject>;

/// Every object in the namespace that the Glance controls by reference.
pub async fn by_reference(cluster: &Cluster, namespace: &str, glance: &str) -> Result<Children> {
    select(cluster, namespace, |object| {
        let references = object.metadata.owner_references.iter().flatten();
        references
            .clone()
            .any(|r| r.kind == kinds::GLANCE.1 && r.name == glance && r.controller == Some(true))
    })
    .await
}

/// Every object in the namespace that carries the three labels of the Glance.
pub async fn by_labels(cluster: &Cluster, namespace: &str, glance: &str) -> Result<Children> {
    select(cluster, namespace, |object| {
        let found = object.metadata.labels.clone().unwrap_or_default();
        let is = |key: &str, value: &str| found.get(key).is_some_and(|v| v == value);
        is(labels::OWNER_KIND, kinds::GLANCE.1)
            && is(labels::OWNER_NAME, glance)
            && is(labels::OWNER_NAMESPACE, namespace)
    })
    .await
}

/// Every object of those kinds in the namespace.
pub async fn all(cluster: &Cluster, namespace: &str) -> Result<Children> {
    select(cluster, namespace, |_| true).await
}

async fn select(
    cluster: &Cluster,
    namespace: &str,
    choose: impl Fn(&DynamicObject) -> bool,
) -> Result<Children> {
    let mut found = Children::new();
    for (version, kind) in KINDS {
        let api = cluster.any(version, kind, Some(namespace));
        let list = match api.list(&ListParams::default()).await {
            Ok(list) => list,
            // The kind is not served.
            Err(e) if code(&e) == Some(404) => continue,
            Err(e) => return Err(anyhow!("listing {kind}: {}", told(&e))),
        };
        for object in list.items.into_iter().filter(&choose) {
            let name = object.metadata.name.clone().unwrap_or_default();
            found.insert(format!("{kind}/{name}"), object);
        }
    }
    Ok(found)
}

/// The keys with the hash at the end of a content-addressed name replaced by `*`.
pub fn names(children: &Children) -> Vec<String> {
    let hash = |text: &str| text.len() >= 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
    children
        .keys()
        .map(|key| match key.rsplit_once('-') {
            Some((base, end)) if hash(end) => format!("{base}-*"),
            _ => key.clone(),
        })
        .collect()
}
