//! What becomes of the children when their target cannot be asked.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use e2e::{
    assets::{Component, Neighbour},
    bed::run,
    children::{self, Children},
    expect::{Wanted, always, eventually},
    fleet::Fleet,
    patience::seconds,
    registration,
    scenario::{DEFAULT_STORE, Scenario, cluster_secret_store},
    site::Site,
};
use glance_api::keys::annotations;
use kube::api::DynamicObject;
use serde_json::Value;

use super::{ABANDONED, annotate, brownfield, inputs_are_there, last_words, ours, told};

/// A Glance whose target is not registered any more, and that is being deleted.
struct Orphan {
    scenario: Scenario,
    children: Children,
    deleted: Instant,
}

/// Makes one: ready first, then its target is deregistered and it is deleted.
async fn orphan(site: &Site<'_>, name: &str, window: &str) -> Result<Orphan> {
    let scenario = site
        .scenario(name)
        .on("edge-2")
        .backend(&format!("{name}-store"), true);
    site.apply(&scenario).await?;
    site.glance(name).is_ready(seconds(60)).await?;
    let children = ours(site.children(&scenario)?, site.namespace(), name).await?;
    site.deregister("edge-2").await?;
    site.glance(name)
        .condition(
            seconds(10),
            Wanted::of("SecretsReady")
                .status("False")
                .reason("TargetClusterUnavailable"),
        )
        .await?;
    let deleted = Instant::now();
    site.hub().delete(&scenario.glance()).await?;
    let text = format!(
        "target cluster edge-2 does not resolve; waiting at least {window} before abandoning its children"
    );
    let held = Wanted::of("SecretsReady")
        .status("False")
        .reason("TargetClusterUnavailable");
    site.glance(name)
        .condition(seconds(10), held.message(&text))
        .await?;
    Ok(Orphan {
        scenario,
        children,
        deleted,
    })
}

/// The children are exactly what they were, and the Glance has said twice that it left them.
async fn left_behind(site: &Site<'_>, orphan: &Orphan) -> Result<()> {
    let (scenario, before) = (&orphan.scenario, &orphan.children);
    let (ns, name) = (site.namespace(), scenario.name());
    let now = ours(site.children(scenario)?, ns, name).await?;
    let uids = |children: &Children| -> Vec<_> {
        let uid = |child: &DynamicObject| child.metadata.uid.clone();
        children.iter().map(|(k, c)| (k.clone(), uid(c))).collect()
    };
    assert_eq!(uids(&now), uids(before));
    for (key, child) in &now {
        assert!(child.metadata.deletion_timestamp.is_none(), "{key}");
    }
    let words: Vec<_> = told(site, name)
        .await?
        .into_iter()
        .filter(|e| e.0 == ABANDONED)
        .map(|e| e.1)
        .collect();
    let [first, second] = words.as_slice() else {
        panic!("not two warnings: {words:?}");
    };
    assert_eq!(
        first,
        "Target cluster is no longer registered; releasing the finalizer without deleting the MariaDB Database, \
         User, and Grant on it"
    );
    let start = "Target cluster is no longer registered; releasing the remote-children finalizer without deleting \
                 the objects on it labelled as owned by this Glance";
    assert!(second.starts_with(start), "{second}");
    for stays in [
        format!("namespace {ns}"),
        "cluster edge-2".to_owned(),
        format!("Deployment {name}"),
        format!("Secret {name}-db-connection"),
        format!("Database, User and Grant {name}"),
    ] {
        assert!(second.contains(&stays), "{stays} in {second}");
    }
    let finalized = last_words(site, name).await?;
    assert_eq!(finalized, [ABANDONED, ABANDONED]);
    Ok(())
}

