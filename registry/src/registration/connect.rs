//! From a registration to a connection.

use std::sync::Arc;

use kube::client::ConfigExt as _;

use super::Registration;
use crate::{
    ClientOptions, Cluster,
    client::{Connection, Credential, Limits, Shared, Throttle},
    cluster::Parts,
    informer::Budget,
    metrics::ClusterMetrics,
    permits::Permits,
};

// === impl Registration ===

impl Registration {
    /// A connection of the caller's own, outside of any registry and without numbers in its
    /// metrics: for a tool that looks into one registration. Nothing is sent yet; ask
    /// [`Cluster::probe`] whether anybody answers.
    ///
    /// # Errors
    ///
    /// When no TLS configuration can be made of the registration.
    pub async fn connect(&self, options: &ClientOptions) -> Result<Arc<Cluster>, kube::Error> {
        let keepsakes = Shared {
            throttle: Arc::new(Throttle::default()),
            metrics: ClusterMetrics::target(self.name(), None),
            limits: Limits::target(),
        };
        let permits = Permits::new(options.max_in_flight);
        self.open(1, permits, options, &keepsakes).await
    }

    pub(crate) async fn open(
        &self,
        generation: u64,
        permits: Arc<Permits>,
        options: &ClientOptions,
        keepsakes: &Shared,
    ) -> Result<Arc<Cluster>, kube::Error> {
        let connection = Connection::new(
            self.access.config.clone(),
            self.tls().await?,
            Some(Credential::new(self.access.credential.clone())),
            self.access.headers.clone(),
            options,
            keepsakes,
        )?;
        Ok(Cluster::new(Parts {
            name: self.name().to_owned(),
            hub: false,
            generation,
            namespaces: self.namespaces().cloned(),
            connection,
            permits,
            metrics: keepsakes.metrics.clone(),
            budget: Budget::new(options.memory_limit),
        }))
    }

    /// Without a CA in the kubeconfig the one of the operating system is read, which takes a while
    /// and must not hold up other clusters.
    async fn tls(&self) -> Result<rustls::ClientConfig, kube::Error> {
        let config = self.access.config.clone();
        if config.root_cert.is_some() {
            return config.rustls_client_config();
        }
        tokio::task::spawn_blocking(move || config.rustls_client_config())
            .await
            .map_err(|error| kube::Error::Service(error.into()))?
    }
}
