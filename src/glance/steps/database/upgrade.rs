//! Expand, migrate, roll out, contract: one release to the next while the API serves.
//!
//! The finished Jobs and the stored phase are the whole state, so every pass derives the transition anew (contract:
//! database, release upgrade).

use glance_api::{
    conditions::reasons::{
        CONTRACT_FAILED, CONTRACT_IN_PROGRESS, DATABASE_SYNCED, DOWNGRADE_NOT_SUPPORTED,
        EXPAND_FAILED, EXPAND_IN_PROGRESS, MIGRATE_FAILED, MIGRATE_IN_PROGRESS,
        UPGRADE_PATH_INVALID, UPGRADE_ROLLING_UPDATE, UPGRADE_TARGET_CHANGED, VERSION_PARSE_ERROR,
    },
    glance::{Glance, UpgradePhase},
    keys::{
        annotations::{
            ALLOW_UNSAFE_ABORT, LAST_DB_CONTRACT_JOB_UID, LAST_DB_EXPAND_JOB_UID,
            LAST_DB_MIGRATE_JOB_UID,
        },
        events,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::job::{self, Counted, Ensured, Progress};
use crate::{
    cluster::{Target, kinds::JOB},
    context::Context,
    glance::{
        database::jobs::{JobInputs, Migration, migration_job},
        steps::deployment::identity,
    },
    names::{self, PhaseJob},
    pipeline::{
        notice::Notice,
        report::{REQUEUE_NOW, Report, StatusChange, StepError, Verdict},
    },
    release::Release,
};

/// What is said about one phase.
struct Phase {
    job: PhaseJob,
    noun: &'static str,
    in_progress: &'static str,
    failed: &'static str,
    failed_event: &'static str,
    counted: Counted,
}

/// Begins an upgrade, or says why it cannot begin. No Job is created in this pass.
pub fn initiate(glance: &Glance) -> Result<Report<()>, StepError> {
    let (installed, wanted) = releases(glance);
    let refuse = |reason, event, message: String, told: String| {
        let mut error = StepError::migration(glance, reason, event, message);
        if let Some(notice) = error.said.notices.first_mut() {
            notice.message = told;
        }
        Err(error)
    };
    let (from, to) = match (installed.parse::<Release>(), wanted.parse::<Release>()) {
        (Err(error), _) => {
            let text = format!("parse installed release \"{installed}\": {error}");
            return refuse(
                VERSION_PARSE_ERROR,
                events::VERSION_PARSE_ERROR,
                format!("failed to {text}"),
                format!("Failed to {text}"),
            );
        }
        (_, Err(error)) => {
            let text = format!("parse target release \"{wanted}\": {error}");
            return refuse(
                VERSION_PARSE_ERROR,
                events::VERSION_PARSE_ERROR,
                format!("failed to {text}"),
                format!("Failed to {text}"),
            );
        }
        (Ok(from), Ok(to)) => (from, to),
    };
    if to < from {
        return refuse(
            DOWNGRADE_NOT_SUPPORTED,
            events::DOWNGRADE_NOT_SUPPORTED,
            format!("downgrade from {installed} to {wanted} is not supported"),
            format!("Downgrade from {installed} to {wanted} is not supported"),
        );
    }
    if !from.is_followed_by(to) {
        return refuse(
            UPGRADE_PATH_INVALID,
            events::UPGRADE_PATH_INVALID,
            format!(
                "upgrade from {installed} to {wanted} is not sequential; only sequential upgrades are supported"
            ),
            format!("Upgrade from {installed} to {wanted} is not sequential"),
        );
    }
    Ok(Report::waiting(
        Verdict::no(
            EXPAND_IN_PROGRESS,
            format!("Upgrade detected: {installed} → {wanted} (phase: Expanding)"),
        ),
        REQUEUE_NOW,
    )
    .status(StatusChange::UpgradeTo(wanted.to_owned()))
    .notice(Notice::normal(
        events::UPGRADE_INITIATED,
        format!("Upgrade initiated: {installed} → {wanted}"),
    )))
}

/// One pass of an upgrade that has begun.
pub async fn reconcile(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    jobs: JobInputs<'_>,
    phase: UpgradePhase,
) -> Result<Report<()>, StepError> {
    let (installed, wanted) = releases(glance);
    let goal = goal(glance);
    if wanted == installed {
        return abort(ctx, glance, target, phase).await;
    }
    if wanted != goal {
        let text =
            format!("Spec release changed to {wanted} during active upgrade {installed} → {goal}");
        let message = format!("{text}; complete or roll back the current upgrade first");
        let mut error = StepError::migration(
            glance,
            UPGRADE_TARGET_CHANGED,
            events::UPGRADE_TARGET_CHANGED,
            message,
        );
        if let Some(notice) = error.said.notices.first_mut() {
            notice.message = text;
        }
        return Err(error);
    }
    let phase = match phase {
        UpgradePhase::Expanding => Phase {
            job: PhaseJob::Expand,
            noun: "Expand",
            in_progress: EXPAND_IN_PROGRESS,
            failed: EXPAND_FAILED,
            failed_event: events::EXPAND_FAILED,
            counted: Counted {
                annotation: LAST_DB_EXPAND_JOB_UID,
                suffix: "db-expand",
                phase: Some(PhaseJob::Expand),
            },
        },
        UpgradePhase::Migrating => Phase {
            job: PhaseJob::Migrate,
            noun: "Migrate",
            in_progress: MIGRATE_IN_PROGRESS,
            failed: MIGRATE_FAILED,
            failed_event: events::MIGRATE_FAILED,
            counted: Counted {
                annotation: LAST_DB_MIGRATE_JOB_UID,
                suffix: "db-migrate",
                phase: Some(PhaseJob::Migrate),
            },
        },
        UpgradePhase::Contracting => Phase {
            job: PhaseJob::Contract,
            noun: "Contract",
            in_progress: CONTRACT_IN_PROGRESS,
            failed: CONTRACT_FAILED,
            failed_event: events::CONTRACT_FAILED,
            counted: Counted {
                annotation: LAST_DB_CONTRACT_JOB_UID,
                suffix: "db-contract",
                phase: Some(PhaseJob::Contract),
            },
        },
        UpgradePhase::RollingUpdate => {
            // The one phase in which the pipeline goes on into the Deployment step.
            let message = format!("Waiting for Deployment rollout: {installed} → {goal}");
            return Ok(Report::with(
                Verdict::no(UPGRADE_ROLLING_UPDATE, message),
                (),
            ));
        }
    };
    run(ctx, glance, target, jobs, phase).await
}

async fn run(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    jobs: JobInputs<'_>,
    phase: Phase,
) -> Result<Report<()>, StepError> {
    let (installed, _) = releases(glance);
    let goal = goal(glance);
    let migration = Migration::Phase {
        phase: phase.job,
        installed,
        target: goal,
    };
    let wanted = migration_job(glance, identity(target), migration, jobs);
    let Ensured { progress, ended } = job::ensure(ctx, glance, target, &wanted, phase.counted)
        .await
        .map_err(|error| error.context(&format!("{} job {}", phase.noun, wanted.name())))?;
    match progress {
        Progress::Running(state) => {
            let text = format!("{} phase running: {installed} → {goal}", phase.noun);
            let verdict = Verdict::no(phase.in_progress, super::with_cause(&text, state.cause));
            Ok(Report::waiting(verdict, state.again).ended(ended))
        }
        Progress::Failed(uid) => {
            let message = format!(
                "{} job {name} failed: job has permanently failed: {}/{name}",
                phase.noun,
                target.namespace(),
                name = wanted.name(),
            );
            let is_news = super::is_news(
                glance,
                phase.counted.includes(glance, &uid),
                phase.failed,
                &[phase.in_progress],
            );
            let notice = is_news.then_some(phase.failed_event);
            Err(super::failed(phase.failed, notice, message).ended(ended))
        }
        Progress::Done(_) => Ok(advance(phase.job, installed, goal).ended(ended)),
    }
}

/// What follows a phase that succeeded.
fn advance(done: PhaseJob, installed: &str, goal: &str) -> Report<()> {
    let step = format!("{installed} → {goal}");
    match done {
        PhaseJob::Expand => Report::waiting(
            Verdict::no(
                MIGRATE_IN_PROGRESS,
                format!("Expand complete, starting migrate: {step}"),
            ),
            REQUEUE_NOW,
        )
        .status(StatusChange::UpgradePhase(UpgradePhase::Migrating))
        .notice(Notice::normal(
            events::EXPAND_COMPLETE,
            format!("Expand phase complete: {step}"),
        )),
        PhaseJob::Migrate => Report::waiting(
            Verdict::no(
                UPGRADE_ROLLING_UPDATE,
                format!("Migrate complete, waiting for Deployment rollout: {step}"),
            ),
            REQUEUE_NOW,
        )
        .status(StatusChange::UpgradePhase(UpgradePhase::RollingUpdate))
        .notice(Notice::normal(
            events::MIGRATE_COMPLETE,
            format!("Migrate phase complete: {step}"),
        )),
        PhaseJob::Contract => Report::with(
            Verdict::yes(
                DATABASE_SYNCED,
                format!("Database schema is up to date (upgraded {step})"),
            ),
            (),
        )
        .status(StatusChange::InstalledRelease(goal.to_owned()))
        .status(StatusChange::UpgradeOver)
        .notice(Notice::normal(
            events::UPGRADE_COMPLETE,
            format!("Upgrade complete: {step}"),
        ))
        // The sync of the new release loads its metadata definitions: do not leave that to chance.
        .after(REQUEUE_NOW),
    }
}

/// Goes back to the installed release. Safe before contract has run; refused after, unless the user insists.
async fn abort(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
    phase: UpgradePhase,
) -> Result<Report<()>, StepError> {
    let (installed, _) = releases(glance);
    let goal = goal(glance);
    let name = &target.owner.name;
    let insists = glance
        .annotations()
        .get(ALLOW_UNSAFE_ABORT)
        .is_some_and(|value| value == "true");
    let contract = names::phase_job(name, PhaseJob::Contract);
    // Read live, whosever it is by its marks: a watch may not know it yet, or no longer.
    let expand = names::phase_job(name, PhaseJob::Expand);
    if phase == UpgradePhase::Contracting
        && !insists
        && let Some(contract) = target.read(&JOB, &contract).await?
        && is_of_this_upgrade(
            &contract.metadata,
            target
                .child(&JOB, &expand)
                .await?
                .map(|job| job.metadata.clone())
                .as_ref(),
        )
    {
        let message = format!(
            "the contract Job of the upgrade {installed} → {goal} exists, so the schema may no longer fit {installed}; \
             set spec.openStackRelease to {goal} to go on, or restore the database and annotate {ALLOW_UNSAFE_ABORT}=true"
        );
        return Err(StepError::migration(
            glance,
            CONTRACT_IN_PROGRESS,
            events::UPGRADE_ABORT_REFUSED,
            message,
        ));
    }
    let jobs = names::phase_jobs(name);
    let mut live = Vec::new();
    for job in &jobs {
        live.extend(target.child(&JOB, job).await?);
    }
    if !live.is_empty() {
        job::check_current(ctx, glance).await?;
    }
    let pods = job::pods(target, &jobs).await?;
    // The expand Job last: it tells that the contract Job is of an earlier upgrade.
    let others = live.len() > 1;
    for job in &live {
        if !(others && job.metadata.name.as_ref() == Some(&expand)) {
            job::delete(target, job, pods.is_some()).await?;
        }
    }
    let at_work = pods.is_some_and(|pods| pods.iter().any(job::is_at_work));
    if !live.is_empty() || at_work {
        // A migration that still runs must end before anything else touches the schema.
        let message = format!(
            "Aborting upgrade {installed} → {goal}: waiting for its Jobs and their pods to be gone"
        );
        let reason = match phase {
            UpgradePhase::Expanding => EXPAND_IN_PROGRESS,
            UpgradePhase::Migrating => MIGRATE_IN_PROGRESS,
            UpgradePhase::RollingUpdate => UPGRADE_ROLLING_UPDATE,
            UpgradePhase::Contracting => CONTRACT_IN_PROGRESS,
        };
        return Ok(Report::waiting(Verdict::no(reason, message), job::POD_POLL));
    }
    Ok(Report {
        output: None,
        ..Report::done(())
    }
    .status(StatusChange::UpgradeOver)
    .notice(Notice::normal(
        events::UPGRADE_ABORTED,
        format!("Upgrade {installed} → {goal} aborted: spec release reverted to installed release {installed}"),
    ))
    .after(REQUEUE_NOW))
}

/// Whether a contract Job belongs to the upgrade that began with this expand Job: phase Jobs stay when they are done, so
/// an older one is that of an earlier upgrade. Where nobody can tell it counts.
fn is_of_this_upgrade(contract: &ObjectMeta, expand: Option<&ObjectMeta>) -> bool {
    let began = expand.and_then(|expand| expand.creation_timestamp.as_ref());
    match (contract.creation_timestamp.as_ref(), began) {
        (Some(contract), Some(began)) => contract >= began,
        _ => true,
    }
}

fn releases(glance: &Glance) -> (&str, &str) {
    let installed = glance
        .status
        .as_ref()
        .and_then(|status| status.installed_release.as_deref())
        .unwrap_or_default();
    (installed, &glance.spec.open_stack_release)
}

fn goal(glance: &Glance) -> &str {
    glance
        .status
        .as_ref()
        .and_then(|status| status.target_release.as_deref())
        .unwrap_or_default()
}
