//! Targets as the hub knows them: the access that a target grants, and the Secret on the hub
//! that registers it.

use anyhow::{Context as _, Result};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    charts,
    cluster::{CONFINED, Cluster, MANAGER},
    kinds,
};

/// The label that makes a Secret a registration.
pub const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// The account of the access chart.
pub const ACCOUNT: &str = "target-cluster-access";

/// Grants a hub access to namespaces of a target, as the access chart does, and returns
/// the kubeconfig to register. The account lives in `release_namespace`.
pub async fn grant(
    target: &Cluster,
    release_namespace: &str,
    namespaces: &[&str],
    values: &Value,
) -> Result<String> {
    target.namespace(release_namespace).await?;
    let mut all = json!({
        "namespaces": namespaces,
        "namespaceLabels": { CONFINED.0: CONFINED.1 },
    });
    if let (Some(all), Some(more)) = (all.as_object_mut(), values.as_object()) {
        all.extend(more.clone());
    }
    let release = format!("{release_namespace}-{ACCOUNT}");
    let manifests = charts::render(ACCOUNT, &release, release_namespace, &all).await?;
    charts::grant(target, &manifests).await?;
    target
        .kubeconfig_from(release_namespace, &format!("{ACCOUNT}-token"))
        .await
}

/// Takes verbs on an API group away from what was granted in a namespace, until it is granted again.
pub async fn withhold(
    target: &Cluster,
    release_namespace: &str,
    namespace: &str,
    group: &str,
    verbs: &[&str],
) -> Result<()> {
    let api = target.any("rbac.authorization.k8s.io/v1", "Role", Some(namespace));
    let name = format!("{release_namespace}-{ACCOUNT}");
    let mut rules = api.get(&name).await?.data["rules"].clone();
    let all = rules.as_array_mut().into_iter().flatten();
    let mut granted = all.filter(|rule| rule["apiGroups"][0] == group);
    let rule = granted
        .next()
        .with_context(|| format!("no rule for {group}"))?;
    if let Some(granted) = rule["verbs"].as_array_mut() {
        granted.retain(|verb| !verbs.iter().any(|gone| verb == gone));
    }
    let patch = Patch::Merge(json!({ "rules": rules }));
    api.patch(&name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Replaces the account's token: the old one stops working. Returns the new kubeconfig.
pub async fn rotate(
    target: &Cluster,
    release_namespace: &str,
    namespaces: &[&str],
) -> Result<String> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "namespace": release_namespace, "name": format!("{ACCOUNT}-token") },
    });
    target.delete(&secret).await?;
    grant(target, release_namespace, namespaces, &Value::Null).await
}

/// Writes the registration of a target on the hub. `namespaces` is the key of that name,
/// absent when `None`.
pub async fn register(
    hub: &Cluster,
    clusters_namespace: &str,
    name: &str,
    kubeconfig: &str,
    namespaces: Option<&str>,
) -> Result<()> {
    let mut data = json!({ "kubeconfig": kubeconfig });
    if let Some(namespaces) = namespaces {
        data["namespaces"] = json!(namespaces);
    }
    hub.namespace(clusters_namespace).await?;
    hub.apply(&json!({
        "apiVersion": kinds::SECRET.0, "kind": kinds::SECRET.1,
        "metadata": {
            "namespace": clusters_namespace, "name": name,
            "labels": { LABEL: "true" },
        },
        "stringData": data,
    }))
    .await?;
    Ok(())
}

/// Removes the registration of a target.
pub async fn deregister(hub: &Cluster, clusters_namespace: &str, name: &str) -> Result<()> {
    hub.delete(&json!({
        "apiVersion": kinds::SECRET.0, "kind": kinds::SECRET.1,
        "metadata": { "namespace": clusters_namespace, "name": name },
    }))
    .await
}

/// Sets the label's value, `None` removes the label.
pub async fn label(
    hub: &Cluster,
    clusters_namespace: &str,
    name: &str,
    value: Option<&str>,
) -> Result<()> {
    use kube::api::{Patch, PatchParams};
    let patch = json!({ "metadata": { "labels": { LABEL: value } } });
    let parameters = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..Default::default()
    };
    hub.any(kinds::SECRET.0, kinds::SECRET.1, Some(clusters_namespace))
        .patch(name, &parameters, &Patch::Merge(&patch))
        .await?;
    Ok(())
}
