//! What an absent value means.
//!
//! Every function is total: it takes a spec as it stands, also one that never
//! passed a webhook or was stored before the schema had a rule, and answers
//! with what the operator works with. Controllers and webhooks use the same
//! functions, so pods come out alike with webhooks on and off.
//!
//! Most of these values are never written back into a resource: an unset
//! field keeps following the operator's default across its versions
//! (contract: values resolved when they are used). The ones the defaulting
//! webhook does write are marked as such.

use std::collections::BTreeMap;

use crate::backend::{BucketUrlFormat, GlanceBackendSpec, S3Spec};
use crate::common::{
    DeploymentStrategy, IntOrString, LabelSelector, Quantity, ResourceRequirements, RollingUpdate,
    TopologySpreadConstraint,
};
use crate::glance::{
    AutoscalingSpec, CredentialsMode, DatabaseSpec, DatabaseTls, GatewaySpec, GlanceSpec,
    ImageCacheSpec, ImportFilteringSpec, ImportScheme, LogFormat, LogLevel, OutputFormat,
    SecretStoreKind, ServiceUserSpec, TlsMode,
};
use crate::keys::{APP_NAME, labels};

/// `spec.deployment.replicas`; written by the webhook.
pub const REPLICAS: i32 = 3;
/// Requests of the API container by resource; written by the webhook.
///
/// The memory is more than the sibling services ask for: the S3 driver's
/// libraries idle near 360Mi with two workers and overrun 512Mi under traffic.
pub const RESOURCE_REQUESTS: [(&str, &str); 2] = [("cpu", "100m"), ("memory", "512Mi")];
/// Limits of the API container by resource; written by the webhook.
pub const RESOURCE_LIMITS: [(&str, &str); 2] = [("cpu", "500m"), ("memory", "1Gi")];
/// `spec.deployment.terminationGracePeriodSeconds`, in arithmetic: the pod
/// template leaves it out.
pub const TERMINATION_GRACE_PERIOD_SECONDS: i64 = 30;
/// `spec.deployment.preStopSleepSeconds`.
pub const PRE_STOP_SLEEP_SECONDS: i64 = 5;
/// Node labels of the two default spread constraints, in their order.
pub const TOPOLOGY_KEYS: [&str; 2] = ["topology.kubernetes.io/zone", "kubernetes.io/hostname"];
/// `spec.apiServer.workers`, below release 2026.1.
pub const WORKERS: i32 = 2;
/// `spec.apiServer.uwsgi.processes`; written by the webhook into a present block.
pub const UWSGI_PROCESSES: i32 = 2;
/// `spec.apiServer.uwsgi.threads`; written by the webhook into a present block.
pub const UWSGI_THREADS: i32 = 1;
/// `spec.apiServer.uwsgi.httpKeepAlive`; written by the webhook into a present block.
pub const UWSGI_HTTP_KEEP_ALIVE: bool = true;
/// `spec.cache.backend`; written by the webhook.
pub const CACHE_BACKEND: &str = "dogpile.cache.pymemcache";
/// Port of the server that `spec.cache.clusterRef` stands for.
pub const MEMCACHED_PORT: i32 = 11211;
/// `spec.serviceUser.username`; written by the webhook.
pub const USERNAME: &str = "glance";
/// `spec.serviceUser.projectName`; written by the webhook.
pub const PROJECT_NAME: &str = "service";
/// Both domains of `spec.serviceUser`; written by the webhook.
pub const DOMAIN_NAME: &str = "Default";
/// `spec.serviceUser.secretRef.key`; written by the webhook.
pub const PASSWORD_KEY: &str = "password";
/// `spec.logging.format`; written by the webhook.
pub const LOG_FORMAT: LogFormat = LogFormat::Text;
/// `spec.logging.level`; written by the webhook.
pub const LOG_LEVEL: LogLevel = LogLevel::Info;
/// `spec.importFiltering.allowedSchemes`.
pub const ALLOWED_SCHEMES: [ImportScheme; 1] = [ImportScheme::Https];
/// `spec.importFiltering.allowedPorts`.
pub const ALLOWED_PORTS: [i32; 1] = [443];
/// Hosts that lead back into the node or the cluster: the base of
/// `spec.importFiltering.disallowedHosts`, in the order they are rendered.
pub const DISALLOWED_HOSTS: [&str; 9] = [
    "localhost",
    "127.0.0.1",
    "0.0.0.0",
    "::1",
    "169.254.169.254",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];
