//! The custom resources of the API group `glance.openstack.c5c3.io/v1alpha1`:
//! their types, their schema and the names they carry in a cluster.
//!
//! This crate is the contract and nothing else: it talks to no server and
//! renders nothing. The operator, the webhooks, the generated YAML in this
//! directory and the tests all read it, so a value or a name stands here once.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`glance`], [`backend`] | the two kinds, field by field |
//! | [`common`] | references, quantities and the Kubernetes-like blocks both kinds embed |
//! | [`conditions`] | condition types and reasons |
//! | [`keys`] | labels, annotations, finalizers, event reasons |
//! | [`defaults`] | what an absent value means |
//! | [`schema`] | the custom resource definitions as they are shipped |

#[allow(
    dead_code,
    reason = "the derive of the schema copies the spec and never reads its copy"
)]
pub mod backend;
pub mod common;
pub mod conditions;
pub mod defaults;
#[allow(
    dead_code,
    reason = "the derive of the schema copies the spec and never reads its copy"
)]
pub mod glance;
pub mod keys;
pub mod schema;

pub use backend::GlanceBackend;
pub use glance::Glance;

/// The API group of both kinds.
pub const GROUP: &str = "glance.openstack.c5c3.io";

/// The only version, served and stored.
pub const VERSION: &str = "v1alpha1";

/// Group and version as they stand in `apiVersion`.
pub const API_VERSION: &str = "glance.openstack.c5c3.io/v1alpha1";
