//! **`DBPurge`**: the purge of soft-deleted rows is scheduled, and its newest run did not fail.
//!
//! Condition `DBPurgeReady`: `DBPurgeScheduled`, `DBPurgeSuspended`, `DBPurgeJobFailed`. Runs are looked at when the
//! `CronJob` says that something ended (contract: database, purge).

use glance_api::{
    conditions::{
        DB_PURGE_READY,
        reasons::{DB_PURGE_JOB_FAILED, DB_PURGE_SCHEDULED, DB_PURGE_SUSPENDED},
    },
    glance::Glance,
    keys::{annotations::LAST_DB_PURGE_JOB_UID, events, labels},
};
use kube::{ResourceExt, api::ListParams};
use serde_json::Value;

use super::{config::Artefacts, deployment::identity, value_of};
use crate::{
    cluster::{
        Target,
        kinds::{CRON_JOB, JOB},
    },
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

const STEP: &str = "DBPurge";

/// Applies the `CronJob` and reports on its newest run.
pub async fn reconcile(
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
    let seen = format!(
        "{uid} {} {:?}",
        cron_job.resource_version().unwrap_or_default(),
        glance.spec.db_purge
    );
    let stored = glance
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .find(|condition| condition.type_ == DB_PURGE_READY);
    if let Some(stored) = stored
        && target
            .view
            .ledger
            .output(&target.owner.uid, STEP, &seen)
            .is_some()
    {
        let (reason, message) = (stored.reason.as_str(), stored.message.clone());
        let known = [DB_PURGE_JOB_FAILED, DB_PURGE_SCHEDULED, DB_PURGE_SUSPENDED]
            .into_iter()
            .find(|known| *known == reason);
        if let Some(reason) = known {
            let verdict = if reason == DB_PURGE_JOB_FAILED {
                Verdict::no(reason, message)
            } else {
                Verdict::yes(reason, message)
            };
            return Ok(Report::with(verdict, ()));
        }
    }
    let jobs = runs_of(target).await?;
    let runs = purge::ended_runs(&jobs, &uid);
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
        PurgeVerdict::Failed { message, event } => {
            let known = stored.is_some_and(|stored| stored.message == message);
            let notice = (!known).then(|| Notice::warning(events::DB_PURGE_JOB_FAILED, event));
            Report::with(Verdict::no(DB_PURGE_JOB_FAILED, message), ()).notices(notice)
        }
    };
    let last = glance
        .annotations()
        .get(LAST_DB_PURGE_JOB_UID)
        .map(String::as_str);
    let ended = ended(&purge::uncounted(&runs, last));
    target
        .view
        .ledger
        .learn_output(&target.owner.uid, STEP, seen, String::new());
    Ok(report.ended(ended))
}

async fn runs_of(target: &Target) -> Result<Vec<Value>, StepError> {
    let selector = format!(
        "{}=glance,{}={},{}=glance-operator",
        labels::NAME,
        labels::INSTANCE,
        target.owner.name,
        labels::MANAGED_BY
    );
    let list = target
        .api(&JOB)
        .list(&ListParams::default().labels(&selector))
        .await
        .map_err(|error| StepError::from(error).context("listing the purge Jobs"))?;
    Ok(list.items.iter().map(value_of).collect())
}

fn ended(runs: &[Run<'_>]) -> Option<EndedJobs> {
    Some(EndedJobs {
        annotation: LAST_DB_PURGE_JOB_UID,
        suffix: "db-purge",
        deferred: events::DB_PURGE_METRIC_EMISSION_DEFERRED,
        metric: JobMetric::DbPurge,
        newest: runs.last()?.uid.to_owned(),
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
