//! Counts ended Jobs, each once per UID over all restarts of the operator.
//!
//! The annotation is written before the metric moves, guarded by the version of the pass: at most once, never twice
//! (contract: database, metrics).

use std::{sync::Arc, time::Duration};

use glance_api::glance::Glance;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Map, Value, json};

use crate::{
    context::Context,
    pipeline::{
        notice::Notice,
        report::{EndedJobs, describe},
    },
};

/// When to try again to count what could not be counted.
const AGAIN: Duration = Duration::from_secs(30);

/// Records what ended. The CR as it is afterwards, for the status write that follows.
pub async fn record(
    ctx: &Context,
    api: &Api<Glance>,
    mut glance: Arc<Glance>,
    ended: Vec<EndedJobs>,
    notices: &mut Vec<Notice>,
    requeue: &mut Option<Duration>,
) -> Arc<Glance> {
    for jobs in ended {
        let Some(annotations) = news(&glance, &jobs) else {
            continue;
        };
        let patch = json!({
            "metadata": {
                "resourceVersion": glance.metadata.resource_version,
                "annotations": annotations,
            }
        });
        let written = api
            .patch(
                &glance.name_any(),
                &PatchParams::default(),
                &Patch::Merge(&patch),
            )
            .await;
        match written {
            Ok(written) => {
                glance = Arc::new(written);
                ctx.glances.learn(Arc::clone(&glance));
                let namespace = glance.namespace().unwrap_or_default();
                for (succeeded, seconds) in jobs.runs {
                    if let Some(phase) = jobs.phase {
                        ctx.metrics.phase_finished(
                            &glance.name_any(),
                            &namespace,
                            phase,
                            succeeded,
                        );
                    }
                    ctx.metrics.job_finished(
                        jobs.metric,
                        &glance.name_any(),
                        &namespace,
                        succeeded,
                        seconds,
                    );
                }
            }
            Err(error) if jobs.runs.is_empty() => {
                let error = describe(&error);
                tracing::info!(%error, suffix = jobs.suffix, "the Job is noted one pass later");
            }
            Err(error) => {
                let error = describe(&error);
                tracing::info!(%error, suffix = jobs.suffix, "the Job is counted one pass later");
                notices.push(Notice::warning(
                    jobs.deferred,
                    format!(
                        "Patching last-observed {} Job UID failed; metric emission deferred to the next reconcile: {error}",
                        jobs.suffix
                    ),
                )
                .unrepeatable());
                // Nothing else may happen to this CR for long.
                *requeue = Some(requeue.map_or(AGAIN, |known| known.min(AGAIN)));
            }
        }
    }
    glance
}

/// The annotations that have to change, if any has to.
fn news(glance: &Glance, jobs: &EndedJobs) -> Option<Map<String, Value>> {
    let known = glance.annotations();
    let newest = (jobs.annotation, Some(jobs.newest.clone()));
    let changed: Map<_, _> = jobs
        .notes
        .iter()
        .cloned()
        .chain([newest])
        .filter(|(key, wanted)| known.get(*key) != wanted.as_ref())
        .map(|(key, wanted)| (key.to_owned(), json!(wanted)))
        .collect();
    (!changed.is_empty()).then_some(changed)
}

#[cfg(test)]
mod tests {
    use glance_api::keys::annotations::{LAST_DB_SYNC_JOB_UID, MIGRATION_ATTEMPTS};

    use super::*;
    use crate::{metrics::JobMetric, testing};

    #[test]
    fn what_is_noted_already_is_not_written_again_and_what_is_over_goes() {
        let mut glance = testing::glance("images");
        let jobs = |attempts: Option<&str>| EndedJobs {
            annotation: LAST_DB_SYNC_JOB_UID,
            suffix: "db-sync",
            deferred: "DBSyncMetricEmissionDeferred",
            metric: JobMetric::DbSync,
            phase: None,
            newest: "u".into(),
            notes: vec![(MIGRATION_ATTEMPTS, attempts.map(str::to_owned))],
            runs: Vec::new(),
        };
        let first = news(&glance, &jobs(Some("k:1"))).unwrap();
        assert_eq!(
            Value::Object(first),
            json!({ LAST_DB_SYNC_JOB_UID: "u", MIGRATION_ATTEMPTS: "k:1" })
        );
        let known = [(LAST_DB_SYNC_JOB_UID, "u"), (MIGRATION_ATTEMPTS, "k:1")];
        let known = known.map(|(key, value)| (key.to_owned(), value.to_owned()));
        glance.metadata.annotations = Some(known.into());
        assert_eq!(news(&glance, &jobs(Some("k:1"))), None);
        let over = news(&glance, &jobs(None)).unwrap();
        assert_eq!(Value::Object(over), json!({ MIGRATION_ATTEMPTS: null }));
    }
}
