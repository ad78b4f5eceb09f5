//! `TargetCluster`: what may be done with a registered cluster, and what is known of it.
//!
//! A registration Secret alone registers a cluster. The object of the same name beside it adds
//! policy, and shows the state to people who may not read Secrets.

mod status;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use kube::{CustomResource, KubeSchema, core::SelectorExt as _};
use serde::{Deserialize, Serialize};

pub use self::status::{
    Abandoned, Condition, ConditionStatus, CredentialKind, CredentialStatus, MissingPermission,
    TargetClusterStatus,
};
use crate::Kind;

/// API group of [`TargetCluster`].
pub const GROUP: &str = "clusters.openstack.c5c3.io";

/// File the definition is shipped in.
pub const FILE: &str = "clusters.openstack.c5c3.io_targetclusters.yaml";

/// The kind, for watches.
pub const TARGET_CLUSTER: Kind =
    Kind::namespaced(GROUP, "v1alpha1", "TargetCluster", "targetclusters");

/// Label of the objects that a registry has created by itself; its value names the program. They go
/// with their registration.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// Annotation that asks for the objects in `status.abandoned` to be deleted; value `true`.
pub const RECLAIM_ANNOTATION: &str = "clusters.openstack.c5c3.io/reclaim";

/// Passes that may work on one cluster at a time unless [`TargetClusterSpec::max_in_flight`] says
/// otherwise.
pub const DEFAULT_MAX_IN_FLIGHT: usize = 8;

/// What may be done with a registered cluster.
#[allow(
    clippy::duplicated_attributes,
    reason = "columns share types and priorities"
)]
#[derive(
    CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq,
)]
#[kube(
    group = "clusters.openstack.c5c3.io",
    version = "v1alpha1",
    kind = "TargetCluster",
    plural = "targetclusters",
    singular = "targetcluster",
    namespaced,
    category = "openstack",
    shortname = "tc",
    status = "TargetClusterStatus",
    derive = "PartialEq",
    doc = "A cluster that this hub may work on: who may use it and how, and what is known of it. Its name is that of the registration Secret in the same namespace. The Secret alone registers the cluster; where it has no TargetCluster yet, one is created.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Glances", type_ = "integer", json_path = ".status.glances"),
    printcolumn(
        name = "Expires",
        type_ = "string",
        json_path = ".status.credential.expiresAt"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.status!='True')].reason"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Server",
        type_ = "string",
        json_path = ".status.server",
        priority = 1
    ),
    printcolumn(
        name = "UID",
        type_ = "string",
        json_path = ".status.clusterUID",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct TargetClusterSpec {
    /// Namespaces of the hub whose resources may name this cluster. Unset admits every namespace,
    /// unless the operator runs with `--require-target-grants`, which then admits none. A namespace
    /// that loses its grant keeps what it has there; nothing more is written for it, and teardown
    /// still works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_namespaces: Option<AllowedNamespaces>,

    /// Whether nothing may be written to this cluster, teardown included, for as long as it takes.
    /// Reads and the status go on. Unset means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,

    /// The cluster this name must lead to: the UID of its `kube-system` namespace. Unset means the
    /// one it leads to first, as recorded in `status.clusterUID`. Setting it to another cluster's UID
    /// is how a move to that cluster is approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 128),
        regex(pattern = r"^[A-Za-z0-9]([-A-Za-z0-9._:]*[A-Za-z0-9])?$")
    )]
    pub identity: Option<String>,

    /// How many resources may be worked on at this cluster at one time. Unset means 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_in_flight: Option<i32>,

    /// Whether the token of the registration is renewed before it expires, through a token request
    /// on the cluster itself. The renewed one is kept in a Secret of its own; the registration is
    /// never changed. Needs the right to create tokens of the registration's account there. Unset
    /// means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_credentials: Option<bool>,
}

/// Namespaces by name, by label, or both; one that either admits is admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedNamespaces {
    /// Names of namespaces of the hub.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(schema_with = "namespace_names")]
    pub names: BTreeSet<String>,

    /// Labels of namespaces of the hub; `{}` selects every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// A choice by labels, as Kubernetes has it: all parts must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must have exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,

    /// Further demands on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One demand on a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0"
).message("values are required with In and NotIn, and must be absent with Exists and DoesNotExist"))]
pub struct LabelSelectorRequirement {
    /// The label's key.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,

    /// How its value relates to `values`: In, `NotIn`, Exists or `DoesNotExist`.
    #[schemars(schema_with = "operators")]
    pub operator: String,

    /// Values for In and `NotIn`; absent with Exists and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "label_values")]
    pub values: Vec<String>,
}

// === impl TargetClusterSpec ===

impl TargetClusterSpec {
    /// Whether nothing may be written.
    pub fn is_paused(&self) -> bool {
        self.paused == Some(true)
    }

    /// How many passes may work at one time.
    pub fn limit(&self) -> usize {
        self.max_in_flight
            .and_then(|limit| usize::try_from(limit).ok())
            .filter(|limit| *limit > 0)
            .unwrap_or(DEFAULT_MAX_IN_FLIGHT)
    }

    /// Whether it says nothing that would be missed.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            allowed_namespaces,
            paused,
            identity,
            max_in_flight,
            renew_credentials,
        } = self;
        allowed_namespaces.is_none()
            && *paused != Some(true)
            && identity.is_none()
            && max_in_flight.is_none()
            && *renew_credentials != Some(true)
    }

    /// The wanted identity, if there is one.
    pub fn pinned(&self) -> Option<&str> {
        self.identity.as_deref().filter(|uid| !uid.is_empty())
    }
}

// === impl TargetCluster ===

impl TargetCluster {
    /// Whether the program of this name has created it. Others may have written into it since.
    pub fn is_managed_by(&self, program: &str) -> bool {
        let labels = self.metadata.labels.as_ref();
        labels
            .and_then(|labels| labels.get(MANAGED_BY_LABEL))
            .is_some_and(|value| value == program)
    }

    /// Whether what was abandoned is to be deleted.
    pub fn wants_reclaim(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations
            .and_then(|annotations| annotations.get(RECLAIM_ANNOTATION))
            .is_some_and(|value| value == "true")
    }
}

// === impl AllowedNamespaces ===

impl AllowedNamespaces {
    /// Whether a namespace with these labels is admitted. Without labels, by its name alone.
    pub fn admits(&self, namespace: &str, labels: Option<&BTreeMap<String, String>>) -> bool {
        let selected = |selector: &LabelSelector| labels.is_some_and(|l| selector.matches(l));
        self.names.contains(namespace) || self.selector.as_ref().is_some_and(selected)
    }
}

// === impl LabelSelector ===

impl LabelSelector {
    /// Whether a set of labels is chosen. A demand that makes no sense chooses nothing.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let selector = meta::LabelSelector {
            match_labels: Some(self.match_labels.clone()),
            match_expressions: Some(
                self.match_expressions
                    .iter()
                    .map(|demand| meta::LabelSelectorRequirement {
                        key: demand.key.clone(),
                        operator: demand.operator.clone(),
                        values: (!demand.values.is_empty()).then(|| demand.values.clone()),
                    })
                    .collect(),
            ),
        };
        kube::core::Selector::try_from(selector).is_ok_and(|selector| selector.matches(labels))
    }
}

fn namespace_names(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 1000,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": 63,
            "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        },
    })
}

fn operators(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "string",
        "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
    })
}

fn label_values(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 256,
        "x-kubernetes-list-type": "atomic",
        "items": { "type": "string", "maxLength": 63 },
    })
}

#[cfg(test)]
mod tests;
