//! The end of a Glance: the database first, then the rest, nothing of ours left and everything
//! of others still there; and what happens when its target cannot be asked.

mod lost;
mod together;

use std::time::Instant;

use anyhow::{Context as _, Result};
use e2e::{
    bed::run,
    children::{self, Children, KINDS},
    cluster::Cluster,
    doubles::status::Behaviour,
    expect::{Object, Wanted, eventually},
    fleet::Fleet,
    kinds,
    operator::Operator,
    patience::seconds,
    scenario::Scenario,
    site::Site,
};
use glance_api::keys::{annotations, labels};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::strangers::{essence, impostor};

const MARIADB_KINDS: [(&str, &str); 3] = [kinds::DATABASE, kinds::USER, kinds::GRANT];
const ABANDONED: &str = "RemoteChildrenAbandoned";

/// The labels of a child of this Glance on a target.
fn owner(namespace: &str, name: &str) -> Value {
    json!({
        labels::OWNER_KIND: "Glance", labels::OWNER_NAME: name, labels::OWNER_NAMESPACE: namespace,
    })
}

/// Objects of others, and what they are.
struct Bystanders<'c> {
    cluster: &'c Cluster,
    manifests: Vec<Value>,
    essences: Vec<Value>,
}

impl<'c> Bystanders<'c> {
    async fn plant(cluster: &'c Cluster, manifests: Vec<Value>) -> Result<Self> {
        let mut essences = Vec::new();
        for manifest in &manifests {
            let made = cluster.create(manifest).await;
            essences.push(essence(&made.with_context(|| manifest.to_string())?));
        }
        Ok(Self {
            cluster,
            manifests,
            essences,
        })
    }

    async fn are_untouched(&self) -> Result<()> {
        for (manifest, essence_then) in self.manifests.iter().zip(&self.essences) {
            let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str).unwrap();
            let kind = (text("/apiVersion"), text("/kind"));
            let (ns, name) = (text("/metadata/namespace"), text("/metadata/name"));
            let now = Object::new(self.cluster, kind, ns, name).get().await?;
            let now = now.with_context(|| format!("{} {name} is gone", kind.1))?;
            assert_eq!(&essence(&now), essence_then);
            assert!(now.metadata.deletion_timestamp.is_none(), "{name}");
        }
        Ok(())
    }
}

/// Everything beside the children of a Glance that its teardown could mistake for one.
fn lookalikes(namespace: &str, glance: &str) -> Vec<Value> {
    let mut all: Vec<_> = KINDS
        .into_iter()
        .map(|kind| {
            let name = format!("twin-{}", kind.1.to_lowercase());
            let metadata = json!({
                "namespace": namespace, "name": name,
                "labels": owner(namespace, glance),
                "annotations": { annotations::HUB_UID: "another-hub" },
            });
            impostor(kind, &metadata)
        })
        .collect();
    let mut labelled = |name: &str, key: &str, value: &str| {
        let mut labels = owner(namespace, glance);
        labels[key] = json!(value);
        let metadata = json!({ "namespace": namespace, "name": name, "labels": labels });
        all.push(impostor(kinds::CONFIG_MAP, &metadata));
    };
    labelled("of-another-name", labels::OWNER_NAME, "somebody-else");
    labelled("of-another-kind", labels::OWNER_KIND, "Keystone");
    labelled("of-another-namespace", labels::OWNER_NAMESPACE, "elsewhere");
    let unlabelled = json!({ "namespace": namespace, "name": format!("{glance}-config-00000000") });
    all.push(impostor(kinds::CONFIG_MAP, &unlabelled));
    all
}

/// Reasons of the events about a Glance in the order in which they were made, with messages.
async fn told(site: &Site<'_>, name: &str) -> Result<Vec<(String, String)>> {
    let mut events = site.glance(name).events().await?;
    events.sort_by_key(|e| {
        let version = e.metadata.resource_version.as_deref().unwrap_or("0");
        version.parse::<u64>().unwrap_or(0)
    });
    Ok(events
        .into_iter()
        .map(|e| (e.reason.unwrap_or_default(), e.message.unwrap_or_default()))
        .collect())
}

/// The same without those that are not about the end.
async fn last_words(site: &Site<'_>, name: &str) -> Result<Vec<String>> {
    let about_the_end = ["FinalizingDatabase", "DatabaseFinalized", ABANDONED];
    let mut reasons: Vec<_> = told(site, name).await?.into_iter().map(|e| e.0).collect();
    reasons.retain(|reason| about_the_end.contains(&reason.as_str()));
    Ok(reasons)
}

