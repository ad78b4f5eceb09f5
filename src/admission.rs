//! The admission webhooks: what the API server asks before it stores a Glance or a `GlanceBackend`.
//!
//! Every replica serves them, over TLS with a certificate that may change at any time. This module decodes, looks up
//! what only the API server knows, and encodes; what is admitted and what is filled in is decided in
//! [`crate::policy`], which nothing of this can reach (contract: operations, webhook server).
//!
//! Nothing here may stop people from working: the API server refuses every write while nobody answers, so an answer
//! comes in time, refusing if need be, and no request costs more memory than its share.

mod answer;
mod backend;
mod glance;
mod handshake;
mod lookup;
mod service;

use std::{net::SocketAddr, path::Path, time::Duration};

use axum_server::{Handle, tls_rustls::from_tcp_rustls};
use tokio_util::sync::CancellationToken;

pub use handshake::Handshake;
pub use lookup::Lookup;
pub use service::Hook;

use crate::{
    admin::{self, Check},
    metrics::Metrics,
    tls::{CertificateError, ServingCertificate},
};

/// How long a client may take to begin its first request.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// How long a replica that was told to stop still takes requests: until then API servers may not have heard that it is
/// going, and with nobody listening each write that they send here would fail.
const LINGER: Duration = Duration::from_secs(3);
/// How long requests that are being answered may take to end after that.
const DRAIN: Duration = Duration::from_secs(9);

/// Why the webhooks cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no certificate.
    #[error(
        "no certificate for the admission webhooks: {source}; mount one, name its folder with --webhook-cert-dir, or \
         switch the webhooks off with --enable-webhooks=false"
    )]
    Certificate {
        /// What is wrong with it.
        #[from]
        source: CertificateError,
    },
    /// The address cannot be had.
    #[error(
        "cannot listen on {address} for the admission webhooks ({source}): choose another address with \
         --webhook-bind-address"
    )]
    Listen {
        /// The address.
        address: String,
        /// Why.
        source: std::io::Error,
    },
}

/// The webhook server with its listener open and its certificate read.
#[derive(Debug)]
pub struct Webhooks {
    listener: std::net::TcpListener,
    address: SocketAddr,
    certificate: ServingCertificate,
    handshake: Handshake,
}

// === impl Webhooks ===

impl Webhooks {
    /// Opens `address` and reads the certificate in `folder`. Both fail early: without them nothing of what an
    /// installation with webhooks promises would hold.
    pub async fn open(address: &str, folder: &Path) -> Result<Self, OpenError> {
        let certificate = ServingCertificate::load(folder).await?;
        let failed = |source| OpenError::Listen {
            address: address.to_owned(),
            source,
        };
        let listener = admin::bind(address)
            .await
            .and_then(tokio::net::TcpListener::into_std)
            .map_err(failed)?;
        let opened = listener.local_addr().map_err(failed)?;
        tracing::info!(%address, "serving the admission webhooks");
        Ok(Self {
            listener,
            address: opened,
            certificate,
            handshake: Handshake::pending(),
        })
    }

    /// The address that was really opened.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The readiness check.
    pub fn check(&self) -> Check {
        self.handshake.check()
    }

    /// Answers reviews until a little after `stop`; those that are being answered then may end.
    pub async fn serve(self, lookup: Lookup, metrics: &Metrics, stop: CancellationToken) {
        let handle = Handle::new();
        let server = match from_tcp_rustls(self.listener, self.certificate.config()) {
            Ok(server) => server.handle(handle.clone()),
            Err(error) => {
                tracing::error!(%error, "the admission webhooks cannot be served");
                return;
            }
        };
        let mut server = server.first_request_timeout(FIRST_REQUEST);
        server
            .http_builder()
            .http1()
            .header_read_timeout(FIRST_REQUEST);
        let router = service::router(&lookup, metrics);
        let closing = CancellationToken::new();
        let drain = async {
            stop.cancelled().await;
            tokio::time::sleep(LINGER).await;
            closing.cancel();
            handle.graceful_shutdown(Some(DRAIN));
        };
        let (outcome, (), (), ()) = tokio::join!(
            server.serve(router.into_make_service()),
            drain,
            self.certificate.counted(metrics).follow(closing.clone()),
            self.handshake.watch(self.address, closing.clone()),
        );
        if let Err(error) = outcome {
            tracing::error!(%error, "the admission webhooks ended");
        }
    }
}

#[cfg(test)]
mod tests;
