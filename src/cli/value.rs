//! Flag values in the forms Go's flag package takes.

use std::{str::FromStr as _, time::Duration};

/// Default of the metrics listener.
pub const METRICS: &str = ":8080";

/// Default of the health listener.
pub const HEALTH: &str = ":8081";

/// Longest run of digits in a duration: keeps the arithmetic inside its type.
const MOST_DIGITS: usize = 9;

/// Where a listener listens, if at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Switched off.
    Off,
    /// `host:port`; an empty host means every address.
    On(String),
}

/// An empty metrics address means the default, as controller-runtime has it.
pub fn metrics_address(text: &str) -> Result<Listen, String> {
    listen(if text.is_empty() { METRICS } else { text })
}

/// An empty health address switches the listener off.
pub fn health_address(text: &str) -> Result<Listen, String> {
    listen(if text.is_empty() { "0" } else { text })
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

/// The spellings of Go's `strconv.ParseBool`.
pub fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// A duration in Go's syntax (`1h30m`, `500ms`, `0`), not negative.
pub fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a duration like 10m, 1h30m or 90s".to_owned();
    let digits = text
        .split(|c: char| !c.is_ascii_digit())
        .map(str::len)
        .max()
        .unwrap_or(0);
    if text.starts_with('-') || digits == 0 || digits > MOST_DIGITS {
        return Err(expected());
    }
    kube::core::Duration::from_str(text)
        .map(Duration::from)
        .map_err(|_| expected())
}

/// A duration that is not zero either.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|duration| {
        if duration.is_zero() {
            Err("must be longer than 0".to_owned())
        } else {
            Ok(duration)
        }
    })
}
