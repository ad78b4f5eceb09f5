//! Backends that come, go and change places: what is rendered, what is kept, what is said.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result};
use e2e::{
    doubles::status::Behaviour,
    expect::{always, eventually},
    fleet::Fleet,
    kinds,
    patience::seconds,
    scenario::backend,
};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::{
    reasons::stage::{Stage, holds, later, on_hub_and_target, says, soon},
    rotation::roll,
};

on_hub_and_target!(
    another_default_is_another_configuration_of_the_same_stores,
    a_backend_that_cannot_be_rendered_is_skipped_and_said_once,
    a_detached_store_goes_and_comes_back,
    three_old_revisions_are_kept_and_none_that_is_mounted_goes,
);

const TYPE: &str = "BackendsReady";
const NO_DEFAULT: &str =
    "No attached, credential-ready backend is marked isDefault; exactly one is required";

/// What follows where pods run already.
const KEPT: &str = "; until then changes of the configuration in the spec wait";

/// What the pods mount.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Mounted {
    config: String,
    backends: String,
}

async fn mounted(stage: &Stage) -> Result<Mounted> {
    let live = stage.live(kinds::DEPLOYMENT, "images").await?;
    let volumes = &live.data["spec"]["template"]["spec"]["volumes"];
    let name = |volume: &str, place: &str| {
        let volumes = volumes.as_array().into_iter().flatten();
        let mut found = volumes.filter(|v| v["name"] == volume);
        let name = found.next().and_then(|v| v.pointer(place)?.as_str());
        name.map(str::to_owned).context("no such volume")
    };
    Ok(Mounted {
        config: name("config", "/configMap/name")?,
        backends: name("backends", "/secret/secretName")?,
    })
}

/// A file of the configuration that the pods mount.
async fn config(stage: &Stage) -> Result<String> {
    let map = stage
        .live(kinds::CONFIG_MAP, &mounted(stage).await?.config)
        .await?;
    let text = map.data["data"]["glance-api.conf"].as_str();
    Ok(text.context("no glance-api.conf")?.to_owned())
}

/// The sections of the stores that the pods mount.
async fn sections(stage: &Stage) -> Result<Vec<String>> {
    let secret = stage
        .live(kinds::SECRET, &mounted(stage).await?.backends)
        .await?;
    let encoded = secret.data["data"]["backends.conf"].as_str();
    let bytes = data_encoding::BASE64.decode(encoded.context("no backends.conf")?.as_bytes())?;
    let text = String::from_utf8(bytes)?;
    let sections = text.lines().filter(|line| line.starts_with('['));
    Ok(sections.map(str::to_owned).collect())
}

async fn apply(stage: &Stage, name: &str, default: bool) -> Result<()> {
    let manifest = backend(stage.namespace(), "images", name, default);
    stage.hub().apply(&manifest).await?;
    Ok(())
}

async fn ready_with(stage: &Stage, backends: &[(&str, bool)]) -> Result<()> {
    let mut scenario = stage.scenario("images");
    for (name, default) in backends {
        scenario = scenario.backend(name, *default);
    }
    stage.site.apply(&scenario).await?;
    stage.glance("images").is_ready(later()).await?;
    Ok(())
}

