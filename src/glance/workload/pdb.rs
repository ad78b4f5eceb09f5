//! The disruption budget of the API pods.

use glance_api::defaults;
use glance_api::glance::Glance;
use serde_json::{Value, json};

use super::{Identity, labels};

/// The desired `PodDisruptionBudget`.
///
/// One pod has to stay where there are several; where there may be one only, that rule would block
/// every drain. The lower bound is the autoscaler's while there is one.
///
/// Job pods are left out by the label the Job controller gives them rather than by component: API
/// pods of an older template without the component label have to stay protected, and Job pods,
/// ready at once, must not count as API pods.
pub fn pod_disruption_budget(glance: &Glance, id: Identity<'_>) -> Value {
    let bound = if defaults::replica_floor(&glance.spec) > 1 {
        "minAvailable"
    } else {
        "maxUnavailable"
    };
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": id.metadata(&labels::common(id.name)),
        "spec": {
            (bound): 1,
            "selector": {
                "matchLabels": labels::selector(id.name),
                "matchExpressions": [{ "key": "batch.kubernetes.io/job-name", "operator": "DoesNotExist" }],
            },
            // A pod that crash-loops serves nobody, so it must not hold up a drain either.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use rstest::rstest;

    use super::*;
    use crate::glance::specimen;

    #[rstest]
    #[case::default(json!({}), "minAvailable")]
    #[case::one(json!({ "deployment": { "replicas": 1 } }), "maxUnavailable")]
    #[case::zero_is_unset(json!({ "deployment": { "replicas": 0 } }), "minAvailable")]
    #[case::five(json!({ "deployment": { "replicas": 5 } }), "minAvailable")]
    #[case::autoscaler_may_go_down_to_one(
        json!({ "deployment": { "replicas": 5 }, "autoscaling": { "minReplicas": 1, "maxReplicas": 9 } }),
        "maxUnavailable"
    )]
    #[case::autoscaler_keeps_two(
        json!({ "deployment": { "replicas": 1 }, "autoscaling": { "minReplicas": 2, "maxReplicas": 9 } }),
        "minAvailable"
    )]
    #[case::autoscaler_without_bound(
        json!({ "deployment": { "replicas": 1 }, "autoscaling": { "maxReplicas": 9 } }),
        "maxUnavailable"
    )]
    fn a_drain_is_never_blocked_by_a_single_pod(#[case] patch: Value, #[case] bound: &str) {
        let glance = specimen::with(&patch);
        let budget = pod_disruption_budget(&glance, Identity::of(&glance));
        specimen::assert_is::<PodDisruptionBudget>(&budget);
        assert_eq!(budget["spec"][bound], 1);
        let other = if bound == "minAvailable" {
            "maxUnavailable"
        } else {
            "minAvailable"
        };
        assert!(budget["spec"].get(other).is_none());
    }
}
