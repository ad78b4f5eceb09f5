//! The end of a Glance: the order of things, and who keeps what.

use std::time::Duration;

use e2e::{
    assets::Component,
    bed::run,
    children,
    doubles::status::Behaviour,
    expect::{Object, Wanted, always},
    fleet::Fleet,
    kinds,
    patience::seconds,
    site::Site,
};
use serde_json::json;

/// Objects of somebody else that look like children of `images`.
fn look_alikes(namespace: &str) -> [serde_json::Value; 3] {
    let labels = json!({
        "app.kubernetes.io/name": "glance",
        "app.kubernetes.io/instance": "images",
        "app.kubernetes.io/managed-by": "glance-operator",
    });
    let meta = |name: &str| json!({ "namespace": namespace, "name": name, "labels": labels });
    [
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("images-config-0a1b2c3d"),
            "data": { "glance-api.conf": "" } }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": meta("images-backends-0a1b2c3d") }),
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": meta("images-extra"),
            "spec": { "ports": [{ "port": 80 }] } }),
    ]
}

async fn assert_look_alikes_stay(cluster: &e2e::cluster::Cluster, namespace: &str) {
    for manifest in look_alikes(namespace) {
        let kind = manifest["kind"].as_str().unwrap();
        let name = manifest["metadata"]["name"].as_str().unwrap();
        let found = Object::new(cluster, ("v1", kind), namespace, name)
            .get()
            .await
            .unwrap();
        let deleted = found.map(|o| o.metadata.deletion_timestamp.is_some());
        assert_eq!(deleted, Some(false), "{kind} {name}");
    }
}

async fn reasons(object: &Object<'_>) -> Vec<String> {
    let events = object.events().await.unwrap();
    events
        .into_iter()
        .filter_map(|event| event.reason)
        .collect()
}

#[test]
fn a_deleted_local_glance_takes_its_children_and_leaves_the_rest() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "del-local").await?;
        let _operator = site.operator().await?.start().await?;
        let scenario = site.scenario("images").backend("fast", true);
        site.apply(&scenario).await?;
        let glance = site.glance("images");
        glance.is_ready(seconds(60)).await?;
        for manifest in look_alikes(site.namespace()) {
            site.hub().apply(&manifest).await?;
        }
        site.hub().delete(&scenario.glance()).await?;
        glance.is_gone(seconds(60)).await?;
        let seen = reasons(&glance).await;
        let place = |reason: &str| seen.iter().position(|seen| seen == reason);
        let (first, second) = (place("FinalizingDatabase"), place("DatabaseFinalized"));
        assert!(first.is_some() && first < second, "{seen:?}");
        e2e::expect::eventually(seconds(60), "the children to go", async || {
            let left = children::by_reference(site.hub(), site.namespace(), "images").await?;
            anyhow::ensure!(left.is_empty(), "{:?}", left.keys());
            Ok::<_, anyhow::Error>(())
        })
        .await?;
        assert_look_alikes_stay(site.hub(), site.namespace()).await;
        for (kind, name) in [(kinds::SECRET, "images-db"), (kinds::MARIADB, "mariadb")] {
            let input = Object::new(site.hub(), kind, site.namespace(), name);
            assert!(input.get().await?.is_some(), "{name}");
        }
        Ok(())
    });
}

#[test]
fn a_deleted_placed_glance_is_swept_from_its_target() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "del-placed").await?;
        let _operator = site.operator().await?.start().await?;
        site.register("edge-1").await?;
        let scenario = site.scenario("images").on("edge-1").backend("fast", true);
        site.apply(&scenario).await?;
        let glance = site.glance("images");
        glance.is_ready(seconds(60)).await?;
        let edge = fleet.cluster("edge-1")?;
        for manifest in look_alikes(site.namespace()) {
            edge.apply(&manifest).await?;
        }
        site.hub().delete(&scenario.glance()).await?;
        glance.is_gone(seconds(60)).await?;
        let seen = reasons(&glance).await;
        assert!(
            !seen.contains(&"RemoteChildrenAbandoned".to_owned()),
            "{seen:?}"
        );
        let left = children::by_labels(edge, site.namespace(), "images").await?;
        // What the cluster is still deleting for us counts as swept.
        let left: Vec<_> = left
            .iter()
            .filter(|(_, object)| object.metadata.deletion_timestamp.is_none())
            .map(|(key, _)| key)
            .collect();
        assert!(left.is_empty(), "{left:?}");
        assert_look_alikes_stay(edge, site.namespace()).await;
        Ok(())
    });
}

