//! What a credential says of itself: its kind, and when it expires.

use data_encoding::{BASE64, BASE64URL_NOPAD};
use http::HeaderValue;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::Value;

use super::Access;
use crate::target_cluster::{CredentialKind, CredentialStatus};

/// Whom a token of a service account logs in, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(crate) namespace: String,
    pub(crate) account: String,
    pub(crate) issued: Timestamp,
    pub(crate) expires: Timestamp,
}

/// What is used to log in. With a token and a certificate both must be good.
pub(super) fn of(access: &Access) -> CredentialStatus {
    let certificate = access.config.auth_info.client_certificate_data.as_deref();
    let kind = match &access.credential {
        Some(header) if bearer(header).is_some() => CredentialKind::Token,
        Some(_) => CredentialKind::Password,
        None => CredentialKind::ClientCertificate,
    };
    let token = access.credential.as_ref().and_then(bearer);
    let ends = [
        token.and_then(claims).and_then(|claims| expiry(&claims)),
        certificate.and_then(not_after),
    ];
    CredentialStatus {
        kind,
        expires_at: ends.into_iter().flatten().min().map(Time),
    }
}

impl Claims {
    pub(crate) fn of(header: &HeaderValue) -> Option<Self> {
        let claims = claims(bearer(header)?)?;
        let subject = claims.get("sub")?.as_str()?;
        let (namespace, account) = subject
            .strip_prefix("system:serviceaccount:")?
            .split_once(':')?;
        let issued = claims.get("iat")?.as_i64()?;
        Some(Self {
            namespace: namespace.to_owned(),
            account: account.to_owned(),
            issued: Timestamp::from_second(issued).ok()?,
            expires: expiry(&claims)?,
        })
    }
}

fn bearer(header: &HeaderValue) -> Option<&str> {
    header.to_str().ok()?.strip_prefix("Bearer ")
}

/// The claims of a token, if it is a JWT. They are not verified: whoever writes the registration may
/// deceive only himself.
fn claims(token: &str) -> Option<Value> {
    let payload = token.split('.').nth(1)?;
    let payload = BASE64URL_NOPAD.decode(payload.trim_end_matches('=').as_bytes());
    serde_json::from_slice(&payload.ok()?).ok()
}

fn expiry(claims: &Value) -> Option<Timestamp> {
    let seconds = claims.get("exp")?;
    let seconds = seconds.as_i64().or_else(|| {
        seconds
            .as_f64()
            .and_then(|s| format!("{s:.0}").parse().ok())
    })?;
    Timestamp::from_second(seconds).ok()
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
    use http::HeaderMap;
    use rstest::rstest;
    use serde_json::json;

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

    fn jwt(claims: &Value) -> String {
        let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        format!(
            "Bearer {}.{}.c2ln",
            part(&json!({"alg": "RS256"})),
            part(claims)
        )
    }

    #[rstest]
    #[case::bound(json!({"exp": 1_800_000_000}), Some(1_800_000_000))]
    #[case::fractional(json!({"exp": 1_800_000_000.0}), Some(1_800_000_000))]
    #[case::for_ever(json!({"sub": "system:serviceaccount:a:b"}), None)]
    #[case::nonsense(json!({"exp": "soon"}), None)]
    fn a_token_says_when_it_expires(#[case] claims: Value, #[case] expected: Option<i64>) {
        let status = of(&access(Some(&jwt(&claims)), None));
        assert_eq!(status.kind, CredentialKind::Token);
        assert_eq!(status.expires_at.map(|time| time.0.as_second()), expected);
    }

    #[test]
    fn a_token_that_is_no_jwt_says_nothing() {
        let status = of(&access(Some("Bearer opaque"), None));
        assert_eq!(status.expires_at, None);
        assert_eq!(
            of(&access(Some("Basic YTpi"), None)).kind,
            CredentialKind::Password
        );
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
