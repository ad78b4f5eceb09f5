//! Rights that are taken away while the operator works, and given back.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{
    bed::run,
    children,
    cluster::Cluster,
    expect::{Object, Wanted},
    fleet::Fleet,
    kinds,
    line::{Fault, Line},
    patience::seconds,
    registration::{self, ACCOUNT},
    site::Site,
};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

/// What a site is granted on a target.
struct Grant<'f> {
    edge: &'f Cluster,
    release: String,
    namespace: String,
}

// === impl Grant ===

impl Grant<'_> {
    /// Takes verbs on autoscalers away.
    async fn withhold(&self, verbs: &[&str]) -> Result<()> {
        registration::withhold(
            self.edge,
            &self.release,
            &self.namespace,
            "autoscaling",
            verbs,
        )
        .await
    }
}

fn missing(object: &DynamicObject) -> Vec<String> {
    let all = object.data.pointer("/status/missingPermissions");
    let of = |m: &Value| {
        let text = |key: &str| m[key].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("verb"), text("resource"))
    };
    all.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(of)
        .collect()
}

fn most(object: &DynamicObject, wanted: u32) -> Result<(), String> {
    let now = &object.data["spec"]["maxReplicas"];
    (*now == json!(wanted)).then_some(()).ok_or(now.to_string())
}

/// A watch that cannot be begun again, after a connection that was cut.
async fn a_watch_ends_alone(site: &Site<'_>, grant: &Grant<'_>, line: &Line) -> Result<()> {
    let (ns, clusters, edge) = (site.namespace(), site.clusters_namespace(), grant.edge);
    let object = site.target_cluster(&clusters, "edge");
    grant.withhold(&["list", "watch"]).await?;
    line.fail(Fault::Reset);
    tokio::time::sleep(Duration::from_millis(300)).await;
    line.heal();
    let seen = object.condition(seconds(30), lacks()).await?;
    assert_eq!(
        missing(&seen),
        [
            "list horizontalpodautoscalers",
            "watch horizontalpodautoscalers"
        ]
    );
    // The others go on.
    let service = Object::new(edge, kinds::SERVICE, ns, "images");
    let old = service.exists(seconds(5)).await?.metadata.uid;
    edge.any(kinds::SERVICE.0, kinds::SERVICE.1, Some(ns))
        .delete("images", &kube::api::DeleteParams::default())
        .await?;
    service
        .satisfies(seconds(30), "to be made again", |found| {
            let same = found.metadata.uid == old;
            (!same).then_some(()).ok_or("the old one".to_owned())
        })
        .await?;
    site.kubeconfig(edge).await?;
    object.condition(seconds(60), granted()).await?;
    // It is watched again: what is done to it is undone.
    let patch = json!({ "spec": { "maxReplicas": 9 } });
    edge.any(kinds::AUTOSCALER.0, kinds::AUTOSCALER.1, Some(ns))
        .patch("images", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    let autoscaler = Object::new(edge, kinds::AUTOSCALER, ns, "images");
    autoscaler
        .satisfies(seconds(45), "to be put right", |found| most(found, 5))
        .await?;
    Ok(())
}

fn lacks() -> Wanted<'static> {
    let wanted = Wanted::of("Permitted").status("False");
    wanted.reason("MissingPermissions")
}

fn granted() -> Wanted<'static> {
    Wanted::of("Permitted").status("True")
}

#[test]
fn a_right_that_goes_while_it_is_used_is_named_at_once_and_costs_its_own_kind_alone() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "taken").await?;
        let (ns, clusters) = (site.namespace(), site.clusters_namespace());
        let edge = fleet.cluster("edge-1")?;
        let line = Line::to(edge).await?;
        let through = line.kubeconfig(&site.kubeconfig(edge).await?);
        registration::register(site.hub(), &clusters, "edge", &through, Some(ns)).await?;
        let grant = Grant {
            edge,
            release: site.access_namespace(),
            namespace: ns.to_owned(),
        };
        let _running = site.operator().await?.start().await?;
        let scaled = |most: u32| json!({ "minReplicas": 2, "maxReplicas": most, "targetCPUUtilization": 80 });
        let scenario = site.scenario("images").on("edge").backend("fast", true);
        let scenario = scenario.with("autoscaling", scaled(4));
        scenario.apply(site.hub(), edge).await?;
        let (glance, autoscaler) = (
            site.glance("images"),
            Object::new(edge, kinds::AUTOSCALER, ns, "images"),
        );
        glance.is_ready(seconds(60)).await?;
        let object = site.target_cluster(&clusters, "edge");
        object.condition(seconds(20), granted()).await?;
        let before = children::by_labels(edge, ns, "images").await?;

        // A write that is not allowed any more: said where it fails and where rights are shown.
        grant.withhold(&["patch"]).await?;
        scenario
            .clone()
            .with("autoscaling", scaled(5))
            .apply_resources(site.hub())
            .await?;
        let refused = Wanted::of("HPAReady")
            .status("False")
            .reason("ReconcileError");
        glance
            .condition(seconds(20), refused.message("forbidden"))
            .await?;
        let seen = object.condition(seconds(30), lacks()).await?;
        assert_eq!(missing(&seen), ["patch horizontalpodautoscalers"]);
        site.kubeconfig(edge).await?;
        object.condition(seconds(60), granted()).await?;
        glance.is_ready(seconds(60)).await?;
        autoscaler
            .satisfies(seconds(10), "to be as asked for", |found| most(found, 5))
            .await?;

        a_watch_ends_alone(&site, &grant, &line).await?;

        // All of them, and back: nothing was made anew.
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "namespace": ns, "name": format!("{}-{ACCOUNT}", grant.release) },
        });
        edge.delete(&binding).await?;
        scenario
            .clone()
            .with("autoscaling", scaled(6))
            .apply_resources(site.hub())
            .await?;
        let seen = object.condition(seconds(30), lacks()).await?;
        let all = missing(&seen);
        ensure!(all.len() > 20, "{all:?}");
        site.kubeconfig(edge).await?;
        object.condition(seconds(60), granted()).await?;
        glance.is_ready(seconds(60)).await?;
        autoscaler
            .satisfies(seconds(30), "to be as asked for", |found| most(found, 6))
            .await?;
        let after = children::by_labels(edge, ns, "images").await?;
        for (key, child) in before.iter().filter(|(key, _)| *key != "Service/images") {
            let now = after.get(key).and_then(|child| child.metadata.uid.clone());
            assert_eq!(now, child.metadata.uid, "{key}");
        }
        Ok(())
    });
}
