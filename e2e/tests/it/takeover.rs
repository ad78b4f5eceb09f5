//! An installation that ran the Go operator goes on under this one.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use e2e::{
    audit::{Audit, Request},
    bed::run,
    children,
    cluster::Cluster,
    expect::{Object, eventually},
    fleet::Fleet,
    kinds,
    patience::seconds,
    scenario::{Scenario, gateway},
    site::Site,
};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::api::ListParams;
use serde_json::json;

mod go_operator;

/// UIDs by `Kind/name` of everything in the namespace that a Glance can own.
async fn uids(cluster: &Cluster, namespace: &str) -> Result<BTreeMap<String, Option<String>>> {
    let all = children::all(cluster, namespace).await?;
    Ok(all
        .into_iter()
        .map(|(key, object)| (key, object.metadata.uid))
        .collect())
}

/// The names of all pod templates that the Deployment ever had.
async fn templates(cluster: &Cluster, namespace: &str) -> Result<Vec<Option<String>>> {
    let sets = cluster.api::<ReplicaSet>(namespace);
    let sets = sets.list(&ListParams::default()).await?.items;
    Ok(sets.into_iter().map(|set| set.metadata.name).collect())
}

async fn is_rolled_out(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    let deployments = cluster.api::<Deployment>(namespace);
    eventually(seconds(60), "the rollout to end", async || {
        let live = deployments.get(name).await.map_err(|e| e.to_string())?;
        let status = live.status.unwrap_or_default();
        let done = status.observed_generation == live.metadata.generation
            && [
                status.updated_replicas,
                status.ready_replicas,
                status.replicas,
            ] == [Some(2); 3];
        if done {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    })
    .await
}

/// What the Go operator made is this operator's now: deleting the Glance takes all of it.
async fn leaves_nothing(site: &Site<'_>, scenario: &Scenario) -> Result<()> {
    let (ns, name) = (site.namespace(), scenario.name());
    let cluster = site.children(scenario)?;
    site.hub().delete(&scenario.glance()).await?;
    site.glance(name).is_gone(seconds(60)).await?;
    eventually(seconds(60), "all children to be gone", async || {
        let left = match scenario.target() {
            Some(_) => children::by_labels(cluster, ns, name).await?,
            None => children::by_reference(cluster, ns, name).await?,
        };
        anyhow::ensure!(left.is_empty(), "{:?}", left.keys());
        Ok(())
    })
    .await
}

/// Nothing was deleted, and no Job was made.
fn is_gentle(requests: &[Request]) {
    let lost: Vec<_> = requests
        .iter()
        .filter(|r| r.verb.starts_with("delete"))
        .collect();
    assert!(lost.is_empty(), "deleted: {lost:#?}");
    let jobs: Vec<_> = requests
        .iter()
        .filter(|r| r.verb == "create" && r.resource == "jobs")
        .collect();
    assert!(jobs.is_empty(), "run again: {jobs:#?}");
}

async fn check(site: &Site<'_>, scenario: &Scenario) -> Result<()> {
    let (hub, ns, name) = (site.hub(), site.namespace(), scenario.name());
    let cluster = site.children(scenario)?;
    for manifest in gateway(ns, "gw") {
        cluster.apply(&manifest).await?;
    }
    site.apply(scenario).await?;
    go_operator::write(hub, cluster, scenario).await?;
    let (before, old) = (uids(cluster, ns).await?, templates(cluster, ns).await?);
    assert_eq!(old.len(), 1, "{old:?}");
    let mark = cluster.audit().map(Audit::mark).transpose()?;

    let operator = site.operator().await?;
    let mut user = operator.user();
    if scenario.target().is_some() {
        user = site.user_on_targets();
    }
    // The registration is older than this operator.
    if let Some(target) = scenario.target() {
        site.register(target).await?;
    }
    let running = operator.start().await?;
    // A condition that only this operator writes says that it has been through the whole pipeline.
    let glance = site.glance(name);
    glance
        .satisfies(seconds(60), "to have passed all steps", |found| {
            let all = e2e::expect::conditions(found);
            let passed = [
                "DBPurgeReady",
                "GlanceAPIReady",
                "NetworkPolicyReady",
                "HPAReady",
                "HTTPRouteReady",
            ];
            let missing: Vec<_> = passed
                .iter()
                .filter(|type_| {
                    !all.iter()
                        .any(|c| c["type"] == **type_ && c["status"] == "True")
                })
                .collect();
            if missing.is_empty() {
                Ok(())
            } else {
                Err(format!("{missing:?}"))
            }
        })
        .await?;
    is_rolled_out(cluster, ns, name).await?;
    glance.is_ready(seconds(60)).await?;

    // Everything is still the object that it was, of every kind that a Glance can have.
    let after = uids(cluster, ns).await?;
    let mut kinds: Vec<_> = before
        .keys()
        .filter_map(|key| key.split('/').next())
        .collect();
    kinds.dedup();
    assert_eq!(kinds.len(), children::KINDS.len(), "{kinds:?}");
    for (key, uid) in &before {
        assert_eq!(after.get(key), Some(uid), "{key} of {before:#?}");
    }
    // One new template at most: one roll.
    let now = templates(cluster, ns).await?;
    assert!(
        now.len() <= 2,
        "the Deployment rolled more than once: {now:?}"
    );
    // A finished Job was neither run nor counted again.
    let labels = [("glance", name)];
    let counted = running.metric("glance_operator_db_sync_total", &labels);
    assert_eq!(counted.await?, None, "{name}");
    if let (Some(audit), Some(mark)) = (cluster.audit(), mark) {
        let mut requests = audit.requests_by(&user, mark)?;
        requests.retain(|r| r.namespace == ns);
        is_gentle(&requests);
    }

    // The Deployment has shed what only the Go operator wrote, and carries our marks.
    let deployment = Object::new(cluster, kinds::DEPLOYMENT, ns, name);
    let live = deployment.get().await?.context("no Deployment")?;
    let pod_labels = &live.data["spec"]["template"]["metadata"]["labels"];
    assert!(
        pod_labels.get("openstack.c5c3.io/owner-name").is_none(),
        "{pod_labels}"
    );
    if scenario.target().is_some() {
        let annotations = live.metadata.annotations.unwrap_or_default();
        for key in ["openstack.c5c3.io/hub-uid", "openstack.c5c3.io/owner-uid"] {
            assert!(annotations.contains_key(key), "{key} in {annotations:?}");
        }
    }

    leaves_nothing(site, scenario).await?;
    running.stop()?;
    Ok(())
}

fn scenario(site: &Site<'_>) -> Scenario {
    site.scenario("images")
        .backend("store", true)
        .with(
            "networkPolicy",
            json!({ "ingress": [{ "namespaceSelector": {} }] }),
        )
        .with(
            "autoscaling",
            json!({ "minReplicas": 2, "maxReplicas": 4, "targetCPUUtilization": 80 }),
        )
        .with(
            "gateway",
            json!({ "parentRef": { "name": "gw" }, "hostname": "images.example.org" }),
        )
}

#[test]
fn a_glance_of_the_go_operator_keeps_every_object_and_rolls_once() {
    run(async |fleet: &'static Fleet| {
        let site = Site::open(fleet, "takeover").await?;
        check(&site, &scenario(&site)).await
    });
}

#[test]
fn a_placed_glance_of_the_go_operator_keeps_every_object_and_rolls_once() {
    run(async |fleet: &'static Fleet| {
        let site = Site::open(fleet, "takeover-placed").await?;
        check(&site, &scenario(&site).on("edge-1")).await
    });
}
