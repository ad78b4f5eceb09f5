//! What the hub shows of its registrations, and that nothing depends on showing it.

use std::time::Duration;

use anyhow::ensure;
use e2e::{
    bed::run,
    definitions,
    expect::{Object, Wanted, always, eventually},
    fleet::Fleet,
    kinds,
    operator::Operator,
    patience::seconds,
    registration,
    scenario::Scenario,
    site::Site,
    witness::Witness,
};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

fn status(object: &DynamicObject, field: &str) -> Value {
    let pointer = format!("/status/{field}");
    object.data.pointer(&pointer).cloned().unwrap_or_default()
}

#[test]
fn a_registration_is_shown_as_an_object_that_goes_with_it() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "tc").await?;
        let clusters = site.clusters_namespace();
        // A platform team has applied one before; the other is made by the operator.
        site.policy("edge-2", json!({ "maxInFlight": 4 })).await?;
        site.register("edge-1").await?;
        site.register("edge-2").await?;
        let operator = site.operator().await?;
        let running = operator.start().await?;
        let ready = Wanted::of("Ready").status("True");
        let (ours, theirs) = (
            site.target_cluster(&clusters, "edge-1"),
            site.target_cluster(&clusters, "edge-2"),
        );
        let seen = ours.condition(seconds(20), ready).await?;
        theirs.condition(seconds(20), ready).await?;
        let labels = seen.metadata.labels.clone().unwrap_or_default();
        assert_eq!(labels["app.kubernetes.io/managed-by"], "glance-operator");
        let edge = fleet.cluster("edge-1")?;
        let system: kube::Api<k8s_openapi::api::core::v1::Namespace> =
            kube::Api::all(edge.client());
        let uid = system.get("kube-system").await?.metadata.uid;
        assert_eq!(status(&seen, "clusterUID"), json!(uid));
        assert!(
            edge.server()
                .ends_with(status(&seen, "server").as_str().unwrap())
        );
        assert!(status(&seen, "version").as_str().unwrap().starts_with('v'));
        assert_eq!(status(&seen, "namespaces"), json!([site.namespace()]));
        assert_eq!(status(&seen, "credential/kind"), "Token");

        // Counts who names it.
        let scenario = site.scenario("images").on("edge-1").backend("fast", true);
        site.apply(&scenario).await?;
        ours.satisfies(seconds(10), "to count the Glance", |found| {
            match status(found, "glances") {
                count if count == json!(1) => Ok(()),
                other => Err(other.to_string()),
            }
        })
        .await?;
        let placed = site.glance("images").is_ready(seconds(60)).await?;
        assert_eq!(status(&placed, "targetClusterUID"), json!(uid));

        // Written on change only: neither a probe nor a restart is one.
        let witness = Witness::of(site.hub(), kinds::TARGET_CLUSTER, &clusters).await?;
        assert!(running.stop()?.success());
        let running = operator.start().await?;
        site.glance("images").is_ready(seconds(20)).await?;
        always(
            Duration::from_secs(12),
            "the status is not rewritten",
            async || {
                let (one, two) = (witness.writes("edge-1")?, witness.writes("edge-2")?);
                ensure!(one + two == 0, "{:#?}", witness.versions()?);
                Ok(())
            },
        )
        .await?;

        // Deregistered: shown while somebody names it, gone with the last one; theirs stays.
        site.deregister("edge-1").await?;
        site.deregister("edge-2").await?;
        let gone = Wanted::of("Registered")
            .status("False")
            .reason("NotRegistered");
        ours.condition(seconds(10), gone).await?;
        let left = theirs.condition(seconds(10), gone).await?;
        // Who took it away may not know that somebody needs it.
        let told = ours.event(seconds(10), "ClusterDeregistered").await?;
        let told = told.message.unwrap_or_default();
        let needed = format!("1 Glances name it (1 in namespace {})", site.namespace());
        assert!(told.contains(&needed), "{told}");
        let unneeded = theirs.events().await?;
        let told = |e: &k8s_openapi::api::core::v1::Event| {
            e.reason.as_deref() == Some("ClusterDeregistered")
        };
        assert!(!unneeded.iter().any(told), "nobody needed it: {unneeded:?}");
        assert_eq!(
            status(&left, "clusterUID"),
            Value::Null,
            "trusted anew next time"
        );
        site.register("edge-1").await?;
        ours.condition(seconds(10), ready).await?;
        site.hub().delete(&scenario.glance()).await?;
        site.glance("images").is_gone(seconds(60)).await?;
        site.deregister("edge-1").await?;
        ours.is_gone(seconds(15)).await?;

        // What people write into one that the operator has made outlives the registration.
        site.register("edge-1").await?;
        ours.condition(seconds(10), ready).await?;
        let names = json!([site.namespace()]);
        let wish = json!({ "spec": { "allowedNamespaces": { "names": names } } });
        site.hub()
            .any(
                kinds::TARGET_CLUSTER.0,
                kinds::TARGET_CLUSTER.1,
                Some(&clusters),
            )
            .patch("edge-1", &PatchParams::default(), &Patch::Merge(&wish))
            .await?;
        site.deregister("edge-1").await?;
        let kept = ours.condition(seconds(10), gone).await?;
        assert_eq!(kept.data["spec"]["allowedNamespaces"]["names"], names);
        ensure!(theirs.get().await?.is_some(), "it was applied by somebody");
        drop(running);
        Ok(())
    });
}

