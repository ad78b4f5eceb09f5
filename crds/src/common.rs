//! Blocks that both kinds, or several places of one kind, embed.
//!
//! The Kubernetes-like ones are own types rather than the client library's:
//! the library's schemas lack the list and map marks that server-side apply
//! needs, and its quantities neither keep an integer an integer nor carry the
//! pattern (contract: custom-resource API, schema traps).

mod absent;
mod condition;
mod network;
mod quantity;
mod reference;
mod scheduling;
mod text_enum;

pub(crate) use absent::absent_is_default;
pub use condition::{Condition, ConditionStatus, Time};
pub use network::{IpBlock, NetworkPolicyEgressRule, NetworkPolicyPeer, NetworkPolicyPort};
pub use quantity::{IntOrString, Quantity};
pub use reference::{LocalRef, SecretRef};
pub use scheduling::{
    DeploymentStrategy, LabelSelector, LabelSelectorRequirement, ResourceClaim,
    ResourceRequirements, RollingUpdate, TopologySpreadConstraint,
};
pub use text_enum::UnknownValue;
pub(crate) use text_enum::text_enum;

/// A DNS subdomain, as object names are. Lengths are the API server's business.
pub(crate) const DNS_PATTERN: &str =
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// An absolute http or https URL, as far as a pattern can tell.
pub(crate) const HTTP_PATTERN: &str = "^https?://";
