//! Condition types and reasons, as the status of both kinds carries them.
//!
//! They are the public interface of the operator for everybody who watches a
//! resource: texts never change. [`TABLE`] lists which reason belongs to which
//! type and status; documentation and tests are checked against it.

/// Credentials are at hand and the configuration was rendered.
pub const SECRETS_READY: &str = "SecretsReady";
/// Every attached store is part of the configuration.
pub const BACKENDS_READY: &str = "BackendsReady";
/// The database schema is that of the release.
pub const DATABASE_READY: &str = "DatabaseReady";
/// The API pods run the wanted state.
pub const DEPLOYMENT_READY: &str = "DeploymentReady";
/// The API answers its health check.
pub const GLANCE_API_READY: &str = "GlanceAPIReady";
/// The autoscaler is as `spec.autoscaling` wants it.
pub const HPA_READY: &str = "HPAReady";
/// The network policy is as `spec.networkPolicy` wants it.
pub const NETWORK_POLICY_READY: &str = "NetworkPolicyReady";
/// The route is as `spec.gateway` wants it.
pub const HTTP_ROUTE_READY: &str = "HTTPRouteReady";
/// The purge is scheduled and its last run did not fail.
pub const DB_PURGE_READY: &str = "DBPurgeReady";
/// All sub-conditions together; on both kinds.
pub const READY: &str = "Ready";
/// Only informs: whether `spec.extraConfig` overrides the operator's options.
pub const EXTRA_CONFIG_HEALTHY: &str = "ExtraConfigHealthy";
/// On a `GlanceBackend`: its Secret carries both keys.
pub const CREDENTIALS_READY: &str = "CredentialsReady";
/// On a `GlanceBackend`: the running API mounts its section.
pub const CONFIG_PROJECTED: &str = "ConfigProjected";

/// The conditions of a `Glance` that make up [`READY`], in pipeline order.
pub const SUB_CONDITIONS: [&str; 9] = [
    SECRETS_READY,
    BACKENDS_READY,
    DATABASE_READY,
    DEPLOYMENT_READY,
    GLANCE_API_READY,
    HPA_READY,
    NETWORK_POLICY_READY,
    HTTP_ROUTE_READY,
    DB_PURGE_READY,
];

/// The conditions of a `GlanceBackend` that make up [`READY`].
pub const BACKEND_SUB_CONDITIONS: [&str; 2] = [CREDENTIALS_READY, CONFIG_PROJECTED];

