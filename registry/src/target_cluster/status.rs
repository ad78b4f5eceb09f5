//! The status of a `TargetCluster`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// What is known of a registered cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetClusterStatus {
    /// `Registered`: there is a registration Secret and its content is in use. `Reachable`: the API
    /// server answers and accepts the credential. `Identified`: it is the cluster this name has to
    /// lead to. `Permitted`: the credential may do what is needed. `Ready`: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The `metadata.generation` this status was written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Who answers: the UID of the cluster's `kube-system` namespace. Without `spec.identity` the
    /// name must lead to this cluster for as long as its registration exists.
    #[serde(
        rename = "clusterUID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub cluster_uid: Option<String>,

    /// Version of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// Host and port of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,

    /// The namespaces the registration declares; empty means the whole cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,

    /// What the cluster is spoken to with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialStatus>,

    /// What the credential may not do although it is needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub missing_permissions: Vec<MissingPermission>,

    /// Optional kinds that the cluster serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,

    /// How many resources name this cluster.
    #[serde(rename = "glances", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub dependents: Option<i32>,

    /// What was left behind on this cluster by resources that were deleted while it could not be
    /// reached. The annotation `clusters.openstack.c5c3.io/reclaim` with the value `true` has it
    /// deleted once the cluster is registered again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub abandoned: Vec<Abandoned>,
}

/// One observation, replaced in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about, in upper camel case.
    #[serde(rename = "type")]
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub type_: String,

    /// Whether it holds: True, False or Unknown.
    #[schemars(schema_with = "statuses")]
    pub status: ConditionStatus,

    /// Machine-readable cause of the status, in upper camel case.
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    )]
    pub reason: String,

    /// The same for people, with what to do next. May be empty.
    #[schemars(length(max = 32768))]
    pub message: String,

    /// When `status` last changed.
    #[schemars(schema_with = "date_time")]
    pub last_transition_time: Time,

    /// The `metadata.generation` this observation was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody can say.
    Unknown,
}

/// What a cluster is spoken to with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialStatus {
    /// Token or `ClientCertificate`.
    #[schemars(schema_with = "credential_kinds")]
    pub kind: CredentialKind,

    /// When it expires, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "date_time")]
    pub expires_at: Option<Time>,
}

/// Kinds of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CredentialKind {
    /// A bearer token.
    Token,
    /// A TLS client certificate.
    ClientCertificate,
    /// User and password, where that is allowed.
    Password,
}

/// Something a credential may not do.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct MissingPermission {
    /// The verb, such as list.
    pub verb: String,

    /// The API group; empty for the core group.
    pub group: String,

    /// The resource, with its subresource if it is about one.
    pub resource: String,

    /// The namespace it is missing in; unset means in the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// What one resource left behind on a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Abandoned {
    /// Kind of the resource that was deleted.
    pub kind: String,

    /// Its namespace, on the hub and on the cluster.
    pub namespace: String,

    /// Name of the resource that was deleted.
    pub name: String,

    /// Its UID, which its objects on the cluster carry as a mark.
    pub uid: String,

    /// The cluster it is about, if known: a name can lead elsewhere later.
    #[serde(
        rename = "clusterUID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub cluster_uid: Option<String>,

    /// When it was given up.
    #[schemars(schema_with = "date_time")]
    pub abandoned_at: Time,

    /// Kinds and names of what was left behind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub objects: Vec<String>,
}

// === impl TargetClusterStatus ===

impl TargetClusterStatus {
    /// One of the conditions.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.type_ == type_)
    }
}

// === impl Condition ===

impl Condition {
    /// Whether it holds.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

fn date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

fn statuses(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["True", "False", "Unknown"] })
}

fn credential_kinds(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Token", "ClientCertificate", "Password"] })
}
