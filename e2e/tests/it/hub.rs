//! A hub that goes away and comes back under Glances that are placed elsewhere.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    assets::Component,
    bed::run,
    children,
    expect::{Object, Wanted, always, eventually},
    fleet::Fleet,
    kinds,
    operator::Operator,
    patience::seconds,
    registration,
    scenario::Scenario,
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

#[test]
fn an_api_server_of_the_hub_that_restarts_is_worked_with_again_and_costs_no_child() {
    run(async |fleet: &Fleet| {
        let member = fleet.another("hub-3", false).await?;
        let Some(plane) = member.plane() else {
            return Ok(());
        };
        let (hub, edge) = (member.cluster(), fleet.cluster("edge-1")?);
        let (ns, clusters) = ("t-restart", "t-restart-clusters");
        for cluster in [hub, edge] {
            cluster.namespace(ns).await?;
        }
        let kubeconfig = registration::grant(edge, "t-restart-access", &[ns], &Value::Null).await?;
        registration::register(hub, clusters, "edge-1", &kubeconfig, Some(ns)).await?;
        let folder = fleet.folder().path().join("of-hub-3");
        std::fs::create_dir_all(&folder)?;
        let mut running = Operator::install(hub, ns, &folder)
            .await?
            .arg(&format!("--namespace={ns}"))
            .arg(&format!("--clusters-namespace={clusters}"))
            .start()
            .await?;
        let scenario = Scenario::new(ns, "images")
            .on("edge-1")
            .backend("fast", true);
        scenario.apply(hub, edge).await?;
        let glance = Object::glance(hub, ns, "images");
        glance.is_ready(seconds(90)).await?;
        let before = children::by_labels(edge, ns, "images").await?;

        plane.stop(Component::ApiServer)?;
        // Meanwhile somebody interferes on the target, which is as well as ever.
        let drift = json!({ "spec": { "selector": { "app.kubernetes.io/instance": "drifted" } } });
        edge.any(kinds::SERVICE.0, kinds::SERVICE.1, Some(ns))
            .patch("images", &PatchParams::default(), &Patch::Merge(&drift))
            .await?;
        always(seconds(5), "the operator to live on", async || {
            let ended = running.exited();
            ensure!(ended.is_none(), "{ended:?}: {}", running.tail(5));
            Ok(())
        })
        .await?;
        plane.run(Component::ApiServer)?;
        plane.ready().await?;

        let service = Object::new(edge, kinds::SERVICE, ns, "images");
        service
            .satisfies(seconds(60), "to be put right", |found| {
                let now = &found.data["spec"]["selector"]["app.kubernetes.io/instance"];
                (now == "images").then_some(()).ok_or(now.to_string())
            })
            .await?;
        // Glances are watched again,
        scale(hub, edge, ns, 4).await?;
        glance.is_ready(seconds(60)).await?;
        let after = children::by_labels(edge, ns, "images").await?;
        for (key, child) in &before {
            let now = after.get(key).and_then(|child| child.metadata.uid.clone());
            assert_eq!(now, child.metadata.uid, "{key}");
        }
        // registrations too, and policies.
        let unavailable = Wanted::of("SecretsReady").reason("TargetClusterUnavailable");
        pause(hub, clusters, true).await?;
        glance
            .condition(seconds(45), unavailable.message("(Paused)"))
            .await?;
        pause(hub, clusters, false).await?;
        glance.is_ready(seconds(45)).await?;
        registration::deregister(hub, clusters, "edge-1").await?;
        glance
            .condition(seconds(45), unavailable.message("cluster not found"))
            .await?;
        let ended = running.exited();
        ensure!(ended.is_none(), "{ended:?}");
        Ok(())
    });
}

async fn scale(
    hub: &e2e::cluster::Cluster,
    edge: &e2e::cluster::Cluster,
    ns: &str,
    replicas: u32,
) -> Result<()> {
    let patch = json!({ "spec": { "deployment": { "replicas": replicas } } });
    hub.any(kinds::GLANCE.0, kinds::GLANCE.1, Some(ns))
        .patch("images", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    let deployment = Object::new(edge, kinds::DEPLOYMENT, ns, "images");
    eventually(seconds(60), "the change", async || {
        let found = deployment.get().await?.context("no Deployment")?;
        let now = &found.data["spec"]["replicas"];
        ensure!(*now == json!(replicas), "{now}");
        Ok(())
    })
    .await
}

async fn pause(hub: &e2e::cluster::Cluster, clusters: &str, paused: bool) -> Result<()> {
    hub.apply(&json!({
        "apiVersion": kinds::TARGET_CLUSTER.0, "kind": kinds::TARGET_CLUSTER.1,
        "metadata": { "namespace": clusters, "name": "edge-1" },
        "spec": { "paused": paused },
    }))
    .await?;
    Ok(())
}
