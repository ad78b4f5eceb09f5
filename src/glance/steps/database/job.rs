//! Makes a migration Job be there, run to its end, and run again exactly when it must.

use std::time::Duration;

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
        workload::volumes,
    },
    metrics::JobMetric,
    names::{self, PhaseJob},
    pipeline::report::{EndedJobs, ErrorKind, REQUEUE_DATABASE, StepError},
};

/// Pods that go tell no watch of ours when they are gone, and on no cluster does that take long.
pub const POD_POLL: Duration = Duration::from_secs(2);

/// Why a migration that runs may yet fail.
const ROTATED: &str = "the connection to the database (login, address or TLS) has changed since this Job began; should \
                       it fail for that, it runs again with the new one";

const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");

/// How a Job stands.
#[derive(Debug)]
pub enum Progress {
    /// It has not ended.
    Running(Running),
    /// It did its work; the UID tells which Job did.
    Done(String),
    /// It failed for good, and its next attempt is not due; the UID tells which Job did.
    Failed(String),
}

/// A Job that has not ended.
#[derive(Debug)]
pub struct Running {
    /// Why it does not start, when that is known.
    pub cause: Option<String>,
    /// When to look again, should no event come before.
    pub again: Duration,
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
    /// The phase of an upgrade.
    pub phase: Option<PhaseJob>,
}

/// `db-sync`.
pub const SYNC: Counted = Counted {
    annotation: annotations::LAST_DB_SYNC_JOB_UID,
    suffix: "db-sync",
    phase: None,
};

// === impl Counted ===

impl Counted {
    /// Whether this Job was counted, on whichever pass.
    pub fn includes(self, glance: &Glance, uid: &str) -> bool {
        glance
            .annotations()
            .get(self.annotation)
            .is_some_and(|last| last == uid)
    }
}

// === impl Running ===

impl Running {
    fn because(cause: Option<String>) -> Self {
        Self {
            cause,
            again: REQUEUE_DATABASE,
        }
    }
}

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
    let ended = seen.as_ref().and_then(|job| ended(glance, job, counted));
    let uid = || live.as_ref().and_then(|job| job.uid()).unwrap_or_default();
    let progress = match job_state::judge(seen.as_ref(), true, wanted, moment) {
        Verdict::Absent => {
            let remembered = glance.annotations().get(annotations::MIGRATION_ATTEMPTS);
            let attempt = job_state::next_attempt(remembered.map(String::as_str), wanted);
            start(ctx, glance, target, wanted, None, attempt).await?
        }
        Verdict::Terminating | Verdict::Foreign => Progress::Running(Running::because(None)),
        Verdict::Running { outdated, rotated } => {
            let pods = pods_of(target, wanted.name()).await;
            let job = seen.as_ref().unwrap_or(&Value::Null);
            // A correction must reach a Job whose pods never started; a migration that runs is left alone.
            let idle = job_state::never_started(job, pods.as_deref(), moment.now);
            if outdated && idle {
                start(ctx, glance, target, wanted, live.as_deref(), 1).await?
            } else {
                let told = pods.as_deref().and_then(job_state::waiting_cause);
                let cause = match told {
                    None if idle => missing_files(glance, target).await,
                    // Its pods read the credentials when they started.
                    None if rotated => Some(ROTATED.to_owned()),
                    told => told,
                };
                Progress::Running(Running::because(cause))
            }
        }
        Verdict::Complete => Progress::Done(uid()),
        Verdict::CompleteStale => start(ctx, glance, target, wanted, live.as_deref(), 1).await?,
        Verdict::Failed { .. } => Progress::Failed(uid()),
        Verdict::FailedStale { attempt } => {
            start(ctx, glance, target, wanted, live.as_deref(), attempt).await?
        }
    };
    Ok(Ensured { progress, ended })
}

/// What of a terminal Job is counted.
fn ended(glance: &Glance, job: &Value, counted: Counted) -> Option<EndedJobs> {
    let terminal = job_state::terminal(job)?;
    let seconds = job_state::duration(job).unwrap_or_default().as_secs_f64();
    let uid = job["metadata"]["uid"].as_str()?;
    let run = (terminal.outcome == Outcome::Complete, seconds);
    let is_new = !counted.includes(glance, uid);
    Some(EndedJobs {
        annotation: counted.annotation,
        suffix: counted.suffix,
        deferred: events::DB_SYNC_METRIC_EMISSION_DEFERRED,
        metric: JobMetric::DbSync,
        phase: counted.phase,
        newest: uid.to_owned(),
        notes: vec![(annotations::MIGRATION_ATTEMPTS, job_state::attempts(job))],
        runs: is_new.then_some(run).into_iter().collect(),
    })
}