async fn another_default_is_another_configuration_of_the_same_stores(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "switch", place).await?;
    ready_with(&stage, &[("fast", true), ("cheap", false)]).await?;
    let glance = stage.glance("images");
    let first = mounted(&stage).await?;
    let text = config(&stage).await?;
    assert!(
        text.contains("enabled_backends = cheap:s3,fast:s3\n"),
        "{text}"
    );
    assert!(text.contains("default_backend = fast\n"), "{text}");

    // No default: told, and the pods keep what they have.
    let generation = stage
        .live(kinds::DEPLOYMENT, "images")
        .await?
        .metadata
        .generation;
    apply(&stage, "fast", false).await?;
    let none = format!("{NO_DEFAULT}{KEPT}");
    says(&glance, soon(), (TYPE, "NoDefaultBackend", &none)).await?;
    assert_eq!(mounted(&stage).await?, first);
    let kept = stage
        .live(kinds::DEPLOYMENT, "images")
        .await?
        .metadata
        .generation;
    assert_eq!(kept, generation);
    // Everything else of the CR still gets through, on the last good configuration.
    let replicas = json!({ "spec": { "deployment": { "replicas": 3 } } });
    stage.patch(kinds::GLANCE, "images", replicas).await?;
    stage
        .child(kinds::DEPLOYMENT, "images")?
        .satisfies(soon(), "to grow", |found| {
            let replicas = &found.data["spec"]["replicas"];
            (replicas == 3).then_some(()).ok_or(replicas.to_string())
        })
        .await?;
    assert_eq!(mounted(&stage).await?, first);
    holds(&glance, later(), ("DeploymentReady", "DeploymentReady")).await?;

    // Another default: another configuration, the same stores, one roll-out.
    let changed = roll(&stage, async || apply(&stage, "cheap", true).await).await?;
    assert_eq!(changed, ["/spec/volumes/0/configMap/name"]);
    let second = mounted(&stage).await?;
    assert_eq!(second.backends, first.backends);
    let switched = config(&stage).await?;
    assert_eq!(
        switched,
        text.replace("default_backend = fast\n", "default_backend = cheap\n")
    );

    // Two: told by name, in order; nothing moves.
    apply(&stage, "fast", true).await?;
    let several = format!(
        "More than one attached, credential-ready backend is marked isDefault (cheap, fast); exactly one is \
         required{KEPT}"
    );
    says(&glance, soon(), (TYPE, "NoDefaultBackend", &several)).await?;
    assert_eq!(mounted(&stage).await?, second);

    // Back to the first: its old configuration is still there, under its old name.
    let changed = roll(&stage, async || apply(&stage, "cheap", false).await).await?;
    assert_eq!(changed, ["/spec/volumes/0/configMap/name"]);
    assert_eq!(mounted(&stage).await?, first);
    Ok(())
}

async fn a_backend_that_cannot_be_rendered_is_skipped_and_said_once(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "skip", place).await?;
    ready_with(&stage, &[("good", true)]).await?;
    let glance = stage.glance("images");
    let alone = mounted(&stage).await?;

    // A trailing newline: the usual accident of a hand-made Secret.
    let keys = [("access-key-id", "AKIA\n"), ("secret-access-key", "s3")];
    stage.secret("bad-credentials", &keys).await?;
    apply(&stage, "bad", false).await?;
    let fault_of = |name: &str| {
        format!(
            "[glance_store] option name or value contains a newline or carriage-return character: key \
             \"access-key-id\" in Secret {}/{name}-credentials (a newline at the end is the usual cause)",
            stage.namespace()
        )
    };
    let fault = fault_of("bad");
    let waiting = format!("Waiting for backends: bad ({fault})");
    says(&glance, soon(), (TYPE, "WaitingForBackends", &waiting)).await?;
    let event = glance.event(soon(), "GlanceBackendSkipped").await?;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(
        event.message.as_deref(),
        Some(format!("Skipping backend bad: {fault}").as_str())
    );
    assert_eq!(
        mounted(&stage).await?,
        alone,
        "the good one runs on as it was"
    );
    let bad = stage.site.backend("bad");
    holds(&bad, soon(), ("CredentialsReady", "CredentialsAvailable")).await?;
    let unmounted =
        "waiting for the Glance Deployment to mount this backend's rendered store section";
    says(
        &bad,
        soon(),
        ("ConfigProjected", "WaitingForProjection", unmounted),
    )
    .await?;

    // More passes say no more.
    for _ in 0..3 {
        stage.poke("images").await?;
        tokio::time::sleep(seconds(1)).await;
    }
    let said = async || {
        let events = glance.events().await?;
        let skipped = events
            .iter()
            .filter(|event| event.reason.as_deref() == Some("GlanceBackendSkipped"));
        anyhow::Ok(skipped.map(|event| event.count.unwrap_or(1)).sum::<i32>())
    };
    assert_eq!(said().await?, 1);
    assert!(bad.events().await?.is_empty(), "a backend gets no events");

    // Repaired, it is in.
    let changed = roll(&stage, async || {
        let keys = [("access-key-id", "AKIA"), ("secret-access-key", "s3")];
        stage.secret("bad-credentials", &keys).await
    })
    .await?;
    assert_eq!(
        changed,
        [
            "/spec/volumes/0/configMap/name",
            "/spec/volumes/1/secret/secretName"
        ]
    );
    assert_eq!(sections(&stage).await?, ["[bad]", "[good]"]);
    holds(&bad, soon(), ("Ready", "AllReady")).await?;

    // Broken again, it is said again; the default goes the same way and takes nothing with it.
    stage.secret("bad-credentials", &keys).await?;
    says(&glance, soon(), (TYPE, "WaitingForBackends", &waiting)).await?;
    eventually(soon(), "the second event", async || {
        let count = said().await?;
        anyhow::ensure!(count == 2, "{count} times");
        Ok(())
    })
    .await?;
    holds(&glance, later(), ("DeploymentReady", "DeploymentReady")).await?;
    assert_eq!(sections(&stage).await?, ["[good]"]);
    let last_good = mounted(&stage).await?;
    stage.secret("good-credentials", &keys).await?;
    let both = format!(
        "Waiting for backends: bad ({fault}); good ({}); the default backend is among them, so \
         the last good configuration stays{KEPT}",
        fault_of("good")
    );
    says(&glance, soon(), (TYPE, "WaitingForBackends", &both)).await?;
    always(seconds(2), "the last good configuration", async || {
        let now = mounted(&stage).await?;
        anyhow::ensure!(now == last_good, "{now:?}");
        Ok(())
    })
    .await
}

