//! `spec.deployment`: how many pods, how they end, where they run.

use glance_api::common::{DeploymentStrategy, Quantity};
use glance_api::defaults;
use glance_api::glance::{DeploymentSpec, Glance, GlanceSpec};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::block;
use crate::glance::workload::labels;
use crate::policy::path::Path;
use crate::policy::review::Findings;
use crate::quantity;

/// Least seconds a pod gets to end its requests.
const GRACE_LEAST: i64 = 10;

pub(super) fn replicas(deployment: &DeploymentSpec, at: &Path, f: &mut Findings) {
    if let Some(replicas) = deployment.replicas.filter(|replicas| *replicas < 1) {
        f.invalid(
            &at.child("replicas"),
            replicas,
            "replicas must be at least 1",
        );
    }
}

/// Sleep, grace and the bound of one request have to fit into each other.
pub(super) fn timings(spec: &GlanceSpec, at: &Path, f: &mut Findings) {
    let deployment = at.child("deployment");
    let set = spec.deployment.as_ref();
    let grace_at = deployment.child("terminationGracePeriodSeconds");
    let sleep_at = deployment.child("preStopSleepSeconds");
    let grace_set = set.and_then(|d| d.termination_grace_period_seconds);
    if let Some(grace) = grace_set.filter(|grace| *grace < GRACE_LEAST) {
        f.invalid(
            &grace_at,
            grace,
            "terminationGracePeriodSeconds must be at least 10",
        );
    }
    let sleep_set = set.and_then(|d| d.pre_stop_sleep_seconds);
    if let Some(sleep) = sleep_set.filter(|sleep| *sleep < 0) {
        f.invalid(&sleep_at, sleep, "preStopSleepSeconds must be non-negative");
    }
    let sleep = defaults::pre_stop_sleep_seconds(spec);
    let grace = defaults::termination_grace_period_seconds(spec);
    if sleep >= grace {
        f.invalid(
            &sleep_at,
            sleep,
            format!(
                "preStopSleepSeconds ({sleep}) must be strictly less than terminationGracePeriodSeconds ({grace})"
            ),
        );
    }
    let rest = grace.saturating_sub(sleep);
    let harakiri = spec
        .api_server
        .as_ref()
        .and_then(|api| api.uwsgi.as_ref()?.harakiri);
    if let Some(harakiri) = harakiri.filter(|harakiri| i64::from(*harakiri) >= rest) {
        f.invalid(
            &at.child("apiServer.uwsgi.harakiri"),
            harakiri,
            format!(
                "harakiri ({harakiri}) must be strictly less than terminationGracePeriodSeconds - preStopSleepSeconds ({rest})"
            ),
        );
    }
}

pub(super) fn strategy(strategy: &DeploymentStrategy, at: &Path, f: &mut Findings) {
    if let Some(rolling) = &strategy.rolling_update
        && strategy.type_.as_deref() == Some("Recreate")
    {
        f.invalid(
            &at.child("rollingUpdate"),
            block(rolling),
            "rollingUpdate must not be set when strategy.type is Recreate",
        );
    }
}

pub(super) fn resources(deployment: &DeploymentSpec, at: &Path, f: &mut Findings) {
    let Some(resources) = &deployment.resources else {
        return;
    };
    let requests = at.child("resources.requests");
    for (name, request) in &resources.requests {
        let Some(limit) = resources.limits.get(name) else {
            continue;
        };
        if exceeds(request, limit) {
            f.invalid(
                &requests.child(name),
                request.as_str(),
                format!("{name} request must not exceed limit ({limit})"),
            );
        }
    }
}

fn exceeds(request: &Quantity, limit: &Quantity) -> bool {
    // What is no quantity is the schema's to refuse.
    quantity::compare(request.as_str(), limit.as_str()).is_ok_and(std::cmp::Ordering::is_gt)
}

/// Constraints that count other pods than ours spread nothing.
pub(super) fn spread(glance: &Glance, deployment: &DeploymentSpec, at: &Path, f: &mut Findings) {
    let constraints = deployment.topology_spread_constraints.iter().flatten();
    for (index, constraint) in constraints.enumerate() {
        let at = at
            .child("topologySpreadConstraints")
            .index(index)
            .child("labelSelector");
        let Some(selector) = &constraint.label_selector else {
            f.required(
                &at,
                "labelSelector is required on each TopologySpreadConstraint",
            );
            continue;
        };
        let ours = labels::selector(&glance.name_any());
        if json!(selector.match_labels) != ours {
            let labels = ours.as_object().into_iter().flatten();
            let wanted: Vec<String> = labels
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                .collect();
            f.invalid(
                &at,
                Value::from_iter(selector.match_labels.clone()),
                format!(
                    "labelSelector.matchLabels must equal the Deployment selector labels ({})",
                    wanted.join(", ")
                ),
            );
        }
        if !selector.match_expressions.is_empty() {
            f.invalid(
                &at.child("matchExpressions"),
                block(&selector.match_expressions),
                "matchExpressions are not allowed; labelSelector must use matchLabels only",
            );
        }
    }
}
