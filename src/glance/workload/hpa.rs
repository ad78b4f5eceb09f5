//! The autoscaler of the API pods.

use glance_api::defaults;
use glance_api::glance::Glance;
use serde_json::{Value, json};

use super::{Identity, labels};

/// The desired `HorizontalPodAutoscaler`, when `spec.autoscaling` asks for one.
pub fn horizontal_pod_autoscaler(glance: &Glance, id: Identity<'_>) -> Option<Value> {
    let autoscaling = glance.spec.autoscaling.as_ref()?;
    let targets = [
        ("cpu", autoscaling.target_cpu_utilization),
        ("memory", autoscaling.target_memory_utilization),
    ];
    let metrics: Vec<Value> = targets
        .into_iter()
        .filter_map(|(resource, target)| {
            Some(json!({
                "type": "Resource",
                "resource": {
                    "name": resource,
                    "target": { "type": "Utilization", "averageUtilization": target? },
                },
            }))
        })
        .collect();
    Some(json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": id.metadata(&labels::common(id.name)),
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": id.name },
            "minReplicas": defaults::min_replicas(&glance.spec, autoscaling),
            "maxReplicas": autoscaling.max_replicas,
            "metrics": metrics,
        },
    }))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;

    use super::*;
    use crate::glance::specimen;

    #[test]
    fn no_autoscaling_no_autoscaler() {
        let glance = specimen::eventlet();
        assert_eq!(
            horizontal_pod_autoscaler(&glance, Identity::of(&glance)),
            None
        );
    }

    #[test]
    fn the_lower_bound_falls_back_to_the_replicas() {
        let glance = specimen::with(&json!({
            "deployment": { "replicas": 2 },
            "autoscaling": { "maxReplicas": 6, "targetMemoryUtilization": 80 },
        }));
        let scaler = horizontal_pod_autoscaler(&glance, Identity::of(&glance)).unwrap();
        specimen::assert_is::<HorizontalPodAutoscaler>(&scaler);
        assert_eq!(
            scaler["spec"],
            json!({
                "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "pictures" },
                "minReplicas": 2,
                "maxReplicas": 6,
                "metrics": [{ "type": "Resource", "resource": {
                    "name": "memory", "target": { "type": "Utilization", "averageUtilization": 80 } } }],
            })
        );
    }
}
