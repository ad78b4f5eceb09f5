//! The data of the config `ConfigMap`.

use std::collections::BTreeMap;

use ::glance_api::defaults;
use ::glance_api::glance::{Glance, GlanceSpec};

use super::glance_api::{self, PluginError, Projection};
use super::ini::{Ini, IniError};
use super::logging;
use super::paste::{self, PasteError};
use super::policy::{self, PolicyError};
use crate::hash::ContentHash;
use crate::quantity::QuantityError;

/// Most that the API server takes.
const LIMIT: usize = 1_048_576;

/// The data of the object, by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigData {
    /// Text by file name.
    pub data: BTreeMap<String, String>,
}

/// Why there is no configuration. The text is that of the condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A plugin section is wrong.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// The policy is wrong, or its source cannot be read.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The paste pipeline is wrong.
    #[error(transparent)]
    Paste(#[from] PasteError),
    /// A text would break `glance-api.conf`.
    #[error("glance-api.conf: {0}")]
    Config(IniError),
    /// A text would break `logging.conf`.
    #[error("logging.conf: {0}")]
    Logging(IniError),
    /// The bound of the cache is no size.
    #[error("spec.imageCache.sizeLimit: {0}")]
    CacheSize(#[from] QuantityError),
    /// The object would be too large to be stored.
    #[error(
        "the rendered configuration has {bytes} bytes, but a ConfigMap holds at most 1048576; the biggest part is {part}"
    )]
    TooLarge {
        /// Bytes of all keys and values.
        bytes: usize,
        /// What takes most of them.
        part: String,
    },
}

/// Renders the configuration of a Glance.
///
/// `policy_configmap` is the text under the key `policy.yaml` of the
/// `ConfigMap` that `spec.policyOverrides` names. A `ConfigMap` that cannot be
/// read is the caller's to report, as [`PolicyError::Unreadable`].
pub fn render(
    glance: &Glance,
    projection: &Projection,
    policy_configmap: Option<&str>,
) -> Result<ConfigData, RenderError> {
    let spec = &glance.spec;
    let namespace = glance.metadata.namespace.as_deref().unwrap_or_default();

    let mut config = glance_api::helpful_lines(spec);
    config.overlay(glance_api::plugin_sections(spec)?);
    config.overlay(glance_api::operator_lines(spec, projection)?);
    config.overlay(Ini::from(&spec.extra_config));

    let file_is_set = config.get("oslo_policy", "policy_file").is_some();
    let rules = policy::rules(spec, namespace, policy_configmap, file_is_set)?;
    if !rules.is_empty() {
        // After extraConfig: the rules were asked for and must be read.
        config.set(
            "oslo_policy",
            "policy_file",
            format!("{}{}", glance_api::DIR, policy::KEY),
        );
    }

    let mut data = BTreeMap::from([
        (
            "glance-api.conf".to_owned(),
            config.render().map_err(RenderError::Config)?,
        ),
        ("glance-api-paste.ini".to_owned(), paste::render(spec)?),
    ]);
    if !rules.is_empty() {
        data.insert(policy::KEY.to_owned(), policy::render(&rules));
    }
    if let Some(document) = log_document(spec)? {
        data.insert(logging::KEY.to_owned(), document);
    }
    check_size(&data, &config)?;
    Ok(ConfigData { data })
}

fn log_document(spec: &GlanceSpec) -> Result<Option<String>, RenderError> {
    let logging = defaults::logging(spec);
    if !logging::needs_document(&logging) {
        return Ok(None);
    }
    logging::render(&logging)
        .map(Some)
        .map_err(RenderError::Logging)
}

fn check_size(data: &BTreeMap<String, String>, config: &Ini) -> Result<(), RenderError> {
    let bytes: usize = data.iter().map(|(key, text)| key.len() + text.len()).sum();
    if bytes <= LIMIT {
        return Ok(());
    }
    let biggest = data.iter().max_by_key(|(_, text)| text.len());
    let part = match (biggest, config.longest_section()) {
        (Some((key, _)), Some((section, length))) if key == "glance-api.conf" => {
            format!("section [{section}] of {key} with {length} bytes")
        }
        (Some((key, text)), _) => format!("{key} with {} bytes", text.len()),
        (None, _) => String::new(),
    };
    Err(RenderError::TooLarge { bytes, part })
}

// === impl ConfigData ===

impl ConfigData {
    /// The hash that names the object.
    pub fn hash(&self) -> ContentHash {
        ContentHash::of_text(&self.data)
    }
}

// === impl RenderError ===

impl RenderError {
    /// The text for the log: what was being done, and the text of the
    /// condition.
    pub fn logged(&self) -> String {
        let doing = match self {
            Self::Plugin(_) => "rendering plugin config",
            Self::Policy(_) => "building policy",
            Self::Paste(_) => "rendering glance-api-paste.ini",
            Self::Config(_) | Self::CacheSize(_) => "rendering glance-api.conf",
            Self::Logging(_) => "rendering logging.conf",
            Self::TooLarge { .. } => "creating config ConfigMap",
        };
        format!("{doing}: {self}")
    }
}

#[cfg(test)]
mod tests;
