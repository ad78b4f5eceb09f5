//! Whether a value is one of its option's type, as oslo.config reads it.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The type of an option; a plain text when nothing is said.
#[derive(Debug, Default, Deserialize)]
pub struct Kind {
    #[serde(rename = "type", default)]
    name: Option<String>,
    #[serde(default, deserialize_with = "texts")]
    choices: Vec<String>,
    #[serde(default)]
    min: Option<f64>,
    #[serde(default)]
    max: Option<f64>,
    /// The list has to stand in brackets.
    #[serde(default)]
    list_bounds: bool,
}

/// Why a value is none for its option. Does not hold the value: it may be a
/// secret in the wrong place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Misfit<'a> {
    /// Not of the type, in words.
    Type(&'static str),
    /// Outside the bounds.
    Range(Option<f64>, Option<f64>),
    /// None of the choices.
    Choice(&'a [String]),
    /// A list without its brackets.
    Brackets,
}

/// Numbers as texts too, as they stand in a file; null stands for "unset".
fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let values: Vec<Value> = Vec::deserialize(deserializer)?;
    Ok(values
        .into_iter()
        .filter_map(|value| match value {
            Value::Null => None,
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        })
        .collect())
}

// === impl Kind ===

impl Kind {
    /// Why the value is none of this type; nothing where that cannot be told.
    pub(super) fn misfit(&self, value: &str) -> Option<Misfit<'_>> {
        let value = unquoted(value.trim());
        // Another option's value is put in its place when it is read.
        if value.contains('$') {
            return None;
        }
        if !self.choices.is_empty() {
            let is_known = self.choices.iter().any(|c| c.eq_ignore_ascii_case(value));
            return (!is_known).then_some(Misfit::Choice(&self.choices));
        }
        match self.name.as_deref() {
            Some("boolean value") => (!is_boolean(value)).then_some(Misfit::Type("a boolean")),
            Some("integer value" | "port value") => match value.parse::<i64>() {
                _ if value.is_empty() => None,
                #[allow(
                    clippy::cast_precision_loss,
                    reason = "bounds are small, and beyond 2^53 a warning more or less is no harm"
                )]
                Ok(number) => self.out_of_range(number as f64),
                Err(_) => Some(Misfit::Type("an integer")),
            },
            Some("floating point value") => match value.parse::<f64>() {
                _ if value.is_empty() => None,
                Ok(number) => self.out_of_range(number),
                Err(_) => Some(Misfit::Type("a number")),
            },
            Some("list value") => {
                let bracketed = value.starts_with('[') && value.ends_with(']');
                (self.list_bounds && !bracketed).then_some(Misfit::Brackets)
            }
            Some("dict value") => {
                let is_pair = |item: &str| item.trim().is_empty() || item.contains(':');
                (!value.split(',').all(is_pair))
                    .then_some(Misfit::Type("a list of key:value pairs"))
            }
            Some("host address value") => {
                (!is_host(value)).then_some(Misfit::Type("an IP address or a host name"))
            }
            // Texts, URIs (any scheme counts) and options that may be repeated.
            _ => None,
        }
    }

    /// Whether a name of a type is one that [`Self::misfit`] thought of.
    #[cfg(test)]
    pub(super) fn is_understood(&self) -> bool {
        self.name.as_deref().is_none_or(|name| {
            [
                "boolean value",
                "integer value",
                "port value",
                "floating point value",
                "list value",
                "dict value",
                "host address value",
                "host domain value",
                "uri value",
                "multi valued",
            ]
            .contains(&name)
        })
    }

    fn out_of_range(&self, number: f64) -> Option<Misfit<'_>> {
        let below = self.min.is_some_and(|min| number < min);
        let above = self.max.is_some_and(|max| number > max);
        (below || above).then_some(Misfit::Range(self.min, self.max))
    }
}

// === impl Misfit ===

