//! Makes a migration Job be there, run to its end, and run again exactly when it must.

use glance_api::{
    glance::Glance,
    keys::{annotations, events},
};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::Value;
use target_registry::Kind;

use crate::{
    cluster::{
        Target,
        children::Created,
        kinds::{JOB, MARIADB},
    },
    context::Context,
    external::mariadb::ready_since,
    glance::{
        database::{
            job_state::{self, Moment, Outcome, Verdict},
            jobs::MigrationJob,
        },
        steps::value_of,
    },
    metrics::JobMetric,
    pipeline::report::{EndedJobs, ErrorKind, StepError},
};

const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");

/// How a Job stands.
#[derive(Debug)]
pub enum Progress {
    /// It has not ended; why it does not start, when that is known.
    Running(Option<String>),
    /// It did its work; the UID tells which Job did.
    Done(String),
    /// It failed for good, and its next attempt is not due.
    Failed,
}

/// How a Job stands, and what of it has to be counted.
pub struct Ensured {
    /// How it stands.
    pub progress: Progress,
    /// The Job that was seen to have ended.
    pub ended: Option<EndedJobs>,
}

/// Which annotation remembers that a Job was counted.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// The annotation.
    pub annotation: &'static str,
    /// `db-sync`, `db-expand`, …
    pub suffix: &'static str,
}

/// `db-sync`.
pub const SYNC: Counted = Counted {
    annotation: annotations::LAST_DB_SYNC_JOB_UID,
    suffix: "db-sync",
};

/// Creates, replaces or waits.
pub async fn ensure(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    wanted: &MigrationJob,
    counted: Counted,
) -> Result<Ensured, StepError> {
    let live = target.child(&JOB, wanted.name()).await?;
    let seen = live.as_deref().map(value_of);
    let moment = Moment {
        now: ctx.now(),
        database_ready_since: database_ready_since(glance, target).await,
    };
    let ended = seen.as_ref().and_then(|job| ended(job, counted));
    let mut progress = Progress::Running(None);
    match job_state::judge(seen.as_ref(), true, wanted, moment) {
        Verdict::Absent => create(ctx, glance, target, wanted, 1).await?,
        Verdict::Terminating | Verdict::Foreign => {}
        Verdict::Running { outdated } => {
            let pods = pods_of(target, wanted.name()).await;
            let job = seen.as_ref().unwrap_or(&Value::Null);
            // A correction must reach a Job whose pods never started; a migration that runs is left alone.
            if outdated
                && pods
                    .as_ref()
                    .is_some_and(|pods| job_state::never_started(job, pods))
            {
                replace(ctx, glance, target, wanted, live.as_deref(), 1).await?;
            } else {
                progress = Progress::Running(pods.as_deref().and_then(job_state::waiting_cause));
            }
        }
        Verdict::Complete => {
            progress = Progress::Done(live.as_ref().and_then(|job| job.uid()).unwrap_or_default());
        }
        Verdict::CompleteStale => replace(ctx, glance, target, wanted, live.as_deref(), 1).await?,
        Verdict::Failed { .. } => progress = Progress::Failed,
        Verdict::FailedStale { attempt } => {
            replace(ctx, glance, target, wanted, live.as_deref(), attempt).await?;
        }
    }
    Ok(Ensured { progress, ended })
}

/// What of a terminal Job is counted.
fn ended(job: &Value, counted: Counted) -> Option<EndedJobs> {
    let terminal = job_state::terminal(job)?;
    let seconds = job_state::duration(job).unwrap_or_default().as_secs_f64();
    Some(EndedJobs {
        annotation: counted.annotation,
        suffix: counted.suffix,
        deferred: events::DB_SYNC_METRIC_EMISSION_DEFERRED,
        metric: JobMetric::DbSync,
        newest: job["metadata"]["uid"].as_str()?.to_owned(),
        runs: vec![(terminal.outcome == Outcome::Complete, seconds)],
    })
}

async fn replace(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    wanted: &MigrationJob,
    live: Option<&kube::core::DynamicObject>,
    attempt: u32,
) -> Result<(), StepError> {
    check_current(ctx, glance).await?;
    if let Some(live) = live {
        target.delete(&JOB, &live.metadata).await?;
    }
    send(target, wanted, attempt).await
}

async fn create(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    wanted: &MigrationJob,
    attempt: u32,
) -> Result<(), StepError> {
    check_current(ctx, glance).await?;
    send(target, wanted, attempt).await
}

async fn send(target: &Target, wanted: &MigrationJob, attempt: u32) -> Result<(), StepError> {
    match target.create(&JOB, wanted.object(attempt)).await? {
        Created::New(_) => Ok(()),
        // Ours and not yet gone, or not yet in the watch: the next event tells. Or it lost its marks, or it is
        // somebody else's.
        Created::Exists => match target.read(&JOB, wanted.name()).await? {
            Some(live) if target.reclaim(&JOB, &live.metadata, &[]).await? => Err(StepError::new(
                ErrorKind::Conflict,
                format!(
                    "Job {} had lost its marks; looking at it again",
                    wanted.name()
                ),
            )),
            _ => Ok(()),
        },
    }
}

/// A stale copy of the CR must not start or stop a migration: read it, and start over when it has moved on.
async fn check_current(ctx: &Context, glance: &Glance) -> Result<(), StepError> {
    let api: Api<Glance> =
        Api::namespaced(ctx.hub.client(), &glance.namespace().unwrap_or_default());
    let live = api.get_metadata(&glance.name_any()).await?;
    if live.metadata.resource_version == glance.metadata.resource_version {
        return Ok(());
    }
    Err(StepError::new(
        ErrorKind::Conflict,
        "the Glance has changed since this pass began; looking again before a migration starts",
    ))
}

async fn database_ready_since(glance: &Glance, target: &Target) -> Option<jiff::Timestamp> {
    let cluster = glance.spec.database.cluster_ref.as_ref()?;
    let object = target
        .input(&MARIADB, Some(target.namespace()), &cluster.name)
        .await
        .ok()??;
    ready_since(&value_of(&object))
}

/// Whether a pod of one of these Jobs may still be at work. A Job deleted in the background is gone before its pods.
pub async fn is_at_work(target: &Target, jobs: &[String]) -> Result<bool, StepError> {
    let selector = format!("batch.kubernetes.io/job-name in ({})", jobs.join(","));
    // Where we may not look, the Jobs themselves have to do.
    Ok(list(target, &selector)
        .await?
        .is_some_and(|pods| pods.iter().any(|pod| !has_ended(pod))))
}

fn has_ended(pod: &Value) -> bool {
    matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    )
}

/// The pods of a Job; `None` where we may not look.
async fn pods_of(target: &Target, job: &str) -> Option<Vec<Value>> {
    // Only for a better message and for Jobs that never started: the next pass asks again.
    list(target, &format!("batch.kubernetes.io/job-name={job}"))
        .await
        .ok()?
}

/// Pods by label; `None` where we may not look.
async fn list(target: &Target, selector: &str) -> Result<Option<Vec<Value>>, StepError> {
    let params = ListParams::default().labels(selector);
    match target.api(&POD).list(&params).await {
        Ok(list) => Ok(Some(list.items.iter().map(value_of).collect())),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(error) => Err(StepError::from(error).context("listing the pods of a Job")),
    }
}