/// Creates the Job, in the place of the one that is there if there is one, once no pod of a migration is at work any
/// more: one that was deleted with its Job in the background may live on for a while.
async fn start(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    wanted: &MigrationJob,
    instead_of: Option<&kube::core::DynamicObject>,
    attempt: u32,
) -> Result<Progress, StepError> {
    check_current(ctx, glance).await?;
    // One that never started has pods to take along; one that has ended stays for its record until it can be replaced.
    let ended = |job: &&kube::core::DynamicObject| job_state::terminal(&value_of(job)).is_some();
    let (after, before) = match instead_of {
        Some(old) if ended(&old) => (Some(old), None),
        old => (None, old),
    };
    if let Some(old) = before {
        delete(target, old, pods_of(target, wanted.name()).await.is_some()).await?;
    }
    let jobs = names::migration_jobs(&target.owner.name);
    if let Some(pod) = at_work(target, &jobs).await? {
        if instead_of.is_none() {
            // It may be of a Job under this name that lost its marks, or that is somebody else's.
            take_back(target, wanted.name()).await?;
        }
        return Ok(Progress::Running(Running {
            cause: Some(ending(&pod)),
            again: POD_POLL,
        }));
    }
    if let Some(old) = after {
        target.delete(&JOB, &old.metadata).await?;
    }
    send(target, wanted, attempt).await?;
    Ok(Progress::Running(Running::because(None)))
}

/// What is said while a pod of an earlier Job is at work.
pub fn ending(pod: &str) -> String {
    format!("waiting for pod {pod} of an earlier Job to end")
}

/// Deletes a Job that has not ended. Where pods may not be looked at, it outlives them to tell of their end.
pub async fn delete(
    target: &Target,
    job: &kube::core::DynamicObject,
    sees_pods: bool,
) -> Result<(), StepError> {
    if sees_pods {
        target.delete(&JOB, &job.metadata).await
    } else {
        target.delete_last(&JOB, &job.metadata).await
    }
}

async fn send(target: &Target, wanted: &MigrationJob, attempt: u32) -> Result<(), StepError> {
    match target.create(&JOB, wanted.object(attempt)).await? {
        Created::New(_) => Ok(()),
        // Ours and not yet gone, or not yet in the watch: the next event tells. Or it lost its marks, or it is
        // somebody else's.
        Created::Exists => take_back(target, wanted.name()).await,
    }
}

/// Fails when a Job of this name is somebody else's, and when it only had to be marked as ours again.
async fn take_back(target: &Target, name: &str) -> Result<(), StepError> {
    match target.read(&JOB, name).await? {
        Some(live) if target.reclaim(&JOB, &live.metadata, &[]).await? => Err(StepError::new(
            ErrorKind::Conflict,
            format!("Job {name} had lost its marks; looking at it again"),
        )),
        _ => Ok(()),
    }
}

/// A stale copy of the CR must not start or stop a migration: read it, and start over when it has moved on.
pub async fn check_current(ctx: &Context, glance: &Glance) -> Result<(), StepError> {
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

/// A pod of one of these Jobs that may still be at work. A Job deleted in the background is gone before its pods.
pub async fn at_work(target: &Target, jobs: &[String]) -> Result<Option<String>, StepError> {
    // Where we may not look, the Jobs themselves have to do.
    let pods = pods(target, jobs).await?.unwrap_or_default();
    let found = pods.iter().find(|pod| is_at_work(pod));
    Ok(found.map(|pod| {
        pod["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }))
}

/// The pods of these Jobs; `None` where we may not look.
pub async fn pods(target: &Target, jobs: &[String]) -> Result<Option<Vec<Value>>, StepError> {
    let selector = format!("batch.kubernetes.io/job-name in ({})", jobs.join(","));
    list(target, &selector).await
}

/// A Secret that the pods of a Job wait for. That a volume cannot be mounted shows in events only, which nobody granted
/// us; that its Secret is not there we can see.
async fn missing_files(glance: &Glance, target: &Target) -> Option<String> {
    for (secret, files) in volumes::db_tls_files(&glance.spec) {
        let missing = match target.secret(secret).await {
            Ok(Some(facts)) => facts.missing(files),
            Ok(None) => files.to_vec(),
            Err(_) => continue,
        };
        if !missing.is_empty() {
            return Some(format!(
                "FailedMount: Secret {}/{secret} with the TLS files of the database lacks {}",
                target.namespace(),
                missing.join(", ")
            ));
        }
    }
    None
}

/// Whether a pod has not ended.
pub fn is_at_work(pod: &Value) -> bool {
    !matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    )
}

/// The pods of a Job; `None` where we may not look.
pub async fn pods_of(target: &Target, job: &str) -> Option<Vec<Value>> {
    // Only for a better message and for Jobs that never started: the next pass asks again.
    list(target, &format!("batch.kubernetes.io/job-name={job}"))
        .await
        .ok()?
}

/// Pods by label; `None` where we may not look.
async fn list(target: &Target, selector: &str) -> Result<Option<Vec<Value>>, StepError> {
    let ledger = &target.view.ledger;
    if !ledger.may_ask_for_pods(target.namespace()) {
        return Ok(None);
    }
    let params = ListParams::default().labels(selector);
    match target.api(&POD).list(&params).await {
        Ok(list) => Ok(Some(list.items.iter().map(value_of).collect())),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            ledger.pods_refused(target.namespace());
            Ok(None)
        }
        Err(error) => Err(StepError::from(error).context("listing the pods of a Job")),
    }
}