async fn a_detached_store_goes_and_comes_back(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "detach", place).await?;
    ready_with(&stage, &[("first", true), ("second", false)]).await?;
    let glance = stage.glance("images");
    let both = mounted(&stage).await?;
    assert_eq!(sections(&stage).await?, ["[first]", "[second]"]);

    let second = backend(stage.namespace(), "images", "second", false);
    let changed = roll(&stage, async || stage.hub().delete(&second).await).await?;
    assert_eq!(
        changed,
        [
            "/spec/volumes/0/configMap/name",
            "/spec/volumes/1/secret/secretName"
        ]
    );
    assert_eq!(sections(&stage).await?, ["[first]"]);
    assert!(
        config(&stage)
            .await?
            .contains("enabled_backends = first:s3\n")
    );
    let event = glance.event(soon(), "GlanceBackendDetached").await?;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(
        event
            .message
            .unwrap_or_default()
            .starts_with("Backend second is no longer attached")
    );

    roll(&stage, async || apply(&stage, "second", false).await).await?;
    assert_eq!(
        mounted(&stage).await?,
        both,
        "the same stores, under the same names"
    );
    holds(&stage.site.backend("second"), soon(), ("Ready", "AllReady")).await?;
    holds(&glance, soon(), (TYPE, "AllBackendsProjected")).await?;

    // The last one goes: the pods keep their store until there is another.
    for name in ["first", "second"] {
        let manifest = backend(stage.namespace(), "images", name, false);
        stage.hub().delete(&manifest).await?;
    }
    let none = format!("{NO_DEFAULT}{KEPT}");
    says(&glance, soon(), (TYPE, "NoDefaultBackend", &none)).await?;
    let kept = mounted(&stage).await?;
    always(seconds(2), "the last good configuration", async || {
        let now = mounted(&stage).await?;
        anyhow::ensure!(now == kept, "{now:?}");
        Ok(())
    })
    .await
}

/// Names of a family of content-addressed objects.
async fn family(stage: &Stage, kind: (&str, &str), base: &str) -> Result<BTreeSet<String>> {
    let selector = format!("cobaltcore.c5c3.io/config-base={base}");
    let found = stage
        .children()?
        .any(kind.0, kind.1, Some(stage.namespace()))
        .list_metadata(&ListParams::default().labels(&selector))
        .await?;
    Ok(found
        .items
        .into_iter()
        .filter_map(|item| item.metadata.name)
        .collect())
}

