//! A hot-reloaded registry of Kubernetes clusters, fed by kubeconfig Secrets.
#![deny(missing_docs)]

mod backoff;
mod capability;
mod client;
mod cluster;
mod failure;
mod informer;
mod kind;
mod manager;
mod metrics;
mod registration;
mod registry;
mod state;
mod trigger;

pub use crate::{
    capability::CapabilityError,
    client::{AnswerTooLong, ClientOptions, DeadlineExceeded},
    cluster::{Cluster, Identity, OutOfScope},
    failure::{Cause, error_code, error_text},
    informer::{Change, Informer, InformerSpec, OnChange, Payload, Readiness},
    kind::Kind,
    metrics::Metrics,
    registration::{
        ContentHash, Fault, KUBECONFIG_KEY, NAMESPACES_KEY, REGISTRATION_LABEL, Refusal,
        Registration, RegistrationError, is_registration,
    },
    registry::{Registry, RegistryOptions},
    state::{ClusterChanged, ClusterState, State, Unresolved},
    trigger::{Trigger, Triggered},
};

/// Name of the hub among the clusters, in logs and metrics.
pub const LOCAL: &str = "local";
