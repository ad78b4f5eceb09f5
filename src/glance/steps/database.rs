//! **Database**: the schema is there and of the right release.
//!
//! Condition `DatabaseReady`. A managed database is provisioned first; then one `db sync` Job runs on a fresh install
//! or patch, or, when the release moves on, the phases of an upgrade (contract: database). What the outcome depends on
//! is decided by [`plan`], a pure function.

use glance_api::{
    conditions::{
        DATABASE_READY, DEPLOYMENT_READY,
        reasons::{IMAGE_RELEASE_MISMATCH, WAITING_FOR_BACKENDS},
    },
    glance::{Glance, UpgradePhase},
    keys::events,
};

use super::{config::Artefacts, db_connection::Connection, deployment};
use crate::{
    cluster::{Target, kinds::DEPLOYMENT},
    context::Context,
    glance::database::jobs::{JobInputs, image_release_mismatch},
    pipeline::{
        notice::Notice,
        report::{ErrorKind, REQUEUE_DATABASE, Report, StepError, Verdict},
    },
    release::Release,
};

mod job;
mod provision;
mod sync;
mod upgrade;

use provision::Provisioned;

/// What earlier steps hand in.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// What the Jobs mount.
    pub config: &'a Artefacts,
    /// Digest of the database URL.
    pub connection: &'a Connection,
}

/// What a pass has to do about the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    /// Image and release disagree.
    Mismatch(String),
    /// Bring the installed release's schema up to date.
    Sync,
    /// Go on with an upgrade.
    Phase(UpgradePhase),
    /// Another release is wanted than the installed one.
    Initiate,
}

/// Provisions, then plans, then does.
pub async fn reconcile(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    inputs: Inputs<'_>,
) -> Result<Report<()>, StepError> {
    let database = match provision::reconcile(glance, target).await? {
        Provisioned::Waiting(report) => return Ok(*report),
        Provisioned::Ready(database) => database,
    };
    let Some(config_map) = inputs.config.config_map.as_deref() else {
        return without_config(target).await;
    };
    let jobs = JobInputs {
        config_map,
        dsn_digest: &inputs.connection.digest,
        database: database.as_deref(),
    };
    match plan(glance) {
        Plan::Mismatch(message) => Ok(mismatch(glance, message)),
        Plan::Sync => sync::reconcile(ctx, glance, target, jobs).await,
        Plan::Initiate => {
            let begun = upgrade::initiate(glance);
            // Two migrations must never meet on one schema.
            match sync::in_the_way(ctx, glance, target, begun.is_ok()).await? {
                Some(waiting) => Ok(waiting),
                None => begun,
            }
        }
        Plan::Phase(phase) => upgrade::reconcile(ctx, glance, target, jobs, phase).await,
    }
}

async fn without_config(target: &Target) -> Result<Report<()>, StepError> {
    let report = Report::waiting(
        Verdict::no(
            WAITING_FOR_BACKENDS,
            "Waiting for a ready default backend before provisioning the database schema",
        ),
        REQUEUE_DATABASE,
    );
    // The Deployment step is not reached, so its reason is set from here.
    Ok(match target.child(&DEPLOYMENT, &target.owner.name).await? {
        None => report.extra(DEPLOYMENT_READY, deployment::waiting_for_backends()),
        Some(_) => report,
    })
}

/// Waits for image and release to agree, with an event when that is news.
fn mismatch(glance: &Glance, message: String) -> Report<()> {
    let known = is_known(glance, IMAGE_RELEASE_MISMATCH, &message);
    let notice = (!known).then(|| Notice::warning(events::IMAGE_RELEASE_MISMATCH, message.clone()));
    let verdict = Verdict::no(IMAGE_RELEASE_MISMATCH, message);
    Report::waiting(verdict, REQUEUE_DATABASE).notices(notice)
}

/// Whether the stored condition says this already, so that an event would only repeat it.
fn is_known(glance: &Glance, reason: &str, message: &str) -> bool {
    glance
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .any(|stored| {
            stored.type_ == DATABASE_READY && stored.reason == reason && stored.message == message
        })
}

fn plan(glance: &Glance) -> Plan {
    let wanted = glance.spec.open_stack_release.as_str();
    let status = glance.status.as_ref();
    let installed = status
        .and_then(|status| status.installed_release.as_deref())
        .unwrap_or_default();
    let phase = status.and_then(|status| status.upgrade_phase);
    // Setting the release back is how an upgrade is aborted, and must work while the image still disagrees.
    let aborting = phase.is_some() && wanted == installed;
    if !aborting && let Some(message) = image_release_mismatch(&glance.spec) {
        return Plan::Mismatch(message);
    }
    match phase {
        Some(phase) => Plan::Phase(phase),
        None if is_transition(installed, wanted) => Plan::Initiate,
        None => Plan::Sync,
    }
}