/// `spec.importPlugins.conversion.outputFormat`.
pub const OUTPUT_FORMAT: OutputFormat = OutputFormat::Raw;
/// `spec.importPlugins.injectMetadata.ignoreUserRoles`.
pub const IGNORE_USER_ROLES: [&str; 1] = ["admin"];
/// `spec.dbPurge.retentionDays`.
pub const RETENTION_DAYS: i32 = 30;
/// `spec.dbPurge.schedule`.
pub const PURGE_SCHEDULE: &str = "1 0 * * *";
/// `spec.staging.sizeLimit`, on each of two volumes.
pub const STAGING_SIZE_LIMIT: &str = "10Gi";
/// `spec.imageCache.sizeLimit`.
pub const IMAGE_CACHE_SIZE_LIMIT: &str = "10Gi";
/// `spec.imageCache.maintenanceInterval`, as a Go duration.
pub const MAINTENANCE_INTERVAL: &str = "5m";
/// Kind of the secret store while `spec.secretStoreRef` names none.
pub const SECRET_STORE_KIND: SecretStoreKind = SecretStoreKind::ClusterSecretStore;
/// Name of the secret store while `spec.secretStoreRef` is absent.
pub const SECRET_STORE_NAME: &str = "openbao-cluster-store";
/// `spec.database.port`.
pub const DATABASE_PORT: i32 = 3306;
/// `spec.database.credentialsMode`.
pub const CREDENTIALS_MODE: CredentialsMode = CredentialsMode::Static;
/// `spec.database.tls.mode`; written by the webhook into a present block. A
/// TLS block must not mean plaintext.
pub const TLS_MODE: TlsMode = TlsMode::Require;
/// `spec.gateway.path`.
pub const GATEWAY_PATH: &str = "/";
/// `spec.s3.bucketURLFormat` of a `GlanceBackend`; written by the webhook.
pub const BUCKET_URL_FORMAT: BucketUrlFormat = BucketUrlFormat::Path;

/// uWSGI with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uwsgi {
    /// Worker processes.
    pub processes: i32,
    /// Threads of a process.
    pub threads: i32,
    /// Whether client connections stay open between requests.
    pub http_keep_alive: bool,
    /// Bound on one request in seconds; none when absent.
    pub harakiri: Option<i32>,
    /// Bound on an idle connection in seconds; uWSGI's own when absent.
    pub http_keep_alive_timeout: Option<i32>,
}

/// The URL filter of imports with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportFiltering {
    /// Schemes that may be fetched.
    pub allowed_schemes: Vec<ImportScheme>,
    /// Schemes that may not.
    pub disallowed_schemes: Vec<ImportScheme>,
    /// Hosts that may be fetched from.
    pub allowed_hosts: Vec<String>,
    /// Hosts that may not.
    pub disallowed_hosts: Vec<String>,
    /// Ports that may be fetched from.
    pub allowed_ports: Vec<i32>,
    /// Ports that may not.
    pub disallowed_ports: Vec<i32>,
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

/// The log with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    /// Its form.
    pub format: LogFormat,
    /// Least severity.
    pub level: LogLevel,
    /// Whether everything is logged whatever the level.
    pub debug: bool,
    /// Levels of single loggers.
    pub per_logger_levels: BTreeMap<String, String>,
}

// === Pods ===

/// Number of API pods while nothing scales them. Zero and less count as unset.
pub fn replicas(spec: &GlanceSpec) -> i32 {
    let set = spec.deployment.as_ref().and_then(|d| d.replicas);
    positive(set).unwrap_or(REPLICAS)
}

/// Lower bound of the autoscaler: `minReplicas`, otherwise [`replicas`].
pub fn min_replicas(spec: &GlanceSpec, autoscaling: &AutoscalingSpec) -> i32 {
    positive(autoscaling.min_replicas).unwrap_or_else(|| replicas(spec))
}

/// Fewest pods this Glance ever wants: the autoscaler's lower bound while
/// there is one, otherwise [`replicas`].
pub fn replica_floor(spec: &GlanceSpec) -> i32 {
    spec.autoscaling.as_ref().map_or_else(
        || replicas(spec),
        |autoscaling| min_replicas(spec, autoscaling),
    )
}

/// Resources of the API container. A block with any one entry is taken as it is.
pub fn resources(spec: &GlanceSpec) -> ResourceRequirements {
    let set = spec.deployment.as_ref().and_then(|d| d.resources.as_ref());
    match set {
        Some(block) if !block.requests.is_empty() || !block.limits.is_empty() => block.clone(),
        other => ResourceRequirements {
            requests: quantities(&RESOURCE_REQUESTS),
            limits: quantities(&RESOURCE_LIMITS),
            claims: other.map(|block| block.claims.clone()).unwrap_or_default(),
        },
    }
}

