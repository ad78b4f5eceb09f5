//! `spec.importPlugins`: what happens to an image while it is imported.
//!
//! The properties become one dictionary option of oslo.config, split at commas
//! and each pair at its first colon, blanks stripped. A map key cannot carry a
//! schema rule, so these are the only gates. Neither name nor value is repeated
//! in full.

use glance_api::glance::{ImportPluginsSpec, InjectMetadataSpec};

use super::imports::LIST_LIMIT;
use crate::oslo::ini;
use crate::policy::path::Path;
use crate::policy::review::Findings;

const TEXT_LIMIT: usize = 255;

/// The rules of the block at `at`.
pub fn import_plugins(set: Option<&ImportPluginsSpec>, at: &Path, f: &mut Findings) {
    if let Some(inject) = set.and_then(|set| set.inject_metadata.as_ref()) {
        inject_metadata(inject, &at.child("injectMetadata"), f);
    }
}

fn inject_metadata(inject: &InjectMetadataSpec, at: &Path, f: &mut Findings) {
    let properties_at = at.child("properties");
    if inject.properties.is_empty() {
        f.required(&properties_at, "at least one property must be set");
    }
    if inject.properties.len() > LIST_LIMIT {
        f.too_many(&properties_at, inject.properties.len(), LIST_LIMIT);
    }
    for (name, value) in &inject.properties {
        if name.is_empty() {
            f.invalid(&properties_at, "", "property name must not be empty");
            continue;
        }
        let at = properties_at.key(name);
        if let Some(fault) = name_fault(name) {
            f.invalid(&at, name.as_str(), fault);
        }
        if let Some(fault) =
            text_fault("property value", value).or_else(|| too_long("property value", value))
        {
            f.invalid(&at, value.as_str(), fault);
        }
    }
    let roles_at = at.child("ignoreUserRoles");
    let roles = inject.ignore_user_roles.as_deref().unwrap_or_default();
    if roles.len() > LIST_LIMIT {
        f.too_many(&roles_at, roles.len(), LIST_LIMIT);
    }
    for (index, role) in roles.iter().enumerate() {
        if let Some(fault) = role_fault(role) {
            f.invalid(&roles_at.index(index), role.as_str(), fault);
        }
    }
}

fn name_fault(name: &str) -> Option<String> {
    let what = "property name";
    if name.contains(':') && !name.contains(['\n', '\r']) {
        return Some(
            "property name must not contain a colon: glance splits each pair on the first colon"
                .to_owned(),
        );
    }
    text_fault(what, name).or_else(|| too_long(what, name))
}

fn role_fault(role: &str) -> Option<String> {
    if role.is_empty() {
        return Some("role must not be empty".to_owned());
    }
    // A padded role is legal: it is stripped where it is read.
    text_fault("role", role)
        .filter(|fault| !fault.ends_with("whitespace"))
        .or_else(|| too_long("role", role))
}

fn text_fault(what: &str, text: &str) -> Option<String> {
    if text.contains(['\n', '\r']) {
        Some(format!(
            "{what} must not contain newline or carriage-return characters"
        ))
    } else if let Some(fault) = ini::value_fault(text) {
        Some(format!("{what} must not contain {}", fault.as_str()))
    } else if text.contains(',') {
        Some(format!(
            "{what} must not contain a comma: glance splits the list on commas"
        ))
    } else if text.trim() != text {
        Some(format!("{what} must not start or end with whitespace"))
    } else {
        None
    }
}

fn too_long(what: &str, text: &str) -> Option<String> {
    (text.chars().count() > TEXT_LIMIT)
        .then(|| format!("{what} must be at most {TEXT_LIMIT} characters"))
}
