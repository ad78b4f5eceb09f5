//! **`HealthCheck`**: the API answers `/healthcheck`, and is asked again while it does.
//!
//! Condition `GlanceAPIReady`: `APIHealthy`, or one of the reasons of the probe. A placed Glance is asked through its
//! cluster's API server (contract: workload, health check).

use std::time::Duration;

use glance_api::{
    conditions::reasons::{API_HEALTHY, ENDPOINT_NOT_READY},
    glance::Glance,
};

use crate::{
    cluster::{
        Target,
        probe::{Outcome, ProbeTarget, Transport},
    },
    context::Context,
    pipeline::report::{REQUEUE_ROLLOUT, Report, StepError, Verdict},
};

/// How often a healthy API is asked again, counted from its last answer: passes that only repeat the answer do not
/// put the next question off.
const RECHECK: Duration = Duration::from_mins(1);

/// What else may be wrong with a Glance that is isolated: the sources in its spec are pods, and an API server is none.
const FILTERED: &str = "; the probe comes from the API server, and spec.networkPolicy lets nobody in who is not a pod: if \
                        the network plug-in filters that, admit the API server's addresses to port 9292 by a \
                        NetworkPolicy of your own";

/// Asks, unless it was healthy a moment ago.
pub async fn reconcile(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    endpoint: &str,
) -> Result<Report<()>, StepError> {
    if endpoint.is_empty() {
        let verdict = Verdict::no(ENDPOINT_NOT_READY, "endpoint not yet configured");
        return Ok(Report::with(verdict, ()).after(REQUEUE_ROLLOUT));
    }
    let was_healthy = glance
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .any(|condition| {
            condition.type_ == glance_api::conditions::GLANCE_API_READY && condition.is_true()
        });
    let client = target.cluster.client();
    let transport = match (target.is_remote(), ctx.settings.local_probe_by_proxy) {
        (true, _) => Transport::Target(&client),
        (false, true) => Transport::Hub(&client),
        (false, false) => Transport::Direct,
    };
    let asked = ProbeTarget {
        namespace: target.namespace(),
        name: &target.owner.name,
        uid: &target.owner.uid,
    };
    let by_proxy = !matches!(transport, Transport::Direct);
    let is_filtered = by_proxy && glance.spec.network_policy.is_some();
    let outcome = ctx.probe.check(transport, asked, was_healthy).await;
    Ok(report(outcome, is_filtered))
}

fn report(mut outcome: Outcome, is_filtered: bool) -> Report<()> {
    if is_filtered && !outcome.healthy {
        outcome.message.push_str(FILTERED);
    }
    if outcome.healthy {
        let again = RECHECK.saturating_sub(outcome.age);
        Report::with(Verdict::yes(API_HEALTHY, outcome.message), ()).after(again)
    } else {
        Report::with(Verdict::no(outcome.reason, outcome.message), ()).after(REQUEUE_ROLLOUT)
    }
}

#[cfg(test)]
mod tests {
    use glance_api::conditions::reasons::HEALTH_CHECK_TIMEOUT;

    use super::*;

    #[test]
    fn a_repeated_answer_does_not_put_the_next_question_off() {
        let mut outcome = Outcome::healthy("http://images.openstack.svc.cluster.local:9292");
        assert_eq!(report(outcome.clone(), true).requeue, Some(RECHECK));
        outcome.age = Duration::from_secs(29);
        assert_eq!(
            report(outcome, false).requeue,
            Some(Duration::from_secs(31))
        );
    }

    #[test]
    fn a_policy_that_may_keep_the_probe_out_is_named_with_what_to_do() {
        let message = |is_filtered| {
            let outcome = Outcome {
                healthy: false,
                reason: HEALTH_CHECK_TIMEOUT,
                message: "health check timed out".to_owned(),
                age: Duration::ZERO,
            };
            report(outcome, is_filtered).verdict.unwrap().message
        };
        assert_eq!(message(false), "health check timed out");
        let told = message(true);
        assert!(told.starts_with("health check timed out; the probe comes from the API server"));
        assert!(told.contains("spec.networkPolicy"), "{told}");
        // Where it answers there is nothing to explain.
        let healthy = report(Outcome::healthy("u"), true).verdict.unwrap();
        assert_eq!(healthy.message, "Glance API is responding at u");
    }
}
