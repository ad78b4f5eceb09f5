//! Imports and local space: filtering, plugins, staging, image cache.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Quantity, text_enum};

/// Which URLs a `web-download` import may fetch.
///
/// In every list an absent value and `[]` differ: absent means the operator's
/// default, `[]` means no entry at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("!(has(self.allowedSchemes) && self.allowedSchemes.size() > 0 && has(self.disallowedSchemes) && self.disallowedSchemes.size() > 0)")
    .message("allowedSchemes and disallowedSchemes are mutually exclusive: glance ignores the deny-list when the allow-list is non-empty"))]
#[x_kube(validation = Rule::new("!(has(self.allowedHosts) && self.allowedHosts.size() > 0 && has(self.disallowedHosts) && self.disallowedHosts.size() > 0)")
    .message("allowedHosts and disallowedHosts are mutually exclusive: glance ignores the deny-list when the allow-list is non-empty"))]
#[x_kube(validation = Rule::new("!(has(self.allowedPorts) && self.allowedPorts.size() > 0 && has(self.disallowedPorts) && self.disallowedPorts.size() > 0)")
    .message("allowedPorts and disallowedPorts are mutually exclusive: glance ignores the deny-list when the allow-list is non-empty"))]
#[serde(rename_all = "camelCase")]
pub struct ImportFilteringSpec {
    /// Schemes that may be fetched. Unset means `[https]`; `[]` lets
    /// `disallowedSchemes` decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub allowed_schemes: Option<Vec<ImportScheme>>,

    /// Schemes that may not be fetched. Counts only with `allowedSchemes: []`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub disallowed_schemes: Option<Vec<ImportScheme>>,

    /// Hosts that may be fetched from. Unset and `[]` let `disallowedHosts`
    /// decide. Names are compared literally, not by pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub allowed_hosts: Option<Vec<String>>,

    /// Hosts that may not be fetched from, in addition to the built-in list
    /// of loopback, metadata and API server names. `[]` drops the built-in
    /// list as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub disallowed_hosts: Option<Vec<String>>,

    /// Ports that may be fetched from. Unset means `[443]`; `[]` lets
    /// `disallowedPorts` decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(range(min = 1, max = 65535)))]
    pub allowed_ports: Option<Vec<i32>>,

    /// Ports that may not be fetched from. Counts only with `allowedPorts: []`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(range(min = 1, max = 65535)))]
    pub disallowed_ports: Option<Vec<i32>>,
}

text_enum! {
    /// The schemes an import URL can have.
    ImportScheme {
        /// Plain text.
        Http = "http",
        /// TLS.
        Https = "https",
    }
}

/// What happens to an image while it is imported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportPluginsSpec {
    /// Unpack compressed images (`decompression: {}`). The caller chooses how
    /// far an archive expands, so `staging` has to name a size limit, or to
    /// say that there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decompression: Option<DecompressionSpec>,

    /// Convert images to one disk format (`conversion: {}` converts to `raw`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversion: Option<ConversionSpec>,

    /// Set properties on every imported image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inject_metadata: Option<InjectMetadataSpec>,
}

/// Unpacking has no options yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecompressionSpec {}

/// Conversion to one disk format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversionSpec {
    /// Disk format of the result: `qcow2`, `raw` or `vmdk`. Rendered as
    /// `[image_conversion] output_format`. Unset means `raw`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_format: Option<OutputFormat>,
}

text_enum! {
    /// The disk formats an import can convert to.
    OutputFormat {
        /// QEMU's copy-on-write format.
        Qcow2 = "qcow2",
        /// Plain sectors.
        Raw = "raw",
        /// VMware's format.
        Vmdk = "vmdk",
    }
}

/// Properties set on every imported image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectMetadataSpec {
    /// Properties by name; both at most 255 characters. A name takes no colon
    /// and neither takes a comma: Glance reads them as one list.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 64))]
    #[x_kube(validation = Rule::new("self.all(k, size(k) <= 255 && size(self[k]) <= 255)")
        .message("each injected property name and value must be at most 255 characters"))]
    pub properties: BTreeMap<String, String>,

    /// Roles whose imports are left alone. Unset means `[admin]`; `[]` means
    /// nobody's are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 255)))]
    pub ignore_user_roles: Option<Vec<String>>,
}

/// Local scratch space of imports and tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("!(has(self.unbounded) && self.unbounded && has(self.sizeLimit))")
    .message("unbounded and sizeLimit are mutually exclusive: an unbounded staging area has no size limit to configure"))]
#[serde(rename_all = "camelCase")]
pub struct StagingSpec {
    /// Most that each of the two volumes (`staging`, `tasks-work`) may hold;
    /// at least `1Mi`. A pod that goes over it is evicted together with its
    /// running imports. Unset means `10Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_limit: Option<Quantity>,

    /// No limit at all: an import may then fill the node's disk. Excludes
    /// `sizeLimit`. Unset means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unbounded: Option<bool>,
}

/// A cache of image data beside each API pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageCacheSpec {
    /// Size of the cache volume of each pod; at least `1Mi`. Pruning begins
    /// at four fifths of it. Unset means `10Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_limit: Option<Quantity>,

    /// Longest time between two runs of pruner and cleaner, as a Go duration
    /// such as `5m` or `1h30m`; at least `1m`. They also run when the cache
    /// is full. Unset means `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_interval: Option<String>,
}