#[test]
fn a_glance_goes_even_while_the_database_operator_is_down() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "del-db").await?;
        let _operator = site.operator().await?.start().await?;
        let scenario = site.scenario("images").backend("fast", true);
        site.apply(&scenario).await?;
        let glance = site.glance("images");
        glance.is_ready(seconds(60)).await?;
        let mood = fleet.doubles("hub")?.mood();
        for kind in [kinds::DATABASE, kinds::USER, kinds::GRANT] {
            mood.set(kind, site.namespace(), Behaviour::Silent);
        }
        site.hub().delete(&scenario.glance()).await?;
        glance.is_gone(seconds(120)).await?;
        let database = Object::new(site.hub(), kinds::DATABASE, site.namespace(), "images");
        let left = database.get().await?.expect("nobody is there to let it go");
        assert!(left.metadata.deletion_timestamp.is_some());
        for kind in [kinds::DATABASE, kinds::USER, kinds::GRANT] {
            mood.set(kind, site.namespace(), Behaviour::Healthy);
        }
        database.is_gone(seconds(30)).await
    });
}

#[test]
fn the_children_on_a_deregistered_target_are_abandoned_after_the_window() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "abandon").await?;
        let operator = site.operator().await?.arg("--abandon-after=4s");
        let _operator = operator.start().await?;
        site.register("edge-1").await?;
        let scenario = site.scenario("images").on("edge-1").backend("fast", true);
        site.apply(&scenario).await?;
        let glance = site.glance("images");
        glance.is_ready(seconds(60)).await?;
        site.deregister("edge-1").await?;
        let lost = Wanted::of("SecretsReady")
            .status("False")
            .reason("TargetClusterUnavailable");
        glance.condition(seconds(20), lost).await?;
        site.hub().delete(&scenario.glance()).await?;
        glance.is_gone(seconds(60)).await?;
        let event = glance.event(seconds(5), "RemoteChildrenAbandoned").await?;
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        let edge = fleet.cluster("edge-1")?;
        let left = children::by_labels(edge, site.namespace(), "images").await?;
        assert!(left.contains_key("Deployment/images"), "{:?}", left.keys());
        Ok(())
    });
}

#[test]
fn a_target_that_is_only_unreachable_is_waited_for_and_then_swept() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "away").await?;
        let operator = site.operator().await?.arg("--abandon-after=2s");
        let _operator = operator.start().await?;
        let away = fleet.another("away", true).await?;
        let Some(plane) = away.plane() else {
            return Ok(());
        };
        site.register_as("away", away.cluster()).await?;
        let scenario = site.scenario("images").on("away").backend("fast", true);
        scenario.apply(site.hub(), away.cluster()).await?;
        let glance = site.glance("images");
        glance.is_ready(seconds(60)).await?;

        plane.freeze(Component::ApiServer);
        site.hub().delete(&scenario.glance()).await?;
        // Far longer than the window.
        always(Duration::from_secs(10), "the resource", async || {
            let found = glance.get().await?;
            anyhow::ensure!(found.is_some(), "it is gone");
            Ok::<_, anyhow::Error>(())
        })
        .await?;
        plane.thaw(Component::ApiServer);
        glance.is_gone(seconds(120)).await?;
        let seen = reasons(&glance).await;
        assert!(
            !seen.contains(&"RemoteChildrenAbandoned".to_owned()),
            "{seen:?}"
        );
        let deployment = Object::new(
            away.cluster(),
            kinds::DEPLOYMENT,
            site.namespace(),
            "images",
        );
        deployment.is_gone(seconds(20)).await
    });
}
