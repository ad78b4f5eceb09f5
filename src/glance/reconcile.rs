//! One pass over one Glance. The body of [`pipeline`] is the table of contents of this operator.

use std::{sync::Arc, time::Duration};

use futures::join;
use glance_api::{
    conditions::{SECRETS_READY, SUB_CONDITIONS, reasons},
    glance::{Glance, GlanceStatus, UpgradePhase},
    keys::events,
};
use kube::{Api, Resource, ResourceExt, runtime::controller::Action};
use target_registry::{Purpose, Unresolved};

use super::{
    deletion::{self, Progress},
    finalizers, job_metrics,
    steps::{
        backends, config, database, db_connection, db_purge, deployment, health_check, hpa,
        http_route, network_policy, secrets,
    },
};
use crate::{
    cluster::{Target, cluster_label},
    context::Context,
    pipeline::{
        Halt, Instruments, Pass, StepId, Summary,
        notice::Notice,
        persist,
        report::{ErrorKind, REQUEUE_SECRETS, StatusChange, StepError, Verdict},
    },
};

/// What a teardown may take in one pass.
const TEARDOWN_DEADLINE: Duration = Duration::from_secs(45);

/// One pass: deletion, or resolution, finalizers, steps, status. Returns when to come back.
pub async fn reconcile(ctx: &Context, glance: Arc<Glance>) -> Result<Action, StepError> {
    let glance = ctx.glances.of(glance);
    let namespace = glance.namespace().unwrap_or_default();
    let api: Api<Glance> = Api::namespaced(ctx.hub.client(), &namespace);
    if glance.metadata.deletion_timestamp.is_some() {
        return delete(ctx, &api, &glance).await;
    }
    // Which backends there are is known only once they are listed.
    ctx.router.listed().await;
    match ctx.settled_target(&glance, Purpose::Work).await {
        Err(unresolved) => {
            let summary = unavailable(ctx, &glance, &unresolved);
            persist_and_act(ctx, &api, glance, summary).await
        }
        Ok(target) => {
            let glance = match finalizers::ensure(&api, &glance).await? {
                Some(written) => Arc::new(written),
                None => glance,
            };
            ctx.glances.learn(Arc::clone(&glance));
            let mut summary = pipeline(ctx, &glance, &target).await;
            summary.status.extend(placement(&glance, &target));
            persist_and_act(ctx, &api, glance, summary).await
        }
    }
}

/// The steps in their order. What one gives the next is an argument; what ends the pass early is `?`.
async fn pipeline(ctx: &Context, glance: &Glance, target: &Target) -> Summary {
    let mut pass = open(ctx, glance);
    pass.requeue(ctx.settings.resync.of(glance));
    // An early end is already folded in: waiting as a requeue, a failure as an error.
    let _: Result<(), Halt> = steps(ctx, glance, target, &mut pass).await;
    pass.close()
}

