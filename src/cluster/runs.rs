//! The runs of the purge: Jobs that a `CronJob` of ours controls.
//!
//! They carry the labels of its Job template and no mark of ours, on the hub and on targets alike. Not every run shows
//! in the `CronJob`'s status (one made by hand from it does not while it runs, nor when it fails), so the runs
//! themselves are watched.

use glance_api::keys::{APP_NAME, MANAGED_BY, labels};
use kube::core::DynamicObject;
use serde_json::Value;
use target_registry::{Kind, Readiness};

use super::{
    Target,
    kinds::{CRON_JOB, JOB},
    ownership,
    view::START_WAIT,
};
use crate::pipeline::report::StepError;

/// Selects the runs of every Glance.
pub fn selector() -> String {
    format!(
        "{}={APP_NAME},{}={MANAGED_BY}",
        labels::NAME,
        labels::MANAGED_BY
    )
}

/// Namespace and name of the Glance whose purge made this Job.
pub fn glance_of(kind: &Kind, object: &DynamicObject) -> Option<(String, String)> {
    if kind.kind != JOB.kind {
        return None;
    }
    let label = |key: &str| object.metadata.labels.as_ref()?.get(key).cloned();
    let from_cron_job = ownership::controller(&object.metadata)?.kind == CRON_JOB.kind;
    let ours = label(labels::NAME)? == APP_NAME && label(labels::MANAGED_BY)? == MANAGED_BY;
    if !from_cron_job || !ours {
        return None;
    }
    Some((object.metadata.namespace.clone()?, label(labels::INSTANCE)?))
}

// === impl Target (runs) ===

impl Target {
    /// The Jobs that look like runs of this Glance's purge; whose they are tells their controller.
    pub async fn purge_runs(&self) -> Result<Vec<Value>, StepError> {
        let namespace = self.namespace();
        if let Some(runs) = self.view.runs()
            && let Readiness::Synced = runs.ready(Some(namespace), START_WAIT).await
        {
            return Ok(runs
                .list(Some(namespace))
                .into_iter()
                .filter(|run| {
                    glance_of(&JOB, run).is_some_and(|(_, glance)| glance == self.owner.name)
                })
                .filter_map(|run| serde_json::to_value(run.as_ref()).ok())
                .collect());
        }
        let selector = format!("{},{}={}", selector(), labels::INSTANCE, self.owner.name);
        let params = kube::api::ListParams::default().labels(&selector);
        let list = self
            .api(&JOB)
            .list(&params)
            .await
            .map_err(|error| StepError::from(error).context("listing the purge Jobs"))?;
        Ok(list
            .items
            .iter()
            .filter_map(|run| serde_json::to_value(run).ok())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(controller: &str, instance: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "namespace": "ns", "name": "images-db-purge-1",
                "labels": {
                    "app.kubernetes.io/name": "glance",
                    "app.kubernetes.io/instance": instance,
                    "app.kubernetes.io/managed-by": "glance-operator",
                },
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": controller, "name": "images-db-purge",
                    "uid": "u", "controller": true,
                }],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_run_is_traced_to_its_glance() {
        let run = job("CronJob", &json!("images"));
        assert_eq!(
            glance_of(&JOB, &run),
            Some(("ns".to_owned(), "images".to_owned()))
        );
        assert_eq!(glance_of(&CRON_JOB, &run), None);
        assert_eq!(glance_of(&JOB, &job("Glance", &json!("images"))), None);
        let mut foreign = run;
        foreign.metadata.labels = None;
        assert_eq!(glance_of(&JOB, &foreign), None);
    }
}
