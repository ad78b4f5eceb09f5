//! Who logs in to a managed database: the user that the operator asks for, or the one that a secrets engine issued.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use e2e::{expect::eventually, fleet::Fleet, kinds, scenario::Scenario, witness::Witness};
use kube::api::DynamicObject;
use serde_json::json;

use super::stage::{Stage, later, on_hub_and_target};

on_hub_and_target!(logins_of_a_secrets_engine_take_over_and_hand_back_without_a_gap);

fn managed(scenario: Scenario, mode: &str) -> Scenario {
    let secret = format!("{}-db", scenario.name());
    let database = json!({
        "clusterRef": { "name": "mariadb" }, "database": "glance", "credentialsMode": mode,
        "secretRef": { "name": secret },
    });
    scenario.with("database", database)
}

fn url_in(secret: &DynamicObject) -> Result<String> {
    let encoded = secret.data["data"]["connection"].as_str();
    let bytes = data_encoding::BASE64.decode(encoded.context("no connection")?.as_bytes())?;
    Ok(String::from_utf8(bytes)?)
}

fn url(stage: &Stage, login: &str) -> String {
    let ns = stage.namespace();
    format!("mysql+pymysql://{login}@mariadb.{ns}.svc:3306/glance?charset=utf8")
}

/// Waits for the URL and for pods that were started with it. Returns the digest in their template.
async fn used(stage: &Stage, login: &str, not: Option<&str>) -> Result<String> {
    let wanted = url(stage, login);
    eventually(later(), "the login to be in use", async || {
        let now = url_in(&stage.live(kinds::SECRET, "images-db-connection").await?)?;
        anyhow::ensure!(now == wanted, "{now}");
        let deployment = stage.live(kinds::DEPLOYMENT, "images").await?;
        let digest = &deployment.data["spec"]["template"]["metadata"]["annotations"]["glance.c5c3.io/db-connection-hash"];
        let digest = digest.as_str().context("no digest")?;
        anyhow::ensure!(Some(digest) != not, "the pods are still the old ones");
        Ok(digest.to_owned())
    })
    .await
}

async fn logins_of_a_secrets_engine_take_over_and_hand_back_without_a_gap(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "logins", place).await?;
    let issued = async |user: &str, password: &str| {
        stage
            .secret("images-db", &[("username", user), ("password", password)])
            .await
    };
    let witness = Witness::of(stage.children()?, kinds::SECRET, stage.namespace()).await?;
    let scenario = managed(stage.scenario("images"), "Static").backend("store", true);
    stage.site.apply(&scenario).await?;
    let glance = stage.glance("images");
    glance.is_ready(later()).await?;
    let own = used(&stage, "images:db-password", None).await?;
    let user = stage.live(kinds::USER, "images").await?;
    let grant = stage.live(kinds::GRANT, "images").await?;

    // The engine takes over; the old login overlaps with its first.
    issued("v-kube-1", "one").await?;
    let engine = managed(scenario.clone(), "Dynamic");
    stage.hub().apply(&engine.glance()).await?;
    let first = used(&stage, "v-kube-1:one", Some(&own)).await?;
    issued("v-kube-2", "two").await?;
    used(&stage, "v-kube-2:two", Some(&first)).await?;
    glance.is_ready(later()).await?;
    for (kind, before) in [(kinds::USER, &user), (kinds::GRANT, &grant)] {
        let now = stage.live(kind, "images").await?;
        assert_eq!(now.metadata.uid, before.metadata.uid);
        assert_eq!(now.metadata.deletion_timestamp, None);
    }

    // Back again: what was deleted meanwhile is made anew.
    stage.delete(kinds::GRANT, "images").await?;
    stage.delete(kinds::USER, "images").await?;
    stage.child(kinds::USER, "images")?.is_gone(later()).await?;
    issued("ignored", "three").await?;
    stage.hub().apply(&scenario.glance()).await?;
    used(&stage, "images:three", None).await?;
    stage.child(kinds::USER, "images")?.exists(later()).await?;
    stage.child(kinds::GRANT, "images")?.exists(later()).await?;
    glance.is_ready(later()).await?;

    // Whatever the order of events, no URL ever joined the halves of two logins.
    let mut seen = BTreeSet::new();
    for secret in witness.versions()? {
        if secret.metadata.name.as_deref() == Some("images-db-connection") {
            seen.insert(url_in(&secret)?);
        }
    }
    // The mode and the Secret change one after the other.
    let known = [
        "images:db-password",
        "images:one",
        "v-kube-1:one",
        "v-kube-2:two",
        "ignored:three",
        "images:three",
    ];
    let known = BTreeSet::from(known.map(|login| url(&stage, login)));
    assert!(seen.is_subset(&known), "{seen:#?}");

    // One that never knew another mode has no user to leave behind.
    let fresh = managed(stage.scenario("fresh"), "Dynamic").backend("fresh-store", true);
    stage.site.apply(&fresh).await?;
    stage.glance("fresh").is_ready(later()).await?;
    stage.live(kinds::DATABASE, "fresh").await?;
    for kind in [kinds::USER, kinds::GRANT] {
        assert!(stage.child(kind, "fresh")?.get().await?.is_none());
    }
    Ok(())
}
