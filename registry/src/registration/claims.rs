//! What a token says of itself.

use data_encoding::BASE64URL_NOPAD;
use http::HeaderValue;
use jiff::Timestamp;
use serde_json::Value;

/// What a token says of itself. Nothing of it is verified: whoever writes a registration may deceive
/// only himself.
///
/// ```
/// use target_registry::Claims;
///
/// // {"sub":"system:serviceaccount:access:hub"}
/// let token = "e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YWNjZXNzOmh1YiJ9.c2ln";
/// let claims = Claims::of(token);
/// assert_eq!(claims.account, Some(("access".to_owned(), "hub".to_owned())));
/// assert_eq!(claims.expires, None, "it does not end by itself");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claims {
    /// Namespace and name of the service account that it logs in.
    pub account: Option<(String, String)>,
    /// Since when it is good.
    pub issued: Option<Timestamp>,
    /// Until when it is good; `None` for one that does not end by itself.
    pub expires: Option<Timestamp>,
    /// The Secret on its cluster that holds it, for a token that was not requested.
    pub secret: Option<String>,
}

// === impl Claims ===

impl Claims {
    /// Of a token; all unknown when it says nothing, as one that is no JWT.
    pub fn of(token: &str) -> Self {
        let claims = payload(token).unwrap_or_default();
        let account = claims["sub"]
            .as_str()
            .and_then(|subject| subject.strip_prefix("system:serviceaccount:"))
            .and_then(|account| account.split_once(':'));
        Self {
            account: account.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
            issued: time(&claims["iat"]),
            expires: time(&claims["exp"]),
            secret: claims["kubernetes.io/serviceaccount/secret.name"]
                .as_str()
                .map(str::to_owned),
        }
    }

    /// Of the token in an `Authorization` header; all unknown when there is none in it.
    pub(crate) fn of_header(header: &HeaderValue) -> Self {
        bearer(header).map(Self::of).unwrap_or_default()
    }
}

/// The token in an `Authorization` header.
pub(super) fn bearer(header: &HeaderValue) -> Option<&str> {
    header.to_str().ok()?.strip_prefix("Bearer ")
}

fn payload(token: &str) -> Option<Value> {
    let payload = token.split('.').nth(1)?.trim_end_matches('=');
    let payload = BASE64URL_NOPAD.decode(payload.as_bytes());
    serde_json::from_slice(&payload.ok()?).ok()
}

fn time(seconds: &Value) -> Option<Timestamp> {
    let seconds = seconds.as_i64().or_else(|| {
        seconds
            .as_f64()
            .and_then(|s| format!("{s:.0}").parse().ok())
    })?;
    Timestamp::from_second(seconds).ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn jwt(claims: &Value) -> String {
        let middle = BASE64URL_NOPAD.encode(claims.to_string().as_bytes());
        format!("e30.{middle}.c2ln")
    }

    #[rstest]
    #[case::bound(json!({"exp": 1_800_000_000}), Some(1_800_000_000))]
    #[case::fractional(json!({"exp": 1_800_000_000.0}), Some(1_800_000_000))]
    #[case::for_ever(json!({"sub": "system:serviceaccount:a:b"}), None)]
    #[case::nonsense(json!({"exp": "soon"}), None)]
    #[case::huge(json!({"exp": 1e300}), None)]
    fn a_token_says_when_it_expires(#[case] claims: Value, #[case] expected: Option<i64>) {
        let expires = Claims::of(&jwt(&claims)).expires;
        assert_eq!(expires.map(Timestamp::as_second), expected);
    }

    #[test]
    fn a_token_tells_its_account_its_secret_and_its_age() {
        let claims = Claims::of(&jwt(&json!({
            "sub": "system:serviceaccount:c5c3-access:target-cluster-access",
            "kubernetes.io/serviceaccount/secret.name": "target-cluster-access-token",
            "iat": 1_800_000_000,
        })));
        let account = ("c5c3-access".to_owned(), "target-cluster-access".to_owned());
        assert_eq!(claims.account, Some(account));
        assert_eq!(
            claims.secret.as_deref(),
            Some("target-cluster-access-token")
        );
        assert_eq!(claims.issued, Timestamp::from_second(1_800_000_000).ok());
        assert_eq!(claims.expires, None);
    }

    #[rstest]
    #[case::opaque("opaque")]
    #[case::no_json("e30.e30x.c2ln")]
    #[case::a_list("e30.W10.c2ln")]
    fn a_token_that_says_nothing_is_no_obstacle(#[case] token: &str) {
        assert_eq!(Claims::of(token), Claims::default());
        let basic = HeaderValue::from_static("Basic YTpi");
        assert_eq!(Claims::of_header(&basic), Claims::default());
    }
}
