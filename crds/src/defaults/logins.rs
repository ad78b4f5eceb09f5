//! What the API logs in to, and the upkeep of its database.

use super::{
    CACHE_BACKEND, CREDENTIALS_MODE, DATABASE_PORT, DOMAIN_NAME, MEMCACHED_PORT, PASSWORD_KEY,
    PROJECT_NAME, PURGE_SCHEDULE, RETENTION_DAYS, SECRET_STORE_KIND, SECRET_STORE_NAME, TLS_MODE,
    USERNAME, positive, text,
};
use crate::glance::{
    CredentialsMode, DatabaseSpec, DatabaseTls, GlanceSpec, SecretStoreKind, ServiceUserSpec,
    TlsMode,
};

/// The service user with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUser {
    /// Name of the user.
    pub username: String,
    /// Project it logs in to.
    pub project_name: String,
    /// Domain of the user.
    pub user_domain_name: String,
    /// Domain of the project.
    pub project_domain_name: String,
    /// Name of the Secret with the password.
    pub secret_name: String,
    /// Key of the password in that Secret.
    pub secret_key: String,
}

/// The purge with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbPurge {
    /// Days between soft deletion and removal.
    pub retention_days: i32,
    /// Cron expression or descriptor.
    pub schedule: String,
    /// Whether rows of the images table go too.
    pub purge_images_table: bool,
    /// Whether it is paused.
    pub suspend: bool,
}

/// Keystone as a client is pointed to it. Both empty stays empty.
pub fn keystone_public_endpoint(spec: &GlanceSpec) -> &str {
    text(spec.keystone_public_endpoint.as_deref()).unwrap_or(&spec.keystone_endpoint)
}

/// The user that validates tokens.
pub fn service_user(user: &ServiceUserSpec) -> ServiceUser {
    let or =
        |set: &Option<String>, default: &str| text(set.as_deref()).unwrap_or(default).to_owned();
    ServiceUser {
        username: or(&user.username, USERNAME),
        project_name: or(&user.project_name, PROJECT_NAME),
        user_domain_name: or(&user.user_domain_name, DOMAIN_NAME),
        project_domain_name: or(&user.project_domain_name, DOMAIN_NAME),
        secret_name: user.secret_ref.name.clone(),
        secret_key: or(&user.secret_ref.key, PASSWORD_KEY),
    }
}

/// Name of the token cache's implementation.
pub fn cache_backend(spec: &GlanceSpec) -> &str {
    text(Some(spec.cache.backend.as_str())).unwrap_or(CACHE_BACKEND)
}

/// The memcached servers as `host:port`, in the order of the spec. A list wins
/// over a reference where a resource from before the rule has both.
pub fn memcached_servers(spec: &GlanceSpec) -> Vec<String> {
    match &spec.cache.cluster_ref {
        Some(cluster) if spec.cache.servers.is_empty() => {
            vec![format!("{}:{MEMCACHED_PORT}", cluster.name)]
        }
        _ => spec.cache.servers.clone(),
    }
}

/// Kind and name of the secret store.
pub fn secret_store(spec: &GlanceSpec) -> (SecretStoreKind, &str) {
    match &spec.secret_store_ref {
        Some(store) => (
            store.kind.unwrap_or(SECRET_STORE_KIND),
            text(Some(store.name.as_str())).unwrap_or(SECRET_STORE_NAME),
        ),
        None => (SECRET_STORE_KIND, SECRET_STORE_NAME),
    }
}

/// Port of the database.
pub fn database_port(database: &DatabaseSpec) -> i32 {
    positive(database.port).unwrap_or(DATABASE_PORT)
}

/// Who makes the database credentials.
pub fn credentials_mode(database: &DatabaseSpec) -> CredentialsMode {
    database.credentials_mode.unwrap_or(CREDENTIALS_MODE)
}

/// The TLS block with its mode when the connection is encrypted: a block
/// exists and its mode is not `disabled`. A block without a mode means
/// [`TLS_MODE`].
pub fn database_tls(database: &DatabaseSpec) -> Option<(&DatabaseTls, TlsMode)> {
    let tls = database.tls.as_ref()?;
    match tls.mode.unwrap_or(TLS_MODE) {
        TlsMode::Disabled => None,
        mode => Some((tls, mode)),
    }
}

/// The purge of soft-deleted rows.
pub fn db_purge(spec: &GlanceSpec) -> DbPurge {
    let set = spec.db_purge.as_ref();
    DbPurge {
        retention_days: positive(set.and_then(|p| p.retention_days)).unwrap_or(RETENTION_DAYS),
        schedule: text(set.and_then(|p| p.schedule.as_deref()))
            .unwrap_or(PURGE_SCHEDULE)
            .to_owned(),
        purge_images_table: set.and_then(|p| p.purge_images_table).unwrap_or(false),
        suspend: set.and_then(|p| p.suspend).unwrap_or(false),
    }
}
