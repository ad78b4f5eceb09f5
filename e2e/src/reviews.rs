//! Admission reviews sent straight to a webhook, as an API server sends them.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinHandle};
use tokio_rustls::TlsConnector;

/// Who connects to the webhooks at one port and trusts some authorities.
#[derive(Clone)]
pub struct Reviewer {
    connector: TlsConnector,
    port: u16,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<Result<(), hyper::Error>>,
    /// The certificate that the server showed, DER.
    pub certificate: Vec<u8>,
}

// === impl Reviewer ===

impl Reviewer {
    /// `bundle` is PEM.
    pub fn new(port: u16, bundle: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            connector: Arc::new(config).into(),
            port,
        })
    }

    /// A new connection with a full handshake.
    pub async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        let stream = self.connector.connect(name, stream).await?;
        let shown = stream.get_ref().1.peer_certificates();
        let certificate = shown
            .and_then(|all| all.first())
            .context("no certificate")?;
        let certificate = certificate.to_vec();
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        Ok(Connection {
            sender,
            driver: tokio::spawn(connection),
            certificate,
        })
    }
}

// === impl Connection ===

impl Connection {
    /// Waits until the last exchange is over; no when the server has closed the connection.
    pub async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a review and returns its response.
    pub async fn ask(&mut self, path: &str, review: &Value) -> Result<Value> {
        let request = http::Request::post(format!("{path}?timeout=10s"))
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::from(review.to_string()))?;
        let sent = self.sender.send_request(request);
        let response = tokio::time::timeout(Duration::from_secs(10), sent).await??;
        ensure!(response.status() == 200, "{}", response.status());
        let body = response.into_body().collect().await?.to_bytes();
        let mut answer: Value = serde_json::from_slice(&body)?;
        Ok(answer["response"].take())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A review of a creation (`old` is null) or of a change.
pub fn review(old: &Value, new: &Value) -> Value {
    let kind = new["kind"].as_str().unwrap_or_default();
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "c0ffee",
            "kind": { "group": "glance.openstack.c5c3.io", "version": "v1alpha1", "kind": kind },
            "resource": {
                "group": "glance.openstack.c5c3.io", "version": "v1alpha1",
                "resource": format!("{}s", kind.to_lowercase()),
            },
            "name": new["metadata"]["name"], "namespace": new["metadata"]["namespace"],
            "operation": if old.is_null() { "CREATE" } else { "UPDATE" },
            "userInfo": { "username": "e2e" },
            "object": new, "oldObject": old, "dryRun": true,
        },
    })
}
