//! References to other objects of the namespace.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DNS_PATTERN;

/// A Secret in the namespace of the resource, and optionally one of its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret, in the namespace of this resource. On a placed
    /// Glance (`spec.targetClusterRef`) the Secret lives on the target cluster.
    #[schemars(length(min = 1), regex(pattern = DNS_PATTERN))]
    pub name: String,

    /// Key inside the Secret's data. Only some references use it; where the
    /// keys are fixed it is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// An object of a kind that the field implies, in the same namespace.
///
/// Atomic: server-side apply replaces the reference as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
#[serde(rename_all = "camelCase")]
pub struct LocalRef {
    /// Name of the object.
    #[serde(default)]
    #[schemars(extend("default" = ""))]
    pub name: String,
}
