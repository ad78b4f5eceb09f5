//! `Glance`: the OpenStack Image service, as one resource.

mod database;
mod extension;
mod placement;
mod serving;
mod storage;

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::common::{Condition, HTTP_PATTERN, absent_is_default, text_enum};

pub use database::{
    CacheSpec, CredentialsMode, DatabaseSpec, DatabaseTls, DbPurgeSpec, ServiceUserSpec, TlsMode,
};
pub use extension::{MiddlewarePosition, MiddlewareSpec, PluginSpec, PolicyOverridesSpec};
pub use placement::{SecretStoreKind, SecretStoreRef, TargetClusterRef};
pub use serving::{
    ApiServerSpec, AutoscalingSpec, DeploymentSpec, GatewayParentRef, GatewaySpec, ImageSpec,
    LogFormat, LogLevel, LoggingSpec, NetworkPolicyIngressSource, NetworkPolicySpec, UwsgiSpec,
};
pub use storage::{
    ConversionSpec, DecompressionSpec, ImageCacheSpec, ImportFilteringSpec, ImportPluginsSpec,
    ImportScheme, InjectMetadataSpec, OutputFormat, StagingSpec,
};

/// The wanted state of a Glance.
#[allow(
    clippy::duplicated_attributes,
    reason = "columns share types and priorities"
)]
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "glance.openstack.c5c3.io",
    version = "v1alpha1",
    kind = "Glance",
    plural = "glances",
    singular = "glance",
    namespaced,
    category = "openstack",
    shortname = "gl",
    status = "GlanceStatus",
    derive = "PartialEq",
    doc = "An OpenStack Image service: the API with its database, configuration and network objects, in the namespace of this resource, on this cluster or on a registered target cluster. Image stores are separate GlanceBackend resources that name this one.",
    selectable = ".spec.targetClusterRef.name",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Release",
        type_ = "string",
        json_path = ".status.installedRelease"
    ),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".spec.targetClusterRef.name",
        priority = 1
    ),
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.upgradePhase",
        priority = 1
    ),
    printcolumn(
        name = "Target",
        type_ = "string",
        json_path = ".status.targetRelease",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1
    )
)]
// On `spec` and not on the field: a transition rule on an optional field runs
// only while both objects have it, so it never sees the field come or go.
#[x_kube(validation = Rule::new("has(self.targetClusterRef) == has(oldSelf.targetClusterRef)")
    .message("targetClusterRef is immutable"))]
