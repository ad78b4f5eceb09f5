//! `GlanceBackend`: one image store, attached to a Glance by name.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, HTTP_PATTERN, absent_is_default, text_enum};

/// The image store a `GlanceBackend` describes.
///
/// The resource's own name becomes the store identifier: `metadata.name: fast`
/// gives the section `[fast]` and the entry `fast:s3` of `enabled_backends`.
#[allow(
    clippy::duplicated_attributes,
    reason = "columns share types and priorities"
)]
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "glance.openstack.c5c3.io",
    version = "v1alpha1",
    kind = "GlanceBackend",
    plural = "glancebackends",
    singular = "glancebackend",
    namespaced,
    category = "openstack",
    shortname = "glb",
    status = "GlanceBackendStatus",
    derive = "PartialEq",
    doc = "One image store of a Glance. The name of this resource is the name of the store: it becomes the section `[<name>]` and the `enabled_backends` entry `<name>:s3`, and images remember it, so a store that is removed and attached again under the same name finds its images.",
    selectable = ".spec.glanceRef.name",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Default", type_ = "boolean", json_path = ".spec.isDefault"),
    printcolumn(name = "Glance", type_ = "string", json_path = ".spec.glanceRef.name"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1
    )
)]
#[x_kube(validation = Rule::new("self.glanceRef.name == oldSelf.glanceRef.name").message("glanceRef is immutable"))]
#[x_kube(validation = Rule::new("self.type == oldSelf.type").message("type is immutable"))]
#[x_kube(validation = Rule::new("(self.type == 'S3') == has(self.s3)")
    .message("exactly one backend block matching spec.type must be set (type S3 requires spec.s3)"))]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct GlanceBackendSpec {
    /// The Glance this store belongs to, in the same namespace. It need not
    /// exist yet. Immutable: to move a store, delete this resource and create
    /// it anew.
    pub glance_ref: GlanceRef,

    /// The kind of store. `S3` is the only one, since every API replica has
    /// to reach the same images. Immutable.
    #[serde(rename = "type")]
    pub type_: BackendType,

    /// The S3-compatible object store. Required with type `S3`. Options left
    /// unset are not rendered, so Glance's own defaults apply to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Spec>,

    /// Whether new images go to this store (`[glance_store] default_backend`).
    /// Exactly one store of a Glance must say so. To move the mark, clear it
    /// on the old store first, then set it on the new one; in between Glance
    /// keeps the configuration it has. Unset means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_default: Option<bool>,

    /// Further options of the section `[<name>]`, by bare option name, for
    /// what the typed fields do not cover, e.g. `s3_store_thread_pools: "20"`.
    /// Names consist of letters, digits and underscores and must not be an
    /// option that a typed field owns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new("self.all(k, size(k) <= 256 && size(self[k]) <= 1024)")
        .message("each extraOptions key must be <=256 characters and each value <=1024 characters"))]
    pub extra_options: BTreeMap<String, String>,
}

absent_is_default!(GlanceBackendSpec);

/// The Glance a store is attached to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlanceRef {
    /// Name of the Glance, in the namespace of this resource.
    #[schemars(length(min = 1))]
    pub name: String,
}

text_enum! {
    /// The kinds of store.
    #[derive(Default)]
    BackendType {
        /// An S3-compatible object store.
        #[default]
        S3 = "S3",
    }
}

/// An S3-compatible object store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Spec {
    /// URL of the S3 endpoint, with its scheme and, if need be, its port.
    /// Rendered as `s3_store_host`. The operator never connects to it.
    #[schemars(length(min = 1), regex(pattern = HTTP_PATTERN))]
    pub host: String,

    /// Bucket that holds the images. Rendered as `s3_store_bucket`.
    #[schemars(length(min = 1))]
    pub bucket: String,

    /// Secret with the credentials, under the fixed keys `access-key-id` and
    /// `secret-access-key`. It lives where the Glance runs: on the target
    /// cluster when the Glance names one. Rendered as `s3_store_access_key`
    /// and `s3_store_secret_key`.
    pub credentials_secret_ref: SecretNameRef,

    /// How the bucket is addressed: `path` (`https://host/bucket`) or
    /// `virtual` (`https://bucket.host`). Rendered as
    /// `s3_store_bucket_url_format`. Defaults to `path`.
    #[serde(
        rename = "bucketURLFormat",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(extend("default" = "path"))]
    pub bucket_url_format: Option<BucketUrlFormat>,

    /// Region of the bucket. Rendered as `s3_store_region_name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,

    /// Create the bucket at the first upload when it is missing. Rendered as
    /// `s3_store_create_bucket_on_put`, only when true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_bucket_on_put: Option<bool>,

    /// Size in MiB from which an upload is sent in parts. Rendered as
    /// `s3_store_large_object_size`. Glance's own default is 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub large_object_size: Option<i32>,

    /// Size in MiB of one part. S3 takes no part below 5 MiB. Rendered as
    /// `s3_store_large_object_chunk_size`. Glance's own default is 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub large_object_chunk_size: Option<i32>,

    /// Send every upload in parts, whatever its size: renders
    /// `s3_store_large_object_size = 0`. A single-part upload holds the whole
    /// image in the memory of an API worker. Excludes `largeObjectSize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always_multipart: Option<bool>,
}

text_enum! {
    /// How a bucket is addressed.
    BucketUrlFormat {
        /// The bucket is the first element of the path.
        Path = "path",
        /// The bucket is the first label of the host name.
        Virtual = "virtual",
    }
}

/// A Secret whose keys are fixed by contract.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretNameRef {
    /// Name of the Secret.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// What is known about the store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlanceBackendStatus {
    /// `CredentialsReady` (the Secret carries both keys), `ConfigProjected`
    /// (the running API mounts a configuration with this store) and `Ready`
    /// (both).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The `metadata.generation` this status was written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