#[test]
fn everything_works_without_the_definition_and_begins_when_it_appears() {
    run(async |fleet: &Fleet| {
        let hub = fleet.another("bare-hub", false).await?;
        let hub = hub.cluster();
        let ours = definitions::ours()?;
        let (of_clusters, _): (Vec<_>, Vec<_>) = ours
            .into_iter()
            .partition(|(name, _)| name.starts_with("targetclusters."));
        ensure!(of_clusters.len() == 1, "the definition is not shipped");
        hub.uninstall(&of_clusters).await?;

        let (namespace, clusters) = ("t-bare", "t-bare-clusters");
        let edge = fleet.cluster("edge-1")?;
        for cluster in [hub, edge] {
            cluster.namespace(namespace).await?;
        }
        let kubeconfig =
            registration::grant(edge, "t-bare-access", &[namespace], &Value::Null).await?;
        registration::register(hub, clusters, "edge-1", &kubeconfig, Some(namespace)).await?;
        let operator = Operator::install(hub, namespace, fleet.folder().path()).await?;
        let _running = operator
            .arg(&format!("--namespace={namespace}"))
            .arg(&format!("--clusters-namespace={clusters}"))
            .start()
            .await?;
        let scenario = Scenario::new(namespace, "images")
            .on("edge-1")
            .backend("fast", true);
        scenario.apply(hub, edge).await?;
        Object::glance(hub, namespace, "images")
            .is_ready(seconds(60))
            .await?;

        hub.install(&of_clusters).await?;
        Object::new(hub, kinds::TARGET_CLUSTER, clusters, "edge-1")
            .condition(seconds(30), Wanted::of("Ready").status("True"))
            .await?;
        // Its policy holds as well.
        hub.apply(&json!({
            "apiVersion": kinds::TARGET_CLUSTER.0, "kind": kinds::TARGET_CLUSTER.1,
            "metadata": { "namespace": clusters, "name": "edge-1" },
            "spec": { "paused": true },
        }))
        .await?;
        let paused = Wanted::of("SecretsReady")
            .reason("TargetClusterUnavailable")
            .message("paused");
        Object::glance(hub, namespace, "images")
            .condition(seconds(10), paused)
            .await?;
        // And goes with it.
        hub.uninstall(&of_clusters).await?;
        eventually(seconds(30), "work without the definition", async || {
            Object::glance(hub, namespace, "images")
                .is_ready(seconds(1))
                .await
        })
        .await?;
        Ok(())
    });
}
