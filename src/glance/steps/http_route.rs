//! **`HTTPRoute`**: the way in through a Gateway exists exactly when `spec.gateway` is set and the cluster serves it.
//!
//! Condition `HTTPRouteReady`: `HTTPRouteNotRequired`, `HTTPRouteAccepted`, `HTTPRouteNotAccepted`,
//! `GatewayAPINotInstalled`, `CapabilityProbeFailed`. Each cluster answers for itself, and "could not ask" is never
//! taken for "not served" (contract: target clusters, capability probe).

use std::time::Duration;

use glance_api::{
    conditions::reasons::{
        CAPABILITY_PROBE_FAILED, GATEWAY_API_NOT_INSTALLED, HTTP_ROUTE_ACCEPTED,
        HTTP_ROUTE_NOT_ACCEPTED, HTTP_ROUTE_NOT_REQUIRED,
    },
    glance::Glance,
};

use super::deployment::identity;
use crate::{
    cluster::{Target, kinds::HTTP_ROUTE},
    external::gateway::{Acceptance, acceptance},
    glance::workload::http_route::{http_route, parent},
    pipeline::report::{ErrorKind, REQUEUE_ROLLOUT, Report, StepError, Verdict},
};

/// How soon to ask again for a kind that is not served. The watch that waits for it is usually faster, but one that
/// pauses after failures of its own never learns that the kind was away.
const REPROBE: Duration = Duration::from_secs(10);

/// Applies or deletes the route and reflects its acceptance.
pub async fn reconcile(glance: &Glance, target: &Target) -> Result<Report<()>, StepError> {
    let Some(gateway) = &glance.spec.gateway else {
        // A kind that is not served has no objects: the watch knows none, and nothing is sent.
        target
            .ensure_absent(&HTTP_ROUTE, &target.owner.name)
            .await
            .map_err(|error| error.context("deleting HTTPRoute"))?;
        return Ok(Report::with(not_required(), ()));
    };
    if !is_served(target).await? {
        return Ok(Report::with(not_installed(target), ()).after(REPROBE));
    }
    let Some(desired) = http_route(glance, identity(target)) else {
        return Ok(Report::with(not_required(), ()));
    };
    let applied = match target.apply(&HTTP_ROUTE, desired).await {
        Ok(applied) => applied,
        Err(error) => {
            // The definition may have been taken away a moment ago: that is to be said, not the refusal it led to.
            target.cluster.forget_capability(&HTTP_ROUTE).await;
            if !is_served(target).await? {
                return Ok(Report::with(not_installed(target), ()).after(REPROBE));
            }
            return Err(error.context("ensuring HTTPRoute"));
        }
    };
    let wanted = parent(gateway, target.namespace());
    Ok(
        match acceptance(&super::value_of(&applied), target.namespace(), wanted) {
            Acceptance::Accepted => Report::with(
                Verdict::yes(HTTP_ROUTE_ACCEPTED, "HTTPRoute accepted by Gateway"),
                (),
            ),
            Acceptance::NotAccepted(words) => {
                let mut message = "HTTPRoute not yet accepted by Gateway".to_owned();
                if let Some(words) = words {
                    message.push_str(": ");
                    message.push_str(&words);
                }
                Report::with(Verdict::no(HTTP_ROUTE_NOT_ACCEPTED, message), ())
                    .after(REQUEUE_ROLLOUT)
            }
        },
    )
}

async fn is_served(target: &Target) -> Result<bool, StepError> {
    target.cluster.serves(&HTTP_ROUTE).await.map_err(|error| {
        let verdict = Verdict::no(
            CAPABILITY_PROBE_FAILED,
            format!("Probing the target cluster for the HTTPRoute kind failed: {error}"),
        );
        StepError::new(
            ErrorKind::Api,
            format!("probing the target cluster for the HTTPRoute kind: {error}"),
        )
        .verdict(verdict)
    })
}

fn not_required() -> Verdict {
    Verdict::yes(
        HTTP_ROUTE_NOT_REQUIRED,
        "External Glance API exposure via Gateway API is not configured",
    )
}

fn not_installed(target: &Target) -> Verdict {
    let message = if target.is_remote() {
        "spec.gateway is set but the target cluster does not serve the gateway.networking.k8s.io/v1 HTTPRoute CRD; \
         install Gateway API on the target cluster (the operator re-checks by itself, about every ten seconds)"
    } else {
        "spec.gateway is set but the gateway.networking.k8s.io/v1 HTTPRoute CRD is not installed in this cluster; \
         install Gateway API to enable external Glance API exposure (the operator re-checks by itself, about every \
         ten seconds)"
    };
    Verdict::no(GATEWAY_API_NOT_INSTALLED, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_asked_for_is_a_reason_of_its_own() {
        assert_eq!(not_required().reason, "HTTPRouteNotRequired");
    }
}
