//! Who may use a cluster, and when nobody may.

use std::time::Duration;

use anyhow::ensure;
use e2e::{
    bed::run,
    children,
    expect::{Wanted, always, condition},
    fleet::Fleet,
    kinds,
    patience::seconds,
    site::Site,
};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

const UNAVAILABLE: &str = "TargetClusterUnavailable";

#[test]
fn a_namespace_without_a_grant_is_refused_and_a_revoked_one_is_still_torn_down() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "grant").await?;
        let ns = site.namespace();
        site.policy(
            "edge-1",
            json!({ "allowedNamespaces": { "names": ["somebody-else"] } }),
        )
        .await?;
        site.register("edge-1").await?;
        // Without a policy of its own, by the flag.
        site.register("edge-2").await?;
        let operator = site.operator().await?.arg("--require-target-grants");
        let _running = operator.start().await?;
        let edge = fleet.cluster("edge-1")?;
        for (name, store, target) in [("images", "fast", "edge-1"), ("other", "slow", "edge-2")] {
            let scenario = site.scenario(name).on(target).backend(store, true);
            site.apply(&scenario).await?;
            let text = format!("cluster \"{target}\" does not admit namespace \"{ns}\"");
            let refused = Wanted::of("SecretsReady")
                .reason(UNAVAILABLE)
                .message(&text);
            let seen = site.glance(name).condition(seconds(20), refused).await?;
            assert_eq!(seen.metadata.finalizers, None, "nothing was begun");
            let refused = Wanted::of("CredentialsReady")
                .reason(UNAVAILABLE)
                .message(&text);
            site.backend(store).condition(seconds(20), refused).await?;
        }
        assert!(children::by_labels(edge, ns, "images").await?.is_empty());

        // Granted by a label of the namespace: healed by the label, not by a poll.
        let selector = json!({ "selector": { "matchLabels": { "images": "yes" } } });
        site.policy("edge-1", json!({ "allowedNamespaces": selector }))
            .await?;
        let label = async |value: serde_json::Value| {
            let patch = json!({ "metadata": { "labels": { "images": value } } });
            site.hub()
                .any("v1", "Namespace", None)
                .patch(ns, &PatchParams::default(), &Patch::Merge(&patch))
                .await
        };
        label(json!("yes")).await?;
        let granted = Wanted::of("SecretsReady").status("True");
        site.glance("images")
            .condition(seconds(10), granted)
            .await?;
        site.glance("images").is_ready(seconds(60)).await?;
        site.backend("fast").is_ready(seconds(30)).await?;

        // Revoked: nothing more is written, what runs is left alone.
        label(serde_json::Value::Null).await?;
        let revoked = Wanted::of("SecretsReady")
            .reason(UNAVAILABLE)
            .message("(NotGranted)");
        site.glance("images")
            .condition(seconds(10), revoked)
            .await?;
        let before = children::by_labels(edge, ns, "images").await?;
        assert!(before.len() >= 10, "{:?}", before.keys());
        let deployment = edge.any(kinds::DEPLOYMENT.0, kinds::DEPLOYMENT.1, Some(ns));
        deployment
            .delete("images", &DeleteParams::default())
            .await?;
        always(Duration::from_secs(3), "nothing is written", async || {
            let there = children::by_labels(edge, ns, "images").await?;
            ensure!(
                !there.contains_key("Deployment/images"),
                "it was made again"
            );
            Ok(())
        })
        .await?;

        // And removed when its Glance goes.
        site.hub()
            .delete(&site.scenario("images").on("edge-1").glance())
            .await?;
        site.glance("images").is_gone(seconds(60)).await?;
        assert!(children::by_labels(edge, ns, "images").await?.is_empty());
        Ok(())
    });
}

#[test]
fn a_paused_cluster_is_neither_written_to_nor_torn_down_nor_given_up() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "pause").await?;
        let ns = site.namespace();
        site.register("edge-1").await?;
        let operator = site.operator().await?.arg("--abandon-after=2s");
        let _running = operator.start().await?;
        let scenario = site.scenario("images").on("edge-1").backend("fast", true);
        site.apply(&scenario).await?;
        let (glance, backend) = (site.glance("images"), site.backend("fast"));
        glance.is_ready(seconds(60)).await?;
        backend.is_ready(seconds(30)).await?;

        site.policy("edge-1", json!({ "paused": true })).await?;
        let paused = Wanted::of("SecretsReady")
            .reason(UNAVAILABLE)
            .message("(Paused)");
        glance.condition(seconds(10), paused).await?;
        let edge = fleet.cluster("edge-1")?;
        let deployment = edge.any(kinds::DEPLOYMENT.0, kinds::DEPLOYMENT.1, Some(ns));
        deployment
            .delete("images", &DeleteParams::default())
            .await?;
        // Also without its registration no window runs.
        site.hub().delete(&scenario.glance()).await?;
        site.deregister("edge-1").await?;
        always(Duration::from_secs(6), "it is held", async || {
            let there = children::by_labels(edge, ns, "images").await?;
            ensure!(
                !there.contains_key("Deployment/images"),
                "it was made again"
            );
            ensure!(there.len() >= 9, "{:?}", there.keys());
            let held = glance.get().await?;
            ensure!(held.is_some(), "it was let go");
            Ok(())
        })
        .await?;
        let held = glance.get().await?.unwrap();
        let reason = condition(&held, "SecretsReady").unwrap();
        assert!(
            reason["message"].as_str().unwrap().contains("(Paused)"),
            "{reason}"
        );
        let events = glance.events().await?;
        let given_up = |e: &k8s_openapi::api::core::v1::Event| {
            e.reason.as_deref() == Some("RemoteChildrenAbandoned")
        };
        assert!(!events.iter().any(given_up), "{events:?}");

        site.register("edge-1").await?;
        site.policy("edge-1", json!({ "paused": false })).await?;
        glance.is_gone(seconds(60)).await?;
        assert!(children::by_labels(edge, ns, "images").await?.is_empty());
        let _ = backend;
        Ok::<_, anyhow::Error>(())
    });
}
