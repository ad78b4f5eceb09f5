//! The kinds we write, in the order a teardown takes them, and the kinds we only read.
//!
//! One table drives the watches, the sweep and the ownership checks, so that a kind can never be swept but unwatched
//! (contract: target clusters, the sweep).

use target_registry::{Kind, Payload};

pub use crate::external::{
    gateway::HTTP_ROUTE,
    mariadb::{DATABASE, GRANT, MARIADB, USER},
    secrets::{CLUSTER_SECRET_STORE, EXTERNAL_SECRET, SECRET_STORE},
};

/// A kind of child.
#[derive(Clone, Copy, Debug)]
pub struct ChildKind {
    /// Group, version, names.
    pub kind: Kind,
    /// Whether steps read more than its metadata.
    pub payload: Payload,
    /// Whether its watch on a target may select by the ownership label. Secrets and `ConfigMap`s are inputs as well,
    /// and inputs carry no label of ours.
    pub selected: bool,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $group:literal $version:literal $kind:literal $plural:literal $namespaced:literal;)*) => {
        $($(#[$doc])* pub const $name: Kind = Kind {
            group: $group, version: $version, kind: $kind, plural: $plural, namespaced: $namespaced,
        };)*
    };
}

kinds! {
    /// The API pods.
    DEPLOYMENT = "apps" "v1" "Deployment" "deployments" true;
    /// Their address.
    SERVICE = "" "v1" "Service" "services" true;
    /// Rendered configuration.
    CONFIG_MAP = "" "v1" "ConfigMap" "configmaps" true;
    /// Rendered and foreign credentials.
    SECRET = "" "v1" "Secret" "secrets" true;
    /// Schema Jobs.
    JOB = "batch" "v1" "Job" "jobs" true;
    /// The purge.
    CRON_JOB = "batch" "v1" "CronJob" "cronjobs" true;
    /// Disruption budget.
    POD_DISRUPTION_BUDGET = "policy" "v1" "PodDisruptionBudget" "poddisruptionbudgets" true;
    /// Autoscaler.
    HORIZONTAL_POD_AUTOSCALER = "autoscaling" "v2" "HorizontalPodAutoscaler" "horizontalpodautoscalers" true;
    /// Network isolation.
    NETWORK_POLICY = "networking.k8s.io" "v1" "NetworkPolicy" "networkpolicies" true;
}

const fn child(kind: Kind, payload: Payload, selected: bool) -> ChildKind {
    ChildKind {
        kind,
        payload,
        selected,
    }
}

/// Every kind of child, in the order of the sweep.
pub const CHILDREN: [ChildKind; 13] = [
    child(DEPLOYMENT, Payload::Full, true),
    child(SERVICE, Payload::Full, true),
    child(CONFIG_MAP, Payload::Metadata, false),
    child(SECRET, Payload::Metadata, false),
    child(JOB, Payload::Full, true),
    child(CRON_JOB, Payload::Full, true),
    child(POD_DISRUPTION_BUDGET, Payload::Metadata, true),
    child(HORIZONTAL_POD_AUTOSCALER, Payload::Metadata, true),
    child(NETWORK_POLICY, Payload::Metadata, true),
    child(HTTP_ROUTE, Payload::Full, true),
    child(DATABASE, Payload::Full, true),
    child(USER, Payload::Full, true),
    child(GRANT, Payload::Full, true),
];

/// Every kind that is only read, beside Secrets and `ConfigMap`s.
pub const INPUTS: [Kind; 4] = [MARIADB, CLUSTER_SECRET_STORE, SECRET_STORE, EXTERNAL_SECRET];

/// The three whose removal drops the database, in the order they are deleted.
pub const MARIADB_CHILDREN: [Kind; 3] = [DATABASE, USER, GRANT];

/// Whether every cluster serves a kind, so that one which seems not to is something else.
pub fn is_everywhere(kind: &Kind) -> bool {
    const GROUPS: [&str; 6] = [
        "",
        "apps",
        "batch",
        "policy",
        "autoscaling",
        "networking.k8s.io",
    ];
    GROUPS.contains(&kind.group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sweep_takes_the_documented_kinds_in_the_documented_order() {
        let kinds: Vec<_> = CHILDREN.iter().map(|child| child.kind.kind).collect();
        assert_eq!(
            kinds,
            [
                "Deployment",
                "Service",
                "ConfigMap",
                "Secret",
                "Job",
                "CronJob",
                "PodDisruptionBudget",
                "HorizontalPodAutoscaler",
                "NetworkPolicy",
                "HTTPRoute",
                "Database",
                "User",
                "Grant"
            ]
        );
    }
}
