//! What a site adds to Glance: policy rules, filters, plugin sections.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{LocalRef, text_enum};

/// Changes to the API's policy.
// The rule on presence asks `has()`: comparing an absent reference with null
// only reports a missing key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("(has(self.rules) && size(self.rules) > 0) || has(self.configMapRef)")
    .message("at least one of rules or configMapRef must be set"))]
#[x_kube(validation = Rule::new("!has(self.rules) || self.rules.all(k, size(k) > 0)")
    .message("policy rule name must not be empty"))]
#[x_kube(validation = Rule::new("!has(self.rules) || self.rules.all(k, size(self.rules[k]) > 0)")
    .message("policy rule value must not be empty"))]
#[serde(rename_all = "camelCase")]
pub struct PolicyOverridesSpec {
    /// Rules by name, e.g. `get_images: role:reader`. They win over rules of
    /// the same name in the `ConfigMap`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rules: BTreeMap<String, String>,

    /// A `ConfigMap` with more rules, as YAML under the key `policy.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<LocalRef>,
}

text_enum! {
    /// Where in the pipeline a filter stands.
    MiddlewarePosition {
        /// Ahead of the operator's own filters.
        Before = "before",
        /// Behind them, directly before the application.
        After = "after",
    }
}

/// One filter of the paste pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MiddlewareSpec {
    /// Name of the filter: its section becomes `[filter:<name>]`. The name
    /// `cache` belongs to the operator while `imageCache` is set.
    pub name: String,

    /// Python path of its factory, e.g. `mypackage.audit:filter_factory`.
    pub filter_factory: String,

    /// `before` puts it ahead of the operator's filters, `after` behind them.
    pub position: MiddlewarePosition,

    /// Options of the filter's section. A key `paste.filter_factory` is ignored.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
}

/// The section of one plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginSpec {
    /// Name of the plugin, for people.
    pub name: String,

    /// Section of `glance-api.conf` that the plugin reads. Unique in the
    /// list. `extraConfig` may then use any option of it.
    pub config_section: String,

    /// Options of that section.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
}
