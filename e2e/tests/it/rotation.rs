//! Rotated credentials reach the pods by one roll-out, and nothing else moves.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use e2e::{
    doubles::status::Behaviour,
    expect::{Object, always},
    fleet::Fleet,
    kinds,
    patience::seconds,
};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::reasons::stage::{Stage, later, on_hub_and_target, says, soon};

on_hub_and_target!(
    a_rotated_credential_rolls_the_pods_once_and_changes_nothing_else,
    a_login_that_an_engine_issues_is_swapped_as_one,
);

const PASSWORD: &str = "/metadata/annotations/glance.c5c3.io~1authtoken-hash";
const CONNECTION: &str = "/metadata/annotations/glance.c5c3.io~1db-connection-hash";

async fn a_rotated_credential_rolls_the_pods_once_and_changes_nothing_else(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "rotate", place).await?;
    let scenario = stage.scenario("images").backend("store", true);
    stage
        .site
        .apply(&scenario.backend("archive", false))
        .await?;
    stage.glance("images").is_ready(later()).await?;
    let sync = stage.live(kinds::JOB, "images-db-sync").await?.metadata.uid;

    // The service user's password is in the environment: a new digest, under the same reference.
    let changed = roll(&stage, async || {
        stage
            .secret("images-service-user", &[("password", "rotated")])
            .await
    })
    .await?;
    assert_eq!(changed, [PASSWORD]);

    // The database password: the finished URL is in a Secret of ours.
    let before = connection(&stage).await?;
    let changed = roll(&stage, async || {
        let login = [("username", "glance"), ("password", "rotated/2")];
        stage.secret("images-db", &login).await
    })
    .await?;
    assert_eq!(changed, [CONNECTION]);
    let after = connection(&stage).await?;
    assert_eq!(
        after,
        before.replace(":db-password@", ":rotated%2F2@"),
        "only the password is another one"
    );

    // The database moves to another port: the same digest.
    let changed = roll(&stage, async || {
        let database = json!({ "spec": { "database": { "port": 3307 } } });
        stage.patch(kinds::GLANCE, "images", database).await
    })
    .await?;
    assert_eq!(changed, [CONNECTION]);

    // S3 credentials are in a file of the Secret, whose name tells its content.
    let secret = volume(&template(&stage).await?, "backends")?;
    let changed = roll(&stage, async || {
        let keys = [("access-key-id", "AKIA2"), ("secret-access-key", "two")];
        stage.secret("store-credentials", &keys).await
    })
    .await?;
    assert_eq!(changed, [format!("{secret}/secret/secretName")]);

    // A password with a character that oslo.config would expand goes through a copy of ours.
    let changed = roll(&stage, async || {
        stage
            .secret("images-service-user", &[("password", "pa$$word")])
            .await
    })
    .await?;
    let reference = changed
        .iter()
        .any(|path| path.ends_with("/secretKeyRef/name"));
    assert!(
        reference && changed.contains(&PASSWORD.to_owned()),
        "{changed:?}"
    );

    // A Secret that is written again with the same values is no news.
    let generation = stage
        .live(kinds::DEPLOYMENT, "images")
        .await?
        .metadata
        .generation;
    for (name, key, value) in [
        ("images-service-user", "password", "pa$$word"),
        ("store-credentials", "access-key-id", "AKIA2"),
    ] {
        stage.secret(name, &[(key, value), ("more", "x")]).await?;
    }
    stays(&stage.child(kinds::DEPLOYMENT, "images")?, generation).await?;

    leaves_the_copy_to_the_pods_that_read_it(&stage).await?;
    stage.glance("images").is_ready(later()).await?;
    let found = stage.live(kinds::JOB, "images-db-sync").await?;
    assert_eq!(found.metadata.uid, sync, "no rotation migrates the schema");
    Ok(())
}

/// Back to a password that needs no copy: pods that cannot be replaced yet can still restart.
async fn leaves_the_copy_to_the_pods_that_read_it(stage: &Stage) -> Result<()> {
    let copy = stage.child(kinds::SECRET, "images-authtoken")?;
    copy.exists(soon()).await?;
    let (mood, ns) = (stage.doubles()?.mood(), stage.namespace());
    mood.set(kinds::MARIADB, ns, Behaviour::Broken);
    let down = "MariaDB cluster \"mariadb\" is not ready";
    let waits = ("DatabaseReady", "ClusterNotReady", down);
    says(&stage.glance("images"), later(), waits).await?;
    stage
        .secret("images-service-user", &[("password", "plain")])
        .await?;
    always(seconds(2), "the copy to stay", async || {
        copy.get().await?.context("it is gone").map(drop)
    })
    .await?;
    let changed = roll(stage, async || {
        mood.set(kinds::MARIADB, ns, Behaviour::Healthy);
        Ok(())
    })
    .await?;
    assert!(changed.contains(&PASSWORD.to_owned()), "{changed:?}");
    copy.is_gone(later()).await
}

