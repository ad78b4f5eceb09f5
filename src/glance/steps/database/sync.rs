//! The one-pass migration of a fresh install or a patch.

use glance_api::{
    conditions::reasons::{DATABASE_SYNCED, DB_SYNC_FAILED, DB_SYNC_IN_PROGRESS},
    glance::Glance,
    keys::events,
};

use super::job::{self, Ensured, Progress};
use crate::{
    cluster::{Target, kinds::JOB},
    context::Context,
    glance::{
        database::{
            job_state,
            jobs::{JobInputs, Migration, migration_job},
        },
        steps::{deployment::identity, value_of},
    },
    names,
    pipeline::{
        notice::Notice,
        report::{ErrorKind, REQUEUE_DATABASE, Report, StatusChange, StepError, Verdict},
    },
};

/// Runs `db sync` and records the release whose schema is in place.
pub async fn reconcile(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    jobs: JobInputs<'_>,
) -> Result<Report<()>, StepError> {
    let wanted = migration_job(glance, identity(target), Migration::Sync, jobs);
    let Ensured { progress, ended } = job::ensure(ctx, glance, target, &wanted, job::SYNC)
        .await
        .map_err(|error| error.context("db_sync job"))?;
    match progress {
        Progress::Running(state) => Ok(running(state.cause).after(state.again).ended(ended)),
        Progress::Done(uid) => {
            let is_news = super::is_news(
                glance,
                job::SYNC.includes(glance, &uid),
                DATABASE_SYNCED,
                &[DB_SYNC_IN_PROGRESS, DB_SYNC_FAILED],
            );
            let notice = is_news
                .then(|| Notice::normal(events::DATABASE_SYNCED, "Database schema is up to date"));
            let verdict = Verdict::yes(
                DATABASE_SYNCED,
                "Database schema is up to date (revision verified)",
            );
            Ok(Report::with(verdict, ())
                .status(StatusChange::InstalledRelease(
                    glance.spec.open_stack_release.clone(),
                ))
                .notices(notice)
                .ended(ended))
        }
        Progress::Failed(uid) => {
            let message = format!(
                "db_sync job failed: job has permanently failed: {}/{}",
                target.namespace(),
                wanted.name()
            );
            let is_news = super::is_news(
                glance,
                job::SYNC.includes(glance, &uid),
                DB_SYNC_FAILED,
                &[DB_SYNC_IN_PROGRESS],
            );
            let notice = is_news.then_some(events::DB_SYNC_FAILED);
            Err(super::failed(DB_SYNC_FAILED, notice, message).ended(ended))
        }
    }
}

/// The report while the Job runs, with the reason why it does not start when that is known.
pub fn running(cause: Option<String>) -> Report<()> {
    let message = super::with_cause("db_sync job is running", cause);
    Report::waiting(Verdict::no(DB_SYNC_IN_PROGRESS, message), REQUEUE_DATABASE)
}

/// What has to end before an upgrade may begin: the Job, or what an earlier one left. A Job of which nothing ever ran
/// goes instead, where `may_go`: it may wait for ever, for an image that is not wanted any more.
pub async fn in_the_way(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    may_go: bool,
) -> Result<Option<Report<()>>, StepError> {
    let name = names::db_sync_job(&target.owner.name);
    let live = target.child(&JOB, &name).await?;
    let Some(job) = live.filter(|job| job_state::terminal(&value_of(job)).is_none()) else {
        let pod = job::at_work(target, &[name]).await?;
        return Ok(pod.map(|pod| running(Some(job::ending(&pod))).after(job::POD_POLL)));
    };
    let pods = job::pods_of(target, &name).await;
    if may_go && job_state::never_started(&value_of(&job), pods.as_deref(), ctx.now()) {
        job::check_current(ctx, glance).await?;
        job::delete(target, &job, pods.is_some()).await?;
        let cause = "nothing of it has run yet, so it makes way for the upgrade";
        return Ok(Some(running(Some(cause.to_owned())).after(job::POD_POLL)));
    }
    let cause = pods.as_deref().and_then(job_state::waiting_cause);
    Ok(Some(running(cause)))
}

impl StepError {
    /// A migration that failed for good: condition at once, event when that is news.
    pub(super) fn migration(
        glance: &Glance,
        reason: &'static str,
        event: &'static str,
        message: String,
    ) -> Self {
        let known = super::is_known(glance, reason, &message);
        let error = Self::new(ErrorKind::Api, message.clone())
            .verdict(Verdict::no(reason, message.clone()));
        if known {
            error
        } else {
            error.notice(Notice::warning(event, message))
        }
    }
}