#[test]
fn children_on_a_deregistered_target_are_given_up_after_the_window_and_never_before() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "abandon").await?;
        let ns = site.namespace();
        let installed = site.operator().await?;
        let patient = installed.clone().arg("--abandon-after=10m").start().await?;
        site.register("edge-2").await?;

        // Back within the window: swept.
        let back = orphan(&site, "back", "10m0s").await?.scenario;
        site.register("edge-2").await?;
        site.glance("back").is_gone(seconds(30)).await?;
        let left = ours(site.children(&back)?, ns, "back").await?;
        assert!(
            left.keys().all(|key| key.starts_with("Database/")
                || key.starts_with("User/")
                || key.starts_with("Grant/")),
            "{:?}",
            children::names(&left)
        );
        assert_eq!(
            last_words(&site, "back").await?,
            ["FinalizingDatabase", "DatabaseFinalized"]
        );

        // A person who knows better releases it at once.
        let given = orphan(&site, "given", "10m0s").await?;
        annotate(&site, "given", annotations::ABANDON_REMOTE_CHILDREN, "yes").await?;
        always(seconds(2), "anything but true is ignored", async || {
            site.glance("given").get().await?.context("it is gone")
        })
        .await?;
        annotate(&site, "given", annotations::ABANDON_REMOTE_CHILDREN, "true").await?;
        site.glance("given").is_gone(seconds(8)).await?;
        left_behind(&site, &given).await?;
        patient.stop()?;

        site.register("edge-2").await?;
        let _hasty = installed.arg("--abandon-after=6s").start().await?;
        let lost = orphan(&site, "lost", "6s").await?;
        site.glance("lost").is_gone(seconds(40)).await?;
        let held = lost.deleted.elapsed();
        eprintln!("given up after {:.1} s", held.as_secs_f64());
        // The mark of deletion knows no fractions of a second.
        assert!(held > Duration::from_secs(5), "{held:?}");
        left_behind(&site, &lost).await
    });
}

#[test]
fn a_target_that_is_out_of_reach_is_waited_for_and_swept_when_it_is_back() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "unreach").await?;
        let far = fleet.another("far", true).await?;
        let (ns, cluster) = (site.namespace(), far.cluster());
        // Nor does it know a single kind of the MariaDB operator.
        cluster.uninstall(&Neighbour::MariaDb.crds()?).await?;
        let _operator = site
            .operator()
            .await?
            .arg("--abandon-after=2s")
            .start()
            .await?;
        site.register_as("far", cluster).await?;
        let scenario = brownfield(site.scenario("images").on("far").backend("fast", true));
        cluster.apply(&cluster_secret_store(DEFAULT_STORE)).await?;
        scenario.apply_credentials(cluster).await?;
        scenario.apply_resources(site.hub()).await?;
        let glance = site.glance("images");
        glance.is_ready(seconds(60)).await?;

        let Some(plane) = far.plane() else {
            return Ok(());
        };
        plane.freeze(Component::ApiServer);
        site.hub().delete(&scenario.glance()).await?;
        let held = always(seconds(25), "the Glance is held", async || {
            glance.get().await?.context("it is gone")
        })
        .await;
        plane.thaw(Component::ApiServer);
        held?;
        glance.is_gone(seconds(90)).await?;
        let left = ours(cluster, ns, "images").await?;
        assert!(left.is_empty(), "{:?}", children::names(&left));
        assert_eq!(last_words(&site, "images").await?, ["DatabaseFinalized"]);
        inputs_are_there(cluster, &scenario, "fast").await
    });
}

#[test]
fn a_namespace_that_left_the_scope_is_still_swept_if_rights_allow_it_and_named_if_not() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "narrowed").await?;
        let _operator = site.operator().await?.start().await?;
        let (ns, edge) = (site.namespace(), fleet.cluster("edge-2")?);
        let other = format!("{ns}-other");
        edge.namespace(&other).await?;
        site.register("edge-2").await?;
        let scenario = site.scenario("images").on("edge-2").backend("fast", true);
        site.apply(&scenario).await?;
        let glance = site.glance("images");
        glance.is_ready(seconds(60)).await?;

        // An account without any right in the namespace.
        let narrow = format!("{ns}-narrow");
        let blind = registration::grant(edge, &narrow, &[&other], &Value::Null).await?;
        let clusters = site.clusters_namespace();
        registration::register(site.hub(), &clusters, "edge-2", &blind, Some(&other)).await?;
        let wanted = Wanted::of("SecretsReady")
            .status("False")
            .message("because of unknown namespace for the cache");
        glance.condition(seconds(30), wanted).await?;
        site.hub().delete(&scenario.glance()).await?;
        let wanted = Wanted::of("SecretsReady")
            .status("False")
            .reason("ReconcileError")
            .message("is forbidden");
        glance.condition(seconds(30), wanted).await?;
        glance.event(seconds(10), "TeardownFailed").await?;

        // The rights are back, the scope is not.
        let seeing = site.kubeconfig(edge).await?;
        registration::register(site.hub(), &clusters, "edge-2", &seeing, Some(&other)).await?;
        glance.is_gone(seconds(60)).await?;
        eventually(seconds(30), "nothing to be left", async || {
            let left = ours(edge, ns, "images").await?;
            anyhow::ensure!(left.is_empty(), "{:?}", children::names(&left));
            Ok(())
        })
        .await?;
        assert_eq!(
            last_words(&site, "images").await?,
            ["FinalizingDatabase", "DatabaseFinalized"]
        );
        inputs_are_there(edge, &scenario, "fast").await
    });
}
