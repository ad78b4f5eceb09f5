//! What a credential says of itself: its kind, and when it expires.

use data_encoding::BASE64;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::{Access, Claims, claims::bearer};
use crate::target_cluster::{CredentialKind, CredentialStatus};

/// What is used to log in. With a token and a certificate both must be good.
pub(super) fn of(access: &Access) -> CredentialStatus {
    let certificate = access.config.auth_info.client_certificate_data.as_deref();
    let kind = match &access.credential {
        Some(header) if bearer(header).is_some() => CredentialKind::Token,
        Some(_) => CredentialKind::Password,
        None => CredentialKind::ClientCertificate,
    };
    let token = access.credential.as_ref().map(Claims::of_header);
    let ends = [
        token.and_then(|claims| claims.expires),
        certificate.and_then(not_after),
    ];
    CredentialStatus {
        kind,
        expires_at: ends.into_iter().flatten().min().map(Time),
    }
}

/// The end of the first certificate of a chain in PEM, in base64.
fn not_after(data: &str) -> Option<Timestamp> {
    let pem = BASE64.decode(data.as_bytes()).ok()?;
    let leaf = CertificateDer::from_pem_slice(&pem).ok()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&leaf).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64URL_NOPAD;
    use http::HeaderMap;

    use super::*;

    fn access(header: Option<&str>, certificate: Option<String>) -> Access {
        let mut config = kube::Config::new("https://blue.example.org".parse().unwrap());
        config.auth_info.client_certificate_data = certificate;
        Access {
            config,
            credential: header.map(|header| header.parse().unwrap()),
            headers: HeaderMap::new(),
        }
    }

    #[test]
    fn a_token_says_when_it_expires_and_a_password_does_not() {
        let claims = BASE64URL_NOPAD.encode(br#"{"exp": 1800000000}"#);
        let status = of(&access(Some(&format!("Bearer e30.{claims}.c2ln")), None));
        assert_eq!(status.kind, CredentialKind::Token);
        let end = status.expires_at.map(|time| time.0.as_second());
        assert_eq!(end, Some(1_800_000_000));
        let status = of(&access(Some("Basic YTpi"), None));
        assert_eq!(status.kind, CredentialKind::Password);
        assert_eq!(status.expires_at, None);
    }

    #[test]
    fn a_certificate_says_when_it_expires() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["hub".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2031, 5, 4);
        let pem = params.self_signed(&key).unwrap().pem();
        let status = of(&access(None, Some(BASE64.encode(pem.as_bytes()))));
        assert_eq!(status.kind, CredentialKind::ClientCertificate);
        assert_eq!(
            status.expires_at.unwrap().0.to_string(),
            "2031-05-04T00:00:00Z"
        );
    }
}