async fn steps(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    pass: &mut Pass<'_>,
) -> Result<(), Halt> {
    let credentials = pass
        .step(StepId::Secrets, secrets::reconcile(glance, target))
        .await?;
    let connection = pass
        .step(
            StepId::DbConnectionSecret,
            db_connection::reconcile(glance, target),
        )
        .await?;
    let projection = pass
        .step(StepId::Backends, backends::reconcile(ctx, glance, target))
        .await?;
    let config = pass
        .step(
            StepId::Config,
            config::reconcile(glance, target, &projection),
        )
        .await?;
    // First pods and the first Job must not run open or cut off, and an edit of the policy must not wait behind a
    // wedged roll-out. What fails here is reported by the policy's own step.
    if let Err(error) = network_policy::apply(ctx, glance, target, &projection.hosts).await {
        tracing::warn!(%error, "the network policy could not be applied ahead of the pods");
    }
    let jobs = database::Inputs {
        config: &config,
        connection: &connection,
    };
    pass.step(
        StepId::Database,
        database::reconcile(ctx, glance, target, jobs),
    )
    .await?;
    let rollout = deployment::Inputs {
        config: &config,
        connection: &connection,
        credentials: &credentials,
    };
    let endpoint = pass
        .step(
            StepId::Deployment,
            deployment::reconcile(ctx, glance, target, rollout),
        )
        .await?;

    // Each condition of the group is folded in even when another member failed.
    let group = &*pass;
    let (route, health, autoscaler, isolation, purge) = join!(
        group.measure(StepId::HttpRoute, http_route::reconcile(glance, target)),
        group.measure(
            StepId::HealthCheck,
            health_check::reconcile(ctx, glance, target, &endpoint)
        ),
        group.measure(StepId::Hpa, hpa::reconcile(glance, target)),
        group.measure(
            StepId::NetworkPolicy,
            network_policy::reconcile(ctx, glance, target, &projection.hosts)
        ),
        group.measure(
            StepId::DbPurge,
            db_purge::reconcile(ctx, glance, target, &config)
        ),
    );
    for (id, outcome) in [
        (StepId::HttpRoute, route),
        (StepId::HealthCheck, health),
        (StepId::Hpa, autoscaler),
        (StepId::NetworkPolicy, isolation),
        (StepId::DbPurge, purge),
    ] {
        // A member that waits or fails ends nothing but itself.
        let _: Result<(), Halt> = pass.fold(id, outcome);
    }
    Ok(())
}

/// Which cluster the children are on: the name may lead elsewhere one day.
fn placement(glance: &Glance, target: &Target) -> Option<StatusChange> {
    let uid = target.cluster.uid().filter(|_| target.is_remote())?;
    let status = glance.status.as_ref();
    let known = status.and_then(|status| status.target_cluster_uid.as_ref());
    (known != Some(&uid)).then_some(StatusChange::TargetCluster(uid))
}

fn unavailable(ctx: &Context, glance: &Glance, unresolved: &Unresolved) -> Summary {
    let mut pass = open(ctx, glance);
    pass.set(
        SECRETS_READY,
        Verdict::no(reasons::TARGET_CLUSTER_UNAVAILABLE, unresolved.to_string()),
    );
    pass.requeue(REQUEUE_SECRETS);
    pass.close()
}

async fn delete(
    ctx: &Context,
    api: &Api<Glance>,
    glance: &Arc<Glance>,
) -> Result<Action, StepError> {
    let mut notices = Vec::new();
    // Shorter than a pass may be, so that a cluster that hangs is named on the CR.
    let teardown = tokio::time::timeout(
        TEARDOWN_DEADLINE,
        deletion::run(ctx, api, glance, &mut notices),
    );
    let progress = teardown.await.unwrap_or_else(|_| {
        let cluster = cluster_label(glance);
        Err(StepError::new(
            ErrorKind::Timeout,
            format!("cluster {cluster} did not answer in time; what is left there is deleted when it does"),
        ))
    });
    publish(ctx, glance, notices);
    match progress {
        Ok(Progress::Released) => {
            forget(ctx, glance);
            Ok(Action::await_change())
        }
        Ok(Progress::Hold(pause)) => Ok(Action::requeue(pause)),
        Ok(Progress::Unresolved(verdict, pause)) => {
            let told = deletion::held(glance, &verdict);
            let mut pass = open(ctx, glance);
            pass.set(SECRETS_READY, verdict);
            pass.requeue(pause);
            let mut summary = pass.close();
            summary.notices.extend(told);
            persist_and_act(ctx, api, Arc::clone(glance), summary).await
        }
        Err(error) => {
            // The CR must say why it does not go; that must not keep the failure from being retried.
            let mut pass = open(ctx, glance);
            pass.set(
                SECRETS_READY,
                Verdict::no(reasons::RECONCILE_ERROR, format!("tearing down: {error}")),
            );
            let mut summary = pass.close();
            if error.kind != ErrorKind::Conflict {
                summary.notices.push(Notice::warning(
                    events::TEARDOWN_FAILED,
                    error.message.clone(),
                ));
            }
            summary.error = Some(error);
            persist_and_act(ctx, api, Arc::clone(glance), summary).await
        }
    }
}

