//! How a registry works.

use std::time::Duration;

use crate::{ClientOptions, ProbeOptions, preflight::Needs};

/// How a [`Registry`](crate::Registry) works.
#[derive(Clone, Debug)]
pub struct RegistryOptions {
    /// Namespace of the hub that holds the registration Secrets. Labelled Secrets elsewhere mean
    /// nothing.
    pub namespace: String,
    /// Accept what is refused by default: unverified TLS, plain HTTP, proxies, passwords, user
    /// info in URLs, impersonation. Never plugins and never files.
    pub allow_insecure: bool,
    /// For one attempt to connect, identity included. Default 10 s.
    pub engage_timeout: Duration,
    /// How connected clusters are probed, and how often the others are tried.
    pub probe: ProbeOptions,
    /// How the clusters are spoken to.
    pub client: ClientOptions,
    /// Whether a cluster admits only the namespaces its `TargetCluster` names. Without this, one
    /// that names none admits every namespace.
    pub require_grants: bool,
    /// What every cluster has to offer: checked when it is connected, and shown on its `TargetCluster`.
    pub needs: Needs,
    /// Name of the program, for what it writes on the hub. Default `target-registry`.
    pub program: String,
}

// === impl RegistryOptions ===

impl RegistryOptions {
    /// The defaults, for the Secrets of `namespace`.
    pub fn new(namespace: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            allow_insecure: false,
            engage_timeout: Duration::from_secs(10),
            probe: ProbeOptions::default(),
            client: ClientOptions::default(),
            require_grants: false,
            needs: Needs::default(),
            program: "target-registry".to_owned(),
        }
    }
}
