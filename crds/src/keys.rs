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
    /// On a Glance: UIDs of the purge Jobs that were counted and were still
    /// there, so that runs beside each other count once each.
    pub const COUNTED_DB_PURGE_JOB_UIDS: &str = "cobaltcore.c5c3.io/counted-db-purge-job-uids";
    /// On a Glance: how often the migration that failed last was tried. A
    /// Job's own count goes with the Job.
    pub const MIGRATION_ATTEMPTS: &str = "cobaltcore.c5c3.io/migration-attempts";
    /// All annotations by which the operator remembers which Jobs it counted.
    pub const COUNTED_JOBS: [&str; 7] = [
        LAST_DB_SYNC_JOB_UID,
        LAST_DB_EXPAND_JOB_UID,
        LAST_DB_MIGRATE_JOB_UID,
        LAST_DB_CONTRACT_JOB_UID,
        LAST_DB_PURGE_JOB_UID,
        COUNTED_DB_PURGE_JOB_UIDS,
        MIGRATION_ATTEMPTS,
    ];

    /// On a Glance, by a person: a new value runs a failed Job again at once.
    pub const RETRY_JOB: &str = "glance.openstack.c5c3.io/retry-job";
    /// On a Glance, by a person: `"true"` lets an upgrade be aborted even
    /// though its contract Job exists.
    pub const ALLOW_UNSAFE_ABORT: &str = "glance.openstack.c5c3.io/allow-unsafe-abort";
    /// On a Glance, by a person: `"true"` releases a Glance that is being
    /// deleted without its cleanup on the target cluster.
    pub const ABANDON_REMOTE_CHILDREN: &str = "glance.openstack.c5c3.io/abandon-remote-children";
    /// On a Glance, by a person: the mark of another hub, as that hub left it
    /// on the children; they are taken over. For a hub that was built anew.
    pub const ADOPT_FROM_HUB: &str = "glance.openstack.c5c3.io/adopt-from-hub";
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
    macro_rules! reasons {
        ($all:ident, $what:literal: $($(#[doc = $doc:literal])+ $name:ident = $text:literal;)+) => {
            $($(#[doc = $doc])+ pub const $name: &str = $text;)+

            #[doc = $what]
            pub const $all: &[(&str, &str)] = &[$(($text, concat!($($doc),+)),)+];
        };
    }

    reasons! {
        NORMAL, "Every reason of a Normal event, with what it means.":
        /// The db-sync Job succeeded.
        DATABASE_SYNCED = "DatabaseSynced";
        /// An upgrade begins.
        UPGRADE_INITIATED = "UpgradeInitiated";
        /// The expand Job succeeded.
        EXPAND_COMPLETE = "ExpandComplete";
        /// The migrate Job succeeded.
        MIGRATE_COMPLETE = "MigrateComplete";
        /// The pods of the new release run.
        DEPLOYMENT_ROLLOUT_COMPLETE = "DeploymentRolloutComplete";
        /// The contract Job succeeded and the upgrade is over.
        UPGRADE_COMPLETE = "UpgradeComplete";
        /// The release went back to the installed one in mid-upgrade.
        UPGRADE_ABORTED = "UpgradeAborted";
        /// The database objects are being removed.
        FINALIZING_DATABASE = "FinalizingDatabase";
        /// The database objects are gone and the finalizer is released.
        DATABASE_FINALIZED = "DatabaseFinalized";
    }

    reasons! {
        WARNING, "Every reason of a Warning event, with what it means.":
        /// A store is left out of the configuration.
        GLANCE_BACKEND_SKIPPED = "GlanceBackendSkipped";
        /// The backend of a projected store was deleted; images of that
        /// store cannot be downloaded until it is attached again.
        GLANCE_BACKEND_DETACHED = "GlanceBackendDetached";
        /// `spec.extraConfig` overrides options of the operator.
        EXTRA_CONFIG_OWNED_KEY_OVERRIDE = "ExtraConfigOwnedKeyOverride";
        /// The db-sync Job failed.
        DB_SYNC_FAILED = "DBSyncFailed";
        /// A migration Job is counted one pass later.
        DB_SYNC_METRIC_EMISSION_DEFERRED = "DBSyncMetricEmissionDeferred";
        /// The newest purge run failed.
        DB_PURGE_JOB_FAILED = "DBPurgeJobFailed";
        /// A purge run is counted one pass later.
        DB_PURGE_METRIC_EMISSION_DEFERRED = "DBPurgeMetricEmissionDeferred";
        /// An abort came too late to be safe.
        UPGRADE_ABORT_REFUSED = "UpgradeAbortRefused";
        /// The image belongs to another release than the spec names.
        IMAGE_RELEASE_MISMATCH = "ImageReleaseMismatch";
        /// A release is not of the form `YYYY.N`.
        VERSION_PARSE_ERROR = "VersionParseError";
        /// The wanted release is older than the installed one.
        DOWNGRADE_NOT_SUPPORTED = "DowngradeNotSupported";
        /// The wanted release is not the next one.
        UPGRADE_PATH_INVALID = "UpgradePathInvalid";
        /// The wanted release changed in mid-upgrade.
        UPGRADE_TARGET_CHANGED = "UpgradeTargetChanged";
        /// The expand Job failed for good.
        EXPAND_FAILED = "ExpandFailed";
        /// The migrate Job failed for good.
        MIGRATE_FAILED = "MigrateFailed";
        /// The contract Job failed for good.
        CONTRACT_FAILED = "ContractFailed";
        /// The finalizer is released, and what stands on the target
        /// cluster stays there.
        REMOTE_CHILDREN_ABANDONED = "RemoteChildrenAbandoned";
        /// Something of a Glance that is being deleted could not be; it is
        /// tried again.
        TEARDOWN_FAILED = "TeardownFailed";
        /// A Glance that is being deleted waits for its target cluster; the
        /// event says how to let it go without.
        TEARDOWN_HELD = "TeardownHeld";
    }
}
