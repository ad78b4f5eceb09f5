//! **`DBPurge`**: the purge of soft-deleted rows is scheduled, and its newest run did not fail.
//!
//! Condition `DBPurgeReady`: `DBPurgeScheduled`, `DBPurgeSuspended`, `DBPurgeJobFailed`. The runs are read
//! from a watch, so a pass that changes nothing asks nothing (contract: database, purge).

use glance_api::{
    conditions::{
        DB_PURGE_READY,
        reasons::{DB_PURGE_JOB_FAILED, DB_PURGE_SCHEDULED, DB_PURGE_SUSPENDED},
    },
    glance::Glance,
    keys::{
        annotations::{COUNTED_DB_PURGE_JOB_UIDS, LAST_DB_PURGE_JOB_UID},
        events,
    },
};
use kube::ResourceExt;

use super::{config::Artefacts, deployment::identity};
use crate::{
    cluster::{Target, kinds::CRON_JOB},
    context::Context,
    glance::database::{
        job_state::{self, Outcome},
        purge::{self, PurgeVerdict, Run},
    },
    metrics::JobMetric,
    pipeline::{
        notice::Notice,
        report::{EndedJobs, Report, StepError, Verdict},
    },
};

/// Applies the `CronJob` and reports on its newest run.
pub async fn reconcile(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    config: &Artefacts,
) -> Result<Report<()>, StepError> {
    let Some(config_map) = config.config_map.as_deref() else {
        // Not reached: without configuration the pipeline ends at the Database step.
        return Ok(Report::done(()));
    };
    let cron_job = target
        .apply(
            &CRON_JOB,
            purge::cron_job(glance, identity(target), config_map),
        )
        .await
        .map_err(|error| error.context("ensuring CronJob"))?;
    let uid = cron_job.uid().unwrap_or_default();
    let jobs = target.purge_runs().await?;
    let runs = purge::ended_runs(&jobs, &uid);
    if let Some(at) = purge::last_success(&runs) {
        ctx.metrics
            .purged(&target.owner.name, target.namespace(), at);
    }
    let phase = glance
        .status
        .as_ref()
        .and_then(|status| status.upgrade_phase);
    let report = match purge::judge(&glance.spec, runs.first(), phase) {
        PurgeVerdict::Scheduled { message } => {
            Report::with(Verdict::yes(DB_PURGE_SCHEDULED, message), ())
        }
        PurgeVerdict::Suspended { message } => {
            Report::with(Verdict::yes(DB_PURGE_SUSPENDED, message), ())
        }
        PurgeVerdict::Failed {
            run,
            message,
            event,
        } => {
            // The rest of the message may change, with a phase that begins or ends; the run is told once.
            let known = glance
                .status
                .iter()
                .flat_map(|status| &status.conditions)
                .any(|stored| {
                    stored.type_ == DB_PURGE_READY
                        && stored.reason == DB_PURGE_JOB_FAILED
                        && stored.message.starts_with(&run)
                });
            let notice = (!known).then(|| Notice::warning(events::DB_PURGE_JOB_FAILED, event));
            Report::with(Verdict::no(DB_PURGE_JOB_FAILED, message), ()).notices(notice)
        }
    };
    Ok(report.ended(ended(glance, &runs)))
}

/// What of these runs is counted, if any has to be.
fn ended(glance: &Glance, all: &[Run<'_>]) -> Option<EndedJobs> {
    let known = |key: &str| glance.annotations().get(key).map(String::as_str);
    let runs = purge::uncounted(
        all,
        known(LAST_DB_PURGE_JOB_UID),
        known(COUNTED_DB_PURGE_JOB_UIDS),
    );
    let newest = all.first().filter(|_| !runs.is_empty())?;
    Some(EndedJobs {
        annotation: LAST_DB_PURGE_JOB_UID,
        suffix: "db-purge",
        deferred: events::DB_PURGE_METRIC_EMISSION_DEFERRED,
        metric: JobMetric::DbPurge,
        phase: None,
        newest: newest.uid.to_owned(),
        notes: vec![(COUNTED_DB_PURGE_JOB_UIDS, Some(purge::counted(all)))],
        runs: runs
            .iter()
            .map(|run| {
                let seconds = job_state::duration(run.job)
                    .unwrap_or_default()
                    .as_secs_f64();
                (run.outcome == Outcome::Complete, seconds)
            })
            .collect(),
    })
}
