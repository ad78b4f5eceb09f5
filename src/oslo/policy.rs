//! `policy.yaml`: rules of the resource, on top of rules of a `ConfigMap`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use glance_api::glance::GlanceSpec;

use crate::release::{Release, is_below};

/// The key of the document, in a user's `ConfigMap` and in the rendered one.
pub const KEY: &str = "policy.yaml";

/// The first release whose tasks API applies the import filter.
const TASKS_FIXED: Release = Release::new(2026, 2);

/// The rule that guards the tasks API.
const TASKS_RULE: &str = "tasks_api_access";

/// A policy that cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The `ConfigMap` could not be read.
    #[error("loading policy from ConfigMap: getting ConfigMap {namespace}/{name}: {cause}")]
    Unreadable {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What the API server said.
        cause: String,
    },
    /// The `ConfigMap` has no document.
    #[error(
        "loading policy from ConfigMap: ConfigMap {namespace}/{name} does not contain key \"policy.yaml\""
    )]
    MissingKey {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The document is no mapping of texts.
    #[error(
        "loading policy from ConfigMap: parsing policy.yaml from ConfigMap {namespace}/{name}: {cause}"
    )]
    Malformed {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What the parser said.
        cause: String,
    },
    /// The document holds nothing, not even an empty mapping.
    #[error(
        "loading policy from ConfigMap: ConfigMap {namespace}/{name} key \"policy.yaml\" is empty or parsed to nil"
    )]
    Empty {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// Rules by name.
pub type Rules = BTreeMap<String, String>;

/// All rules of a resource in `namespace`; `document` is the text of the
/// `ConfigMap` that it names.
///
/// Inline rules win over those of the document. `file_is_set` says that the
/// resource brings a policy file of its own: the operator's rule would take it
/// out of use.
pub fn rules(
    spec: &GlanceSpec,
    namespace: &str,
    document: Option<&str>,
    file_is_set: bool,
) -> Result<Rules, PolicyError> {
    let mut rules = Rules::new();
    if let Some(overrides) = &spec.policy_overrides {
        if let Some(config_map) = &overrides.config_map_ref {
            let document = document.ok_or_else(|| PolicyError::MissingKey {
                namespace: namespace.to_owned(),
                name: config_map.name.clone(),
            })?;
            rules = parse(document, namespace, &config_map.name)?;
        }
        rules.extend(overrides.rules.clone());
    }
    // Older releases let administrators import through the tasks API, past the
    // URL filter that is platform policy.
    if !file_is_set && is_below(&spec.open_stack_release, TASKS_FIXED) {
        rules
            .entry(TASKS_RULE.to_owned())
            .or_insert_with(|| "!".to_owned());
    }
    Ok(rules)
}

/// One `name: rule` line per rule, in the order of names.
pub fn render(rules: &Rules) -> String {
    rules.iter().fold(String::new(), |mut text, (name, rule)| {
        text.push_str(&scalar(name));
        text.push_str(": ");
        text.push_str(&scalar(rule));
        text.push('\n');
        text
    })
}

fn parse(document: &str, namespace: &str, name: &str) -> Result<Rules, PolicyError> {
    let rules: Option<Rules> =
        serde_saphyr::from_str(document).map_err(|error| PolicyError::Malformed {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            cause: error.without_snippet().to_string(),
        })?;
    rules.ok_or_else(|| PolicyError::Empty {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

// === YAML scalars ===

/// A text as a YAML scalar on one line, in the least quoting style that reads
/// back as the same text.
fn scalar(text: &str) -> String {
    if text.chars().any(needs_escape) || reads_as_other_type(text) {
        double_quoted(text)
    } else if plain_is_allowed(text) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

/// Whether YAML has to be told about a character, or a reader would drop it.
fn needs_escape(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

fn double_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if needs_escape(c) => {
                // Writing to a String does not fail.
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn plain_is_allowed(text: &str) -> bool {
    let mut chars = text.chars();
    let (Some(first), second) = (chars.next(), chars.next()) else {
        return false;
    };
    let lone = second.is_none_or(|c| c == ' ');
    let starts_well = match first {
        ' ' | '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"'
        | '%' | '@' | '`' => false,
        '-' | '?' | ':' => !lone,
        _ => true,
    };
    starts_well
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("---")
        && !text.starts_with("...")
}

/// Whether the text without quotes would be null, a boolean, a number, a date
/// or a merge key to any reader, old ones included.
fn reads_as_other_type(text: &str) -> bool {
    const WORDS: &[&str] = &[
        "~", "null", "true", "false", "y", "n", "yes", "no", "on", "off", ".inf", "+.inf", "-.inf",
        ".nan", "<<", "=",
    ];
    if text.is_empty() || WORDS.contains(&text.to_ascii_lowercase().as_str()) {
        return true;
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let starts_numeric = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.contains(|c: char| c.is_ascii_digit());
    // Digits with everything that numbers, times and dates are made of. Quoting
    // one too many is harmless, one too few changes its meaning.
    starts_numeric
        && unsigned
            .chars()
            .all(|c| c.is_ascii_hexdigit() || "xXoO._:+-eETZtz ".contains(c))
}

#[cfg(test)]
mod tests;
