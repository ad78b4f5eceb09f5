//! Scaling, network policy and gateway.

use glance_api::defaults;
use glance_api::glance::{AutoscalingSpec, GlanceSpec};

use crate::policy::path::Path;
use crate::policy::review::Findings;

pub(super) fn judge(spec: &GlanceSpec, at: &Path, f: &mut Findings) {
    if let Some(autoscaling) = &spec.autoscaling {
        scaling(spec, autoscaling, &at.child("autoscaling"), f);
    }
    if let Some(policy) = &spec.network_policy
        && policy.ingress.is_empty()
    {
        f.required(
            &at.child("networkPolicy.ingress"),
            "at least one ingress source must be specified",
        );
    }
    if let Some(gateway) = &spec.gateway {
        let at = at.child("gateway");
        if gateway.hostname.is_empty() {
            f.required(
                &at.child("hostname"),
                "hostname must be set when spec.gateway is configured",
            );
        }
        if gateway.parent_ref.name.is_empty() {
            f.required(
                &at.child("parentRef.name"),
                "parentRef.name must be set when spec.gateway is configured",
            );
        }
    }
}

fn scaling(spec: &GlanceSpec, scaling: &AutoscalingSpec, at: &Path, f: &mut Findings) {
    let most = scaling.max_replicas;
    let most_at = at.child("maxReplicas");
    let least_at = at.child("minReplicas");
    if most < 1 {
        f.invalid(&most_at, most, "maxReplicas must be at least 1");
    }
    if let Some(least) = scaling.min_replicas {
        if least < 1 {
            f.invalid(&least_at, least, "minReplicas must be at least 1");
        }
        if least > most {
            f.invalid(&least_at, least, "minReplicas must not exceed maxReplicas");
        }
    } else {
        let replicas = defaults::replicas(spec);
        if replicas > most {
            f.invalid(
                &most_at,
                most,
                format!(
                    "maxReplicas must be >= spec.deployment.replicas ({replicas}) when minReplicas is not set, because minReplicas defaults to spec.deployment.replicas"
                ),
            );
        }
    }
    let targets = [
        ("targetCPUUtilization", scaling.target_cpu_utilization),
        ("targetMemoryUtilization", scaling.target_memory_utilization),
    ];
    for (field, percent) in targets {
        if let Some(percent) = percent.filter(|percent| !(1..=100).contains(percent)) {
            f.invalid(
                &at.child(field),
                percent,
                format!("{field} must be between 1 and 100"),
            );
        }
    }
    if targets.iter().all(|(_, percent)| percent.is_none()) {
        f.required(
            at,
            "at least one of targetCPUUtilization or targetMemoryUtilization must be set",
        );
    }
}