/// Writes what a pass came to and turns it into the controller's next move. The only caller of [`persist::status`]
/// for a Glance.
async fn persist_and_act(
    ctx: &Context,
    api: &Api<Glance>,
    glance: Arc<Glance>,
    summary: Summary,
) -> Result<Action, StepError> {
    let Summary {
        conditions,
        status: changes,
        mut notices,
        ended,
        mut requeue,
        error,
    } = summary;
    let glance = job_metrics::record(ctx, api, glance, ended, &mut notices, &mut requeue).await;
    let mut status = glance.status.clone().unwrap_or_default();
    for change in changes {
        apply_change(&mut status, change);
    }
    let generation = glance.metadata.generation;
    let mut conditions = conditions;
    conditions.aggregate(&SUB_CONDITIONS, generation, ctx.now());
    status.conditions = conditions.into_list();
    status.observed_generation = generation;
    let stored = persist::value(glance.status.as_ref());
    let wanted = persist::value(Some(&status));
    let written = persist::status(api, glance.as_ref(), &stored, &wanted).await;
    if written.is_err() {
        // The next pass finds the rest out again: told twice, a transition would look like two.
        notices.retain(|notice| notice.unrepeatable);
    }
    publish(ctx, &glance, notices);
    match written {
        Ok(Some(written)) => ctx.glances.learn(Arc::new(written)),
        Ok(None) => {}
        Err(conflict) => {
            // Whatever we believed to be newest is not.
            ctx.glances.forget(&glance.uid().unwrap_or_default());
            return Err(error.unwrap_or(conflict));
        }
    }
    show(ctx, &glance, &status);
    match error {
        Some(error) => Err(error),
        None => Ok(requeue.map_or_else(Action::await_change, Action::requeue)),
    }
}

/// What the status says, as metrics. Of a CR that went meanwhile nothing would take the series away again.
fn show(ctx: &Context, glance: &Glance, status: &GlanceStatus) {
    let (name, namespace) = (glance.name_any(), glance.namespace().unwrap_or_default());
    if ctx.router.glance(&namespace, &name).is_none() {
        return;
    }
    for condition in &status.conditions {
        ctx.metrics
            .condition(&name, &namespace, &condition.type_, condition.is_true());
    }
    ctx.metrics
        .upgrade_phase(&name, &namespace, status.upgrade_phase);
}

fn apply_change(status: &mut GlanceStatus, change: StatusChange) {
    match change {
        StatusChange::Endpoint(endpoint) => status.endpoint = Some(endpoint),
        StatusChange::TargetCluster(uid) => status.target_cluster_uid = Some(uid),
        StatusChange::InstalledRelease(release) => status.installed_release = Some(release),
        StatusChange::UpgradePhase(phase) => status.upgrade_phase = Some(phase),
        StatusChange::UpgradeTo(release) => {
            status.target_release = Some(release);
            status.upgrade_phase = Some(UpgradePhase::Expanding);
        }
        StatusChange::UpgradeOver => {
            status.target_release = None;
            status.upgrade_phase = None;
        }
    }
}

fn open<'a>(ctx: &'a Context, glance: &'a Glance) -> Pass<'a> {
    let instruments = Instruments {
        metrics: &ctx.metrics,
        failures: &ctx.failures,
        cluster: cluster_label(glance),
    };
    Pass::open(glance, instruments, ctx.now())
}

fn publish(ctx: &Context, glance: &Glance, notices: Vec<Notice>) {
    let mut reference = glance.object_ref(&());
    reference
        .resource_version
        .clone_from(&glance.metadata.resource_version);
    for notice in notices {
        ctx.publisher.publish(&reference, notice);
    }
}

/// Drops what is remembered of a CR that is gone.
pub fn forget(ctx: &Context, glance: &Glance) {
    let uid = glance.uid().unwrap_or_default();
    let namespace = glance.namespace().unwrap_or_default();
    ctx.metrics.forget(&glance.name_any(), &namespace);
    ctx.probe.evict(&namespace, &glance.name_any());
    ctx.ledgers.of(cluster_label(glance)).forget_owner(&uid);
    ctx.failures.forget(&uid);
    ctx.glances.forget(&uid);
}
