//! A hot-reloaded registry of Kubernetes clusters, fed by kubeconfig Secrets.
//!
//! One cluster, the *hub*, holds a Secret for each cluster a process may work on. [`Registry`]
//! watches these Secrets and keeps every cluster they name connected; [`Registry::resolve`] turns a
//! name into a [`Cluster`] without ever waiting. What a [`Cluster`] offers is made for controllers
//! that must go on working while some of their clusters do not:
//!
//! - [`Cluster::client`]: each call has a deadline, its body included, and is never repeated behind
//!   the caller's back;
//! - [`Cluster::informer`]: one kind in memory, watched with selector and metadata only where that
//!   suffices; starts when the kind appears, stops when it goes, and fails alone;
//! - [`Cluster::serves`]: whether a kind exists there, with three answers;
//! - [`Cluster::try_permit`]: no more work at a time than the cluster is allowed to bind;
//! - [`Trigger`]: events of any number of clusters, coalesced into one stream for a controller.
//!
//! ```no_run
//! use kube::api::{Api, ListParams};
//! use k8s_openapi::api::core::v1::Pod;
//! use target_registry::{ClientOptions, Cluster, Registry, RegistryOptions};
//! use tokio_util::sync::CancellationToken;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let hub = Cluster::hub(kube::Config::infer().await?, None, &ClientOptions::default())?;
//! let stop = CancellationToken::new();
//! let registry = Registry::start(&hub, RegistryOptions::new("clusters"), stop.clone());
//! registry.attempted().await;
//!
//! match registry.resolve("blue") {
//!     Ok(blue) => {
//!         let pods: Api<Pod> = Api::namespaced(blue.client(), "default");
//!         println!("{} pods", pods.list(&ListParams::default()).await?.items.len());
//!     }
//!     Err(unresolved) => println!("{unresolved}"),
//! }
//!
//! stop.cancel();
//! registry.closed().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Registrations
//!
//! A Secret in the namespace of [`RegistryOptions::namespace`], labelled with
//! [`REGISTRATION_LABEL`]`=true`, registers the cluster of its own name:
//!
//! | Data key | Content |
//! | --- | --- |
//! | [`KUBECONFIG_KEY`] | one kubeconfig; its current context is used |
//! | [`NAMESPACES_KEY`] | optional: the only namespaces to look at, separated by commas |
//!
//! A kubeconfig is data from somebody who may not be trusted with this process. Everything in it
//! that would run a program, open a file or lower security is refused, in every entry and not only
//! in the current one; see [`Refusal`]. Inline tokens and client certificates are accepted.
//!
//! # Reload
//!
//! New content is connected and identified beside what is in use, and swapped in one step; then the
//! old [generation](Cluster::generation) ends. A token that changed alone is swapped in place, under
//! running watches. What happens to the last good connection otherwise depends on what the change
//! can have meant:
//!
//! | The Secret now | The last good connection |
//! | --- | --- |
//! | is unreadable (bad YAML, a dangling name) | is kept, [`State::Degraded`] |
//! | names a server that cannot be reached | is kept, [`State::Degraded`] |
//! | is gone, unlabelled, or without kubeconfig | ends at once |
//! | is refused for security | ends at once |
//! | declares fewer namespaces, or bad ones | ends at once |
//! | has a credential that is not accepted (401) | ends at once |
//! | leads to another cluster than before | ends at once, until written back or created anew |
//!
//! # Policy
//!
//! A [`TargetCluster`] of the name of the Secret, in the same namespace, says who may use the cluster
//! and how; [`Registry::resolve_for`] holds to it. It shows the state as well, and is created where it
//! is missing. An installation without the custom resource goes without both.
//! # Health
//!
//! A connected cluster is probed with `GET /readyz`, over the client that does the work. Some
//! failures in a row make it [`State::Lost`]: from then on its name does not resolve, its watches
//! rest, and nothing but the probe touches the network, ever more rarely. Some answers in a row
//! bring it back, as the same [generation](Cluster::generation) and after a look whether it is still
//! the same cluster. How many and how often is in [`ProbeOptions`]. A server that asks to be left
//! alone (429) is not lost.
//!
//! # Bulkheads
//!
//! Connecting, probing and watching are tasks of the cluster they belong to. No lock is held across a call,
//! so a cluster that hangs delays nobody who does not ask it. A frozen server is noticed by HTTP/2
//! PING within seconds, also by a watch that is silent anyway.
#![deny(missing_docs)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

mod backoff;
mod breaker;
mod capability;
mod client;
mod cluster;
mod failure;
mod informer;
mod kind;
mod manager;
mod metrics;
mod mirror;
mod objects;
mod pages;
mod permits;
mod policy;
mod preflight;
mod registration;
mod registry;
mod renewal;
mod state;
pub mod target_cluster;
mod trigger;

pub use crate::{
    breaker::ProbeOptions,
    capability::CapabilityError,
    client::{AnswerTooLong, ClientOptions, DeadlineExceeded, Fence, Fenced},
    cluster::{Cluster, Identity, OutOfScope},
    failure::{Cause, error_code, error_text, one_line},
    informer::{Change, Informer, InformerSpec, OnChange, Payload, Readiness},
    kind::Kind,
    metrics::Metrics,
    objects::Dependents,
    pages::Pages,
    permits::Permit,
    policy::Purpose,
    preflight::{Needs, Permission},
    registration::{
        Claims, ContentHash, Fault, KUBECONFIG_KEY, NAMESPACES_KEY, REGISTRATION_LABEL, Refusal,
        Registration, RegistrationError, is_registration,
    },
    registry::{Registry, RegistryOptions},
    renewal::RENEWAL_LABEL,
    state::{ClusterChanged, ClusterState, State, Unresolved},
    target_cluster::{TargetCluster, TargetClusterSpec, TargetClusterStatus},
    trigger::{Trigger, Triggered},
};

/// Name of the hub among the clusters, in logs and metrics.
pub const LOCAL: &str = "local";
