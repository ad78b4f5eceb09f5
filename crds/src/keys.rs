//! Labels, annotations, finalizers and other names that the operator writes
//! into a cluster. Other software selects by them and objects of earlier
//! installations carry them: they never change.

/// Field manager of every server-side apply, always with force.
///
/// The Go operator's name, kept on purpose: under another one, fields of
/// objects it wrote that we stop setting would never be released.
pub const FIELD_MANAGER: &str = "cobaltcore-operator";

/// Source and reporting component of every event.
pub const EVENT_SOURCE: &str = "glance-controller";

/// Value of [`labels::MANAGED_BY`].
pub const MANAGED_BY: &str = "glance-operator";

/// Value of [`labels::NAME`].
pub const APP_NAME: &str = "glance";

/// Labels.
pub mod labels {
    /// The application; part of every selector.
    pub const NAME: &str = "app.kubernetes.io/name";
    /// The Glance; part of every selector.
    pub const INSTANCE: &str = "app.kubernetes.io/instance";
    /// Who made the object.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// Which part of the application a pod is.
    pub const COMPONENT: &str = "app.kubernetes.io/component";

    /// Kind of the owner, on children of a placed Glance.
    pub const OWNER_KIND: &str = "openstack.c5c3.io/owner-kind";
    /// Name of the owner, on children of a placed Glance.
    pub const OWNER_NAME: &str = "openstack.c5c3.io/owner-name";
    /// Namespace of the owner, on children of a placed Glance.
    pub const OWNER_NAMESPACE: &str = "openstack.c5c3.io/owner-namespace";

    /// Groups the generations of one immutable `ConfigMap` or Secret.
    pub const CONFIG_BASE: &str = "cobaltcore.c5c3.io/config-base";
}

/// Values of [`labels::COMPONENT`].
pub mod components {
    /// The API pods.
    pub const API: &str = "api";
    /// The pods of the purge.
    pub const DB_PURGE: &str = "db-purge";
}

/// Annotations.
pub mod annotations {
    /// On children of a placed Glance: identity of the hub that owns them.
    /// Objects of another hub are never written and never deleted.
    pub const HUB_UID: &str = "openstack.c5c3.io/hub-uid";
    /// On children of a placed Glance: UID of the Glance on its hub.
    pub const OWNER_UID: &str = "openstack.c5c3.io/owner-uid";

    /// On a pod template: digest of the service user's password.
    pub const AUTHTOKEN_HASH: &str = "glance.c5c3.io/authtoken-hash";
    /// On a pod template: digest of the database connection.
    pub const DB_CONNECTION_HASH: &str = "glance.c5c3.io/db-connection-hash";

    /// On a Job: hash of what it runs; another hash runs it again.
    pub const POD_SPEC_HASH: &str = "cobaltcore.c5c3.io/pod-spec-hash";
    /// On a migration Job: hash of what decides the schema alone, so that a
    /// finished Job is not run again for a change of configuration.
    pub const SCHEMA_KEY: &str = "cobaltcore.c5c3.io/schema-key";

    /// On a Glance: UID of the last db-sync Job that was counted.
    pub const LAST_DB_SYNC_JOB_UID: &str = "cobaltcore.c5c3.io/last-db-sync-job-uid";
    /// On a Glance: UID of the last expand Job that was counted.
    pub const LAST_DB_EXPAND_JOB_UID: &str = "cobaltcore.c5c3.io/last-db-expand-job-uid";
    /// On a Glance: UID of the last migrate Job that was counted.
    pub const LAST_DB_MIGRATE_JOB_UID: &str = "cobaltcore.c5c3.io/last-db-migrate-job-uid";
    /// On a Glance: UID of the last contract Job that was counted.
    pub const LAST_DB_CONTRACT_JOB_UID: &str = "cobaltcore.c5c3.io/last-db-contract-job-uid";
    /// On a Glance: UID of the last purge Job that was counted.
    pub const LAST_DB_PURGE_JOB_UID: &str = "cobaltcore.c5c3.io/last-db-purge-job-uid";

    /// On a Glance, by a person: a new value runs a failed Job again at once.
    pub const RETRY_JOB: &str = "glance.openstack.c5c3.io/retry-job";
    /// On a Glance, by a person: `"true"` lets an upgrade be aborted even
    /// though its contract Job exists.
    pub const ALLOW_UNSAFE_ABORT: &str = "glance.openstack.c5c3.io/allow-unsafe-abort";
    /// On a Glance, by a person: `"true"` releases a Glance that is being
    /// deleted without its cleanup on the target cluster.
    pub const ABANDON_REMOTE_CHILDREN: &str = "glance.openstack.c5c3.io/abandon-remote-children";
}

