//! Condition and event reasons, against the tables of the documentation.

use std::collections::BTreeSet;

use glance_api::conditions::{self, Owner, TABLE};
use glance_api::keys::events;

/// kind, type, reasons with True, reasons with False.
const DOCUMENTED: &[(Owner, &str, &str, &str)] = &[
    (
        Owner::Glance,
        "SecretsReady",
        "SecretsAvailable",
        "TargetClusterUnavailable, SecretStoreNotReady, WaitingForDBCredentials, WaitingForServiceUserCredentials, ConfigError",
    ),
    (
        Owner::Glance,
        "BackendsReady",
        "AllBackendsProjected",
        "WaitingForBackends, NoDefaultBackend",
    ),
    (
        Owner::Glance,
        "DatabaseReady",
        "DatabaseSynced",
        "ClusterNotReady, WaitingForDatabase, DBSyncFailed, DBSyncInProgress, WaitingForBackends, ImageReleaseMismatch, VersionParseError, DowngradeNotSupported, UpgradePathInvalid, UpgradeTargetChanged, ExpandInProgress, MigrateInProgress, UpgradeRollingUpdate, ContractInProgress, ExpandFailed, MigrateFailed, ContractFailed",
    ),
    (
        Owner::Glance,
        "DeploymentReady",
        "DeploymentReady",
        "WaitingForDeployment, WaitingForBackends",
    ),
    (
        Owner::Glance,
        "GlanceAPIReady",
        "APIHealthy",
        "APIUnhealthy, EndpointNotReady, HealthCheckTimeout, ConnectionFailed, HealthCheckFailed",
    ),
    (Owner::Glance, "HPAReady", "HPAReady, HPANotRequired", ""),
    (
        Owner::Glance,
        "NetworkPolicyReady",
        "NetworkPolicyReady, NetworkPolicyNotRequired",
        "",
    ),
    (
        Owner::Glance,
        "HTTPRouteReady",
        "HTTPRouteAccepted, HTTPRouteNotRequired",
        "HTTPRouteNotAccepted, GatewayAPINotInstalled, CapabilityProbeFailed",
    ),
    (
        Owner::Glance,
        "DBPurgeReady",
        "DBPurgeScheduled, DBPurgeSuspended",
        "DBPurgeJobFailed",
    ),
    (Owner::Glance, "Ready", "AllReady", "NotAllReady"),
    (
        Owner::Glance,
        "ExtraConfigHealthy",
        "NoOwnedKeysOverridden",
        "OwnedKeysOverridden",
    ),
    (
        Owner::GlanceBackend,
        "CredentialsReady",
        "CredentialsAvailable",
        "WaitingForCredentials, WaitingForParent, TargetClusterUnavailable",
    ),
    (
        Owner::GlanceBackend,
        "ConfigProjected",
        "ConfigProjected",
        "WaitingForProjection",
    ),
    (Owner::GlanceBackend, "Ready", "AllReady", "NotAllReady"),
];

#[test]
fn types_and_reasons_are_the_documented_ones() {
    let rows: Vec<_> = TABLE
        .iter()
        .map(|row| {
            (
                row.owner,
                row.type_,
                row.when_true.join(", "),
                row.when_false.join(", "),
            )
        })
        .collect();
    let documented: Vec<_> = DOCUMENTED
        .iter()
        .map(|(owner, type_, yes, no)| (*owner, *type_, (*yes).to_owned(), (*no).to_owned()))
        .collect();
    assert_eq!(rows, documented);
}

#[test]
fn nine_conditions_make_a_glance_ready_and_two_a_store() {
    let of = |owner: Owner, aside: &[&str]| -> Vec<&str> {
        let rows = TABLE.iter().filter(|row| row.owner == owner);
        rows.map(|row| row.type_)
            .filter(|type_| !aside.contains(type_))
            .collect()
    };
    let aside = [conditions::READY, conditions::EXTRA_CONFIG_HEALTHY];
    assert_eq!(
        conditions::SUB_CONDITIONS.to_vec(),
        of(Owner::Glance, &aside)
    );
    assert_eq!(
        conditions::BACKEND_SUB_CONDITIONS.to_vec(),
        of(Owner::GlanceBackend, &aside)
    );
}

#[test]
fn a_reason_is_either_good_or_bad_news_for_a_condition() {
    for row in TABLE {
        let yes: BTreeSet<_> = row.when_true.iter().collect();
        let no: BTreeSet<_> = row.when_false.iter().collect();
        assert_eq!(yes.len(), row.when_true.len(), "{}", row.type_);
        assert_eq!(no.len(), row.when_false.len(), "{}", row.type_);
        assert!(yes.is_disjoint(&no), "{}", row.type_);
    }
}

/// The API server refuses a status with anything else in it.
#[test]
fn types_and_reasons_pass_the_schema() {
    let type_ = regex::Regex::new("^[A-Za-z0-9][-A-Za-z0-9_.]*$").unwrap();
    let reason = regex::Regex::new("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$").unwrap();
    for row in TABLE {
        assert!(type_.is_match(row.type_));
        for text in row.when_true.iter().chain(row.when_false) {
            assert!(reason.is_match(text), "{text}");
        }
    }
    assert!(reason.is_match(conditions::reasons::RECONCILE_ERROR));
}

#[test]
fn event_reasons_are_the_documented_ones_and_ours() {
    let documented = [
        (
            events::NORMAL,
            "DatabaseSynced, UpgradeInitiated, ExpandComplete, MigrateComplete, DeploymentRolloutComplete, UpgradeComplete, UpgradeAborted, FinalizingDatabase, DatabaseFinalized",
            "",
        ),
        (
            events::WARNING,
            "GlanceBackendSkipped, ExtraConfigOwnedKeyOverride, DBSyncFailed, DBSyncMetricEmissionDeferred, DBPurgeJobFailed, DBPurgeMetricEmissionDeferred, VersionParseError, DowngradeNotSupported, UpgradePathInvalid, UpgradeTargetChanged, ExpandFailed, MigrateFailed, ContractFailed, RemoteChildrenAbandoned",
            "GlanceBackendDetached, UpgradeAbortRefused, ImageReleaseMismatch, TeardownFailed, TeardownHeld",
        ),
    ];
    for (reasons, contract, ours) in documented {
        let expected: BTreeSet<&str> = contract
            .split(", ")
            .chain(ours.split(", "))
            .filter(|text| !text.is_empty())
            .collect();
        let found: BTreeSet<&str> = reasons.iter().map(|(reason, _)| *reason).collect();
        assert_eq!(found, expected);
        assert_eq!(reasons.len(), expected.len());
    }
}
