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
use serde_json::json;

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
        if glance.annotations().get(jobs.annotation) == Some(&jobs.newest) {
            continue;
        }
        let patch = json!({
            "metadata": {
                "resourceVersion": glance.metadata.resource_version,
                "annotations": { jobs.annotation: jobs.newest },
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
