//! `spec.dbPurge`.

use glance_api::defaults;
use glance_api::glance::{DbPurgeSpec, GlanceSpec};

use crate::policy::cron;
use crate::policy::path::Path;
use crate::policy::review::Findings;

pub(super) fn judge(purge: &DbPurgeSpec, at: &Path, f: &mut Findings) {
    if let Some(days) = purge.retention_days.filter(|days| *days < 1) {
        f.invalid(
            &at.child("retentionDays"),
            days,
            "retentionDays must be at least 1",
        );
    }
    let schedule = purge.schedule.as_deref().unwrap_or_default();
    if schedule.is_empty() {
        return;
    }
    if let Err(error) = cron::check(schedule) {
        f.invalid(
            &at.child("schedule"),
            schedule,
            format!("invalid cron expression: {error}"),
        );
    }
    if cron::every_seconds(schedule).is_some_and(|seconds| seconds < 60) {
        f.warn("spec.dbPurge.schedule: a CronJob runs at most once a minute");
    }
}

/// A shorter retention deletes at once what the longer one would have kept.
pub(super) fn shortened(old: &GlanceSpec, new: &GlanceSpec, f: &mut Findings) {
    let before = defaults::db_purge(old).retention_days;
    let after = defaults::db_purge(new).retention_days;
    if after < before {
        f.warn(format!(
            "spec.dbPurge.retentionDays reduced {before} → {after}: the next purge run hard-deletes the rows soft-deleted between {after} and {before} days ago, which cannot be undone"
        ));
    }
}
