//! Names that lead elsewhere, and clusters with two names.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    bed::run,
    children,
    cluster::Cluster,
    expect::{Object, Wanted, always, conditions, conditions_table},
    fleet::Fleet,
    kinds,
    operator::Operator,
    patience::seconds,
    registration,
    site::Site,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams};
use serde_json::json;

async fn uid(cluster: &Cluster) -> Result<String> {
    let namespaces: kube::Api<Namespace> = kube::Api::all(cluster.client());
    let system = namespaces.get("kube-system").await?;
    system.metadata.uid.context("kube-system has no UID")
}

#[test]
fn a_name_that_leads_to_another_cluster_is_refused_until_somebody_approves() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "swap").await?;
        let (ns, clusters) = (site.namespace(), site.clusters_namespace());
        let (first, second) = (fleet.cluster("edge-1")?, fleet.cluster("edge-2")?);
        site.register_as("blue", first).await?;
        let operator = site.operator().await?;
        let running = operator.start().await?;
        let scenario = site.scenario("images").on("blue").backend("fast", true);
        scenario.apply(site.hub(), first).await?;
        site.glance("images").is_ready(seconds(60)).await?;
        let before = children::by_labels(first, ns, "images").await?.len();

        // Swapped while nobody looks: what was seen outlives the process.
        assert!(running.stop()?.success());
        site.register_as("blue", second).await?;
        let running = operator.start().await?;
        let object = site.target_cluster(&clusters, "blue");
        let swapped = Wanted::of("Identified")
            .status("False")
            .reason("IdentityChanged");
        let seen = object.condition(seconds(20), swapped).await?;
        assert_eq!(
            seen.data.pointer("/status/clusterUID"),
            Some(&json!(uid(first).await?)),
            "what it has to lead to"
        );
        let found = uid(second).await?;
        let refused = Wanted::of("SecretsReady")
            .reason("TargetClusterUnavailable")
            .message(&found);
        site.glance("images")
            .condition(seconds(20), refused)
            .await?;
        always(seconds(2), "nothing is written there", async || {
            let there = children::by_labels(second, ns, "images").await?;
            ensure!(there.is_empty(), "{:?}", there.keys());
            Ok(())
        })
        .await?;
        let still = children::by_labels(first, ns, "images").await?.len();
        assert_eq!(still, before);

        // Created anew, the registration is trusted anew; the Glance knows better.
        site.deregister("blue").await?;
        let gone = Wanted::of("Registered").reason("NotRegistered");
        object.condition(seconds(10), gone).await?;
        site.register_as("blue", second).await?;
        object
            .condition(seconds(20), Wanted::of("Ready").status("True"))
            .await?;
        let moved = Wanted::of("SecretsReady").message("(IdentityChanged)");
        site.glance("images").condition(seconds(10), moved).await?;
        assert!(children::by_labels(second, ns, "images").await?.is_empty());

        // Approved.
        scenario.apply(site.hub(), second).await?;
        site.policy("blue", json!({ "identity": uid(second).await? }))
            .await?;
        site.glance("images").is_ready(seconds(60)).await?;
        let there = children::by_labels(second, ns, "images").await?;
        assert!(there.len() >= 10, "{:?}", there.keys());

        // A pin that the cluster does not have ends its use at once, and back.
        site.policy("blue", json!({ "identity": uid(first).await? }))
            .await?;
        object.condition(seconds(10), swapped).await?;
        site.policy("blue", json!({ "identity": uid(second).await? }))
            .await?;
        object
            .condition(seconds(10), Wanted::of("Ready").status("True"))
            .await?;
        site.glance("images").is_ready(seconds(30)).await?;
        drop(running);
        Ok(())
    });
}

#[test]
fn two_names_of_one_cluster_both_work_and_name_each_other() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "twin").await?;
        let clusters = site.clusters_namespace();
        let edge = fleet.cluster("edge-1")?;
        let kubeconfig = site.kubeconfig(edge).await?;
        for name in ["one", "two"] {
            let scope = Some(site.namespace());
            registration::register(site.hub(), &clusters, name, &kubeconfig, scope).await?;
        }
        let _running = site.operator().await?.start().await?;
        for (name, other) in [("one", "two"), ("two", "one")] {
            let twin = Wanted::of("Identified")
                .status("True")
                .reason("DuplicateIdentity")
                .message(other);
            let object = site.target_cluster(&clusters, name);
            object.condition(seconds(20), twin).await?;
            object
                .condition(seconds(10), Wanted::of("Ready").status("True"))
                .await?;
            let store = format!("{name}-store");
            let scenario = site
                .scenario(&format!("on-{name}"))
                .on(name)
                .backend(&store, true);
            scenario.apply(site.hub(), edge).await?;
        }
        for name in ["on-one", "on-two"] {
            site.glance(name).is_ready(seconds(60)).await?;
        }
        site.deregister("two").await?;
        let alone = Wanted::of("Identified").status("True").reason("Identified");
        site.target_cluster(&clusters, "one")
            .condition(seconds(10), alone)
            .await?;
        site.glance("on-one").is_ready(seconds(10)).await?;
        // The name is what a Glance means: the cluster behind it is known by another, and that does not help.
        let nameless = Wanted::of("SecretsReady")
            .reason("TargetClusterUnavailable")
            .message("cluster not found");
        site.glance("on-two")
            .condition(seconds(20), nameless)
            .await?;
        Ok(())
    });
}

