//! Resources, roll-out strategy and placement of pods, as Kubernetes has them.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{IntOrString, Quantity};

/// Compute resources of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// The most the container may use, by resource name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,

    /// What the scheduler sets aside for the container, by resource name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,

    /// Entries of the pod's `resourceClaims` this container uses. Needs a
    /// cluster with dynamic resource allocation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub claims: Vec<ResourceClaim>,
}

/// One dynamic resource claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceClaim {
    /// Name of an entry in the pod's `resourceClaims`.
    pub name: String,

    /// Name of one request inside that claim. Unset means the whole claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// How a Deployment replaces its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentStrategy {
    /// `RollingUpdate` or `Recreate`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,

    /// Bounds of a rolling update. Only with type `RollingUpdate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
}

/// Bounds of a rolling update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// How many pods may run above the wanted count: a number, or a percentage such as `25%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,

    /// How many pods may be missing during the update: a number, or a percentage such as `25%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

/// How pods spread over the values of a node label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpreadConstraint {
    /// The largest allowed difference in pod count between two values of the
    /// topology key.
    pub max_skew: i32,

    /// The node label whose values are the places to spread over, such as
    /// `topology.kubernetes.io/zone`.
    pub topology_key: String,

    /// What to do with a pod that fits nowhere: `DoNotSchedule` or `ScheduleAnyway`.
    pub when_unsatisfiable: String,

    /// The pods that are counted. Required by the webhook, and it must name
    /// exactly the labels that select this Glance's pods
    /// (`app.kubernetes.io/name: glance` and `app.kubernetes.io/instance: <name>`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,

    /// Pod label keys whose values narrow the count further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub match_label_keys: Option<Vec<String>>,

    /// How many places have to exist at least. Only with `DoNotSchedule`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_domains: Option<i32>,

    /// Whether nodes outside the pod's node selector count: `Honor` or `Ignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_affinity_policy: Option<String>,

    /// Whether nodes with taints the pod does not tolerate count: `Honor` or `Ignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_taints_policy: Option<String>,
}

/// A selection of objects by their labels; all terms have to match.
///
/// Atomic: server-side apply replaces the selector as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that have to be present with exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,

    /// Further terms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One term of a label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelectorRequirement {
    /// The label key.
    pub key: String,

    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,

    /// The values for `In` and `NotIn`; empty for the other two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub values: Vec<String>,
}
