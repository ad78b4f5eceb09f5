//! What is left behind on a cluster that was given up: remembered, and taken back when it returns.

use anyhow::{Result, ensure};
use e2e::{
    bed::run,
    children,
    cluster::Cluster,
    commands::Commands,
    expect::{Object, eventually},
    fleet::Fleet,
    kinds,
    patience::seconds,
    scenario::Scenario,
    site::Site,
};
use glance_api::keys::{annotations, labels};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::strangers::impostor;

fn ledger(object: &DynamicObject) -> Vec<Value> {
    let entries = object.data.pointer("/status/abandoned");
    entries
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default()
}

fn has_entries(count: usize) -> impl Fn(&DynamicObject) -> Result<(), String> {
    move |object| match ledger(object) {
        entries if entries.len() == count => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// Deletes a Glance whose children are to stay, with the cluster at hand.
async fn give_up(site: &Site<'_>, scenario: &Scenario, target_cluster: &Object<'_>) -> Result<()> {
    let wish = json!({ annotations::ABANDON_REMOTE_CHILDREN: "true" });
    let patch = json!({ "metadata": { "annotations": wish } });
    site.hub()
        .any(kinds::GLANCE.0, kinds::GLANCE.1, Some(scenario.namespace()))
        .patch(
            scenario.name(),
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .await?;
    site.hub().delete(&scenario.glance()).await?;
    site.glance(scenario.name()).is_gone(seconds(30)).await?;
    target_cluster
        .satisfies(seconds(10), "to list what was left", has_entries(1))
        .await?;
    Ok(())
}

async fn ask(site: &Site<'_>, name: &str) -> Result<()> {
    let wish = json!({ "clusters.openstack.c5c3.io/reclaim": "true" });
    let patch = json!({ "metadata": { "annotations": wish } });
    site.hub()
        .any(
            kinds::TARGET_CLUSTER.0,
            kinds::TARGET_CLUSTER.1,
            Some(&site.clusters_namespace()),
        )
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// Looks like what the Glance left behind, but bears the mark of another one of its name.
async fn plant(edge: &Cluster, namespace: &str, name: &str, glance: &str, hub: &str) -> Result<()> {
    let metadata = json!({
        "namespace": namespace, "name": name,
        "labels": {
            labels::OWNER_KIND: "Glance", labels::OWNER_NAME: glance,
            labels::OWNER_NAMESPACE: namespace,
        },
        "annotations": { annotations::OWNER_UID: "another", annotations::HUB_UID: hub },
    });
    edge.create(&impostor(kinds::CONFIG_MAP, &metadata)).await?;
    Ok(())
}

#[test]
fn what_was_left_behind_is_listed_and_deleted_when_the_cluster_is_back_and_somebody_asks() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "ledger").await?;
        let (ns, clusters) = (site.namespace(), site.clusters_namespace());
        let edge = fleet.cluster("edge-1")?;
        site.register("edge-1").await?;
        let operator = site
            .operator()
            .await?
            .arg("--abandon-after=2s")
            .arg("--hub-id=the-hub");
        let running = operator.start().await?;
        let scenario = site.scenario("images").on("edge-1").backend("fast", true);
        site.apply(&scenario).await?;
        let glance = site.glance("images");
        let made = glance.is_ready(seconds(60)).await?;
        plant(edge, ns, "of-a-namesake", "images", "the-hub").await?;
        plant(edge, ns, "of-another-hub", "images", "another").await?;

        site.deregister("edge-1").await?;
        site.hub().delete(&scenario.glance()).await?;
        glance.is_gone(seconds(60)).await?;
        let object = site.target_cluster(&clusters, "edge-1");
        let seen = object
            .satisfies(seconds(10), "to list what was left", has_entries(1))
            .await?;
        let entry = &ledger(&seen)[0];
        assert_eq!(entry["namespace"], ns);
        assert_eq!(entry["name"], "images");
        assert_eq!(entry["uid"], json!(made.metadata.uid));
        assert_eq!(entry["clusterUID"], made.data["status"]["targetClusterUID"]);
        let objects = entry["objects"].to_string();
        for text in [
            "Deployment images",
            "Secret images-db-connection",
            "Database",
        ] {
            assert!(objects.contains(text), "{text}: {objects}");
        }

        // The ledger outlives the registration and the process.
        assert!(running.stop()?.success());
        let running = operator.start().await?;
        let left = children::by_labels(edge, ns, "images").await?.len();
        assert!(left >= 11, "{left}");

        // Asked for while the cluster is away: done when it is back.
        ask(&site, "edge-1").await?;
        site.register("edge-1").await?;
        object
            .satisfies(seconds(20), "to list nothing", has_entries(0))
            .await?;
        let there = children::by_labels(edge, ns, "images").await?;
        let names = there.keys().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(
            names,
            ["ConfigMap/of-a-namesake", "ConfigMap/of-another-hub"]
        );
        object.event(seconds(5), "ChildrenReclaimed").await?;
        eventually(seconds(5), "the wish to be taken off", async || {
            let seen = object.exists(seconds(1)).await?;
            let left = seen.metadata.annotations.unwrap_or_default();
            ensure!(
                !left.contains_key("clusters.openstack.c5c3.io/reclaim"),
                "{left:?}"
            );
            Ok(())
        })
        .await?;
        // The database of the one that is gone, too.
        let database = Object::new(edge, kinds::DATABASE, ns, "images");
        assert!(database.get().await?.is_none());
        // Nothing is watched on a cluster that nobody needs any more.
        let labels = [("cluster", "edge-1"), ("kind", "ConfigMap")];
        running
            .metric_becomes(
                seconds(10),
                ("glance_operator_target_watch_objects", &labels),
                |objects| objects == 0.0,
            )
            .await?;
        drop(running);
        Ok(())
    });
}

