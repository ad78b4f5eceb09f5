//! The one-pass migration of a fresh install or a patch.

use glance_api::{
    conditions::reasons::{DATABASE_SYNCED, DB_SYNC_FAILED, DB_SYNC_IN_PROGRESS},
    glance::Glance,
    keys::{annotations::LAST_DB_SYNC_JOB_UID, events},
};
use kube::ResourceExt;

use super::job::{self, Ensured, Progress};
use crate::{
    cluster::Target,
    context::Context,
    glance::{
        database::jobs::{JobInputs, Migration, migration_job},
        steps::deployment::identity,
    },
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
        Progress::Running(cause) => {
            let message = super::with_cause("db_sync job is running", cause);
            Ok(
                Report::waiting(Verdict::no(DB_SYNC_IN_PROGRESS, message), REQUEUE_DATABASE)
                    .ended(ended),
            )
        }
        Progress::Done(uid) => {
            let news = glance.annotations().get(LAST_DB_SYNC_JOB_UID) != Some(&uid);
            let notice = news
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