#[test]
fn two_hubs_on_one_target_leave_each_others_children_alone() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "hubs").await?;
        let (ns, clusters) = (site.namespace(), site.clusters_namespace());
        let edge = fleet.cluster("edge-1")?;
        let (first, second) = tokio::join!(
            async {
                site.register("edge-1").await?;
                let running = site.operator().await?.start().await?;
                let scenario = site.scenario("images").on("edge-1").backend("fast", true);
                site.apply(&scenario).await?;
                site.glance("images").is_ready(seconds(60)).await?;
                Ok::<_, anyhow::Error>((running, scenario))
            },
            fleet.another("hub-2", false),
        );
        let ((running, scenario), second) = (first?, second?);
        let before = marks(&children::by_labels(edge, ns, "images").await?);

        let hub = second.cluster();
        hub.namespace(ns).await?;
        let kubeconfig = site.kubeconfig(edge).await?;
        registration::register(hub, &clusters, "edge-1", &kubeconfig, Some(ns)).await?;
        let folder = fleet.folder().path().join("of-hub-2");
        std::fs::create_dir_all(&folder)?;
        let other = Operator::install(hub, ns, &folder)
            .await?
            .arg(&format!("--namespace={ns}"))
            .arg(&format!("--clusters-namespace={clusters}"))
            .start()
            .await?;
        scenario.apply_resources(hub).await?;
        let theirs = Object::glance(hub, ns, "images");
        theirs
            .satisfies(seconds(30), "to say whose they are", |found| {
                let told = conditions(found).iter().any(|condition| {
                    let message = condition["message"].as_str().unwrap_or_default();
                    message.contains("belongs to the hub")
                });
                told.then_some(()).ok_or_else(|| conditions_table(found))
            })
            .await?;
        hub.delete(&scenario.glance()).await?;
        theirs.is_gone(seconds(60)).await?;
        assert_eq!(
            marks(&children::by_labels(edge, ns, "images").await?),
            before
        );
        site.glance("images").is_ready(seconds(5)).await?;

        // The first hub is lost for good, and the second is to take its place: with a word it takes over everything.
        drop(running);
        let system: kube::Api<Namespace> = kube::Api::all(site.hub().client());
        let lost = system
            .get("kube-system")
            .await?
            .metadata
            .uid
            .context("no UID")?;
        let job = Object::new(edge, kinds::JOB, ns, "images-db-sync");
        let sync = job.exists(seconds(5)).await?.metadata.uid;
        scenario.apply_resources(hub).await?;
        theirs
            .satisfies(seconds(30), "to say what to do", |found| {
                let told = conditions(found).iter().any(|condition| {
                    let message = condition["message"].as_str().unwrap_or_default();
                    message.contains(&format!("adopt-from-hub={lost}"))
                });
                told.then_some(()).ok_or_else(|| conditions_table(found))
            })
            .await?;
        let word = json!({ "metadata": { "annotations": {
            "glance.openstack.c5c3.io/adopt-from-hub": lost,
        } } });
        hub.any(kinds::GLANCE.0, kinds::GLANCE.1, Some(ns))
            .patch("images", &PatchParams::default(), &Patch::Merge(&word))
            .await?;
        theirs.is_ready(seconds(60)).await?;
        let heir = uid(hub).await?;
        let all = marks(&children::by_labels(edge, ns, "images").await?);
        for (key, of, _) in before.iter().filter(|(key, ..)| !key.contains("-config-")) {
            let now = all.iter().find(|(now, ..)| now == key);
            let now = now.with_context(|| format!("{key} is gone"))?;
            assert_eq!(&now.1, of, "{key} was made anew");
            assert_eq!(now.2.as_ref(), Some(&heir), "{key}");
        }
        assert_eq!(job.exists(seconds(1)).await?.metadata.uid, sync);
        hub.delete(&scenario.glance()).await?;
        theirs.is_gone(seconds(60)).await?;
        let left = children::by_labels(edge, ns, "images").await?;
        assert!(left.is_empty(), "{:?}", left.keys());
        drop(other);
        Ok(())
    });
}

/// Which objects there are, and whose they say they are.
fn marks(children: &children::Children) -> Vec<(String, Option<String>, Option<String>)> {
    children
        .iter()
        .map(|(key, object)| {
            let annotations = object.metadata.annotations.clone().unwrap_or_default();
            let hub = annotations.get("openstack.c5c3.io/hub-uid").cloned();
            (key.clone(), object.metadata.uid.clone(), hub)
        })
        .collect()
}