/// Grace period of the pods in seconds, for arithmetic.
pub fn termination_grace_period_seconds(spec: &GlanceSpec) -> i64 {
    spec.deployment
        .as_ref()
        .and_then(|d| d.termination_grace_period_seconds)
        .unwrap_or(TERMINATION_GRACE_PERIOD_SECONDS)
}

/// Seconds a stopping pod waits before it is told.
pub fn pre_stop_sleep_seconds(spec: &GlanceSpec) -> i64 {
    spec.deployment
        .as_ref()
        .and_then(|d| d.pre_stop_sleep_seconds)
        .unwrap_or(PRE_STOP_SLEEP_SECONDS)
}

/// How the Deployment replaces its pods.
pub fn strategy(spec: &GlanceSpec) -> DeploymentStrategy {
    let set = spec.deployment.as_ref().and_then(|d| d.strategy.clone());
    set.unwrap_or_else(|| DeploymentStrategy {
        type_: Some("RollingUpdate".to_owned()),
        rolling_update: Some(RollingUpdate {
            max_unavailable: Some(IntOrString::Int(0)),
            max_surge: Some(IntOrString::Int(1)),
        }),
    })
}

/// How the pods of the Glance `name` spread. An explicit `[]` stays empty.
pub fn topology_spread_constraints(spec: &GlanceSpec, name: &str) -> Vec<TopologySpreadConstraint> {
    let set = spec
        .deployment
        .as_ref()
        .and_then(|d| d.topology_spread_constraints.clone());
    set.unwrap_or_else(|| {
        let selector = LabelSelector {
            match_labels: BTreeMap::from([
                (labels::NAME.to_owned(), APP_NAME.to_owned()),
                (labels::INSTANCE.to_owned(), name.to_owned()),
            ]),
            match_expressions: Vec::new(),
        };
        TOPOLOGY_KEYS
            .iter()
            .map(|key| TopologySpreadConstraint {
                max_skew: 1,
                topology_key: (*key).to_owned(),
                when_unsatisfiable: "ScheduleAnyway".to_owned(),
                label_selector: Some(selector.clone()),
                ..TopologySpreadConstraint::default()
            })
            .collect()
    })
}

// === Serving ===

/// Worker processes below release 2026.1.
pub fn workers(spec: &GlanceSpec) -> i32 {
    positive(spec.api_server.as_ref().and_then(|a| a.workers)).unwrap_or(WORKERS)
}

/// uWSGI from release 2026.1.
pub fn uwsgi(spec: &GlanceSpec) -> Uwsgi {
    let set = spec.api_server.as_ref().and_then(|a| a.uwsgi.as_ref());
    Uwsgi {
        processes: positive(set.and_then(|u| u.processes)).unwrap_or(UWSGI_PROCESSES),
        threads: positive(set.and_then(|u| u.threads)).unwrap_or(UWSGI_THREADS),
        http_keep_alive: set
            .and_then(|u| u.http_keep_alive)
            .unwrap_or(UWSGI_HTTP_KEEP_ALIVE),
        harakiri: set.and_then(|u| u.harakiri),
        http_keep_alive_timeout: set.and_then(|u| u.http_keep_alive_timeout),
    }
}

/// Path prefix of the route, with its leading slash.
pub fn gateway_path(gateway: &GatewaySpec) -> String {
    match text(gateway.path.as_deref()) {
        None => GATEWAY_PATH.to_owned(),
        Some(path) if path.starts_with('/') => path.to_owned(),
        Some(path) => format!("/{path}"),
    }
}

/// The log of the API.
pub fn logging(spec: &GlanceSpec) -> Logging {
    let set = spec.logging.as_ref();
    Logging {
        format: set.and_then(|l| l.format).unwrap_or(LOG_FORMAT),
        level: set.and_then(|l| l.level).unwrap_or(LOG_LEVEL),
        debug: set.and_then(|l| l.debug).unwrap_or(false),
        per_logger_levels: set.map(|l| l.per_logger_levels.clone()).unwrap_or_default(),
    }
}

// === Logins ===

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

