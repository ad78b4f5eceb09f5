//! The registry in the hands of another operator: the example `mirror` of the crate, which knows
//! nothing of Glance, on the same fleet and registrations.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use e2e::{
    bed::run,
    cluster::Cluster,
    commands::Commands,
    expect::{Object, always, eventually},
    fleet::Fleet,
    kinds,
    patience::seconds,
    process::{Plan, Process},
    site::Site,
};
use serde_json::{Value, json};

use crate::commands::register;

/// Built beside the tests.
fn example(name: &str) -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let folder = exe
        .parent()
        .and_then(|deps| deps.parent())
        .context("no folder")?;
    let path = folder.join("examples").join(name);
    ensure!(
        path.exists(),
        "{} is missing: run `cargo build --workspace --examples`",
        path.display()
    );
    Ok(path)
}

fn original(namespace: &str, target: Option<&str>, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "namespace": namespace, "name": "motd",
            "labels": { "example.org/copy-to": target },
        },
        "data": { "text": text },
    })
}

async fn copy_says(cluster: &Cluster, namespace: &str, text: &str) -> Result<()> {
    let copy = Object::new(cluster, kinds::CONFIG_MAP, namespace, "motd");
    let wish = format!("to say {text:?}");
    copy.satisfies(seconds(20), &wish, |found| {
        let now = found.data["data"]["text"].as_str();
        (now == Some(text)).then_some(()).ok_or(format!("{now:?}"))
    })
    .await?;
    Ok(())
}

#[test]
fn an_operator_that_is_not_glance_runs_on_the_registry() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "mirror").await?;
        let (hub, ns) = (site.hub(), site.namespace());
        let (one, two) = (fleet.cluster("edge-1")?, fleet.cluster("edge-2")?);
        let user = Commands::of(&site).await?;
        let options = ["--namespaces", ns, "--wait=false"];
        let done = register(&user, &site, "edge-1", &options).await?;
        assert_eq!(done.code, 0, "{done}");
        let folder = fleet.folder().path();
        let mirror = Process::start(&Plan {
            name: "mirror",
            program: &example("mirror")?,
            args: &[site.clusters_namespace(), ns.to_owned()],
            env: &[(
                "KUBECONFIG".to_owned(),
                hub.kubeconfig().display().to_string(),
            )],
            folder,
            log: &folder.join(format!("mirror-{ns}.log")),
        })?;
        let copy = |cluster| Object::new(cluster, kinds::CONFIG_MAP, ns, "motd");

        hub.apply(&original(ns, Some("edge-1"), "hello")).await?;
        copy_says(one, ns, "hello").await?;
        hub.apply(&original(ns, Some("edge-1"), "changed")).await?;
        copy_says(one, ns, "changed").await?;
        // Drift, by hand and by deletion.
        one.apply(&original(ns, None, "tampered")).await?;
        copy_says(one, ns, "changed").await?;
        one.delete(&original(ns, None, "")).await?;
        copy_says(one, ns, "changed").await?;
        // Named before it is registered, and moved there.
        hub.apply(&original(ns, Some("edge-2"), "moved")).await?;
        copy(one).is_gone(seconds(20)).await?;
        let done = register(&user, &site, "edge-2", &options).await?;
        assert_eq!(done.code, 0, "{done}");
        copy_says(two, ns, "moved").await?;
        // What belongs to somebody else stays as it is.
        one.apply(&original(ns, None, "mine")).await?;
        hub.apply(&original(ns, Some("edge-1"), "theirs")).await?;
        copy(two).is_gone(seconds(20)).await?;
        eventually(seconds(20), "the refusal to be told", async || {
            let log = mirror.tail(50);
            ensure!(log.contains("belongs to somebody else"), "{log}");
            Ok::<_, anyhow::Error>(())
        })
        .await?;
        always(seconds(2), "the other's own", async || {
            copy_says(one, ns, "mine").await
        })
        .await?;
        Ok(())
    });
}
