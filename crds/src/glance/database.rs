//! Database, its purge, the token cache and the service user: what the API
//! logs in to.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{LocalRef, SecretRef, text_enum};

/// The database of a Glance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("has(self.clusterRef) != has(self.host)")
    .message("exactly one of clusterRef or host must be set"))]
#[x_kube(validation = Rule::new("!has(self.credentialsMode) || self.credentialsMode != 'Dynamic' || has(self.clusterRef)")
    .message("credentialsMode Dynamic requires clusterRef (managed mode)"))]
#[serde(rename_all = "camelCase")]
pub struct DatabaseSpec {
    /// A `MariaDB` of the MariaDB operator in the same namespace. The operator
    /// then creates the Database, User and Grant on it and removes them with
    /// this Glance. Excludes `host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<LocalRef>,

    /// Who makes the credentials: `Static` (the Secret's user stays) or
    /// `Dynamic` (a secret engine issues short-lived users; needs
    /// `clusterRef`). Unset means `Static`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_mode: Option<CredentialsMode>,

    /// Host name or address of a database that exists already. Nothing is
    /// created on it. Excludes `clusterRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), regex(pattern = r"^[a-zA-Z0-9._:-]+$"))]
    pub host: Option<String>,

    /// Port of the database. Unset means 3306.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,

    /// Name of the database (schema) that holds the tables. With
    /// `clusterRef` it cannot change once the database has been made.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_]+$"))]
    pub database: String,

    /// Secret with the login, under the fixed keys `username` and `password`.
    pub secret_ref: SecretRef,

    /// Encrypt the connection. TLS is on when this block exists and its mode
    /// is not `disabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<DatabaseTls>,

    /// Not used by this operator: the size of a database cluster, for a
    /// parent resource that embeds this block. Defaults to 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 3))]
    pub replicas: Option<i32>,

    /// Not used by this operator: the volume size of a database cluster, for
    /// a parent resource that embeds this block. Defaults to `100Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9]+(Mi|Gi|Ti)$"), extend("default" = "100Gi"))]
    pub storage_size: Option<String>,
}

text_enum! {
    /// Who makes the database credentials.
    CredentialsMode {
        /// The user in the Secret stays as it is.
        Static = "Static",
        /// A secret engine issues short-lived users.
        Dynamic = "Dynamic",
    }
}

/// TLS to the database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseTls {
    /// What is checked: `disabled` (no TLS), `prefer`, `require` and
    /// `verify-ca` (the server's certificate against the CA), `verify-full`
    /// (its host name too). Unset means `require`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<TlsMode>,

    /// Secret with the CA, under the fixed key `ca.crt`.
    pub ca_bundle_secret_ref: SecretRef,

    /// Secret with the client's certificate and key, under the fixed keys
    /// `tls.crt` and `tls.key`. Unset means the client shows no certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert_secret_ref: Option<SecretRef>,
}

text_enum! {
    /// How strictly TLS to the database is checked.
    TlsMode {
        /// No TLS.
        Disabled = "disabled",
        /// As `Require`; the name other clients use for an optional TLS.
        Prefer = "prefer",
        /// The certificate chain is checked.
        Require = "require",
        /// The certificate chain is checked.
        VerifyCa = "verify-ca",
        /// The certificate chain and the host name are checked.
        VerifyFull = "verify-full",
    }
}

/// The memcached servers that hold validated tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("has(self.clusterRef) != (has(self.servers) && size(self.servers) > 0)")
    .message("exactly one of clusterRef or servers must be set"))]
#[x_kube(validation = Rule::new(r"!has(self.clusterRef) || !self.clusterRef.name.matches('[\n\r]')")
    .message("clusterRef.name must not contain a newline or carriage return"))]
#[serde(rename_all = "camelCase")]
pub struct CacheSpec {
    /// Name of the cache implementation. Filled in with
    /// `dogpile.cache.pymemcache` when left out.
    pub backend: String,

    /// A memcached Service in the same namespace, reached at `<name>:11211`.
    /// Excludes `servers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<LocalRef>,

    /// The servers as `host:port`. Rendered as `[keystone_authtoken]
    /// memcached_servers`. Excludes `clusterRef`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = r"^[^\n\r]*$")))]
    pub servers: Vec<String>,

    /// Not used by this operator: the size of a memcached cluster, for a
    /// parent resource that embeds this block. Defaults to 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 3))]
    pub replicas: Option<i32>,
}

/// The Keystone user that validates tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceUserSpec {
    /// Name of the user. Unset means `glance`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,

    /// Secret with the password, under `key`, or under `password` when `key`
    /// is unset. The password reaches the pods as an environment variable and
    /// never as configuration; a new password rolls them.
    pub secret_ref: SecretRef,

    /// Project the user logs in to. Unset means `service`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_name: Option<String>,

    /// Domain of the user. Unset means `Default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_domain_name: Option<String>,

    /// Domain of the project. Unset means `Default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_domain_name: Option<String>,
}

/// The recurring removal of soft-deleted rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DbPurgeSpec {
    /// Rows are removed this many days after their soft deletion. Unset means
    /// 30. A removed row cannot be brought back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub retention_days: Option<i32>,

    /// When to run, as a cron expression with five fields or a descriptor
    /// such as `@daily`. Unset means `1 0 * * *`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,

    /// Remove rows of the images table too. Image IDs may then be used again,
    /// so leave it off where clients trust an ID for ever. Unset means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purge_images_table: Option<bool>,

    /// Pause the purge without deleting its `CronJob`, e.g. during an upgrade.
    /// Unset means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}
