//! The two listeners of every replica: metrics, plain or on request with TLS, and health with debugging, plain.
//!
//! | Listener | Path | Answer |
//! | --- | --- | --- |
//! | metrics | `/metrics` | Prometheus text |
//! | health | `/healthz`, `/readyz` | 200 `ok` or 500; `?verbose`, `?exclude=NAME` |
//! | health | `/healthz/NAME`, `/readyz/NAME` | one check |
//! | health | `/debug/clusters` | the registry as JSON, from this machine only |
//! | health | `/debug/log-level` | `GET` the level, `PUT` another of `--zap-log-level`, from this machine only |
//!
//! The debug pages answer the loopback interface only: that is where a port-forward
//! arrives, so whoever reads them holds the right to forward ports into this pod.
//! (contract: operations, HTTP endpoints)

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{ConnectInfo, Request},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Json, Response},
    routing::get,
};
use axum_server::{Handle, tls_rustls::from_tcp_rustls};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    cli::Listen,
    metrics::{self, Metrics},
    telemetry::{Level, Telemetry},
    tls::ServingCertificate,
};

/// How long a client may take for the headers of a request over TLS.
const FIRST_REQUEST: Duration = Duration::from_secs(10);

/// How long answers over TLS may take to end after a stop.
const DRAIN: Duration = Duration::from_secs(1);

mod health;
mod reviewer;

pub use health::{Check, Checks};
pub use reviewer::Reviewer;

/// A listener that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} for {purpose} ({source}): choose another address with {flag}, \
     or switch it off with {flag}=0"
)]
pub struct BindError {
    purpose: &'static str,
    address: String,
    flag: &'static str,
    source: std::io::Error,
}

/// What `/debug/clusters` shows, asked at each request.
pub type ClusterReport = Arc<dyn Fn() -> Value + Send + Sync>;

/// An open listener and what it will serve. Bound before anything else starts, so that an
/// address in use ends the process early.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
}

// === impl Listener ===

impl Listener {
    /// Opens the metrics address; `None` when it is switched off.
    pub async fn metrics(listen: &Listen) -> Result<Option<Self>, BindError> {
        Self::open(listen, "metrics", "--metrics-bind-address").await
    }

    /// Opens the health address; `None` when it is switched off.
    pub async fn health(listen: &Listen) -> Result<Option<Self>, BindError> {
        Self::open(listen, "health", "--health-probe-bind-address").await
    }

    /// The address that was really opened; another one than asked for when that said port 0.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves `router` until `stop`; requests that are being answered may end.
    pub async fn serve(self, router: Router, stop: CancellationToken) {
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let served = axum::serve(self.socket, service)
            .with_graceful_shutdown(stop.cancelled_owned())
            .await;
        if let Err(error) = served {
            tracing::error!(%error, "an HTTP listener ended");
        }
    }

    /// The same with TLS and a certificate that may change meanwhile.
    pub async fn serve_securely(
        self,
        router: Router,
        certificate: ServingCertificate,
        stop: CancellationToken,
    ) {
        let handle = Handle::new();
        let server = self
            .socket
            .into_std()
            .and_then(|socket| from_tcp_rustls(socket, certificate.config()));
        let mut server = match server {
            Ok(server) => server.handle(handle.clone()),
            Err(error) => return tracing::error!(%error, "an HTTPS listener cannot be served"),
        };
        server
            .http_builder()
            .http1()
            .header_read_timeout(FIRST_REQUEST);
        let closing = async {
            stop.cancelled().await;
            handle.graceful_shutdown(Some(DRAIN));
        };
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let (outcome, (), ()) = tokio::join!(
            server.serve(service),
            closing,
            certificate.follow(stop.clone()),
        );
        if let Err(error) = outcome {
            tracing::error!(%error, "an HTTPS listener ended");
        }
    }

    async fn open(
        listen: &Listen,
        purpose: &'static str,
        flag: &'static str,
    ) -> Result<Option<Self>, BindError> {
        let Listen::On(address) = listen else {
            return Ok(None);
        };
        match bind(address).await {
            Ok(socket) => {
                tracing::info!(%address, "serving {purpose}");
                Ok(Some(Self { socket }))
            }
            Err(source) => Err(BindError {
                purpose,
                address: address.clone(),
                flag,
                source,
            }),
        }
    }
}

/// The router of the metrics address. With a reviewer only for those that it lets in.
pub fn metrics_router(metrics: Metrics, reviewer: Option<Reviewer>) -> Router {
    let page = move || {
        let body = metrics.encode();
        async move { ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], body) }
    };
    let router = Router::new().route("/metrics", get(page));
    match reviewer {
        Some(reviewer) => router.layer(middleware::from_fn_with_state(reviewer, reviewer::review)),
        None => router,
    }
}

/// The router of the health address.
pub fn health_router(
    healthz: Checks,
    readyz: Checks,
    clusters: ClusterReport,
    telemetry: Telemetry,
) -> Router {
    let clusters = move || std::future::ready(Json(clusters()));
    let log = telemetry.clone();
    let level = move || std::future::ready(log.level().to_string());
    let set_level = move |body: String| std::future::ready(set_level(&telemetry, &body));
    let debug = Router::new()
        .route("/debug/clusters", get(clusters))
        .route("/debug/log-level", get(level).put(set_level))
        .layer(middleware::from_fn(from_this_machine));
    Router::new()
        .merge(healthz.router("healthz"))
        .merge(readyz.router("readyz"))
        .merge(debug)
}

/// An address without a host means every address, IPv6 included where there is any.
pub(crate) async fn bind(address: &str) -> std::io::Result<TcpListener> {
    if let Some(port) = address.strip_prefix(':') {
        if let Ok(socket) = TcpListener::bind(format!("[::]:{port}")).await {
            return Ok(socket);
        }
        return TcpListener::bind(format!("0.0.0.0:{port}")).await;
    }
    TcpListener::bind(address).await
}

fn set_level(telemetry: &Telemetry, text: &str) -> Response {
    match text.trim().parse::<Level>() {
        Ok(level) => {
            telemetry.set_level(level);
            StatusCode::NO_CONTENT.into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

async fn from_this_machine(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    if peer.ip().to_canonical().is_loopback() {
        next.run(request).await
    } else {
        let advice = "only from the pod itself: use a port-forward\n";
        (StatusCode::FORBIDDEN, advice).into_response()
    }
}

#[cfg(test)]
mod tests;
