//! The options that belong to the operator, and who set one of them anyway.
//!
//! The list is static: an option is owned also in a resource for which it is
//! not rendered at the moment, because the next field that is set renders it
//! (contract: configuration, operator-owned keys). It is used three times: by
//! admission, by the condition `ExtraConfigHealthy`, and by the renderer, which
//! drops what a plugin section must not carry.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use glance_api::glance::GlanceSpec;

use crate::oslo::Projection;

/// One option of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnedKey {
    /// Section, as it is rendered.
    pub section: &'static str,
    /// Option.
    pub key: &'static str,
    /// Who decides its value: a field of the resource, or the operator.
    pub owned_by: &'static str,
    /// Whether an override is admitted.
    pub policy: Policy,
    /// What an override does, for people.
    pub impact: Option<&'static str>,
}

/// What happens to an override.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// It is rendered and reported.
    Reported,
    /// Admission forbids it: the damage is done before a condition could show it.
    Rejected,
}

/// An option of the operator that a resource sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// Where it is set.
    pub source: Source,
    /// Section, as it is written in the resource.
    pub section: String,
    /// Option, as it is written in the resource.
    pub key: String,
    /// What it overrides.
    pub owned: &'static OwnedKey,
    impact: Option<String>,
    /// How it disagrees with what is projected.
    disagreement: Option<String>,
}

/// The field that sets an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// `spec.extraConfig`.
    ExtraConfig,
    /// `spec.plugins`.
    Plugins,
}

const COMPUTED: &str = "operator-computed";

const PASSWORD_IMPACT: &str = "the value is injected via OS_KEYSTONE_AUTHTOKEN__PASSWORD, so the file value is ignored and only leaks into a readable ConfigMap";
const FILTERING_IMPACT: &str = "the web-download URI filter is platform security policy";
const PLUGINS_IMPACT: &str =
    "setting it directly bypasses the fixed decompression-before-conversion order";

/// Every option of the operator, by section and key.
pub const OWNED_KEYS: &[OwnedKey] = &[
    OwnedKey::new("DEFAULT", "debug"),
    OwnedKey::new("DEFAULT", "default_log_levels"),
    OwnedKey::new("DEFAULT", "enabled_backends")
        .with_impact("must agree with the projected backends Secret"),
    OwnedKey::new("DEFAULT", "enabled_import_methods"),
    OwnedKey::new("DEFAULT", "image_cache_dir").rejected(
        "spec.imageCache",
        "the cache would grow outside its own volume, against another volume's bound",
    ),
    OwnedKey::new("DEFAULT", "image_cache_driver").rejected(
        "spec.imageCache",
        "another driver keeps rows of dead pods in the database, and no db-purge pass reclaims them",
    ),
    OwnedKey::new("DEFAULT", "image_cache_max_size").rejected(
        "spec.imageCache",
        "without the pruner's limit the volume grows until the kubelet evicts the pod",
    ),
    OwnedKey::new("DEFAULT", "log_config_append"),
    OwnedKey::new("DEFAULT", "use_stderr"),
    OwnedKey::new("DEFAULT", "workers"),
    OwnedKey::new("database", "connection").with_impact(
        "the runtime value comes from the OS_DATABASE__CONNECTION env override, so the file override is ignored",
    ),
    OwnedKey::new("database", "connection_recycle_time"),
    OwnedKey::new("database", "max_retries"),
    OwnedKey::new("glance_store", "default_backend"),
    OwnedKey::new("image_conversion", "output_format")
        .rejected("spec.importPlugins", PLUGINS_IMPACT),
    OwnedKey::new("image_import_opts", "image_import_plugins")
        .rejected("spec.importPlugins", PLUGINS_IMPACT),
    OwnedKey::new("import_filtering_opts", "allowed_hosts")
        .rejected("spec.importFiltering", FILTERING_IMPACT),
    OwnedKey::new("import_filtering_opts", "allowed_ports")
        .rejected("spec.importFiltering", FILTERING_IMPACT),
    OwnedKey::new("import_filtering_opts", "allowed_schemes")
        .rejected("spec.importFiltering", FILTERING_IMPACT),
    OwnedKey::new("import_filtering_opts", "disallowed_hosts")
        .rejected("spec.importFiltering", FILTERING_IMPACT),
    OwnedKey::new("import_filtering_opts", "disallowed_ports")
        .rejected("spec.importFiltering", FILTERING_IMPACT),
    OwnedKey::new("import_filtering_opts", "disallowed_schemes")
        .rejected("spec.importFiltering", FILTERING_IMPACT),
    OwnedKey::new("inject_metadata_properties", "ignore_user_roles")
        .rejected("spec.importPlugins", PLUGINS_IMPACT),
    OwnedKey::new("inject_metadata_properties", "inject")
        .rejected("spec.importPlugins", PLUGINS_IMPACT),
    OwnedKey::new("keystone_authtoken", "auth_type"),
    OwnedKey::new("keystone_authtoken", "auth_url"),
    OwnedKey::new("keystone_authtoken", "memcached_servers"),
    OwnedKey::new("keystone_authtoken", "password")
        .rejected("spec.serviceUser.secretRef", PASSWORD_IMPACT),
    OwnedKey::new("keystone_authtoken", "project_domain_name"),
    OwnedKey::new("keystone_authtoken", "project_name"),
    OwnedKey::new("keystone_authtoken", "region_name"),
    OwnedKey::new("keystone_authtoken", "user_domain_name"),
    OwnedKey::new("keystone_authtoken", "username"),
    OwnedKey::new("keystone_authtoken", "www_authenticate_uri"),
    OwnedKey::new("os_glance_staging_store", "filesystem_store_datadir"),
    OwnedKey::new("os_glance_tasks_store", "filesystem_store_datadir"),
    OwnedKey::new("oslo_policy", "policy_file"),
    OwnedKey::new("paste_deploy", "config_file"),
    OwnedKey::new("paste_deploy", "flavor"),
];

