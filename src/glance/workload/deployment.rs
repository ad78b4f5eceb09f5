//! The Deployment of the API, and who decides how many pods it has.

use glance_api::defaults;
use glance_api::glance::Glance;
use serde_json::{Value, json};

use super::Identity;
use super::labels::{self, Component};
use super::pod::{self, PodInputs};

/// The live Deployment, as far as its replica count goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveReplicas {
    /// There is no Deployment.
    Absent,
    /// There is one, and nobody but us asserts its count.
    Ours(i64),
    /// Somebody else, the autoscaler as a rule, asserts the count too.
    Shared,
}

/// The desired Deployment. `replicas` comes from [`replicas`]; `None` leaves the field to its
/// owner.
pub fn deployment(
    glance: &Glance,
    id: Identity<'_>,
    inputs: PodInputs<'_>,
    replicas: Option<i64>,
) -> Value {
    let mut spec = json!({
        "selector": { "matchLabels": labels::selector(id.name) },
        "strategy": defaults::strategy(&glance.spec),
        "template": pod::template(glance, id, inputs),
    });
    if let Some(replicas) = replicas {
        spec["replicas"] = json!(replicas);
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": id.metadata(&labels::component(id.name, Component::Api)),
        "spec": spec,
    })
}

/// The replica count to send.
///
/// Without autoscaling it is ours. With it, the first install starts at the autoscaler's lower
/// bound, and a Deployment that exists keeps its count: sent again while only we assert it, since a
/// field we alone own falls back to 1 when we drop it; left out as soon as the autoscaler asserts
/// it, since a copy that is a moment old would undo a scale-up.
pub fn replicas(glance: &Glance, live: LiveReplicas) -> Option<i64> {
    if glance.spec.autoscaling.is_none() {
        return Some(i64::from(defaults::replicas(&glance.spec)));
    }
    match live {
        LiveReplicas::Absent => Some(i64::from(defaults::replica_floor(&glance.spec)).max(1)),
        LiveReplicas::Ours(count) => Some(count),
        LiveReplicas::Shared => None,
    }
}

// === impl LiveReplicas ===

impl LiveReplicas {
    /// Reads a live Deployment and its `managedFields`; `manager` is our field manager.
    pub fn of(live: Option<&Value>, manager: &str) -> Self {
        let Some(live) = live else {
            return Self::Absent;
        };
        let others = live
            .pointer("/metadata/managedFields")
            .and_then(Value::as_array)
            .is_some_and(|entries| entries.iter().any(|entry| shares(entry, manager)));
        if others {
            Self::Shared
        } else {
            Self::Ours(
                live.pointer("/spec/replicas")
                    .and_then(Value::as_i64)
                    .unwrap_or(1),
            )
        }
    }
}

/// Whether this entry is another manager's and asserts the replica count.
fn shares(entry: &Value, manager: &str) -> bool {
    entry["manager"] != manager && entry.pointer("/fieldsV1/f:spec/f:replicas").is_some()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::glance::specimen;

    const MANAGER: &str = "cobaltcore-operator";

    fn live(entries: &Value) -> Value {
        json!({ "metadata": { "managedFields": entries }, "spec": { "replicas": 5 } })
    }

    fn entry(manager: &str, fields: &Value) -> Value {
        json!({ "manager": manager, "operation": "Update", "fieldsV1": { "f:spec": fields } })
    }

    #[rstest]
    #[case::alone(json!([entry(MANAGER, &json!({ "f:replicas": {} }))]), LiveReplicas::Ours(5))]
    #[case::other_fields(json!([entry("kubectl", &json!({ "f:paused": {} }))]), LiveReplicas::Ours(5))]
    #[case::autoscaler(
        json!([
            entry(MANAGER, &json!({ "f:replicas": {} })),
            entry("kube-controller-manager", &json!({ "f:replicas": {} })),
        ]),
        LiveReplicas::Shared
    )]
    fn the_count_is_ours_until_somebody_else_asserts_it(
        #[case] entries: Value,
        #[case] expected: LiveReplicas,
    ) {
        assert_eq!(LiveReplicas::of(Some(&live(&entries)), MANAGER), expected);
    }

    #[test]
    fn an_absent_deployment_has_no_count() {
        assert_eq!(LiveReplicas::of(None, MANAGER), LiveReplicas::Absent);
    }

    #[rstest]
    #[case::default(json!({}), LiveReplicas::Ours(7), Some(3))]
    #[case::scaled(json!({ "deployment": { "replicas": 5 } }), LiveReplicas::Absent, Some(5))]
    #[case::zero_is_unset(json!({ "deployment": { "replicas": 0 } }), LiveReplicas::Absent, Some(3))]
    #[case::autoscaling_ended(json!({ "deployment": { "replicas": 2 } }), LiveReplicas::Shared, Some(2))]
    fn without_an_autoscaler_the_count_is_the_specs(
        #[case] patch: Value,
        #[case] live: LiveReplicas,
        #[case] expected: Option<i64>,
    ) {
        assert_eq!(replicas(&specimen::with(&patch), live), expected);
    }

    #[rstest]
    #[case::first_install_is_not_a_single_pod(LiveReplicas::Absent, Some(2))]
    #[case::just_enabled_keeps_the_count(LiveReplicas::Ours(5), Some(5))]
    #[case::left_to_the_autoscaler(LiveReplicas::Shared, None)]
    fn with_an_autoscaler_no_scale_up_is_undone(
        #[case] live: LiveReplicas,
        #[case] expected: Option<i64>,
    ) {
        let glance =
            specimen::with(&json!({ "autoscaling": { "minReplicas": 2, "maxReplicas": 9 } }));
        assert_eq!(replicas(&glance, live), expected);
    }
}