#[test]
fn what_a_new_glance_of_the_name_has_taken_over_is_not_reclaimed() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "heir").await?;
        let (ns, clusters) = (site.namespace(), site.clusters_namespace());
        let edge = fleet.cluster("edge-1")?;
        site.register("edge-1").await?;
        let _running = site.operator().await?.start().await?;
        let scenario = site.scenario("images").on("edge-1").backend("fast", true);
        site.apply(&scenario).await?;
        let glance = site.glance("images");
        glance.is_ready(seconds(60)).await?;
        let object = site.target_cluster(&clusters, "edge-1");
        give_up(&site, &scenario, &object).await?;
        site.apply(&scenario).await?;
        glance.is_ready(seconds(60)).await?;
        let before: Vec<_> = children::by_labels(edge, ns, "images")
            .await?
            .into_keys()
            .collect();
        ask(&site, "edge-1").await?;
        object
            .satisfies(seconds(20), "to list nothing", has_entries(0))
            .await?;
        let after: Vec<_> = children::by_labels(edge, ns, "images")
            .await?
            .into_keys()
            .collect();
        assert_eq!(after, before);
        glance.is_ready(seconds(5)).await?;
        Ok(())
    });
}

#[test]
fn by_command_what_was_left_is_listed_under_the_name_its_cluster_has_now_and_deleted() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "ghosts").await?;
        let (ns, clusters) = (site.namespace(), site.clusters_namespace());
        let user = Commands::of(&site).await?;
        let edge = fleet.cluster("edge-1")?;
        site.register("edge-1").await?;
        let _running = site.operator().await?.start().await?;
        let scenario = site.scenario("images").on("edge-1").backend("fast", true);
        site.apply(&scenario).await?;
        let glance = site.glance("images");
        glance.is_ready(seconds(60)).await?;
        let before = site.target_cluster(&clusters, "edge-1");
        give_up(&site, &scenario, &before).await?;
        let listed = user.clusters_ok(&["abandoned", "-o", "json"]).await?;
        let listed = listed.json()?["items"].clone();
        assert_eq!(listed[0]["cluster"], "edge-1", "{listed}");
        assert_eq!(listed[0]["name"], "images", "{listed}");
        let left = children::by_labels(edge, ns, "images").await?.len();
        assert!(left > 0);

        site.deregister("edge-1").await?;
        let gone = json!("NotRegistered");
        before
            .satisfies(seconds(10), "to be without registration", |found| {
                let all = found.data.pointer("/status/conditions").cloned();
                let all = all.unwrap_or_default();
                let mut all = all.as_array().into_iter().flatten();
                let is_gone = all.any(|c| c["type"] == "Registered" && c["reason"] == gone);
                is_gone.then_some(()).ok_or_else(|| "registered".to_owned())
            })
            .await?;
        let refused = user.clusters(&["reclaim", "edge-1"]).await?;
        assert!(refused.code != 0 && refused.stdout.is_empty(), "{refused}");
        assert!(refused.stderr.contains("register"), "{refused}");
        assert_eq!(children::by_labels(edge, ns, "images").await?.len(), left);

        // The same cluster under another name takes over what lies there.
        site.register_as("edge-anew", edge).await?;
        let now = site.target_cluster(&clusters, "edge-anew");
        now.satisfies(seconds(30), "to take over the ledger", has_entries(1))
            .await?;
        before.is_gone(seconds(30)).await?;
        let table = user.clusters_ok(&["abandoned", "edge-anew"]).await?;
        assert!(table.stdout.contains("images"), "{table}");
        let done = user.clusters_ok(&["reclaim", "edge-anew"]).await?;
        assert!(done.stdout.contains("edge-anew reclaimed"), "{done}");
        assert!(children::by_labels(edge, ns, "images").await?.is_empty());
        let listed = user.clusters_ok(&["abandoned", "-o", "json"]).await?;
        assert_eq!(listed.json()?["items"], json!([]), "{listed}");
        let again = user.clusters_ok(&["reclaim", "edge-anew"]).await?;
        assert!(again.stderr.contains("Nothing was left behind"), "{again}");
        Ok(())
    });
}