/// Other names under which Glance reads an owned option: section, other name,
/// rendered name. They count whenever the rendered name is not in the file.
const ALIASES: &[(&str, &str, &str)] = &[
    ("DEFAULT", "log-config", "log_config_append"),
    ("DEFAULT", "log-config-append", "log_config_append"),
    ("DEFAULT", "log_config", "log_config_append"),
    ("keystone_authtoken", "auth_plugin", "auth_type"),
    (
        "keystone_authtoken",
        "memcache_servers",
        "memcached_servers",
    ),
];

/// The owned option that Glance reads from this section and key, if it is one.
///
/// Section names are compared as oslo.config does, without regard to case but
/// for `DEFAULT`; blanks around a key and the known other names do not hide it.
pub fn owned(section: &str, key: &str) -> Option<&'static OwnedKey> {
    let key = key.trim_matches(is_blank);
    let lower;
    let section = if section == "DEFAULT" {
        section
    } else {
        lower = section.to_lowercase();
        lower.as_str()
    };
    let key = ALIASES
        .iter()
        .find(|(of, other, _)| *of == section && *other == key)
        .map_or(key, |(_, _, rendered)| rendered);
    OWNED_KEYS
        .iter()
        .find(|owned| owned.section == section && owned.key == key)
}

/// What Python strips: four separators more than Unicode calls white.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Whether section and key are listed, spelled exactly as they are rendered.
pub fn is_registered(section: &str, key: &str) -> bool {
    OWNED_KEYS
        .iter()
        .any(|owned| owned.section == section && owned.key == key)
}

/// Every owned option that the resource sets, those of `extraConfig` first,
/// each part in the order of section and key.
///
/// With the stores that are `projected`, an override of theirs that says the
/// same is left out, and another one says how it differs.
pub fn overridden_keys(spec: &GlanceSpec, projected: Option<&Projection>) -> Vec<Override> {
    let mut plugins: BTreeMap<(&str, &str), &'static OwnedKey> = BTreeMap::new();
    for plugin in &spec.plugins {
        for key in plugin.config.keys() {
            if let Some(owned) = owned(&plugin.config_section, key) {
                plugins.insert((&plugin.config_section, key), owned);
            }
        }
    }
    let extra_config = spec.extra_config.iter().flat_map(|(section, entries)| {
        entries.iter().filter_map(move |(key, value)| {
            let mut found = Override::extra_config(spec, section, key, owned(section, key)?);
            match projected.map(|projected| projected.compare(found.owned.key, value)) {
                Some(Agreement::Same) => return None,
                Some(Agreement::Differs(how)) => found.disagreement = Some(how),
                Some(Agreement::Unrelated) | None => {}
            }
            Some(found)
        })
    });
    extra_config
        .chain(
            plugins
                .into_iter()
                .map(|((section, key), owned)| Override::plugin(section, key, owned)),
        )
        .collect()
}

