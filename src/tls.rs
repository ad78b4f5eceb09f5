//! A serving certificate that lives in two files and may change at any time.
//!
//! The files are read again by their content, not by what the file system tells of them: a mounted Secret changes by
//! a swapped symbolic link, which notifications get wrong in more ways than one. A pair that does not belong together
//! (one file is new, the other not yet) is refused, and the one before it goes on serving.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use axum_server::tls_rustls::RustlsConfig;
use secrecy::{ExposeSecret as _, SecretSlice};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// File of the certificate chain, as the kubelet mounts a Secret of type `kubernetes.io/tls`.
pub const CERTIFICATE: &str = "tls.crt";
/// File of the private key.
pub const KEY: &str = "tls.key";

/// How often the files are read again.
const EVERY: Duration = Duration::from_secs(2);

/// Why there is no certificate to serve with.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The files are no certificate and its key.
    #[error("{CERTIFICATE} and {KEY} in {} cannot be used: {source}", folder.display())]
    Unusable {
        /// Where they are.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// A pair of files and what is served from them.
#[derive(Clone)]
pub struct ServingCertificate {
    folder: PathBuf,
    config: RustlsConfig,
    /// Of the pair that was looked at last, used or refused.
    seen: [u8; 32],
    counts: Option<Metrics>,
}

/// What the two files hold.
struct Pair {
    certificate: Vec<u8>,
    key: SecretSlice<u8>,
}

// === impl ServingCertificate ===

impl ServingCertificate {
    /// Reads the pair for the first time.
    pub async fn load(folder: &Path) -> Result<Self, CertificateError> {
        let pair = Pair::read(folder).await?;
        let seen = pair.digest();
        let key = pair.key.expose_secret().to_vec();
        let config = RustlsConfig::from_pem(pair.certificate, key)
            .await
            .map_err(|source| CertificateError::Unusable {
                folder: folder.to_owned(),
                source,
            })?;
        Ok(Self {
            folder: folder.to_owned(),
            config,
            seen,
            counts: None,
        })
    }

    /// Counts what is read from now on, the first reading included.
    #[must_use]
    pub fn counted(mut self, metrics: &Metrics) -> Self {
        metrics.certificate_read(true);
        self.counts = Some(metrics.clone());
        self
    }

    /// What a listener serves with; it follows this certificate.
    pub fn config(&self) -> RustlsConfig {
        self.config.clone()
    }

    /// Follows the files until `stop`. Handshakes after a change get the new certificate; open connections go on.
    pub async fn follow(mut self, stop: CancellationToken) {
        let mut readable = true;
        while stop
            .run_until_cancelled(tokio::time::sleep(EVERY))
            .await
            .is_some()
        {
            let outcome = self.refresh().await;
            let folder = self.folder.display();
            if let Some(metrics) = &self.counts
                && !matches!(outcome, Ok(false))
            {
                metrics.certificate_read(outcome.is_ok());
            }
            match &outcome {
                Ok(true) => tracing::info!(%folder, "serving with a new certificate"),
                Err(error @ CertificateError::Unusable { .. }) => {
                    tracing::warn!(%error, "the new certificate is refused and the old one stays");
                }
                // Said once: whatever is wrong with the files is wrong every two seconds.
                Err(error) if readable => {
                    tracing::warn!(%error, "the certificate cannot be read again and the old one stays");
                }
                Ok(false) | Err(_) => {}
            }
            readable = !matches!(outcome, Err(CertificateError::Unreadable { .. }));
        }
    }

    /// Serves what the files hold now; says whether that is something new.
    async fn refresh(&mut self) -> Result<bool, CertificateError> {
        let pair = Pair::read(&self.folder).await?;
        let digest = pair.digest();
        if digest == self.seen {
            return Ok(false);
        }
        // Also when it is refused, so that it is refused once.
        self.seen = digest;
        let key = pair.key.expose_secret().to_vec();
        match self.config.reload_from_pem(pair.certificate, key).await {
            Ok(()) => Ok(true),
            Err(source) => Err(CertificateError::Unusable {
                folder: self.folder.clone(),
                source,
            }),
        }
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCertificate")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

// === impl Pair ===

impl Pair {
    async fn read(folder: &Path) -> Result<Self, CertificateError> {
        let read = async |name: &str| {
            let path = folder.join(name);
            tokio::fs::read(&path)
                .await
                .map_err(|source| CertificateError::Unreadable { path, source })
        };
        Ok(Self {
            certificate: read(CERTIFICATE).await?,
            key: read(KEY).await?.into(),
        })
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for part in [self.certificate.as_slice(), self.key.expose_secret()] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A certificate and its key, PEM.
    fn pair() -> (String, String) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn write(folder: &Path, certificate: &str, key: &str) {
        fs::write(folder.join(CERTIFICATE), certificate).unwrap();
        fs::write(folder.join(KEY), key).unwrap();
    }

    #[tokio::test]
    async fn without_files_the_error_names_the_one_that_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let error = ServingCertificate::load(folder.path()).await.unwrap_err();
        assert!(error.to_string().contains("tls.crt"), "{error}");
        let (certificate, _) = pair();
        fs::write(folder.path().join(CERTIFICATE), certificate).unwrap();
        let error = ServingCertificate::load(folder.path()).await.unwrap_err();
        assert!(error.to_string().contains("tls.key"), "{error}");
    }

    #[tokio::test]
    async fn a_half_written_pair_leaves_the_old_one_in_service() {
        let folder = tempfile::tempdir().unwrap();
        let (old, old_key) = pair();
        write(folder.path(), &old, &old_key);
        let mut serving = ServingCertificate::load(folder.path()).await.unwrap();
        let before = serving.config().get_inner();
        assert!(!serving.refresh().await.unwrap(), "nothing changed");

        let (new, new_key) = pair();
        write(folder.path(), &new, &old_key);
        let error = serving.refresh().await.unwrap_err();
        assert!(
            matches!(error, CertificateError::Unusable { .. }),
            "{error}"
        );
        assert!(!serving.refresh().await.unwrap(), "refused once, not twice");
        assert!(std::sync::Arc::ptr_eq(
            &before,
            &serving.config().get_inner()
        ));

        write(folder.path(), &new, &new_key);
        assert!(serving.refresh().await.unwrap());
        assert!(!std::sync::Arc::ptr_eq(
            &before,
            &serving.config().get_inner()
        ));
    }
}