async fn a_login_that_an_engine_issues_is_swapped_as_one(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "engine", place).await?;
    let scenario = stage.scenario("images").backend("store", true).with(
        "database",
        json!({
            "clusterRef": { "name": "mariadb" }, "database": "glance",
            "credentialsMode": "Dynamic", "secretRef": { "name": "images-db" },
        }),
    );
    stage.site.apply(&scenario).await?;
    stage.glance("images").is_ready(later()).await?;
    assert!(stage.child(kinds::USER, "images")?.get().await?.is_none());
    let before = connection(&stage).await?;
    let changed = roll(&stage, async || {
        let login = [("username", "v-kube-2"), ("password", "second")];
        stage.secret("images-db", &login).await
    })
    .await?;
    assert_eq!(changed, [CONNECTION]);
    let after = connection(&stage).await?;
    assert_eq!(
        after,
        before.replace("glance:db-password@", "v-kube-2:second@")
    );
    Ok(())
}

/// Does something and waits until the pods have been rolled exactly once for it. Returns the places
/// of the pod template that have changed.
pub(crate) async fn roll(
    stage: &Stage,
    act: impl AsyncFnOnce() -> Result<()>,
) -> Result<Vec<String>> {
    let deployment = stage.child(kinds::DEPLOYMENT, "images")?;
    let before = stage.live(kinds::DEPLOYMENT, "images").await?;
    let generation = before.metadata.generation.unwrap_or_default();
    act().await?;
    let after = deployment
        .satisfies(soon(), "to roll", |found| {
            let now = found.metadata.generation.unwrap_or_default();
            (now > generation)
                .then_some(())
                .ok_or(format!("generation {now}"))
        })
        .await?;
    stage.glance("images").is_ready(later()).await?;
    stays(&deployment, Some(generation + 1)).await?;
    Ok(differences(
        &before.data["spec"]["template"],
        &after.data["spec"]["template"],
    ))
}

/// Nothing changes the spec of an object for a while.
async fn stays(object: &Object<'_>, generation: Option<i64>) -> Result<()> {
    always(seconds(2), "one roll-out", async || {
        let found = object.get().await?.context("it is gone")?;
        anyhow::ensure!(
            found.metadata.generation == generation,
            "generation {:?} instead of {generation:?}",
            found.metadata.generation
        );
        Ok(())
    })
    .await
}

/// The database URL that pods and Jobs use.
async fn connection(stage: &Stage) -> Result<String> {
    let secret = stage.live(kinds::SECRET, "images-db-connection").await?;
    let encoded = secret.data["data"]["connection"]
        .as_str()
        .context("no URL")?;
    let bytes = data_encoding::BASE64.decode(encoded.as_bytes())?;
    Ok(String::from_utf8(bytes)?)
}

async fn template(stage: &Stage) -> Result<Value> {
    let found: DynamicObject = stage.live(kinds::DEPLOYMENT, "images").await?;
    Ok(found.data["spec"]["template"].clone())
}

/// The place of a volume in a pod template.
fn volume(template: &Value, name: &str) -> Result<String> {
    let volumes = template["spec"]["volumes"]
        .as_array()
        .context("no volumes")?;
    let place = volumes.iter().position(|volume| volume["name"] == name);
    Ok(format!(
        "/spec/volumes/{}",
        place.context("no such volume")?
    ))
}

/// The places, as JSON pointers, where two documents differ.
fn differences(old: &Value, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", old, new, &mut found);
    found
}

fn compare(place: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(o), Value::Object(n)) => {
            let keys: BTreeSet<_> = o.keys().chain(n.keys()).collect();
            for key in keys {
                let escaped = key.replace('~', "~0").replace('/', "~1");
                compare(&format!("{place}/{escaped}"), &old[key], &new[key], found);
            }
        }
        (Value::Array(o), Value::Array(n)) => {
            for i in 0..o.len().max(n.len()) {
                compare(
                    &format!("{place}/{i}"),
                    &old[i.min(o.len())],
                    &new[i.min(n.len())],
                    found,
                );
            }
        }
        (o, n) if o == n => {}
        _ => found.push(place.to_owned()),
    }
}
