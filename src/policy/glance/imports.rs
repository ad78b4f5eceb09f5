//! `spec.importFiltering`: which URLs an import may fetch.

use glance_api::defaults::{ALLOWED_PORTS, ALLOWED_SCHEMES};
use glance_api::glance::ImportFilteringSpec;

use super::block;
use crate::policy::catalog;
use crate::policy::path::Path;
use crate::policy::review::Findings;

/// Most entries of one list.
pub(super) const LIST_LIMIT: usize = 64;
const HOST_LIMIT: usize = 253;

/// The rules of the block at `at`.
pub fn import_filtering(set: Option<&ImportFilteringSpec>, at: &Path, f: &mut Findings) {
    let Some(set) = set else {
        return;
    };
    exclusive(set, at, f);
    let lengths = [
        ("allowedSchemes", length(set.allowed_schemes.as_ref())),
        ("disallowedSchemes", length(set.disallowed_schemes.as_ref())),
        ("allowedHosts", length(set.allowed_hosts.as_ref())),
        ("disallowedHosts", length(set.disallowed_hosts.as_ref())),
        ("allowedPorts", length(set.allowed_ports.as_ref())),
        ("disallowedPorts", length(set.disallowed_ports.as_ref())),
    ];
    for (field, length) in lengths {
        if length > LIST_LIMIT {
            f.too_many(&at.child(field), length, LIST_LIMIT);
        }
    }
    for (field, list) in [
        ("allowedHosts", &set.allowed_hosts),
        ("disallowedHosts", &set.disallowed_hosts),
    ] {
        for (index, host) in list.iter().flatten().enumerate() {
            if let Some(fault) = host_fault(host) {
                f.invalid(&at.child(field).index(index), host.as_str(), fault);
            }
        }
    }
    for (field, list) in [
        ("allowedPorts", &set.allowed_ports),
        ("disallowedPorts", &set.disallowed_ports),
    ] {
        for (index, port) in list.iter().flatten().enumerate() {
            if !(1..=65535).contains(port) {
                f.invalid(
                    &at.child(field).index(index),
                    *port,
                    "port must be between 1 and 65535",
                );
            }
        }
    }
}

/// The half that Glance would ignore is the one to blame.
fn exclusive(set: &ImportFilteringSpec, at: &Path, f: &mut Findings) {
    let pairs = [
        (
            "Schemes",
            length(set.allowed_schemes.as_ref()),
            set.disallowed_schemes.as_ref().map(block),
        ),
        (
            "Hosts",
            length(set.allowed_hosts.as_ref()),
            set.disallowed_hosts.as_ref().map(block),
        ),
        (
            "Ports",
            length(set.allowed_ports.as_ref()),
            set.disallowed_ports.as_ref().map(block),
        ),
    ];
    for (what, allowed, denied) in pairs {
        let denied = denied.filter(|list| list.as_array().is_some_and(|list| !list.is_empty()));
        if let Some(denied) = denied.filter(|_| allowed > 0) {
            f.invalid(
                &at.child(&format!("disallowed{what}")),
                denied,
                format!(
                    "allowed{what} and disallowed{what} are mutually exclusive: glance ignores the deny-list when the allow-list is non-empty"
                ),
            );
        }
    }
}

/// Hosts are joined into one line, so a line break would smuggle in a section;
/// and one entry that Glance cannot read makes every import fail.
fn host_fault(host: &str) -> Option<&'static str> {
    if host.is_empty() {
        Some("host must not be empty")
    } else if host.contains(['\n', '\r']) {
        Some("host must not contain newline or carriage-return characters")
    } else if host.chars().count() > HOST_LIMIT {
        Some("host must be at most 253 characters")
    } else if !catalog::is_host(host) {
        Some(
            "host must be an IP address or a host name without port, mask or wildcard: glance reads no other entry and would refuse every import",
        )
    } else {
        None
    }
}

fn length<T>(list: Option<&Vec<T>>) -> usize {
    list.map_or(0, Vec::len)
}

/// Lists without effect, and lists that open what is closed by default.
pub(super) fn inert(set: Option<&ImportFilteringSpec>, f: &mut Findings) {
    let Some(set) = set else {
        return;
    };
    let schemes = set.allowed_schemes.as_deref();
    let ports = set.allowed_ports.as_deref();
    let attributes = [
        (
            "Schemes",
            schemes.map(texts),
            texts(&ALLOWED_SCHEMES),
            length(set.disallowed_schemes.as_ref()),
        ),
        (
            "Ports",
            ports.map(texts),
            texts(&ALLOWED_PORTS),
            length(set.disallowed_ports.as_ref()),
        ),
    ];
    for (what, allowed, default, denied) in attributes {
        let default_list = list(&default);
        match allowed {
            None if denied > 0 => f.warn(format!(
                "spec.importFiltering.disallowed{what} is set while spec.importFiltering.allowed{what} is unset: the operator default {default_list} applies and this list is inert; set allowed{what} to [] to make it count"
            )),
            Some(allowed)
                if allowed.is_empty() || allowed.iter().any(|item| !default.contains(item)) =>
            {
                f.warn(format!(
                    "spec.importFiltering.allowed{what} is set to {}, widening the operator default {default_list}; with spec.networkPolicy the way out is opened in spec.networkPolicy.additionalEgress",
                    list(&allowed)
                ));
            }
            _ => {}
        }
    }
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(T::to_string).collect()
}

/// As Go prints a list.
fn list(items: &[String]) -> String {
    format!("[{}]", items.join(" "))
}