/// Whether two releases differ by more than a patch. What cannot be read counts as different, so that it is reported.
fn is_transition(installed: &str, wanted: &str) -> bool {
    if installed.is_empty() || wanted.is_empty() || installed == wanted {
        return false;
    }
    match (installed.parse::<Release>(), wanted.parse::<Release>()) {
        (Ok(installed), Ok(wanted)) => installed != wanted,
        _ => true,
    }
}

/// A sentence, and the reason why a Job does not start when its pods tell.
fn with_cause(sentence: &str, cause: Option<String>) -> String {
    match cause {
        Some(cause) => format!("{sentence}: {cause}"),
        None => sentence.to_owned(),
    }
}

/// Whether the end of a Job has not been told: not while the condition says so already, and not again after something
/// else was wrong in between. A predecessor that died after counting the Job had not told, so one that was counted is
/// news in a state that only its end can follow.
fn is_news(glance: &Glance, is_counted: bool, end: &str, before: &[&str]) -> bool {
    let stored = glance
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .find(|stored| stored.type_ == DATABASE_READY);
    let reason = stored.map(|stored| stored.reason.as_str());
    reason != Some(end) && (!is_counted || reason.is_some_and(|reason| before.contains(&reason)))
}

/// A migration that failed for good, with its event when that is news.
fn failed(reason: &'static str, event: Option<&'static str>, message: String) -> StepError {
    let error = StepError::new(ErrorKind::Api, message.clone())
        .verdict(Verdict::no(reason, message.clone()));
    match event {
        Some(event) => error.notice(Notice::warning(event, message)),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::testing;

    #[rstest]
    #[case("", "2025.2", false)]
    #[case("2025.2", "2025.2", false)]
    #[case("2025.2-p1", "2025.2", false)]
    #[case("2025.2", "2026.1", true)]
    #[case("latest", "2026.1", true)]
    fn a_transition_is_a_change_of_release(
        #[case] installed: &str,
        #[case] wanted: &str,
        #[case] is: bool,
    ) {
        assert_eq!(is_transition(installed, wanted), is);
    }

    #[rstest]
    #[case::at_once("ExpandInProgress", false, true)]
    #[case::counted_by_one_that_died("ExpandInProgress", true, true)]
    #[case::told("ExpandFailed", true, false)]
    #[case::told_and_not_noted("ExpandFailed", false, false)]
    #[case::after_an_outage_it_ended_in("ClusterNotReady", false, true)]
    #[case::again_after_an_outage("ClusterNotReady", true, false)]
    #[case::again_after_a_wrong_image("ImageReleaseMismatch", true, false)]
    fn the_end_of_a_job_is_told_once_whatever_else_goes_wrong(
        #[case] stored: &str,
        #[case] is_counted: bool,
        #[case] expected: bool,
    ) {
        let mut glance = testing::glance("images");
        glance.status.get_or_insert_default().conditions = vec![
            serde_json::from_value(serde_json::json!({
                "type": "DatabaseReady", "status": "False", "reason": stored,
                "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }))
            .unwrap(),
        ];
        let is = is_news(&glance, is_counted, "ExpandFailed", &["ExpandInProgress"]);
        assert_eq!(is, expected);
    }

    #[test]
    fn an_image_of_another_release_is_told_once() {
        let mut glance = testing::glance("images");
        let first = mismatch(&glance, "m".into());
        assert_eq!(first.notices.len(), 1);
        let status = glance.status.get_or_insert_default();
        status.conditions = vec![
            serde_json::from_value(serde_json::json!({
                "type": "DatabaseReady", "status": "False", "reason": "ImageReleaseMismatch",
                "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }))
            .unwrap(),
        ];
        assert!(mismatch(&glance, "m".into()).notices.is_empty());
        assert_eq!(mismatch(&glance, "n".into()).notices.len(), 1);
    }

    #[test]
    fn an_abort_is_reachable_while_the_image_still_disagrees() {
        let mut glance = testing::glance("images");
        glance.spec.open_stack_release = "2025.2".into();
        glance.spec.image.tag = Some("2026.1".into());
        assert!(matches!(plan(&glance), Plan::Mismatch(_)));
        let status = glance.status.get_or_insert_default();
        status.installed_release = Some("2025.2".into());
        status.upgrade_phase = Some(UpgradePhase::Expanding);
        assert_eq!(plan(&glance), Plan::Phase(UpgradePhase::Expanding));
    }
}