/// The message of the condition `ExtraConfigHealthy`, and of its event, for
/// these overrides.
pub fn message(overrides: &[Override]) -> String {
    let listed = |source: Source| {
        let entries: Vec<String> = overrides
            .iter()
            .filter(|entry| entry.source == source)
            .map(Override::to_string)
            .collect();
        (!entries.is_empty()).then(|| entries.join("; "))
    };
    let extra_config = listed(Source::ExtraConfig)
        .map(|list| format!("spec.extraConfig overrides operator-owned keys: {list}"));
    let plugins = listed(Source::Plugins)
        .map(|list| format!("spec.plugins sets operator-owned keys: {list}"));
    match (extra_config, plugins) {
        (None, None) => "spec.extraConfig overrides no operator-owned keys".to_owned(),
        (Some(message), None) | (None, Some(message)) => message,
        (Some(extra_config), Some(plugins)) => format!("{extra_config}; {plugins}"),
    }
}

// === impl OwnedKey ===

impl OwnedKey {
    const fn new(section: &'static str, key: &'static str) -> Self {
        Self {
            section,
            key,
            owned_by: COMPUTED,
            policy: Policy::Reported,
            impact: None,
        }
    }

    const fn with_impact(mut self, impact: &'static str) -> Self {
        self.impact = Some(impact);
        self
    }

    const fn rejected(mut self, owned_by: &'static str, impact: &'static str) -> Self {
        self.owned_by = owned_by;
        self.policy = Policy::Rejected;
        self.impact = Some(impact);
        self
    }

    /// Why admission forbids `key` in a field, e.g. `extraConfig`.
    pub fn refusal(&self, key: &str, field: &str) -> String {
        let impact = self
            .impact
            .map(|impact| format!(" ({impact})"))
            .unwrap_or_default();
        format!(
            "{key} is managed via {} and must not be set in {field}{impact}",
            self.owned_by
        )
    }
}

// === impl Override ===

impl Override {
    fn extra_config(spec: &GlanceSpec, section: &str, key: &str, owned: &'static OwnedKey) -> Self {
        let impact = if owned.key == "policy_file" && spec.policy_overrides.is_some() {
            Some("ignored while spec.policyOverrides yields rules".to_owned())
        } else if owned.impact.is_none() && owned.key != key {
            Some(format!("another name of {}", owned.key))
        } else {
            owned.impact.map(str::to_owned)
        };
        Self {
            source: Source::ExtraConfig,
            section: section.to_owned(),
            key: key.to_owned(),
            owned,
            impact,
            disagreement: None,
        }
    }

    fn plugin(section: &str, key: &str, owned: &'static OwnedKey) -> Self {
        let impact = match owned.policy {
            Policy::Rejected => Some(format!("not rendered: managed via {}", owned.owned_by)),
            Policy::Reported => owned.impact.map(str::to_owned),
        };
        Self {
            source: Source::Plugins,
            section: section.to_owned(),
            key: key.to_owned(),
            owned,
            impact,
            disagreement: None,
        }
    }
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.section, self.key)?;
        if let Some(impact) = &self.impact {
            write!(f, " ({impact})")?;
        }
        match &self.disagreement {
            Some(how) => write!(f, ": {how}"),
            None => Ok(()),
        }
    }
}

// === impl Projection ===

/// What an override says compared with the projected stores.
enum Agreement {
    /// It is about something else.
    Unrelated,
    /// The same.
    Same,
    /// Something else, in words.
    Differs(String),
}

impl Projection {
    fn compare(&self, key: &str, value: &str) -> Agreement {
        match key {
            "enabled_backends" => {
                let wanted = entries(&self.enabled_backends);
                let set = entries(value);
                let list = |title: &str, entries: Vec<&&str>| {
                    let names: Vec<&str> = entries.into_iter().copied().collect();
                    (!names.is_empty()).then(|| format!("{title} {}", names.join(", ")))
                };
                let differences: Vec<String> = [
                    list("missing", wanted.difference(&set).collect()),
                    list("surplus", set.difference(&wanted).collect()),
                ]
                .into_iter()
                .flatten()
                .collect();
                if differences.is_empty() {
                    Agreement::Same
                } else {
                    Agreement::Differs(differences.join("; "))
                }
            }
            "default_backend" => {
                let value = value.trim();
                let is_projected = entries(&self.enabled_backends)
                    .iter()
                    .any(|entry| entry.split(':').next() == Some(value));
                if value == self.default_backend {
                    Agreement::Same
                } else if is_projected {
                    Agreement::Unrelated
                } else {
                    Agreement::Differs(format!("{value:?} is no projected store"))
                }
            }
            _ => Agreement::Unrelated,
        }
    }
}

/// The entries of a list such as `a:s3, b:s3`.
fn entries(list: &str) -> BTreeSet<&str> {
    list.split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .collect()
}

#[cfg(test)]
mod tests;
