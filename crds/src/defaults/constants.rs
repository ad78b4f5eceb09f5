//! The defaults themselves.

use crate::backend::BucketUrlFormat;
use crate::glance::{
    CredentialsMode, ImportScheme, LogFormat, LogLevel, OutputFormat, SecretStoreKind, TlsMode,
};

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
