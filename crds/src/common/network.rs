//! Egress rules of a `NetworkPolicy`, as Kubernetes has them.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{IntOrString, LabelSelector};

/// One allowed kind of outgoing traffic: to any of the peers, on any of the ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyEgressRule {
    /// Destination ports. Unset or empty means every port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub ports: Option<Vec<NetworkPolicyPort>>,

    /// Destinations. Unset or empty means every destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub to: Option<Vec<NetworkPolicyPeer>>,
}

/// A port, or a range of ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyPort {
    /// Port number, or the name of a container port. Unset means every port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<IntOrString>,

    /// Last port of a range that starts at `port`, which then has to be a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_port: Option<i32>,

    /// `TCP`, `UDP` or `SCTP`. Unset means TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// A destination: addresses, or pods chosen by namespace and labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyPeer {
    /// A range of addresses. Excludes the two selectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_block: Option<IpBlock>,

    /// Namespaces by label; `{}` means every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,

    /// Pods by label, in those namespaces or, without them, in the policy's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
}

/// A range of addresses with exceptions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpBlock {
    /// The range in CIDR form, such as `10.0.0.0/8`.
    pub cidr: String,

    /// Ranges inside `cidr` that are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub except: Option<Vec<String>>,
}