impl fmt::Display for Misfit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(name) => write!(f, "the value is not {name}"),
            Self::Range(Some(min), Some(max)) => {
                write!(f, "the value is not between {min} and {max}")
            }
            Self::Range(Some(min), None) => write!(f, "the value is less than {min}"),
            Self::Range(None, max) => {
                write!(f, "the value is more than {}", max.unwrap_or_default())
            }
            Self::Choice(choices) => {
                write!(f, "the value is none of {}", choices.join(", "))
            }
            Self::Brackets => f.write_str("the list must stand in brackets, as in [a,b]"),
        }
    }
}

/// oslo.config takes one pair of quotes off.
fn unquoted(text: &str) -> &str {
    ['"', '\'']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(text)
}

fn is_boolean(text: &str) -> bool {
    ["true", "1", "yes", "on", "false", "0", "no", "off"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word))
}

/// Whether oslo.config takes a text for a host: an address, or labels of
/// letters, digits and dashes.
pub fn is_host(text: &str) -> bool {
    if text.parse::<IpAddr>().is_ok() {
        return true;
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    text.len() <= 253
        && text
            .strip_suffix('.')
            .unwrap_or(text)
            .split('.')
            .all(is_label)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn misfit(kind: Value, value: &str) -> Option<String> {
        let kind: Kind = serde_json::from_value(kind).unwrap();
        kind.misfit(value).map(|misfit| misfit.to_string())
    }

    #[rstest]
    #[case(json!({ "type": "boolean value" }), "Yes")]
    #[case(json!({ "type": "boolean value" }), " \"true\" ")]
    #[case(json!({ "type": "boolean value" }), "$debug")]
    #[case(json!({ "type": "integer value", "min": 1 }), "1")]
    #[case(json!({ "type": "integer value" }), "-5")]
    #[case(json!({ "type": "integer value" }), "")]
    #[case(json!({ "type": "floating point value", "max": 4.5 }), "4.5")]
    #[case(json!({ "type": "list value" }), "a,b")]
    #[case(json!({ "type": "list value", "list_bounds": true }), "[a,b]")]
    #[case(json!({ "type": "dict value" }), "a:b,c:d:e")]
    #[case(json!({ "type": "host address value" }), "::1")]
    #[case(json!({ "choices": ["a", "b"] }), "A")]
    #[case(json!({ "type": "integer value", "choices": [1, 2] }), "2")]
    #[case(json!({ "choices": [null, "1.2"] }), "1.2")]
    #[case(json!({ "type": "uri value" }), "anything")]
    #[case(json!({}), "anything")]
    fn a_value_that_oslo_reads_is_fine(#[case] kind: Value, #[case] value: &str) {
        assert_eq!(misfit(kind, value), None);
    }

    #[rstest]
    #[case(json!({ "type": "boolean value" }), "maybe", "the value is not a boolean")]
    #[case(json!({ "type": "boolean value" }), "", "the value is not a boolean")]
    #[case(json!({ "type": "integer value" }), "1.5", "the value is not an integer")]
    #[case(json!({ "type": "integer value", "min": 1 }), "0", "the value is less than 1")]
    #[case(json!({ "type": "port value", "min": 0, "max": 65535 }), "65536", "the value is not between 0 and 65535")]
    #[case(json!({ "type": "floating point value", "max": 4.5 }), "4.6", "the value is more than 4.5")]
    #[case(json!({ "type": "floating point value" }), "x", "the value is not a number")]
    #[case(json!({ "type": "list value", "list_bounds": true }), "a,b", "the list must stand in brackets, as in [a,b]")]
    #[case(json!({ "type": "dict value" }), "a,b:c", "the value is not a list of key:value pairs")]
    #[case(json!({ "type": "host address value" }), "a b", "the value is not an IP address or a host name")]
    #[case(json!({ "choices": ["a", "b"] }), "c", "the value is none of a, b")]
    fn a_value_that_oslo_refuses_is_told_without_being_shown(
        #[case] kind: Value,
        #[case] value: &str,
        #[case] text: &str,
    ) {
        assert_eq!(misfit(kind, value).as_deref(), Some(text));
    }
}
