//! Pods: how many, how large, how they come and go.

use std::collections::BTreeMap;

use super::{
    PRE_STOP_SLEEP_SECONDS, REPLICAS, RESOURCE_LIMITS, RESOURCE_REQUESTS,
    TERMINATION_GRACE_PERIOD_SECONDS, TOPOLOGY_KEYS, positive,
};
use crate::common::{
    DeploymentStrategy, IntOrString, LabelSelector, Quantity, ResourceRequirements, RollingUpdate,
    TopologySpreadConstraint,
};
use crate::glance::{AutoscalingSpec, GlanceSpec};
use crate::keys::{APP_NAME, labels};

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

fn quantities(entries: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    entries
        .iter()
        .map(|(name, quantity)| ((*name).to_owned(), Quantity::new(*quantity)))
        .collect()
}