/// The memcached servers as `host:port`, in the order of the spec.
pub fn memcached_servers(spec: &GlanceSpec) -> Vec<String> {
    match &spec.cache.cluster_ref {
        Some(cluster) => vec![format!("{}:{MEMCACHED_PORT}", cluster.name)],
        None => spec.cache.servers.clone(),
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

// === Imports and local space ===

/// The URL filter of imports. A missing block equals an empty one.
pub fn import_filtering(block: Option<&ImportFilteringSpec>) -> ImportFiltering {
    let empty = ImportFilteringSpec::default();
    let set = block.unwrap_or(&empty);
    let allowed_hosts = set.allowed_hosts.clone().unwrap_or_default();
    let disallowed_hosts = match &set.disallowed_hosts {
        // Glance ignores the deny-list then, so the base would only mislead.
        written if !allowed_hosts.is_empty() => written.clone().unwrap_or_default(),
        None => baseline(&[]),
        Some(opted_out) if opted_out.is_empty() => Vec::new(),
        Some(added) => baseline(added),
    };
    ImportFiltering {
        allowed_schemes: set
            .allowed_schemes
            .clone()
            .unwrap_or_else(|| ALLOWED_SCHEMES.to_vec()),
        disallowed_schemes: set.disallowed_schemes.clone().unwrap_or_default(),
        allowed_hosts,
        disallowed_hosts,
        allowed_ports: set
            .allowed_ports
            .clone()
            .unwrap_or_else(|| ALLOWED_PORTS.to_vec()),
        disallowed_ports: set.disallowed_ports.clone().unwrap_or_default(),
    }
}

/// Disk format that imports are converted to; none without the plugin.
pub fn output_format(spec: &GlanceSpec) -> Option<OutputFormat> {
    let conversion = spec.import_plugins.as_ref()?.conversion.as_ref()?;
    Some(conversion.output_format.unwrap_or(OUTPUT_FORMAT))
}

/// Roles whose imports get no properties; none without the plugin. An
/// explicit `[]` stays empty.
pub fn ignore_user_roles(spec: &GlanceSpec) -> Option<Vec<String>> {
    let inject = spec.import_plugins.as_ref()?.inject_metadata.as_ref()?;
    Some(
        inject
            .ignore_user_roles
            .clone()
            .unwrap_or_else(|| IGNORE_USER_ROLES.map(str::to_owned).to_vec()),
    )
}

/// Bound of each of the two scratch volumes; none when unbounded.
pub fn staging_size_limit(spec: &GlanceSpec) -> Option<Quantity> {
    let set = spec.staging.as_ref();
    if set.and_then(|s| s.unbounded).unwrap_or(false) {
        return None;
    }
    let limit = set.and_then(|s| s.size_limit.clone());
    Some(limit.unwrap_or_else(|| Quantity::new(STAGING_SIZE_LIMIT)))
}

/// Bound of the image cache's volume.
pub fn image_cache_size_limit(cache: &ImageCacheSpec) -> Quantity {
    cache
        .size_limit
        .clone()
        .unwrap_or_else(|| Quantity::new(IMAGE_CACHE_SIZE_LIMIT))
}

/// Time between two prunings of the image cache, as a Go duration.
pub fn maintenance_interval(cache: &ImageCacheSpec) -> &str {
    text(cache.maintenance_interval.as_deref()).unwrap_or(MAINTENANCE_INTERVAL)
}

// === GlanceBackend ===

/// Whether the store is marked as the default one.
pub fn is_default(backend: &GlanceBackendSpec) -> bool {
    backend.is_default.unwrap_or(false)
}

/// How the bucket is addressed.
pub fn bucket_url_format(s3: &S3Spec) -> BucketUrlFormat {
    s3.bucket_url_format.unwrap_or(BUCKET_URL_FORMAT)
}

/// Clients without a notion of "unset" send zero.
fn positive(set: Option<i32>) -> Option<i32> {
    set.filter(|number| *number > 0)
}

/// Clients without a notion of "unset" send the empty text.
fn text(set: Option<&str>) -> Option<&str> {
    set.filter(|text| !text.is_empty())
}

fn quantities(entries: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    entries
        .iter()
        .map(|(name, quantity)| ((*name).to_owned(), Quantity::new(*quantity)))
        .collect()
}

/// The base list, then the added hosts that are not in it, in their order.
/// Adding an entry must not lift the base.
fn baseline(added: &[String]) -> Vec<String> {
    let mut hosts: Vec<String> = DISALLOWED_HOSTS.map(str::to_owned).to_vec();
    for host in added {
        if !hosts.contains(host) {
            hosts.push(host.clone());
        }
    }
    hosts
}
