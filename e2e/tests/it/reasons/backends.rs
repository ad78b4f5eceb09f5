//! `BackendsReady`, and what waits for a first default backend.

use anyhow::{Context as _, Result};
use e2e::{fleet::Fleet, kinds, scenario::backend};

use super::stage::{Stage, holds, later, on_hub_and_target, says, soon};

on_hub_and_target!(a_glance_without_a_usable_default_says_which_backends_it_waits_for);

const TYPE: &str = "BackendsReady";
pub(crate) const NO_DEFAULT: &str =
    "No attached, credential-ready backend is marked isDefault; exactly one is required";

async fn a_glance_without_a_usable_default_says_which_backends_it_waits_for(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "stores", place).await?;
    let ns = stage.namespace();
    let scenario = stage.scenario("images");
    stage.site.apply(&scenario).await?;
    let glance = stage.glance("images");
    let none = (TYPE, "NoDefaultBackend", NO_DEFAULT);
    says(&glance, later(), none).await?;
    let schema = "Waiting for a ready default backend before provisioning the database schema";
    let api = "Waiting for a ready default backend before creating the Glance API Deployment";
    says(
        &glance,
        soon(),
        ("DatabaseReady", "WaitingForBackends", schema),
    )
    .await?;
    says(
        &glance,
        soon(),
        ("DeploymentReady", "WaitingForBackends", api),
    )
    .await?;
    assert!(
        stage
            .child(kinds::JOB, "images-db-sync")?
            .get()
            .await?
            .is_none()
    );

    // A default without credentials is none; with them it is one, at once.
    let keys = [("access-key-id", "AKIA"), ("secret-access-key", "s3")];
    stage.hub().apply(&backend(ns, "images", "a", true)).await?;
    let lacking = format!("S3 credentials ExternalSecret {ns}/a-credentials not found yet");
    let a = stage.site.backend("a");
    says(
        &a,
        soon(),
        ("CredentialsReady", "WaitingForCredentials", &lacking),
    )
    .await?;
    says(&glance, soon(), none).await?;
    stage.secret("a-credentials", &keys).await?;
    holds(&glance, soon(), (TYPE, "AllBackendsProjected")).await?;
    glance.is_ready(later()).await?;

    // Others that are not ready keep nobody out, and are named in order.
    stage
        .hub()
        .apply(&backend(ns, "images", "c", false))
        .await?;
    stage
        .hub()
        .apply(&backend(ns, "images", "b", false))
        .await?;
    let waiting = "Waiting for backends: b (credentials not ready); c (credentials not ready)";
    says(&glance, soon(), (TYPE, "WaitingForBackends", waiting)).await?;
    holds(&glance, soon(), ("DeploymentReady", "DeploymentReady")).await?;
    stage.secret("b-credentials", &keys).await?;
    let waiting = "Waiting for backends: c (credentials not ready)";
    says(&glance, soon(), (TYPE, "WaitingForBackends", waiting)).await?;

    // A second default that becomes usable is one too many.
    stage.hub().apply(&backend(ns, "images", "c", true)).await?;
    stage.secret("c-credentials", &keys).await?;
    let several = "More than one attached, credential-ready backend is marked isDefault (a, c); \
                   exactly one is required; until then changes of the configuration in the spec wait";
    says(&glance, soon(), (TYPE, "NoDefaultBackend", several)).await?;
    // The pods go on with what they mount. When that is lost, nothing replaces it.
    let deployment = stage.live(kinds::DEPLOYMENT, "images").await?;
    let volumes = &deployment.data["spec"]["template"]["spec"]["volumes"];
    let mut names = volumes.as_array().into_iter().flatten();
    let map = names.find_map(|volume| volume.pointer("/configMap/name")?.as_str());
    let map = map.context("no ConfigMap is mounted")?;
    stage.delete(kinds::CONFIG_MAP, map).await?;
    let lost = format!(
        "{several}; of the last good configuration there is no more ConfigMap {map}, so pods that start anew do not \
         get up"
    );
    says(&glance, soon(), (TYPE, "NoDefaultBackend", &lost)).await?;
    stage
        .hub()
        .apply(&backend(ns, "images", "c", false))
        .await?;
    holds(&glance, soon(), (TYPE, "AllBackendsProjected")).await?;
    glance.is_ready(later()).await?;
    Ok(())
}
