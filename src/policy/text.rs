//! Texts that end up as one entry of a rendered file.
//!
//! The writers of those files refuse what would break them, whoever typed it
//! ([`ini`]); the same questions are asked here, so that a user hears of it at
//! once and not from a condition. No text that works is refused: a tab in a
//! value is fine, a control character in a name never is.

use super::path::Path;
use super::review::Findings;
use crate::oslo::ini;

/// A name: of a user, a region, a filter.
pub(super) fn name(text: &str, at: &Path, findings: &mut Findings) {
    if text.chars().any(char::is_control) {
        findings.invalid(
            at,
            text,
            "must not contain control characters: a line break would start another line of the rendered file",
        );
    }
}

/// A section of an INI file.
pub(super) fn section(text: &str, at: &Path, findings: &mut Findings) {
    match ini::section_fault(text) {
        Some(fault) => findings.invalid(
            at,
            text,
            format!("section name must not contain {}", fault.as_str()),
        ),
        None => name(text, at, findings),
    }
}

/// Options of an INI section; each is an entry of the map at `at`.
pub(super) fn options<'a>(
    entries: impl IntoIterator<Item = (&'a String, &'a String)>,
    at: &Path,
    findings: &mut Findings,
) {
    for (key, value) in entries {
        option(key, value, at, findings);
    }
}

/// One option of an INI section.
pub(super) fn option(key: &str, value: &str, at: &Path, findings: &mut Findings) {
    if key.is_empty() {
        findings.invalid(at, key, "option name must not be empty");
    } else if let Some(fault) = ini::key_fault(key) {
        findings.invalid(
            &at.key(key),
            key,
            format!("option name must not contain {}", fault.as_str()),
        );
    } else if let Some(fault) = ini::value_fault(value) {
        // The value may be a secret: it is judged and not shown.
        findings.hidden(
            &at.key(key),
            value,
            format!("the value must not contain {}", fault.as_str()),
        );
    }
}
