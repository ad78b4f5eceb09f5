//! Whether the webhook listener really serves: a TLS handshake with it, from this process.
//!
//! A bound port says little. The handshake shows that the listener accepts, has a certificate and signs with the key
//! that belongs to it. Who issued the certificate is the API server's question, not ours.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::admin::Check;

/// The pause after a handshake that succeeded, and after one that did not.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_millis(500));
/// A handshake with oneself that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(5);

/// The outcome of the last handshake.
#[derive(Clone, Debug)]
pub struct Handshake {
    last: Arc<Mutex<Result<(), String>>>,
}

/// Takes any certificate whose key the other side really has.
#[derive(Debug)]
struct AnyIssuer(Arc<CryptoProvider>);

// === impl Handshake ===

impl Handshake {
    /// None has been made yet, which counts as a failure.
    pub fn pending() -> Self {
        let last = Err("no TLS handshake has been tried yet".to_owned());
        Self {
            last: Arc::new(Mutex::new(last)),
        }
    }

    /// The check `webhook` of `/readyz`.
    pub fn check(&self) -> Check {
        let this = self.clone();
        Check::new("webhook", move || this.outcome().clone())
    }

    /// Shakes hands with `listener` again and again until `stop`.
    pub async fn watch(self, listener: SocketAddr, stop: CancellationToken) {
        let connector = match connector() {
            Ok(connector) => connector,
            Err(error) => {
                *self.outcome() = Err(error.to_string());
                return;
            }
        };
        loop {
            let tried = tokio::time::timeout(LIMIT, shake(&connector, listener)).await;
            let outcome = match tried {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("no handshake within {} s", LIMIT.as_secs())),
            };
            let pause = if outcome.is_ok() { PAUSES.0 } else { PAUSES.1 };
            *self.outcome() = outcome;
            if stop
                .run_until_cancelled(tokio::time::sleep(pause))
                .await
                .is_none()
            {
                return;
            }
        }
    }

    fn outcome(&self) -> std::sync::MutexGuard<'_, Result<(), String>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn shake(connector: &TlsConnector, listener: SocketAddr) -> io::Result<()> {
    let stream = TcpStream::connect(reachable(listener).as_slice()).await?;
    let name = ServerName::IpAddress(IpAddr::from(Ipv4Addr::LOCALHOST).into());
    connector.connect(name, stream).await.map(drop)
}

/// Where a listener is reached from here. One on every address may be there for one family alone.
fn reachable(listener: SocketAddr) -> Vec<SocketAddr> {
    if !listener.ip().is_unspecified() {
        return vec![listener];
    }
    [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        Ipv6Addr::LOCALHOST.into(),
    ]
    .map(|ip| SocketAddr::new(ip, listener.port()))
    .to_vec()
}

/// Connects to a listener of one's own, whoever issued its certificate.
pub(super) fn connector() -> Result<TlsConnector, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyIssuer(provider)))
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

// === impl AnyIssuer ===

impl ServerCertVerifier for AnyIssuer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_every_address_is_tried_on_both_families() {
        let all: SocketAddr = "[::]:9443".parse().unwrap();
        let tried: Vec<_> = reachable(all).iter().map(ToString::to_string).collect();
        assert_eq!(tried, ["127.0.0.1:9443", "[::1]:9443"]);
        let one: SocketAddr = "10.0.0.1:9443".parse().unwrap();
        assert_eq!(reachable(one), [one]);
    }
}
