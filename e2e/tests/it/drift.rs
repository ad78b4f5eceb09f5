//! What happens to children that somebody else deletes, edits or brought first.

use e2e::{
    bed::run,
    children,
    cluster::{Cluster, told},
    expect::{Object, Wanted, eventually},
    fleet::Fleet,
    kinds,
    patience::seconds,
    site::Site,
};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

/// Edits by hand that the operator has to take back: kind, suffix of the name, where, what.
const EDITS: [((&str, &str), &str, &str, &str); 6] = [
    (
        kinds::DEPLOYMENT,
        "",
        "/spec/template/spec/containers/0/image",
        "evil.example/glance:1",
    ),
    (kinds::SERVICE, "", "/spec/ports/0/targetPort", "1234"),
    (kinds::DISRUPTION_BUDGET, "", "/spec/minAvailable", "0"),
    (kinds::CRON_JOB, "-db-purge", "/spec/schedule", "* * * * *"),
    (
        kinds::SECRET,
        "-db-connection",
        "/data/connection",
        "b2hubw==",
    ),
    (kinds::GRANT, "", "/spec/privileges/0", "SELECT"),
];

async fn edit(cluster: &Cluster, object: &DynamicObject, kind: (&str, &str), at: &str, to: &str) {
    let value: Value = serde_json::from_str(to).unwrap_or_else(|_| json!(to));
    let patch: json_patch::Patch =
        serde_json::from_value(json!([{ "op": "replace", "path": at, "value": value }])).unwrap();
    let name = object.metadata.name.as_deref().unwrap();
    let api = cluster.any(kind.0, kind.1, object.metadata.namespace.as_deref());
    let outcome = api
        .patch(name, &PatchParams::default(), &Patch::Json::<()>(patch))
        .await;
    outcome.map_err(|e| told(&e)).unwrap();
}

#[test]
fn every_child_on_a_target_is_put_back_when_deleted_or_edited() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "drift").await?;
        let _operator = site.operator().await?.start().await?;
        site.register("edge-2").await?;
        let scenario = site.scenario("images").on("edge-2").backend("fast", true);
        site.apply(&scenario).await?;
        site.glance("images").is_ready(seconds(60)).await?;
        let edge = fleet.cluster("edge-2")?;

        for (kind, suffix, at, to) in EDITS {
            let name = format!("images{suffix}");
            let child = Object::new(edge, kind, site.namespace(), &name);
            let before = child.exists(seconds(5)).await?;
            let wanted = before.data.pointer(at).cloned();
            edit(edge, &before, kind, at, to).await;
            child
                .satisfies(seconds(15), &format!("to have its {at} back"), |now| {
                    let found = now.data.pointer(at).cloned();
                    if found == wanted {
                        Ok(())
                    } else {
                        Err(format!("{found:?}"))
                    }
                })
                .await?;
        }

        let all = children::by_labels(edge, site.namespace(), "images").await?;
        for (key, child) in &all {
            let (kind, name) = key.split_once('/').unwrap();
            let version = children::KINDS
                .iter()
                .find(|(_, k)| *k == kind)
                .map(|(version, _)| *version)
                .unwrap();
            let api = edge.any(version, kind, Some(site.namespace()));
            let parameters = DeleteParams::background();
            api.delete(name, &parameters)
                .await
                .map_err(|e| anyhow::anyhow!(told(&e)))?;
            eventually(seconds(20), &format!("{key} to be back"), async || {
                let now = api.get_opt(name).await.map_err(|e| told(&e))?;
                let now = now.ok_or("it is absent")?;
                if now.metadata.uid == child.metadata.uid {
                    Err("it is the old one")
                } else {
                    Ok(())
                }
                .map_err(str::to_owned)
            })
            .await?;
        }
        site.glance("images").is_ready(seconds(60)).await?;
        Ok(())
    });
}

#[test]
fn a_foreign_object_under_a_childs_name_is_left_alone_and_named() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "foreign").await?;
        let _operator = site.operator().await?.start().await?;
        site.register("edge-2").await?;
        let edge = fleet.cluster("edge-2")?;
        let foreign = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "namespace": site.namespace(), "name": "images" },
            "spec": {
                "replicas": 0,
                "selector": { "matchLabels": { "app": "other" } },
                "template": {
                    "metadata": { "labels": { "app": "other" } },
                    "spec": { "containers": [{ "name": "other", "image": "other.example/other:1" }] },
                },
            },
        });
        edge.apply(&foreign).await?;
        let scenario = site.scenario("images").on("edge-2").backend("fast", true);
        site.apply(&scenario).await?;
        let refused = Wanted::of("DeploymentReady")
            .status("False")
            .message("refusing to adopt");
        site.glance("images")
            .condition(seconds(60), refused)
            .await?;
        let child = Object::new(edge, kinds::DEPLOYMENT, site.namespace(), "images");
        let found = child.exists(seconds(5)).await?;
        assert_eq!(
            found.data["spec"]["template"]["spec"]["containers"][0]["name"],
            "other"
        );
        assert!(
            !found
                .metadata
                .managed_fields
                .iter()
                .flatten()
                .any(|entry| { entry.manager.as_deref() == Some("cobaltcore-operator") })
        );

        // The way out: the foreign object goes, and ours comes.
        edge.delete(&foreign).await?;
        site.glance("images").is_ready(seconds(60)).await?;
        Ok(())
    });
}