/// Finalizers.
pub mod finalizers {
    /// On every Glance: the database objects go first.
    pub const GLANCE: &str = "glance.openstack.c5c3.io/finalizer";
    /// On a placed Glance: its children on the target cluster go first.
    pub const REMOTE_CHILDREN: &str = "openstack.c5c3.io/remote-children";
}

/// Reasons of events on a Glance. A `GlanceBackend` gets none.
pub mod events {
    /// Warning: a store is left out of the configuration.
    pub const GLANCE_BACKEND_SKIPPED: &str = "GlanceBackendSkipped";
    /// Warning: the backend of a projected store was deleted; images of that
    /// store cannot be downloaded until it is attached again.
    pub const GLANCE_BACKEND_DETACHED: &str = "GlanceBackendDetached";
    /// Warning: `spec.extraConfig` overrides options of the operator.
    pub const EXTRA_CONFIG_OWNED_KEY_OVERRIDE: &str = "ExtraConfigOwnedKeyOverride";

    /// Normal: the db-sync Job succeeded.
    pub const DATABASE_SYNCED: &str = "DatabaseSynced";
    /// Warning: the db-sync Job failed.
    pub const DB_SYNC_FAILED: &str = "DBSyncFailed";
    /// Warning: a migration Job is counted one pass later.
    pub const DB_SYNC_METRIC_EMISSION_DEFERRED: &str = "DBSyncMetricEmissionDeferred";
    /// Warning: the newest purge run failed.
    pub const DB_PURGE_JOB_FAILED: &str = "DBPurgeJobFailed";
    /// Warning: a purge run is counted one pass later.
    pub const DB_PURGE_METRIC_EMISSION_DEFERRED: &str = "DBPurgeMetricEmissionDeferred";

    /// Normal: an upgrade begins.
    pub const UPGRADE_INITIATED: &str = "UpgradeInitiated";
    /// Normal: the expand Job succeeded.
    pub const EXPAND_COMPLETE: &str = "ExpandComplete";
    /// Normal: the migrate Job succeeded.
    pub const MIGRATE_COMPLETE: &str = "MigrateComplete";
    /// Normal: the pods of the new release run.
    pub const DEPLOYMENT_ROLLOUT_COMPLETE: &str = "DeploymentRolloutComplete";
    /// Normal: the contract Job succeeded and the upgrade is over.
    pub const UPGRADE_COMPLETE: &str = "UpgradeComplete";
    /// Normal: the release went back to the installed one in mid-upgrade.
    pub const UPGRADE_ABORTED: &str = "UpgradeAborted";
    /// Warning: an abort came too late to be safe.
    pub const UPGRADE_ABORT_REFUSED: &str = "UpgradeAbortRefused";
    /// Warning: the image belongs to another release than the spec names.
    pub const IMAGE_RELEASE_MISMATCH: &str = "ImageReleaseMismatch";
    /// Warning: a release is not of the form `YYYY.N`.
    pub const VERSION_PARSE_ERROR: &str = "VersionParseError";
    /// Warning: the wanted release is older than the installed one.
    pub const DOWNGRADE_NOT_SUPPORTED: &str = "DowngradeNotSupported";
    /// Warning: the wanted release is not the next one.
    pub const UPGRADE_PATH_INVALID: &str = "UpgradePathInvalid";
    /// Warning: the wanted release changed in mid-upgrade.
    pub const UPGRADE_TARGET_CHANGED: &str = "UpgradeTargetChanged";
    /// Warning: the expand Job failed for good.
    pub const EXPAND_FAILED: &str = "ExpandFailed";
    /// Warning: the migrate Job failed for good.
    pub const MIGRATE_FAILED: &str = "MigrateFailed";
    /// Warning: the contract Job failed for good.
    pub const CONTRACT_FAILED: &str = "ContractFailed";

    /// Normal: the database objects are being removed.
    pub const FINALIZING_DATABASE: &str = "FinalizingDatabase";
    /// Normal: the database objects are gone and the finalizer is released.
    pub const DATABASE_FINALIZED: &str = "DatabaseFinalized";
    /// Warning: the finalizer is released, and what stands on the target
    /// cluster stays there.
    pub const REMOTE_CHILDREN_ABANDONED: &str = "RemoteChildrenAbandoned";
}
