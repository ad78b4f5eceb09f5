//! The three conditions of a `GlanceBackend`.

use anyhow::Result;
use e2e::{
    bed::run,
    doubles::status::Behaviour,
    expect::{Wanted, always, condition},
    fleet::Fleet,
    kinds,
    patience::seconds,
    registration::ACCOUNT,
    scenario::{external_secret, mariadb},
};
use kube::api::{Patch, PatchParams};
use serde_json::json;

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

/// A right that goes is no news about the credentials: told where it is missed, and no store leaves the pods for it.
#[test]
fn credentials_that_may_not_be_read_any_more_are_told_and_their_store_stays() {
    run(async |fleet: &'static Fleet| {
        let stage = Stage::open(fleet, "withheld", "edge-1").await?;
        let scenario = stage.scenario("images").backend("store", true);
        let scenario = scenario.backend("archive", false);
        stage.site.apply(&scenario).await?;
        let (glance, archive) = (stage.glance("images"), stage.site.backend("archive"));
        glance.is_ready(later()).await?;
        holds(&archive, later(), ("Ready", "AllReady")).await?;
        let before = stage.live(kinds::DEPLOYMENT, "images").await?;

        withhold_secrets(&stage).await?;
        let keys = [("access-key-id", "AKIA2"), ("secret-access-key", "two")];
        stage.secret("archive-credentials", &keys).await?;
        let lost = Wanted::of(CREDENTIALS)
            .status("False")
            .reason("ReconcileError");
        let unread = "secrets \"archive-credentials\" is forbidden";
        archive.condition(later(), lost.message(unread)).await?;
        let waits = Wanted::of("BackendsReady")
            .status("False")
            .reason("WaitingForBackends");
        let stays = "the last good configuration stays";
        glance.condition(later(), waits.message(stays)).await?;
        glance.condition(later(), waits.message(unread)).await?;
        let deployment = stage.child(kinds::DEPLOYMENT, "images")?;
        always(seconds(3), "the stores of the pods", async || {
            let now = deployment.get().await?;
            let now = now.and_then(|now| now.metadata.generation);
            anyhow::ensure!(now == before.metadata.generation, "generation {now:?}");
            Ok(())
        })
        .await?;

        // Given back, the new key arrives.
        stage.site.kubeconfig(stage.children()?).await?;
        holds(&archive, seconds(60), (CREDENTIALS, "CredentialsAvailable")).await?;
        deployment
            .satisfies(later(), "to mount the new key", |now| {
                let rolled = now.metadata.generation > before.metadata.generation;
                rolled.then_some(()).ok_or_else(|| "it does not".to_owned())
            })
            .await?;
        glance.is_ready(later()).await?;
        Ok(())
    });
}

/// Takes the right to read Secrets away, not the one to watch them.
async fn withhold_secrets(stage: &Stage) -> Result<()> {
    let granted = stage.children()?.any(
        "rbac.authorization.k8s.io/v1",
        "Role",
        Some(stage.namespace()),
    );
    let name = format!("{}-{ACCOUNT}", stage.site.access_namespace());
    let mut rules = granted.get(&name).await?.data["rules"].clone();
    let of_secrets = |rule: &&mut serde_json::Value| {
        let resources = rule["resources"].as_array().cloned().unwrap_or_default();
        resources.iter().any(|resource| resource == "secrets")
    };
    for rule in rules
        .as_array_mut()
        .into_iter()
        .flatten()
        .filter(of_secrets)
    {
        if let Some(verbs) = rule["verbs"].as_array_mut() {
            verbs.retain(|verb| verb != "get");
        }
    }
    let patch = Patch::Merge(json!({ "rules": rules }));
    granted
        .patch(&name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}
