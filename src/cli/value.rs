//! Flag values in the forms Go's flag package takes.

use std::{fmt, time::Duration};

use crate::duration;

/// Default of the metrics listener.
pub const METRICS: &str = ":8080";

/// Default of the health listener.
pub const HEALTH: &str = ":8081";

/// Default of the webhook listener.
pub const WEBHOOKS: &str = ":9443";

/// Where a listener listens, if at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Switched off.
    Off,
    /// `host:port`; an empty host means every address.
    On(String),
}

impl Listen {
    /// The address, unless switched off.
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Off => None,
            Self::On(address) => Some(address),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("(off)"),
            Self::On(address) => f.write_str(address),
        }
    }
}

/// An empty metrics address means the default, as controller-runtime has it.
pub fn metrics_address(text: &str) -> Result<Listen, String> {
    listen(if text.is_empty() { METRICS } else { text })
}

/// An empty health address switches the listener off.
pub fn health_address(text: &str) -> Result<Listen, String> {
    listen(if text.is_empty() { "0" } else { text })
}

/// An empty webhook address means the default; the listener is switched off by `--enable-webhooks=false` alone.
pub fn webhook_address(text: &str) -> Result<String, String> {
    match listen(if text.is_empty() { WEBHOOKS } else { text })? {
        Listen::On(address) => Ok(address),
        Listen::Off => {
            Err("expected HOST:PORT or :PORT; --enable-webhooks=false switches it off".to_owned())
        }
    }
}

fn listen(text: &str) -> Result<Listen, String> {
    if text == "0" {
        return Ok(Listen::Off);
    }
    let port = text.rsplit_once(':').map(|(_, port)| port);
    match port.map(str::parse::<u16>) {
        Some(Ok(_)) => Ok(Listen::On(text.to_owned())),
        _ => Err("expected HOST:PORT, :PORT or 0".to_owned()),
    }
}

/// A DNS domain such as `cluster.local`.
pub fn domain(text: &str) -> Result<String, String> {
    if text.len() < 200 && text.split('.').all(is_label) {
        return Ok(text.to_owned());
    }
    Err("expected a DNS domain such as cluster.local".to_owned())
}

/// The name of a namespace, or nothing.
pub fn namespace(text: &str) -> Result<String, String> {
    let has_edges = text.starts_with('-') || text.ends_with('-');
    if text.is_empty() || (is_label(text) && !has_edges) {
        return Ok(text.to_owned());
    }
    Err("expected the name of one namespace: lower-case letters, digits and dashes".to_owned())
}

/// One part of a DNS name, with dashes anywhere.
fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len()) && text.chars().all(inner)
}

/// The spellings of Go's `strconv.ParseBool`.
pub fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// A duration in Go's syntax (`1h30m`, `500ms`) that is not zero.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration::unsigned(text) {
        Ok(Duration::ZERO) => Err("must be longer than 0".to_owned()),
        read => read.map_err(|error| error.to_string()),
    }
}
