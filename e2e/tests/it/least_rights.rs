//! The least that an operator and a target can be granted, and all that works with it.

use anyhow::{Context as _, ensure};
use e2e::{
    bed::run,
    children,
    expect::{Object, Wanted, eventually},
    fleet::Fleet,
    kinds,
    patience::seconds,
    registration,
    site::Site,
};
use glance_api::keys::annotations;
use serde_json::json;

#[test]
fn with_the_twenty_rules_and_the_table_of_a_target_alone_glances_live_and_go() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "least").await?;
        let (hub, ns) = (site.hub(), site.namespace());
        let edge = fleet.cluster("edge-1")?;
        // Not even its namespaces may be read.
        let table = json!({ "readNamespaces": false });
        let kubeconfig = registration::grant(edge, &site.access_namespace(), &[ns], &table).await?;
        let clusters = site.clusters_namespace();
        registration::register(hub, &clusters, "edge-1", &kubeconfig, Some(ns)).await?;
        // Neither policy nor identity nor causes, nor the proxy of the hub's API server.
        let operator = site.operator().await?;
        let fleet_rights = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": format!("glance-operator-{ns}-fleet") },
        });
        hub.delete(&fleet_rights).await?;
        let running = operator.start().await?;

        let there = site.scenario("there").on("edge-1").backend("far", true);
        let here = site.scenario("here").backend("near", true);
        for scenario in [&there, &here] {
            site.apply(scenario).await?;
        }
        site.glance("there").is_ready(seconds(90)).await?;
        let live = Object::new(edge, kinds::DEPLOYMENT, ns, "there")
            .get()
            .await?;
        let marks = live
            .context("no Deployment")?
            .metadata
            .annotations
            .unwrap_or_default();
        ensure!(marks.contains_key(annotations::OWNER_UID), "{marks:?}");
        ensure!(!marks.contains_key(annotations::HUB_UID), "{marks:?}");

        // Only what the missing right is for does not work, and it is said.
        let glance = site.glance("here");
        let probe = Wanted::of("GlanceAPIReady")
            .status("False")
            .message("services/proxy");
        glance.condition(seconds(60), probe).await?;
        let pods = Wanted::of("DeploymentReady").status("True");
        glance.condition(seconds(60), pods).await?;

        for scenario in [&there, &here] {
            hub.delete(&scenario.glance()).await?;
            site.glance(scenario.name()).is_gone(seconds(60)).await?;
        }
        eventually(seconds(30), "nothing to be left", async || {
            let left = children::by_labels(edge, ns, "there").await?;
            ensure!(left.is_empty(), "{:?}", left.keys());
            Ok(())
        })
        .await?;
        running.stop()?;
        Ok(())
    });
}
