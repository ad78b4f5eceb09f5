//! The pod of the API.

use glance_api::defaults;
use glance_api::glance::Glance;
use glance_api::keys::annotations::{AUTHTOKEN_HASH, DB_CONNECTION_HASH};
use serde_json::{Map, Value, json};

use super::environment::SecretKeyRef;
use super::labels::{self, Component};
use super::{Identity, cache_sidecar, containers, volumes};

/// What earlier steps hand to the pod.
#[derive(Clone, Copy, Debug)]
pub struct PodInputs<'a> {
    /// Name of the `ConfigMap` with the rendered config.
    pub config_map: &'a str,
    /// Name of the Secret with the rendered stores.
    pub backends_secret: &'a str,
    /// Digest of the DSN; empty leaves its annotation out.
    pub dsn_digest: &'a str,
    /// Digest of the service user's password; empty leaves its annotation out.
    pub password_digest: &'a str,
    /// Where the service user's password stands.
    pub authtoken_secret: &'a SecretKeyRef,
}

/// The pod template of the Deployment.
pub fn template(glance: &Glance, id: Identity<'_>, inputs: PodInputs<'_>) -> Value {
    let spec = &glance.spec;
    let mut containers = vec![containers::api(spec, id.name, inputs.authtoken_secret)];
    containers.extend(cache_sidecar::container(spec));

    let mut pod = json!({
        "terminationGracePeriodSeconds": defaults::termination_grace_period_seconds(spec),
        "topologySpreadConstraints": defaults::topology_spread_constraints(spec, id.name),
        "securityContext": pod_security(),
        // Nothing in the pod talks to the API server.
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "containers": containers,
        "volumes": volumes::api(spec, inputs.config_map, inputs.backends_secret),
    });
    if let Some(class) = priority_class(glance) {
        pod["priorityClassName"] = json!(class);
    }

    let mut metadata = json!({ "labels": labels::component(id.name, Component::Api) });
    let annotations = annotations(inputs);
    if !annotations.is_empty() {
        metadata["annotations"] = Value::Object(annotations);
    }
    json!({ "metadata": metadata, "spec": pod })
}

/// The group that reads projected files; the kubelet writes them as root.
pub fn pod_security() -> Value {
    json!({ "fsGroup": containers::OPENSTACK_ID })
}

/// Both values reach the process as environment, so only a restart makes a rotation effective.
/// Config and stores need no digest: the names of their objects carry one.
fn annotations(inputs: PodInputs<'_>) -> Map<String, Value> {
    [
        (DB_CONNECTION_HASH, inputs.dsn_digest),
        (AUTHTOKEN_HASH, inputs.password_digest),
    ]
    .into_iter()
    .filter(|(_, digest)| !digest.is_empty())
    .map(|(key, digest)| (key.to_owned(), json!(digest)))
    .collect()
}

fn priority_class(glance: &Glance) -> Option<&str> {
    let class = glance
        .spec
        .deployment
        .as_ref()?
        .priority_class_name
        .as_deref()?;
    (!class.is_empty()).then_some(class)
}
