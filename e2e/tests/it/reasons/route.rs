//! `HTTPRouteReady`: a Gateway that does not want the route, a cluster that does not know routes,
//! and a cluster that cannot say whether it does.

use anyhow::Result;
use e2e::{
    assets::Neighbour,
    bed::run,
    cluster::Cluster,
    doubles::status::Behaviour,
    expect::Object,
    fleet::Fleet,
    kinds,
    operator::Operator,
    patience::seconds,
    scenario::{Scenario, gateway},
    site::Site,
};
use serde_json::{Value, json};

use super::stage::{Stage, holds, later, on_hub_and_target, says, soon};

on_hub_and_target!(a_gateway_that_does_not_take_the_route_is_quoted);

const TYPE: &str = "HTTPRouteReady";
/// The cluster is asked again every ten seconds, and a watch looks every five; a busy API server serves a new group late.
const NEXT_LOOK: u64 = 45;

fn exposed() -> Value {
    json!({ "parentRef": { "name": "public" }, "hostname": "images.example.org" })
}

async fn a_gateway_that_does_not_take_the_route_is_quoted(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "route", place).await?;
    let (children, ns) = (stage.children()?, stage.namespace());
    let mood = stage.doubles()?.mood();
    for manifest in gateway(ns, "public") {
        children.apply(&manifest).await?;
    }
    mood.set(kinds::HTTP_ROUTE, ns, Behaviour::Silent);
    let scenario = stage.scenario("images").backend("store", true);
    let scenario = scenario.with("gateway", exposed());
    stage.site.apply(&scenario).await?;
    let glance = stage.glance("images");
    let waiting = "HTTPRoute not yet accepted by Gateway";
    says(&glance, later(), (TYPE, "HTTPRouteNotAccepted", waiting)).await?;
    let found = glance.get().await?.unwrap();
    let endpoint = found.data.pointer("/status/endpoint");
    assert_eq!(endpoint, Some(&json!("https://images.example.org/")));

    mood.set(kinds::HTTP_ROUTE, ns, Behaviour::Broken);
    let refused = format!(
        "{waiting}: Accepted is False: NotAllowedByListeners: no listener allows this namespace"
    );
    says(&glance, soon(), (TYPE, "HTTPRouteNotAccepted", &refused)).await?;
    mood.set(kinds::HTTP_ROUTE, ns, Behaviour::Healthy);
    holds(&glance, soon(), (TYPE, "HTTPRouteAccepted")).await?;
    glance.is_ready(soon()).await?;

    let hidden = scenario.with("gateway", Value::Null);
    stage.hub().apply(&hidden.glance()).await?;
    holds(&glance, soon(), (TYPE, "HTTPRouteNotRequired")).await?;
    stage
        .child(kinds::HTTP_ROUTE, "images")?
        .is_gone(soon())
        .await
}

/// One control plane without the Gateway API plays both: the target of one hub, and a hub.
#[test]
fn a_cluster_without_gateway_api_or_with_a_broken_one_is_told_apart_and_heals_by_itself() {
    run(async |fleet: &'static Fleet| {
        let bare = fleet.another("no-routes", false).await?;
        let cluster = bare.cluster();
        break_the_group(cluster).await?;

        let site = Site::open(fleet, "route-bare").await?;
        let _far = site.operator().await?.start().await?;
        site.register_as("bare", cluster).await?;
        let placed = site.scenario("images").on("bare").backend("store", true);
        let placed = placed.with("gateway", exposed());
        placed.apply(site.hub(), cluster).await?;
        let there = site.glance("images");

        let ns = "route-alone";
        cluster.namespace(ns).await?;
        let operator = Operator::install(cluster, ns, fleet.folder().path()).await?;
        let _near = operator
            .arg(&format!("--namespace={ns}"))
            .arg("--clusters-namespace=")
            .start()
            .await?;
        let local = Scenario::new(ns, "images").backend("store", true);
        let local = local.with("gateway", exposed());
        local.apply(cluster, cluster).await?;
        let here = Object::glance(cluster, ns, "images");

        // An API that should answer and does not is not the same as one that is not there.
        for glance in [&here, &there] {
            glance
                .satisfies(later(), "to say that it could not ask", |found| {
                    let said = e2e::expect::condition(found, TYPE).unwrap_or_default();
                    let text = said["message"].as_str().unwrap_or_default();
                    let failed = said["reason"] == "CapabilityProbeFailed"
                        && text.starts_with(
                            "Probing the target cluster for the HTTPRoute kind failed: asking for \
                             gateway.networking.k8s.io/v1: ",
                        );
                    failed.then_some(()).ok_or_else(|| said.to_string())
                })
                .await?;
            holds(glance, soon(), ("DeploymentReady", "DeploymentReady")).await?;
        }
        cluster.delete(&broken_group()).await?;
        let how = "install Gateway API";
        let again = "(the operator re-checks by itself, about every ten seconds)";
        let crd = "gateway.networking.k8s.io/v1 HTTPRoute CRD";
        let missing = format!(
            "spec.gateway is set but the {crd} is not installed in this cluster; {how} to enable \
             external Glance API exposure {again}"
        );
        let unserved = format!(
            "spec.gateway is set but the target cluster does not serve the {crd}; {how} on the \
             target cluster {again}"
        );
        let absent = "GatewayAPINotInstalled";
        // A failed question is asked again with the backoff of errors, half a minute at most.
        says(&here, seconds(40), (TYPE, absent, &missing)).await?;
        says(&there, seconds(40), (TYPE, absent, &unserved)).await?;

        let definitions = Neighbour::GatewayApi.crds()?;
        cluster.install(&definitions).await?;
        for glance in [&here, &there] {
            holds(glance, seconds(NEXT_LOOK), (TYPE, "HTTPRouteAccepted")).await?;
        }
        cluster.uninstall(&definitions).await?;
        says(&here, seconds(NEXT_LOOK), (TYPE, absent, &missing)).await?;
        says(&there, seconds(NEXT_LOOK), (TYPE, absent, &unserved)).await?;
        Ok(())
    });
}

/// A group that is announced and answered by nobody, as an aggregated API that is down.
fn broken_group() -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": "v1.gateway.networking.k8s.io" },
        "spec": {
            "group": "gateway.networking.k8s.io", "version": "v1",
            "groupPriorityMinimum": 1000, "versionPriority": 15,
            "insecureSkipTLSVerify": true,
            "service": { "namespace": "default", "name": "nobody", "port": 443 },
        },
    })
}

async fn break_the_group(cluster: &Cluster) -> Result<()> {
    cluster.apply(&broken_group()).await?;
    let broken = async || {
        let answer = cluster
            .client()
            .list_api_group_resources("gateway.networking.k8s.io/v1")
            .await;
        match answer {
            Err(kube::Error::Api(status)) if status.code == 503 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    e2e::expect::eventually(seconds(20), "the group to be broken", broken).await
}
