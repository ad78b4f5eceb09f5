//! `glance-operator render --diff` on a placed Glance that runs: what is there is no difference, and a change is
//! shown before it is made.

use std::{ffi::OsString, path::Path, process::Output};

use anyhow::{Context as _, Result};
use e2e::{
    bed::run, cluster::Cluster, fleet::Fleet, operator, patience::seconds, scenario::Scenario,
    site::Site,
};
use serde_json::{Value, json};
use tokio::process::Command;

const SECRETS: [&str; 4] = [
    "db-password",
    "service-password",
    "AKIAEXAMPLE",
    "s3-secret",
];

/// Compares the manifests of a Glance with the clusters.
async fn diff(hub: &Cluster, edge: &Cluster, file: &Path, glance: &Value) -> Result<Output> {
    let items = json!({ "apiVersion": "v1", "kind": "List", "items": [glance] });
    std::fs::write(file, items.to_string())?;
    let mut kubeconfigs = OsString::from(hub.kubeconfig());
    kubeconfigs.push(":");
    kubeconfigs.push(edge.kubeconfig());
    Command::new(operator::binary()?)
        .args(["render", "--diff", "--context", edge.name()])
        .args(["--hub-context", hub.name(), "-f"])
        .arg(file)
        .env("KUBECONFIG", kubeconfigs)
        .output()
        .await
        .context("running render --diff")
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_change_is_shown_before_it_is_made_and_what_runs_is_no_difference() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "render").await?;
        site.register("edge-1").await?;
        let _running = site.operator().await?.start().await?;
        let images: Scenario = site.scenario("images").backend("fast", true).on("edge-1");
        let (hub, edge) = (site.hub(), fleet.cluster("edge-1")?);
        images.apply(hub, edge).await?;
        site.glance("images").is_ready(seconds(60)).await?;

        let file = fleet.folder().path().join("render-diff.json");
        let same = diff(hub, edge, &file, &images.glance()).await?;
        let (shown, notes) = texts(&same);
        assert!(
            same.status.success() && shown.is_empty(),
            "{shown}\n{notes}"
        );

        let changed = images
            .clone()
            .with("deployment", json!({ "replicas": 3 }))
            .with("logging", json!({ "debug": true }));
        let other = diff(hub, edge, &file, &changed.glance()).await?;
        let (shown, notes) = texts(&other);
        assert_eq!(other.status.code(), Some(1), "{notes}");
        for part in [
            "# Deployment images: would be changed",
            "+  replicas: 3",
            "would be created",
            "+  debug = true",
        ] {
            assert!(shown.contains(part), "{part}:\n{shown}");
        }
        for secret in SECRETS {
            assert!(
                !shown.contains(secret) && !notes.contains(secret),
                "{secret}"
            );
        }

        let refused = changed.with("keystoneEndpoint", json!("http://:5000/v3"));
        let refused = diff(hub, edge, &file, &refused.glance()).await?;
        let (shown, notes) = texts(&refused);
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            shown.is_empty() && notes.contains("URL must include a host"),
            "{notes}"
        );
        site.glance("images").is_ready(seconds(5)).await?;
        Ok(())
    });
}