#[x_kube(validation = Rule::new(
    "!has(self.targetClusterRef) || !has(oldSelf.targetClusterRef) || self.targetClusterRef.name == oldSelf.targetClusterRef.name"
).message("targetClusterRef is immutable"))]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct GlanceSpec {
    /// The OpenStack release that runs, as `YYYY.N` with N 1 or 2, e.g.
    /// `2025.2`. Below `2026.1` the API runs as `glance-api` (eventlet), from
    /// `2026.1` under uWSGI. Raising it to the next release, together with
    /// the image, starts an upgrade of the database schema while the API
    /// keeps serving. It stands apart from the image tag so that an image
    /// pinned by digest has a release too.
    #[schemars(regex(pattern = r"^\d{4}\.[12]$"))]
    pub open_stack_release: String,

    /// The API pods: how many, how large, how they are replaced and placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentSpec>,

    /// The container image of the API pods and of the database Jobs.
    pub image: ImageSpec,

    /// The database: one that the MariaDB operator runs (`clusterRef`) or
    /// any other (`host`).
    pub database: DatabaseSpec,

    /// The memcached servers that hold validated Keystone tokens. Not the
    /// image cache: that is `imageCache`.
    pub cache: CacheSpec,

    /// URL of Keystone as the API pods reach it. Rendered as
    /// `[keystone_authtoken] auth_url`.
    #[schemars(length(min = 1), regex(pattern = HTTP_PATTERN))]
    pub keystone_endpoint: String,

    /// URL of Keystone that a client with no or a bad token is pointed to.
    /// Rendered as `[keystone_authtoken] www_authenticate_uri`. Unset means
    /// `keystoneEndpoint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = HTTP_PATTERN))]
    pub keystone_public_endpoint: Option<String>,

    /// The Keystone user that validates tokens for Glance.
    pub service_user: ServiceUserSpec,

    /// Keystone region of this service. Rendered as
    /// `[keystone_authtoken] region_name`; left out when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,

    /// Worker processes of the API, for either launch mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server: Option<ApiServerSpec>,

    /// Which URLs a `web-download` import may fetch. Unset means HTTPS on
    /// port 443 and no host that leads back into the cluster or the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import_filtering: Option<ImportFilteringSpec>,

    /// What happens to an image while it is imported. Each block switches its
    /// plugin on; the order (decompression, conversion, metadata) is fixed.
    /// Only imports pass the plugins: a direct upload does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import_plugins: Option<ImportPluginsSpec>,

    /// The recurring removal of soft-deleted database rows. Runs on every
    /// Glance, with the defaults of the fields when this block is unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_purge: Option<DbPurgeSpec>,

    /// Local scratch space of imports and tasks. Unset means `10Gi` on each
    /// of its two volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<StagingSpec>,

    /// A cache of image data beside each API pod. The block switches it on;
    /// `imageCache: {}` takes every default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_cache: Option<ImageCacheSpec>,

    /// Publish the API through a Gateway: creates an `HTTPRoute` and makes
    /// `https://<hostname>/` the endpoint in the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewaySpec>,

    /// Restrict the traffic of the API pods: creates a `NetworkPolicy` that
    /// lets in the listed sources and lets out what Glance needs (database,
    /// cache, object stores, DNS) plus `additionalEgress`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicySpec>,

    /// Scale the API pods with their load: creates a
    /// `HorizontalPodAutoscaler`, which then owns the replica count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<AutoscalingSpec>,

    /// Format and detail of the API's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging: Option<LoggingSpec>,

    /// The External Secrets store whose readiness the operator waits for
    /// before it reads the credential Secrets. Unset means the
    /// `ClusterSecretStore` named `openbao-cluster-store`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_store_ref: Option<SecretStoreRef>,

    /// The registered cluster on which everything of this Glance is created.
    /// Unset means this cluster. Immutable: it can be neither added, nor
    /// changed, nor removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_cluster_ref: Option<TargetClusterRef>,

    /// Changes to the policy of the API. Unset leaves Glance's own policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_overrides: Option<PolicyOverridesSpec>,

    /// Further filters in the API's paste pipeline, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub middleware: Vec<MiddlewareSpec>,

    /// Sections that plugins in the image read. The operator's own values and
    /// `extraConfig` win over them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["configSection".into()]))]
    pub plugins: Vec<PluginSpec>,

    /// Free configuration, section by section and option by option. It wins
    /// over what the operator renders, except for the options it refuses.
    /// Options are checked against the catalogue of `openStackRelease`;
    /// overriding an option of the operator shows in the condition
    /// `ExtraConfigHealthy`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_config: BTreeMap<String, BTreeMap<String, String>>,
}

absent_is_default!(GlanceSpec);

text_enum! {
    /// The steps of a release upgrade, in their order.
    UpgradePhase {
        /// Columns and tables are added; the old release keeps running.
        Expanding = "Expanding",
        /// Data moves to the new columns.
        Migrating = "Migrating",
        /// The pods of the new release replace the old ones.
        RollingUpdate = "RollingUpdate",
        /// What only the old release needed is dropped.
        Contracting = "Contracting",
    }
}

/// What is known about a Glance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlanceStatus {
    /// One condition for each step of the operator, and `Ready` for all of
    /// them. `ExtraConfigHealthy` only informs and never counts into `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The `metadata.generation` this status was written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// URL of the API: the gateway's when there is one, otherwise the one
    /// inside the cluster it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,

    /// The release whose database schema is in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed_release: Option<String>,

    /// The release an upgrade is moving to; absent outside an upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_release: Option<String>,

    /// Identity of the target cluster this Glance was first written to: the
    /// UID of its `kube-system` namespace. If the name in
    /// `spec.targetClusterRef` ever leads to another cluster, nothing is read
    /// or written there.
    #[serde(
        rename = "targetClusterUID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub target_cluster_uid: Option<String>,

    /// The running step of an upgrade; absent outside an upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_phase: Option<UpgradePhase>,
}
