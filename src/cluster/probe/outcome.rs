//! From an answer or a failure to a condition: reasons, texts, and what of a body is shown.

use std::{error::Error, fmt::Display, io, net::SocketAddr, time::Duration};

use glance_api::conditions::reasons;
use http::StatusCode;
use serde::Deserialize;

/// Bytes of a body that are shown.
const EXCERPT: usize = 256;

/// Bytes of a body that are read: a `Status` of an API server fits.
pub const BODY_LIMIT: usize = 8 * 1024;

/// What the condition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The status of `GlanceAPIReady`.
    pub healthy: bool,
    /// Its reason.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
    /// How long ago the API said so: zero unless a recent success is repeated.
    pub age: Duration,
}

/// An HTTP answer, from whomever.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    /// The beginning of the body; nothing when it could not be read.
    pub body: Vec<u8>,
}

/// Why there was no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The time was up, in whatever phase.
    Timeout,
    /// The name leads nowhere.
    NotResolvable,
    /// Somebody is there and does not want us.
    Refused(String),
    /// Everything else.
    Other(String),
    /// A failure on the way to an API server, and whose.
    Towards(&'static str, Box<Failure>),
}

#[derive(Deserialize)]
struct Status {
    kind: String,
    message: String,
}

// === impl Outcome ===

impl Outcome {
    /// The API at `url` answered.
    pub fn healthy(url: &str) -> Self {
        Self {
            healthy: true,
            reason: reasons::API_HEALTHY,
            message: format!("Glance API is responding at {url}"),
            age: Duration::ZERO,
        }
    }

    fn unhealthy(reason: &'static str, message: String) -> Self {
        let healthy = false;
        Self {
            healthy,
            reason,
            message,
            age: Duration::ZERO,
        }
    }
}

// === impl Answer ===

impl Answer {
    /// Any 2xx is health; a redirect is not, and nobody follows it.
    pub fn judge(&self, url: &str) -> Outcome {
        if self.status.is_success() {
            return Outcome::healthy(url);
        }
        let mut message = format!("Glance API returned HTTP {}", self.status.as_u16());
        let excerpt = excerpt(&self.body);
        if !excerpt.is_empty() {
            message.push_str(": ");
            message.push_str(&excerpt);
        }
        Outcome::unhealthy(reasons::API_UNHEALTHY, message)
    }
}

// === impl Failure ===

impl Failure {
    /// A failure nobody has a name for.
    pub fn other(error: impl Display) -> Self {
        Self::Other(error.to_string())
    }

    /// A failure of input or output once the name was resolved.
    pub fn io(error: &io::Error, doing: &str) -> Self {
        let text = || format!("{doing}: {error}");
        match error.kind() {
            io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::ConnectionRefused => Self::Refused(text()),
            _ => Self::Other(text()),
        }
    }

    /// A failure of a client, by what is at the bottom of it.
    pub fn of_chain(error: &(dyn Error + 'static)) -> Self {
        let text = || chain_text(error);
        for error in chain(error) {
            match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(io::ErrorKind::TimedOut) => return Self::Timeout,
                Some(io::ErrorKind::ConnectionRefused) => return Self::Refused(text()),
                _ => {}
            }
        }
        Self::Other(text())
    }

    /// What the condition says about it.
    pub fn into_outcome(self) -> Outcome {
        match self {
            Self::Timeout => Outcome::unhealthy(
                reasons::HEALTH_CHECK_TIMEOUT,
                "health check timed out".to_owned(),
            ),
            Self::NotResolvable => Outcome::unhealthy(
                reasons::ENDPOINT_NOT_READY,
                "endpoint not resolvable".to_owned(),
            ),
            Self::Refused(error) => Outcome::unhealthy(
                reasons::CONNECTION_FAILED,
                format!("connection failed: {}", stable(&error)),
            ),
            Self::Other(error) => Outcome::unhealthy(
                reasons::HEALTH_CHECK_FAILED,
                format!("health check failed: {}", stable(&error)),
            ),
            Self::Towards(whose, failure) => {
                let outcome = failure.into_outcome();
                let message = format!("{whose} API server: {}", outcome.message);
                Outcome { message, ..outcome }
            }
        }
    }
}

/// The errors from the outermost to the innermost.
pub fn chain<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// The chain as one line. Wrappers commonly repeat what they wrap; it is said once.
fn chain_text(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for error in chain(error) {
        let part = error.to_string();
        if !text.contains(&part) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&part);
        }
    }
    text
}