/// Reasons. A name may stand in several rows of [`TABLE`].
pub mod reasons {
    macro_rules! reasons {
        ($($(#[doc = $doc:literal])+ $name:ident = $text:literal;)+) => {
            $($(#[doc = $doc])+ pub const $name: &str = $text;)+

            /// Every reason with what it means, as the documentation lists it.
            pub const MEANINGS: &[(&str, &str)] = &[$(($text, concat!($($doc),+)),)+];
        };
    }

    reasons! {
        /// Every sub-condition is True.
        ALL_READY = "AllReady";
        /// At least one sub-condition is not True.
        NOT_ALL_READY = "NotAllReady";
        /// A step failed three times in a row, or at once where trying again
        /// cannot help. The only reason beyond the contract's table.
        RECONCILE_ERROR = "ReconcileError";

        /// All credentials are there and the configuration is rendered.
        SECRETS_AVAILABLE = "SecretsAvailable";
        /// The named target cluster does not resolve.
        TARGET_CLUSTER_UNAVAILABLE = "TargetClusterUnavailable";
        /// The secret store is missing or not ready.
        SECRET_STORE_NOT_READY = "SecretStoreNotReady";
        /// The database login is missing or incomplete.
        WAITING_FOR_DB_CREDENTIALS = "WaitingForDBCredentials";
        /// The service user's password is missing.
        WAITING_FOR_SERVICE_USER_CREDENTIALS = "WaitingForServiceUserCredentials";
        /// The configuration could not be rendered.
        CONFIG_ERROR = "ConfigError";

        /// Every attached store is ready and projected.
        ALL_BACKENDS_PROJECTED = "AllBackendsProjected";
        /// A store is pending, or there is no configuration to run against yet.
        WAITING_FOR_BACKENDS = "WaitingForBackends";
        /// No ready default store, or more than one.
        NO_DEFAULT_BACKEND = "NoDefaultBackend";

        /// The schema is up to date.
        DATABASE_SYNCED = "DatabaseSynced";
        /// The `MariaDB` cluster is not ready.
        CLUSTER_NOT_READY = "ClusterNotReady";
        /// Database, User or Grant are not ready.
        WAITING_FOR_DATABASE = "WaitingForDatabase";
        /// The db-sync Job failed.
        DB_SYNC_FAILED = "DBSyncFailed";
        /// The db-sync Job runs.
        DB_SYNC_IN_PROGRESS = "DBSyncInProgress";
        /// The image belongs to another release than the spec names.
        IMAGE_RELEASE_MISMATCH = "ImageReleaseMismatch";
        /// A release is not of the form `YYYY.N`.
        VERSION_PARSE_ERROR = "VersionParseError";
        /// The wanted release is older than the installed one.
        DOWNGRADE_NOT_SUPPORTED = "DowngradeNotSupported";
        /// The wanted release is not the next one.
        UPGRADE_PATH_INVALID = "UpgradePathInvalid";
        /// The wanted release changed in the middle of an upgrade.
        UPGRADE_TARGET_CHANGED = "UpgradeTargetChanged";
        /// The expand Job runs.
        EXPAND_IN_PROGRESS = "ExpandInProgress";
        /// The migrate Job runs.
        MIGRATE_IN_PROGRESS = "MigrateInProgress";
        /// The pods of the new release roll out.
        UPGRADE_ROLLING_UPDATE = "UpgradeRollingUpdate";
        /// The contract Job runs.
        CONTRACT_IN_PROGRESS = "ContractInProgress";
        /// The expand Job failed.
        EXPAND_FAILED = "ExpandFailed";
        /// The migrate Job failed.
        MIGRATE_FAILED = "MigrateFailed";
        /// The contract Job failed.
        CONTRACT_FAILED = "ContractFailed";

        /// All API pods run and are ready.
        DEPLOYMENT_READY = "DeploymentReady";
        /// The roll-out has not ended.
        WAITING_FOR_DEPLOYMENT = "WaitingForDeployment";

        /// The health check answered.
        API_HEALTHY = "APIHealthy";
        /// The health check answered with another status than 200.
        API_UNHEALTHY = "APIUnhealthy";
        /// There is no endpoint to ask yet.
        ENDPOINT_NOT_READY = "EndpointNotReady";
        /// The health check did not answer in time.
        HEALTH_CHECK_TIMEOUT = "HealthCheckTimeout";
        /// No connection to the API.
        CONNECTION_FAILED = "ConnectionFailed";
        /// The health check failed otherwise.
        HEALTH_CHECK_FAILED = "HealthCheckFailed";

        /// The autoscaler exists as wanted.
        HPA_READY = "HPAReady";
        /// No autoscaler is wanted.
        HPA_NOT_REQUIRED = "HPANotRequired";

        /// The network policy exists as wanted.
        NETWORK_POLICY_READY = "NetworkPolicyReady";
        /// No network policy is wanted.
        NETWORK_POLICY_NOT_REQUIRED = "NetworkPolicyNotRequired";

        /// The Gateway accepted the route.
        HTTP_ROUTE_ACCEPTED = "HTTPRouteAccepted";
        /// No route is wanted.
        HTTP_ROUTE_NOT_REQUIRED = "HTTPRouteNotRequired";
        /// The Gateway has not accepted the route.
        HTTP_ROUTE_NOT_ACCEPTED = "HTTPRouteNotAccepted";
        /// The cluster does not serve `HTTPRoute`.
        GATEWAY_API_NOT_INSTALLED = "GatewayAPINotInstalled";
        /// The cluster could not be asked whether it serves `HTTPRoute`.
        CAPABILITY_PROBE_FAILED = "CapabilityProbeFailed";

        /// The purge is scheduled.
        DB_PURGE_SCHEDULED = "DBPurgeScheduled";
        /// The purge is paused by `spec.dbPurge.suspend`.
        DB_PURGE_SUSPENDED = "DBPurgeSuspended";
        /// The newest finished run failed.
        DB_PURGE_JOB_FAILED = "DBPurgeJobFailed";

        /// `spec.extraConfig` leaves the operator's options alone.
        NO_OWNED_KEYS_OVERRIDDEN = "NoOwnedKeysOverridden";
        /// `spec.extraConfig` overrides options of the operator.
        OWNED_KEYS_OVERRIDDEN = "OwnedKeysOverridden";

        /// The store's Secret carries both keys.
        CREDENTIALS_AVAILABLE = "CredentialsAvailable";
        /// The store's Secret is missing or incomplete.
        WAITING_FOR_CREDENTIALS = "WaitingForCredentials";
        /// The store's Glance does not exist.
        WAITING_FOR_PARENT = "WaitingForParent";
        /// The running API mounts the store's section.
        CONFIG_PROJECTED = "ConfigProjected";
        /// The running API does not mount it yet.
        WAITING_FOR_PROJECTION = "WaitingForProjection";
    }
}

/// The kind whose status carries a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// `Glance`.
    Glance,
    /// `GlanceBackend`.
    GlanceBackend,
}

/// The reasons of one condition type on one kind.
#[derive(Clone, Copy, Debug)]
pub struct ConditionReasons {
    /// The kind that carries it.
    pub owner: Owner,
    /// The condition type.
    pub type_: &'static str,
    /// Reasons with status True.
    pub when_true: &'static [&'static str],
    /// Reasons with status False, without [`reasons::RECONCILE_ERROR`], which
    /// every sub-condition may carry.
    pub when_false: &'static [&'static str],
}

/// Every condition of both kinds with its reasons.
pub const TABLE: &[ConditionReasons] = {
    use reasons as r;
    &[
        glance(
            SECRETS_READY,
            &[r::SECRETS_AVAILABLE],
            &[
                r::TARGET_CLUSTER_UNAVAILABLE,
                r::SECRET_STORE_NOT_READY,
                r::WAITING_FOR_DB_CREDENTIALS,
                r::WAITING_FOR_SERVICE_USER_CREDENTIALS,
                r::CONFIG_ERROR,
            ],
        ),
        glance(
            BACKENDS_READY,
            &[r::ALL_BACKENDS_PROJECTED],
            &[r::WAITING_FOR_BACKENDS, r::NO_DEFAULT_BACKEND],
        ),
        glance(
            DATABASE_READY,
            &[r::DATABASE_SYNCED],
            &[
                r::CLUSTER_NOT_READY,
                r::WAITING_FOR_DATABASE,
                r::DB_SYNC_FAILED,
                r::DB_SYNC_IN_PROGRESS,
                r::WAITING_FOR_BACKENDS,
                r::IMAGE_RELEASE_MISMATCH,
                r::VERSION_PARSE_ERROR,
                r::DOWNGRADE_NOT_SUPPORTED,
                r::UPGRADE_PATH_INVALID,
                r::UPGRADE_TARGET_CHANGED,
                r::EXPAND_IN_PROGRESS,
                r::MIGRATE_IN_PROGRESS,
                r::UPGRADE_ROLLING_UPDATE,
                r::CONTRACT_IN_PROGRESS,
                r::EXPAND_FAILED,
                r::MIGRATE_FAILED,
                r::CONTRACT_FAILED,
            ],
        ),
        glance(
            DEPLOYMENT_READY,
            &[r::DEPLOYMENT_READY],
            &[r::WAITING_FOR_DEPLOYMENT, r::WAITING_FOR_BACKENDS],
        ),
        glance(
            GLANCE_API_READY,
            &[r::API_HEALTHY],
            &[
                r::API_UNHEALTHY,
                r::ENDPOINT_NOT_READY,
                r::HEALTH_CHECK_TIMEOUT,
                r::CONNECTION_FAILED,
                r::HEALTH_CHECK_FAILED,
            ],
        ),
        glance(HPA_READY, &[r::HPA_READY, r::HPA_NOT_REQUIRED], &[]),
        glance(
            NETWORK_POLICY_READY,
            &[r::NETWORK_POLICY_READY, r::NETWORK_POLICY_NOT_REQUIRED],
            &[],
        ),
        glance(
            HTTP_ROUTE_READY,
            &[r::HTTP_ROUTE_ACCEPTED, r::HTTP_ROUTE_NOT_REQUIRED],
            &[
                r::HTTP_ROUTE_NOT_ACCEPTED,
                r::GATEWAY_API_NOT_INSTALLED,
                r::CAPABILITY_PROBE_FAILED,
            ],
        ),
        glance(
            DB_PURGE_READY,
            &[r::DB_PURGE_SCHEDULED, r::DB_PURGE_SUSPENDED],
            &[r::DB_PURGE_JOB_FAILED],
        ),
        glance(READY, &[r::ALL_READY], &[r::NOT_ALL_READY]),
        glance(
            EXTRA_CONFIG_HEALTHY,
            &[r::NO_OWNED_KEYS_OVERRIDDEN],
            &[r::OWNED_KEYS_OVERRIDDEN],
        ),
        backend(
            CREDENTIALS_READY,
            &[r::CREDENTIALS_AVAILABLE],
            &[
                r::WAITING_FOR_CREDENTIALS,
                r::WAITING_FOR_PARENT,
                r::TARGET_CLUSTER_UNAVAILABLE,
            ],
        ),
        backend(
            CONFIG_PROJECTED,
            &[r::CONFIG_PROJECTED],
            &[r::WAITING_FOR_PROJECTION],
        ),
        backend(READY, &[r::ALL_READY], &[r::NOT_ALL_READY]),
    ]
};

const fn glance(
    type_: &'static str,
    when_true: &'static [&'static str],
    when_false: &'static [&'static str],
) -> ConditionReasons {
    ConditionReasons {
        owner: Owner::Glance,
        type_,
        when_true,
        when_false,
    }
}

const fn backend(
    type_: &'static str,
    when_true: &'static [&'static str],
    when_false: &'static [&'static str],
) -> ConditionReasons {
    ConditionReasons {
        owner: Owner::GlanceBackend,
        type_,
        when_true,
        when_false,
    }
}
