//! **`NetworkPolicy`**: isolation of the pods exists exactly when `spec.networkPolicy` is set.
//!
//! Condition `NetworkPolicyReady`: `NetworkPolicyReady` or `NetworkPolicyNotRequired`; errors propagate, and an empty
//! ingress list is one, because such a policy would admit everybody.

use glance_api::{
    conditions::reasons::{NETWORK_POLICY_NOT_REQUIRED, NETWORK_POLICY_READY},
    glance::Glance,
};

use super::deployment::identity;
use crate::{
    cluster::{Target, kinds::NETWORK_POLICY},
    context::Context,
    glance::workload::network_policy::{PolicyInputs, network_policies, policy_names},
    pipeline::report::{ErrorKind, Report, StepError, Verdict},
};

/// Applies or deletes the policies.
pub async fn reconcile(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    s3_hosts: &[String],
) -> Result<Report<()>, StepError> {
    let verdict = if apply(ctx, glance, target, s3_hosts).await? {
        Verdict::yes(NETWORK_POLICY_READY, "NetworkPolicy is configured")
    } else {
        Verdict::yes(
            NETWORK_POLICY_NOT_REQUIRED,
            "Network isolation is not configured",
        )
    };
    Ok(Report::with(verdict, ()))
}

/// The same without a report, for the Deployment step. Whether there are policies now.
pub async fn apply(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    s3_hosts: &[String],
) -> Result<bool, StepError> {
    let inputs = PolicyInputs {
        s3_hosts,
        // On a target the operator's namespace is somebody else's, and the probe comes from the API server.
        operator_namespace: ctx
            .settings
            .operator_namespace
            .as_deref()
            .filter(|_| !target.is_remote()),
        api_server_cidrs: &[],
    };
    let wanted = network_policies(glance, identity(target), inputs)
        .map_err(|error| StepError::new(ErrorKind::Render, error.to_string()))?;
    for name in policy_names(&target.owner.name) {
        let desired = wanted
            .iter()
            .find(|policy| policy["metadata"]["name"] == name.as_str());
        match desired {
            Some(desired) => {
                target
                    .apply(&NETWORK_POLICY, desired.clone())
                    .await
                    .map_err(|error| error.context("ensuring NetworkPolicy"))?;
            }
            None => {
                target
                    .ensure_absent(&NETWORK_POLICY, &name)
                    .await
                    .map_err(|error| error.context("deleting NetworkPolicy"))?;
            }
        }
    }
    Ok(!wanted.is_empty())
}