/// What a Glance has on a target, objects of other hubs aside.
async fn ours(cluster: &Cluster, namespace: &str, name: &str) -> Result<Children> {
    let mut found = children::by_labels(cluster, namespace, name).await?;
    found.retain(|_, child| {
        let annotations = child.metadata.annotations.clone().unwrap_or_default();
        annotations.get(annotations::HUB_UID).map(String::as_str) != Some("another-hub")
    });
    Ok(found)
}

async fn no_pods(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    let selector = format!("app.kubernetes.io/instance={name}");
    eventually(seconds(60), "the pods to go", async || {
        let pods = cluster.api::<Pod>(namespace);
        let found = pods
            .list(&ListParams::default().labels(&selector))
            .await
            .map_err(|e| e.to_string())?;
        match found.items.len() {
            0 => Ok(()),
            some => Err(format!("{some} pods")),
        }
    })
    .await
}

async fn inputs_are_there(cluster: &Cluster, scenario: &Scenario, store: &str) -> Result<()> {
    let ns = scenario.namespace();
    for name in [
        format!("{}-db", scenario.name()),
        format!("{}-service-user", scenario.name()),
        format!("{store}-credentials"),
    ] {
        let secret = Object::new(cluster, kinds::SECRET, ns, &name).get().await?;
        assert!(secret.is_some(), "{name}");
    }
    Ok(())
}

async fn annotate(site: &Site<'_>, name: &str, key: &str, value: &str) -> Result<()> {
    let patch = json!({ "metadata": { "annotations": { key: value } } });
    site.hub()
        .any(kinds::GLANCE.0, kinds::GLANCE.1, Some(site.namespace()))
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// A Glance with a database of its own.
fn brownfield(scenario: Scenario) -> Scenario {
    let secret = format!("{}-db", scenario.name());
    scenario.with(
        "database",
        json!({ "host": "db.example.com", "database": "glance", "secretRef": { "name": secret } }),
    )
}

#[test]
fn a_placed_glance_goes_database_first_and_takes_nothing_of_others_along() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "gone-t").await?;
        let _operator = site.operator().await?.start().await?;
        site.register("edge-1").await?;
        let (ns, edge) = (site.namespace(), fleet.cluster("edge-1")?);
        let scenario = site.scenario("images").on("edge-1").backend("fast", true);
        site.apply(&scenario).await?;
        let glance = site.glance("images");
        glance.is_ready(seconds(60)).await?;
        let bystanders = Bystanders::plant(edge, lookalikes(ns, "images")).await?;
        let on_hub = json!({
            "namespace": ns, "name": "labelled", "labels": owner(ns, "images"),
        });
        let on_hub = vec![impostor(kinds::CONFIG_MAP, &on_hub)];
        let on_hub = Bystanders::plant(site.hub(), on_hub).await?;

        // The MariaDB operator sleeps: its objects cannot go, and the Glance has to all the same.
        let mood = fleet.doubles("edge-1")?.mood();
        for kind in MARIADB_KINDS {
            mood.set(kind, ns, Behaviour::Silent);
        }
        let mark = edge.audit().map(e2e::audit::Audit::mark).transpose()?;
        site.hub().delete(&scenario.glance()).await?;
        glance.is_gone(seconds(120)).await?;
        assert_eq!(
            last_words(&site, "images").await?,
            ["FinalizingDatabase", "DatabaseFinalized"]
        );
        let texts = told(&site, "images").await?;
        let says = |reason: &str| {
            let found = texts.iter().find(|e| e.0 == reason);
            found.map(|e| e.1.as_str()).unwrap_or_default()
        };
        assert_eq!(
            says("FinalizingDatabase"),
            "Cleaning up MariaDB Database, User, and Grant before removing Glance"
        );
        assert_eq!(
            says("DatabaseFinalized"),
            "MariaDB Database, User, and Grant marked for deletion; releasing finalizer"
        );
        if let (Some(audit), Some(mark)) = (edge.audit(), mark) {
            let deleted: Vec<_> = audit
                .requests_by(&site.user_on_targets(), mark)?
                .into_iter()
                .filter(|r| r.verb == "delete")
                .collect();
            let order: Vec<_> = deleted.iter().map(|r| r.resource.as_str()).collect();
            assert_eq!(order[..3], ["databases", "users", "grants"], "{order:?}");
            assert!(order.contains(&"deployments"), "{order:?}");
            assert!(deleted.iter().all(|r| r.code == 200), "{deleted:?}");
        }
        let left = ours(edge, ns, "images").await?;
        assert_eq!(
            children::names(&left),
            ["Database/images", "Grant/images", "User/images"]
        );
        for (key, child) in &left {
            assert!(child.metadata.deletion_timestamp.is_some(), "{key}");
        }
        for kind in MARIADB_KINDS {
            mood.set(kind, ns, Behaviour::Healthy);
        }
        eventually(seconds(30), "nothing to be left", async || {
            let left = ours(edge, ns, "images").await?;
            anyhow::ensure!(left.is_empty(), "{:?}", children::names(&left));
            Ok(())
        })
        .await?;
        no_pods(edge, ns, "images").await?;
        bystanders.are_untouched().await?;
        on_hub.are_untouched().await?;
        inputs_are_there(edge, &scenario, "fast").await?;
        let server = Object::new(edge, kinds::MARIADB, ns, "mariadb");
        assert!(server.get().await?.is_some(), "the database cluster");

        // The backend outlives its Glance and says what is missing.
        let wanted = Wanted::of("CredentialsReady")
            .status("False")
            .reason("WaitingForParent");
        site.backend("fast").condition(seconds(20), wanted).await?;
        Ok(())
    });
}

