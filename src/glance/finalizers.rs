//! Our finalizers on a Glance, written by patches of `metadata.finalizers` alone.
//!
//! Writing the whole object back would drop lists that are empty on purpose and would make us owner of spec fields
//! (contract: target clusters, installing finalizers).

use glance_api::{
    glance::Glance,
    keys::finalizers::{GLANCE, REMOTE_CHILDREN},
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{cluster::placed_on, pipeline::report::StepError};

/// Whether the CR carries this finalizer.
pub fn has(glance: &Glance, finalizer: &str) -> bool {
    glance
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|held| held == finalizer)
}

/// Adds what is missing, in one write. The CR as it is afterwards.
pub async fn ensure(api: &Api<Glance>, glance: &Glance) -> Result<Option<Glance>, StepError> {
    let remote = placed_on(glance).map(|_| REMOTE_CHILDREN);
    let missing: Vec<_> = std::iter::once(GLANCE)
        .chain(remote)
        .filter(|finalizer| !has(glance, finalizer))
        .collect();
    if missing.is_empty() {
        return Ok(None);
    }
    let mut finalizers = glance.metadata.finalizers.clone().unwrap_or_default();
    finalizers.extend(missing.into_iter().map(str::to_owned));
    Ok(Some(write(api, glance, &finalizers).await?))
}

/// Removes one. The CR as it is afterwards; `None` when that let it go.
pub async fn release(
    api: &Api<Glance>,
    glance: &Glance,
    finalizer: &str,
) -> Result<Option<Glance>, StepError> {
    let left: Vec<_> = glance
        .metadata
        .finalizers
        .iter()
        .flatten()
        .filter(|held| *held != finalizer)
        .cloned()
        .collect();
    match write(api, glance, &left).await {
        Ok(written) => Ok((!left.is_empty()).then_some(written)),
        // A lagging watch may still show a CR that an earlier pass has let go.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn write(
    api: &Api<Glance>,
    glance: &Glance,
    finalizers: &[String],
) -> Result<Glance, kube::Error> {
    let patch = json!({
        "metadata": {
            "uid": glance.metadata.uid,
            "resourceVersion": glance.metadata.resource_version,
            "finalizers": finalizers,
        }
    });
    let name = glance.metadata.name.as_deref().unwrap_or_default();
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
}
