//! A namespace that holds Glances and the registrations of their targets.

use anyhow::Context as _;
use e2e::{
    bed::run,
    expect::{Object, Wanted, always},
    fleet::Fleet,
    line::{Fault, Line},
    operator::Operator,
    patience::seconds,
    registration,
    site::Site,
};
use glance_api::keys::annotations;
use serde_json::json;

use super::annotate;

#[test]
fn a_namespace_that_held_glances_and_registrations_goes_with_both() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "together").await?;
        let (hub, edge) = (site.hub(), fleet.cluster("edge-2")?);
        // Glances and registrations in one namespace, the operator in another.
        let ns = site.namespace();
        let elsewhere = format!("{ns}-operator");
        let _operator = Operator::install(hub, &elsewhere, fleet.folder().path())
            .await?
            .arg(&format!("--namespace={ns}"))
            .arg(&format!("--clusters-namespace={ns}"))
            .arg("--abandon-after=3s")
            .start()
            .await?;
        let kubeconfig = site.kubeconfig(edge).await?;
        registration::register(hub, ns, "edge-2", &kubeconfig, Some(ns)).await?;
        // One whose cluster is dead for good, which a person lets go.
        let line = Line::to(edge).await?;
        let through = line.kubeconfig(&kubeconfig);
        registration::register(hub, ns, "dead", &through, Some(ns)).await?;
        let there = site.scenario("there").on("edge-2").backend("far", true);
        let lost = site.scenario("lost").on("dead").backend("lost-s3", true);
        there.apply(hub, edge).await?;
        lost.apply(hub, edge).await?;
        for name in ["there", "lost"] {
            site.glance(name).is_ready(seconds(90)).await?;
        }
        line.fail(Fault::Refuse);
        let gone = Wanted::of("SecretsReady").reason("TargetClusterUnavailable");
        site.glance("lost").condition(seconds(60), gone).await?;
        hub.delete(&lost.glance()).await?;
        always(seconds(5), "it to be held", async || {
            site.glance("lost").get().await?.context("it is gone")
        })
        .await?;
        annotate(&site, "lost", annotations::ABANDON_REMOTE_CHILDREN, "true").await?;
        site.glance("lost").is_gone(seconds(8)).await?;

        hub.delete(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": ns },
        }))
        .await?;
        site.glance("there").is_gone(seconds(60)).await?;
        Object::namespace(hub, ns).is_gone(seconds(120)).await
    });
}
