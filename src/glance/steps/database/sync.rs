//! The one-pass migration of a fresh install or a patch.

use glance_api::{
    conditions::{
        DATABASE_READY,
        reasons::{DATABASE_SYNCED, DB_SYNC_FAILED, DB_SYNC_IN_PROGRESS},
    },
    glance::Glance,
    keys::{annotations::LAST_DB_SYNC_JOB_UID, events},
};
use kube::ResourceExt;

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
            let notice = is_news(glance, &uid)
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
        Progress::Failed => {
            let message = format!(
                "db_sync job failed: job has permanently failed: {}/{}",
                target.namespace(),
                wanted.name()
            );
            Err(super::failed(
                glance,
                DB_SYNC_FAILED,
                events::DB_SYNC_FAILED,
                message,
                ended,
            ))
        }
    }
}

/// Whether the end of this Job has not been told: not while the condition says so already, and not again after an
/// outage of the database in between. A predecessor that died after counting the Job had not told.
fn is_news(glance: &Glance, uid: &str) -> bool {
    let stored = glance
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .find(|stored| stored.type_ == DATABASE_READY);
    let reason = stored.map(|stored| stored.reason.as_str());
    let counted = glance
        .annotations()
        .get(LAST_DB_SYNC_JOB_UID)
        .is_some_and(|last| last == uid);
    reason != Some(DATABASE_SYNCED)
        && (!counted || matches!(reason, Some(DB_SYNC_IN_PROGRESS | DB_SYNC_FAILED)))
}

/// The report while the Job runs, with the reason why it does not start when that is known.
pub fn running(cause: Option<String>) -> Report<()> {
    let message = super::with_cause("db_sync job is running", cause);
    Report::waiting(Verdict::no(DB_SYNC_IN_PROGRESS, message), REQUEUE_DATABASE)
}

/// Whether the Job, or what an earlier one left, may still be at work.
pub async fn is_running(target: &Target) -> Result<bool, StepError> {
    let name = names::db_sync_job(&target.owner.name);
    let live = target.child(&JOB, &name).await?;
    let unfinished = live.is_some_and(|job| job_state::terminal(&value_of(&job)).is_none());
    Ok(unfinished || job::at_work(target, &[name]).await?.is_some())
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
