//! **Deployment**: the API pods, their Service and their disruption budget.
//!
//! Condition `DeploymentReady`: `WaitingForBackends` while there is no configuration to run,
//! `WaitingForDeployment` until the roll-out serves, `DeploymentReady` then; stamps `status.endpoint`. Readiness is
//! judged on the object the apply returned (contract: workload, Deployment step).

use glance_api::{
    conditions::{
        GLANCE_API_READY,
        reasons::{
            DEPLOYMENT_READY, ENDPOINT_NOT_READY, WAITING_FOR_BACKENDS, WAITING_FOR_DEPLOYMENT,
        },
    },
    glance::{Glance, UpgradePhase},
    keys::{FIELD_MANAGER, events},
};
use kube::core::DynamicObject;
use serde_json::Value;
use std::sync::Arc;

use super::{config::Artefacts, db_connection::Connection, hpa, secrets::Credentials};
use crate::{
    cluster::{
        Target,
        kinds::{DEPLOYMENT, POD_DISRUPTION_BUDGET, SECRET, SERVICE},
    },
    context::Context,
    glance::workload::{
        Identity,
        deployment::{self, LiveReplicas},
        http_route, pdb,
        pod::PodInputs,
        rollout::{self, Judgement, Rollout},
        service::{self, Selection},
    },
    names,
    pipeline::{
        notice::Notice,
        report::{REQUEUE_NOW, REQUEUE_ROLLOUT, Report, StatusChange, StepError, Verdict},
    },
};

/// What earlier steps hand in.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// What the pods mount.
    pub config: &'a Artefacts,
    /// Digest of the database URL.
    pub connection: &'a Connection,
    /// Digest and place of the service password.
    pub credentials: &'a Credentials,
}

/// Applies the serving objects. Returns `status.endpoint`, empty when it was never stamped.
pub async fn reconcile(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    inputs: Inputs<'_>,
) -> Result<Report<String>, StepError> {
    let Some((config_map, backends_secret)) = inputs.config.both() else {
        return Ok(Report::with(
            waiting_for_backends(),
            stored_endpoint(glance),
        ));
    };
    let id = identity(target);
    let pod = PodInputs {
        config_map,
        backends_secret,
        dsn_digest: &inputs.connection.digest,
        password_digest: &inputs.credentials.password_digest,
        authtoken_secret: &inputs.credentials.password,
    };
    let live = apply_deployment(glance, target, pod)
        .await
        .map_err(|error| error.context("ensuring Deployment"))?;
    // The watch does not tell of our own writes.
    let key = (target.owner.namespace.clone(), target.owner.name.clone());
    ctx.router.deployment_seen(&key, live.as_deref());
    let live = live.as_deref().map(super::value_of);
    apply_service(target, live.as_ref())
        .await
        .map_err(|error| error.context("ensuring Service"))?;
    target
        .apply(
            &POD_DISRUPTION_BUDGET,
            pdb::pod_disruption_budget(glance, id),
        )
        .await
        .map_err(|error| error.context("ensuring PodDisruptionBudget"))?;
    if let Err(error) = hpa::apply(glance, target).await {
        tracing::warn!(%error, "the autoscaler could not be applied next to the Deployment");
    }
    if let Some(live) = &live {
        drop_copy(target, live, inputs.credentials)
            .await
            .map_err(|error| error.context("removing the copy of the service password"))?;
    }
    let endpoint = http_route::endpoint(glance, id, &ctx.settings.cluster_domain);
    Ok(judge(glance, endpoint, live.as_ref()))
}

/// The condition while there is nothing to run.
pub fn waiting_for_backends() -> Verdict {
    Verdict::no(
        WAITING_FOR_BACKENDS,
        "Waiting for a ready default backend before creating the Glance API Deployment",
    )
}

/// Name and namespace of the children.
pub fn identity(target: &Target) -> Identity<'_> {
    Identity {
        name: &target.owner.name,
        namespace: &target.owner.namespace,
    }
}

fn stored_endpoint(glance: &Glance) -> String {
    glance
        .status
        .as_ref()
        .and_then(|status| status.endpoint.clone())
        .unwrap_or_default()
}

