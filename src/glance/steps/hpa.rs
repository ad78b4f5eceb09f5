//! **HPA**: the autoscaler exists exactly when `spec.autoscaling` is set.
//!
//! Condition `HPAReady`: `HPAReady` or `HPANotRequired`; errors propagate.

use glance_api::{
    conditions::reasons::{HPA_NOT_REQUIRED, HPA_READY},
    glance::Glance,
};

use super::deployment::identity;
use crate::{
    cluster::{Target, kinds::HORIZONTAL_POD_AUTOSCALER},
    glance::workload::hpa::horizontal_pod_autoscaler,
    pipeline::report::{Report, StepError, Verdict},
};

/// Applies or deletes the autoscaler.
pub async fn reconcile(glance: &Glance, target: &Target) -> Result<Report<()>, StepError> {
    let verdict = if apply(glance, target).await? {
        Verdict::yes(HPA_READY, "HorizontalPodAutoscaler is configured")
    } else {
        Verdict::yes(HPA_NOT_REQUIRED, "Autoscaling is not configured")
    };
    Ok(Report::with(verdict, ()))
}

/// The same without a report, for the Deployment step. Whether there is an autoscaler now.
pub async fn apply(glance: &Glance, target: &Target) -> Result<bool, StepError> {
    let kind = &HORIZONTAL_POD_AUTOSCALER;
    let Some(desired) = horizontal_pod_autoscaler(glance, identity(target)) else {
        target
            .ensure_absent(kind, &target.owner.name)
            .await
            .map_err(|error| error.context("deleting HorizontalPodAutoscaler"))?;
        return Ok(false);
    };
    target
        .apply(kind, desired)
        .await
        .map_err(|error| error.context("ensuring HorizontalPodAutoscaler"))?;
    Ok(true)
}
