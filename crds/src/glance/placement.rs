//! Where a Glance runs and where its secrets come from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{DNS_PATTERN, text_enum};

text_enum! {
    /// The kinds of secret store.
    SecretStoreKind {
        /// One for the whole cluster.
        ClusterSecretStore = "ClusterSecretStore",
        /// One of the namespace of the Glance.
        SecretStore = "SecretStore",
    }
}

/// The External Secrets store behind the credential Secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretStoreRef {
    /// `ClusterSecretStore` or `SecretStore`. A `SecretStore` is looked up in
    /// the namespace of this resource. Defaults to `ClusterSecretStore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "ClusterSecretStore"))]
    pub kind: Option<SecretStoreKind>,

    /// Name of the store.
    #[schemars(length(min = 1), regex(pattern = DNS_PATTERN))]
    pub name: String,
}

/// A registered target cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetClusterRef {
    /// Name of the cluster: the name of its registration Secret. The cluster
    /// need not be registered yet.
    #[schemars(length(min = 1), regex(pattern = DNS_PATTERN))]
    pub name: String,
}