/// The beginning of a body on one line; of a `Status` its message.
fn excerpt(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Status>(body) {
        Ok(status) if status.kind == "Status" => status.message,
        _ => String::from_utf8_lossy(body).into_owned(),
    };
    let text = &text[..text.floor_char_boundary(EXCERPT)];
    let text = text.replace("\r\n", " ").replace(['\r', '\n'], " ");
    stable(text.trim())
}

/// Without the sender's address in `sender->receiver`: its port is another one each time,
/// and each new text would be a new status to write.
fn stable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("->") {
        let start = before.rfind([' ', '(', '"']).map_or(0, |at| at + 1);
        if before[start..].parse::<SocketAddr>().is_ok() {
            out.push_str(&before[..start]);
        } else {
            out.push_str(before);
            out.push_str("->");
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const URL: &str = "http://images.openstack.svc.cluster.local:9292/healthcheck";

    fn answer(status: u16, body: &[u8]) -> Outcome {
        let status = StatusCode::from_u16(status).unwrap();
        Answer {
            status,
            body: body.to_vec(),
        }
        .judge(URL)
    }

    #[rstest]
    #[case(200)]
    #[case(204)]
    #[case(299)]
    fn any_2xx_is_health(#[case] status: u16) {
        let outcome = answer(status, b"ignored");
        assert!(outcome.healthy);
        assert_eq!(outcome.reason, "APIHealthy");
        assert_eq!(
            outcome.message,
            format!("Glance API is responding at {URL}")
        );
    }

    #[rstest]
    #[case::no_body(503, b"", "Glance API returned HTTP 503")]
    #[case::blank(503, b" \r\n ", "Glance API returned HTTP 503")]
    #[case::lines(500, b"a\r\nb\nc\rd\n", "Glance API returned HTTP 500: a b c d")]
    #[case::redirect(302, b"moved", "Glance API returned HTTP 302: moved")]
    #[case::not_text(500, b"\xff\xfe", "Glance API returned HTTP 500: \u{fffd}\u{fffd}")]
    #[case::status(
        503,
        br#"{"kind":"Status","apiVersion":"v1","message":"no endpoints available for service \"images\"","code":503}"#,
        "Glance API returned HTTP 503: no endpoints available for service \"images\""
    )]
    #[case::other_json(
        500,
        br#"{"kind":"Other","message":"x"}"#,
        r#"Glance API returned HTTP 500: {"kind":"Other","message":"x"}"#
    )]
    #[case::addresses(
        502,
        b"read tcp 10.0.0.1:54321->10.0.0.7:9292: read: connection reset by peer",
        "Glance API returned HTTP 502: read tcp 10.0.0.7:9292: read: connection reset by peer"
    )]
    fn other_answers(#[case] status: u16, #[case] body: &[u8], #[case] message: &str) {
        let outcome = answer(status, body);
        assert!(!outcome.healthy);
        assert_eq!(outcome.reason, "APIUnhealthy");
        assert_eq!(outcome.message, message);
    }

    #[rstest]
    #[case("x".repeat(300), 256)]
    #[case("ä".repeat(200), 256)]
    #[case(format!("x{}", "ä".repeat(200)), 255)]
    fn an_excerpt_ends_at_a_character(#[case] body: String, #[case] bytes: usize) {
        assert_eq!(excerpt(body.as_bytes()).len(), bytes);
    }

    #[rstest]
    #[case(Failure::Timeout, "HealthCheckTimeout", "health check timed out")]
    #[case(Failure::NotResolvable, "EndpointNotReady", "endpoint not resolvable")]
    #[case(Failure::Refused("dial tcp 10.0.0.7:9292: Connection refused".into()), "ConnectionFailed",
        "connection failed: dial tcp 10.0.0.7:9292: Connection refused")]
    #[case(Failure::Other("read tcp [fd00::1]:54321->[fd00::7]:9292: reset".into()), "HealthCheckFailed",
        "health check failed: read tcp [fd00::7]:9292: reset")]
    #[case(
        Failure::Towards("target cluster", Box::new(Failure::NotResolvable)),
        "EndpointNotReady",
        "target cluster API server: endpoint not resolvable"
    )]
    fn failures(#[case] failure: Failure, #[case] reason: &str, #[case] message: &str) {
        let outcome = failure.into_outcome();
        assert!(!outcome.healthy);
        assert_eq!(outcome.reason, reason);
        assert_eq!(outcome.message, message);
    }

    #[rstest]
    #[case("a->b", "a->b")]
    #[case(
        "write tcp 1.2.3.4:5->6.7.8.9:10: broken",
        "write tcp 6.7.8.9:10: broken"
    )]
    #[case("(127.0.0.1:5->x)", "(x)")]
    #[case("a->b 1.2.3.4:5->c", "a->b c")]
    fn only_senders_are_cut(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(stable(text), expected);
    }
}
