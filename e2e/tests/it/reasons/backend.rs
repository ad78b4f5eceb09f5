//! The three conditions of a `GlanceBackend`.

use anyhow::Result;
use e2e::{
    doubles::status::Behaviour,
    expect::condition,
    fleet::Fleet,
    kinds,
    scenario::{external_secret, mariadb},
};

use super::stage::{Stage, holds, later, on_hub_and_target, says, soon};

on_hub_and_target!(a_backend_says_what_it_waits_for_from_before_its_glance_to_after_it);

const CREDENTIALS: &str = "CredentialsReady";
const PROJECTED: &str = "ConfigProjected";
const WAITING: &str =
    "waiting for the Glance Deployment to mount this backend's rendered store section";
const NOT_ALL: (&str, &str, &str) = (
    "Ready",
    "NotAllReady",
    "One or more sub-conditions are not ready",
);

async fn a_backend_says_what_it_waits_for_from_before_its_glance_to_after_it(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "backend", place).await?;
    let (children, ns) = (stage.children()?, stage.namespace());
    let mood = stage.doubles()?.mood();
    let scenario = stage.scenario("images").backend("store", true);
    let secret = "store-credentials";
    let backend = stage.site.backend("store");

    // Without a parent nobody knows on which cluster to look.
    stage.hub().apply(&scenario.backends()[0]).await?;
    let parent = format!("parent Glance {ns}/images does not exist;");
    let orphan = format!("{parent} the cluster this backend's credentials belong on is unknown");
    says(
        &backend,
        later(),
        (CREDENTIALS, "WaitingForParent", &orphan),
    )
    .await?;
    says(&backend, soon(), NOT_ALL).await?;
    let found = backend.get().await?.unwrap();
    assert!(condition(&found, PROJECTED).is_none());
    assert!(found.metadata.finalizers.unwrap_or_default().is_empty());

    // The credentials, from nothing to usable.
    stage
        .secret("images-db", &[("password", "p"), ("username", "u")])
        .await?;
    stage
        .secret("images-service-user", &[("password", "p")])
        .await?;
    stage.hub().apply(&scenario.glance()).await?;
    let reason = "WaitingForCredentials";
    let absent = format!("S3 credentials ExternalSecret {ns}/{secret} not found yet");
    says(&backend, soon(), (CREDENTIALS, reason, &absent)).await?;
    mood.set(kinds::EXTERNAL_SECRET, ns, Behaviour::Broken);
    children
        .apply(&external_secret(ns, secret, &["access-key-id"]))
        .await?;
    let waiting = "waiting for the S3 credentials Secret to carry the required keys";
    says(&backend, soon(), (CREDENTIALS, reason, waiting)).await?;
    mood.set(kinds::EXTERNAL_SECRET, ns, Behaviour::Healthy);
    let lacking = "S3 credentials Secret exists but is missing expected keys";
    let named = format!("{lacking}: secret-access-key");
    says(&backend, soon(), (CREDENTIALS, reason, &named)).await?;
    mood.set(kinds::EXTERNAL_SECRET, ns, Behaviour::Silent);
    stage.delete(kinds::SECRET, secret).await?;
    says(&backend, soon(), (CREDENTIALS, reason, lacking)).await?;
    mood.set(kinds::EXTERNAL_SECRET, ns, Behaviour::Healthy);
    let keys = ["access-key-id", "secret-access-key"];
    children.apply(&external_secret(ns, secret, &keys)).await?;
    holds(&backend, soon(), (CREDENTIALS, "CredentialsAvailable")).await?;
    let found = condition(&backend.get().await?.unwrap(), CREDENTIALS).unwrap();
    assert_eq!(
        found["message"],
        format!("S3 credentials Secret \"{secret}\" carries the required keys")
    );

    // The section is there when the Deployment mounts it, and the database has to come first.
    says(
        &backend,
        soon(),
        (PROJECTED, "WaitingForProjection", WAITING),
    )
    .await?;
    says(&backend, soon(), NOT_ALL).await?;
    children.apply(&mariadb(ns, "mariadb")).await?;
    holds(&backend, later(), (PROJECTED, "ConfigProjected")).await?;
    holds(&backend, soon(), ("Ready", "AllReady")).await?;
    stage.glance("images").is_ready(later()).await?;

    if stage.is_remote() {
        // What cannot be seen has not gone: the projection keeps its last word.
        stage.site.deregister(place).await?;
        let lost = "cluster not found";
        says(
            &backend,
            soon(),
            (CREDENTIALS, "TargetClusterUnavailable", lost),
        )
        .await?;
        let glance = stage.glance("images");
        says(
            &glance,
            soon(),
            ("SecretsReady", "TargetClusterUnavailable", lost),
        )
        .await?;
        holds(&backend, soon(), (PROJECTED, "ConfigProjected")).await?;
        stage.site.register(place).await?;
        holds(&backend, soon(), ("Ready", "AllReady")).await?;
        glance.is_ready(soon()).await?;
    }

    // The parent goes, the backend stays and says so.
    stage.hub().delete(&scenario.glance()).await?;
    stage.glance("images").is_gone(later()).await?;
    says(&backend, soon(), (CREDENTIALS, "WaitingForParent", &orphan)).await?;
    let nowhere = format!("{parent} nothing mounts this backend's rendered store section");
    says(
        &backend,
        soon(),
        (PROJECTED, "WaitingForProjection", &nowhere),
    )
    .await?;
    says(&backend, soon(), NOT_ALL).await
}