async fn three_old_revisions_are_kept_and_none_that_is_mounted_goes(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "history", place).await?;
    let ns = stage.namespace();
    ready_with(&stage, &[("store", true)]).await?;
    let glance = stage.glance("images");
    let configs = (kinds::CONFIG_MAP, "images-config");
    let secrets = (kinds::SECRET, "images-backends");
    let workers = |n: u32| json!({ "spec": { "apiServer": { "workers": n } } });

    // Roll-outs that succeed: the current one and the three before it stay.
    let mut history = vec![mounted(&stage).await?];
    for n in 0..5 {
        let before = mounted(&stage).await?;
        let id = format!("AKIA{n}");
        let keys = [("access-key-id", id.as_str()), ("secret-access-key", "s3")];
        stage.secret("store-credentials", &keys).await?;
        stage
            .patch(kinds::GLANCE, "images", workers(n + 21))
            .await?;
        let now = eventually(soon(), "both to be replaced", async || {
            let now = mounted(&stage).await?;
            let both = now.config != before.config && now.backends != before.backends;
            anyhow::ensure!(both, "{now:?} after {before:?}");
            Ok(now)
        })
        .await?;
        holds(&glance, later(), ("DeploymentReady", "DeploymentReady")).await?;
        history.push(now);
        // Their age counts in whole seconds.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let newest: Vec<_> = history.iter().rev().take(4).collect();
    let configs_kept: BTreeSet<_> = newest.iter().map(|m| m.config.clone()).collect();
    let secrets_kept: BTreeSet<_> = newest.iter().map(|m| m.backends.clone()).collect();
    let at_rest = async |(kind, base): ((&str, &str), &str), wanted: &BTreeSet<String>| {
        eventually(soon(), "the history to be three", async || {
            let found = family(&stage, kind, base).await?;
            anyhow::ensure!(found == *wanted, "{found:?} instead of {wanted:?}");
            Ok(())
        })
        .await
    };
    at_rest(configs, &configs_kept).await?;
    at_rest(secrets, &secrets_kept).await?;

    // A database that is away holds the roll-out while the configuration changes on: what the
    // pods mount stays, although newer ones crowd it out. The old content becomes current once in
    // between, so that by its age it is the first to go.
    let live = mounted(&stage).await?;
    let mood = stage.doubles()?.mood();
    mood.set(kinds::MARIADB, ns, Behaviour::Broken);
    let cluster = "MariaDB cluster \"mariadb\" is not ready";
    says(
        &glance,
        soon(),
        ("DatabaseReady", "ClusterNotReady", cluster),
    )
    .await?;
    for n in [11, 12, 25, 13, 14, 15, 16] {
        let seen = family(&stage, configs.0, configs.1).await?;
        stage.patch(kinds::GLANCE, "images", workers(n)).await?;
        says(
            &glance,
            soon(),
            ("DatabaseReady", "ClusterNotReady", cluster),
        )
        .await?;
        if n != 25 {
            eventually(soon(), "another configuration", async || {
                let found = family(&stage, configs.0, configs.1).await?;
                anyhow::ensure!(found != seen, "{found:?}");
                Ok(())
            })
            .await?;
        }
        let found = family(&stage, configs.0, configs.1).await?;
        assert!(found.contains(&live.config), "{found:?} without {live:?}");
    }
    assert_eq!(mounted(&stage).await?, live);
    mood.set(kinds::MARIADB, ns, Behaviour::Healthy);
    glance.is_ready(later()).await?;
    let now = mounted(&stage).await?;
    assert_ne!(now.config, live.config);
    eventually(soon(), "the history to be three again", async || {
        let found = family(&stage, configs.0, configs.1).await?;
        anyhow::ensure!(found.len() == 4 && found.contains(&now.config), "{found:?}");
        Ok(())
    })
    .await?;

    // A current one that somebody deletes is made again, under the same name.
    stage.delete(kinds::CONFIG_MAP, &now.config).await?;
    stage
        .child(kinds::CONFIG_MAP, &now.config)?
        .exists(soon())
        .await?;
    stage.delete(kinds::SECRET, &now.backends).await?;
    let again = stage
        .child(kinds::SECRET, &now.backends)?
        .exists(soon())
        .await?;
    assert_eq!(again.data.get("immutable"), Some(&Value::Bool(true)));
    Ok(())
}