/// The live Deployment; `None` when one with another selector had to go first.
async fn apply_deployment(
    glance: &Glance,
    target: &Target,
    pod: PodInputs<'_>,
) -> Result<Option<Arc<DynamicObject>>, StepError> {
    let live = target.child(&DEPLOYMENT, &target.owner.name).await?;
    let seen = live.as_deref().map(super::value_of);
    let replicas = deployment::replicas(glance, LiveReplicas::of(seen.as_ref(), FIELD_MANAGER));
    let desired = deployment::deployment(glance, identity(target), pod, replicas);
    if let Some((live, seen)) = live.as_ref().zip(seen.as_ref()) {
        if rollout::selector_differs(seen, &desired) {
            target.delete(&DEPLOYMENT, &live.metadata).await?;
            return Ok(None);
        }
        if let Some(patch) = rollout::recreate_patch(seen, &desired) {
            target
                .merge(&DEPLOYMENT, &target.owner.name, &patch)
                .await?;
        }
    }
    target.apply(&DEPLOYMENT, desired).await.map(Some)
}

async fn apply_service(target: &Target, deployment: Option<&Value>) -> Result<(), StepError> {
    let live = target.child(&SERVICE, &target.owner.name).await?;
    let live = live.as_deref().map(super::value_of);
    let selection = match deployment {
        Some(deployment) => service::selection(Rollout::of(deployment), live.as_ref()),
        None if live.is_some() => service::selection(Rollout::of(&Value::Null), live.as_ref()),
        None => Selection::Wide,
    };
    target
        .apply(&SERVICE, service::service(identity(target), selection))
        .await?;
    Ok(())
}

/// Removes our copy of the service password once no pod reads it: a container that restarts needs it until then.
async fn drop_copy(
    target: &Target,
    live: &Value,
    credentials: &Credentials,
) -> Result<(), StepError> {
    let copy = names::authtoken(&target.owner.name);
    if credentials.password.name != copy && Rollout::of(live).is_complete() {
        target.ensure_absent(&SECRET, &copy).await?;
    }
    Ok(())
}

fn judge(glance: &Glance, endpoint: String, live: Option<&Value>) -> Report<String> {
    let status = glance.status.as_ref();
    let upgrading =
        status.and_then(|status| status.upgrade_phase) == Some(UpgradePhase::RollingUpdate);
    let Some(live) = live else {
        return waiting(
            glance,
            "Glance API deployment is not yet available".to_owned(),
            true,
        );
    };
    let rollout = Rollout::of(live);
    match rollout.judge(upgrading) {
        Judgement::Waiting(message) | Judgement::UpgradeWaiting(message) => {
            waiting(glance, message, rollout.is_down())
        }
        Judgement::UpgradeRolledOut => {
            let release = |release: Option<&String>| release.cloned().unwrap_or_default();
            let (installed, next) = (
                release(status.and_then(|status| status.installed_release.as_ref())),
                release(status.and_then(|status| status.target_release.as_ref())),
            );
            Report::waiting(available(), REQUEUE_NOW)
                .status(StatusChange::UpgradePhase(UpgradePhase::Contracting))
                .notice(Notice::normal(
                    events::DEPLOYMENT_ROLLOUT_COMPLETE,
                    format!("Deployment rollout complete during upgrade {installed} → {next}"),
                ))
        }
        Judgement::Ready => {
            Report::with(available(), endpoint.clone()).status(StatusChange::Endpoint(endpoint))
        }
    }
}

fn available() -> Verdict {
    Verdict::yes(DEPLOYMENT_READY, "Glance API deployment is available")
}

fn waiting(glance: &Glance, message: String, is_down: bool) -> Report<String> {
    let report = Report::waiting(
        Verdict::no(WAITING_FOR_DEPLOYMENT, message),
        REQUEUE_ROLLOUT,
    );
    let was_healthy = glance
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .any(|condition| condition.type_ == GLANCE_API_READY && condition.is_true());
    if is_down && was_healthy {
        // The health step does not run on such a pass, and its last word would outlive the outage.
        return report.extra(
            GLANCE_API_READY,
            Verdict::no(ENDPOINT_NOT_READY, "no Glance API pod is available"),
        );
    }
    report
}