#[test]
fn a_local_glance_goes_and_one_with_its_own_database_leaves_namesakes_alone() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "gone-h").await?;
        let _operator = site.operator().await?.start().await?;
        let (ns, hub) = (site.namespace(), site.hub());
        let managed = site.scenario("images").backend("fast", true);
        let own = brownfield(site.scenario("brown").backend("cold", true));
        site.apply(&managed).await?;
        site.apply(&own).await?;
        for name in ["images", "brown"] {
            site.glance(name).is_ready(seconds(90)).await?;
        }
        // Labels mean nothing on the hub; a namesake's database is not ours.
        let mut others = vec![];
        for kind in MARIADB_KINDS {
            others.push(impostor(kind, &json!({ "namespace": ns, "name": "brown" })));
        }
        others.push(impostor(
            kinds::CONFIG_MAP,
            &json!({ "namespace": ns, "name": "labelled", "labels": owner(ns, "images") }),
        ));
        others.push(impostor(
            kinds::SECRET,
            &json!({ "namespace": ns, "name": "images-backends-00000000" }),
        ));
        let bystanders = Bystanders::plant(hub, others).await?;

        let started = Instant::now();
        for scenario in [&managed, &own] {
            hub.delete(&scenario.glance()).await?;
        }
        for scenario in [&managed, &own] {
            let name = scenario.name();
            site.glance(name).is_gone(seconds(120)).await?;
            let limit = seconds(120).saturating_sub(started.elapsed());
            eventually(limit, "the children to be collected", async || {
                let left = children::by_reference(hub, ns, name).await?;
                anyhow::ensure!(left.is_empty(), "{:?}", children::names(&left));
                Ok(())
            })
            .await?;
            no_pods(hub, ns, name).await?;
        }
        assert_eq!(
            last_words(&site, "images").await?,
            ["FinalizingDatabase", "DatabaseFinalized"]
        );
        assert_eq!(last_words(&site, "brown").await?, ["DatabaseFinalized"]);
        bystanders.are_untouched().await?;
        inputs_are_there(hub, &managed, "fast").await?;
        inputs_are_there(hub, &own, "cold").await?;
        Ok(())
    });
}

#[test]
fn a_namespace_that_is_deleted_takes_its_glances_along_on_every_cluster() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "gone-ns").await?;
        let (ns, hub, edge) = (site.namespace(), site.hub(), fleet.cluster("edge-2")?);
        // The operator lives elsewhere, or its account would go first.
        let elsewhere = format!("{ns}-operator");
        let _operator = Operator::install(hub, &elsewhere, fleet.folder().path())
            .await?
            .arg(&format!("--namespace={ns}"))
            .arg(&format!(
                "--clusters-namespace={}",
                site.clusters_namespace()
            ))
            .start()
            .await?;
        site.register("edge-2").await?;
        let here = site.scenario("here").backend("near", true);
        let there = site.scenario("there").on("edge-2").backend("far", true);
        for scenario in [&here, &there] {
            site.apply(scenario).await?;
        }
        for scenario in [&here, &there] {
            site.glance(scenario.name()).is_ready(seconds(90)).await?;
        }
        hub.delete(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": ns },
        }))
        .await?;
        for scenario in [&here, &there] {
            site.glance(scenario.name()).is_gone(seconds(120)).await?;
        }
        eventually(seconds(60), "the target to be swept", async || {
            let left = ours(edge, ns, "there").await?;
            anyhow::ensure!(left.is_empty(), "{:?}", children::names(&left));
            Ok(())
        })
        .await?;
        inputs_are_there(edge, &there, "far").await?;
        Object::namespace(hub, ns).is_gone(seconds(120)).await
    });
}
