//! Scaling, isolation and exposure.

use anyhow::{Context as _, Result};
use e2e::{
    bed::run, expect::Wanted, fleet::Fleet, kinds, patience::seconds, shape::assert_has, site::Site,
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{CONF, LIMIT, Story, vector};

#[test]
fn scaling_and_isolation_touch_no_pod_and_exposure_only_what_it_must() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "isolate").await?;
        site.register("edge-2").await?;
        let operator = site.operator().await?;
        let _running = operator.start().await?;
        for scenario in [
            vector(&site, "here", "2025.2"),
            vector(&site, "there", "2026.1").on("edge-2"),
        ] {
            let mut story = Story::begin(&site, scenario).await?;
            network_policy(&mut story).await?;
            autoscaling(&mut story).await?;
            exposure(&mut story).await?;
        }
        Ok(())
    });
}

async fn network_policy(story: &mut Story<'_>) -> Result<()> {
    let name = story.scenario.name().to_owned();
    let source = |team: &str| json!({ "namespaceSelector": { "matchLabels": { "team": team } } });
    let one = json!({ "ingress": [source("compute")], "additionalEgress": [{ "ports": [{ "protocol": "TCP", "port": 8443 }] }] });
    story.change("networkPolicy", one, 0).await?;
    let ready = |reason| {
        Wanted::of("NetworkPolicyReady")
            .status("True")
            .reason(reason)
    };
    story
        .glance()
        .condition(seconds(LIMIT), ready("NetworkPolicyReady"))
        .await?;
    let spec = story.workload.get(kinds::NETWORK_POLICY, &name).await?["spec"].clone();
    let peers = spec["ingress"][0]["from"].as_array().map_or(0, Vec::len);
    let ports = spec["egress"].as_array().map_or(0, Vec::len);
    assert_eq!(ports, 5, "{spec:#}");

    let two = json!({ "ingress": [source("compute"), source("network")] });
    story.change("networkPolicy", two, 0).await?;
    let spec = story.workload.get(kinds::NETWORK_POLICY, &name).await?["spec"].clone();
    assert_eq!(
        spec["ingress"][0]["from"].as_array().map_or(0, Vec::len),
        peers + 1
    );
    assert_eq!(spec["egress"].as_array().map_or(0, Vec::len), 4, "{spec:#}");

    story.change("networkPolicy", Value::Null, 0).await?;
    story
        .glance()
        .condition(seconds(LIMIT), ready("NetworkPolicyNotRequired"))
        .await?;
    for policy in [
        name.clone(),
        format!("{name}-keystone-egress"),
        format!("{name}-jobs-egress"),
    ] {
        story
            .workload
            .object(kinds::NETWORK_POLICY, &policy)
            .is_gone(seconds(LIMIT))
            .await?;
    }
    Ok(())
}

async fn autoscaling(story: &mut Story<'_>) -> Result<()> {
    let name = story.scenario.name().to_owned();
    let scale = |min: u32, max: u32| json!({ "minReplicas": min, "maxReplicas": max, "targetCPUUtilization": 80 });
    story.change("autoscaling", scale(2, 4), 0).await?;
    let ready = |reason| Wanted::of("HPAReady").status("True").reason(reason);
    story
        .glance()
        .condition(seconds(LIMIT), ready("HPAReady"))
        .await?;
    let autoscaler = story.workload.get(kinds::AUTOSCALER, &name).await?;
    assert_has(
        &autoscaler,
        &json!({ "spec": { "minReplicas": 2, "maxReplicas": 4 } }),
    );

    // Whoever scales now is not fought over the number of replicas.
    let cluster = story.workload.cluster();
    let deployments = cluster.any(
        kinds::DEPLOYMENT.0,
        kinds::DEPLOYMENT.1,
        Some(story.site.namespace()),
    );
    let three = json!({ "spec": { "replicas": 3 } });
    let params = PatchParams {
        field_manager: Some("autoscaler".to_owned()),
        ..PatchParams::default()
    };
    deployments
        .patch_scale(&name, &params, &Patch::Merge(&three))
        .await?;
    story.last = story.workload.is_rolled_out(seconds(LIMIT)).await?;
    story.change("autoscaling", scale(1, 5), 0).await?;
    assert_eq!(story.workload.deployment().await?["spec"]["replicas"], 3);
    assert_has(
        &story.workload.get(kinds::AUTOSCALER, &name).await?,
        &json!({ "spec": { "minReplicas": 1, "maxReplicas": 5 } }),
    );
    // One pod may be all there is, and a budget that keeps one would block every drain.
    let budget = story.workload.get(kinds::DISRUPTION_BUDGET, &name).await?;
    assert_has(
        &budget,
        &json!({ "spec": { "minAvailable": null, "maxUnavailable": 1 } }),
    );

    let before = story.last.clone();
    story.scenario = story.scenario.clone().with("autoscaling", Value::Null);
    story.write().await?;
    story
        .glance()
        .condition(seconds(LIMIT), ready("HPANotRequired"))
        .await?;
    story
        .workload
        .object(kinds::AUTOSCALER, &name)
        .is_gone(seconds(LIMIT))
        .await?;
    let now = story.workload.is_rolled_out(seconds(LIMIT)).await?;
    assert_eq!(
        (now.revision, &now.template),
        (before.revision, &before.template)
    );
    assert_eq!(
        story.workload.deployment().await?["spec"]["replicas"],
        2,
        "the number is ours again"
    );
    let budget = story.workload.get(kinds::DISRUPTION_BUDGET, &name).await?;
    assert_has(
        &budget,
        &json!({ "spec": { "minAvailable": 1, "maxUnavailable": null } }),
    );
    story.last = now;
    Ok(())
}

async fn exposure(story: &mut Story<'_>) -> Result<()> {
    let name = story.scenario.name().to_owned();
    let plain = story.workload.files().await?;
    let endpoint = async |story: &Story<'_>| {
        let glance = story.glance().get().await?.context("the Glance")?;
        Ok::<_, anyhow::Error>(glance.data["status"]["endpoint"].clone())
    };
    let inside = endpoint(story).await?;
    let route = |path: &str| json!({ "parentRef": { "name": "gw" }, "hostname": "images.example.org", "path": path });
    // The API must believe the headers of the gateway, which is a matter of its configuration.
    let files = story.change("gateway", route("/"), 1).await?;
    files.assert_line(
        CONF,
        "oslo_middleware",
        "enable_proxy_headers_parsing = true",
    );
    let accepted = |reason| Wanted::of("HTTPRouteReady").status("True").reason(reason);
    story
        .glance()
        .condition(seconds(LIMIT), accepted("HTTPRouteAccepted"))
        .await?;
    assert_eq!(endpoint(story).await?, "https://images.example.org/");

    // The rest is the gateway's business.
    story.change("gateway", route("image"), 0).await?;
    let object = story.workload.get(kinds::HTTP_ROUTE, &name).await?;
    let rewrite = json!({ "type": "URLRewrite", "urlRewrite": { "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/" } } });
    assert_has(
        &object,
        &json!({ "spec": { "rules": [{
            "matches": [{ "path": { "type": "PathPrefix", "value": "/image" } }], "filters": [rewrite],
        }] } }),
    );
    let outside = endpoint(story).await?;
    assert!(
        outside
            .as_str()
            .is_some_and(|e| e.starts_with("https://images.example.org/image")),
        "{outside}"
    );

    let files = story.change("gateway", Value::Null, 1).await?;
    assert_eq!(files, plain);
    story
        .glance()
        .condition(seconds(LIMIT), accepted("HTTPRouteNotRequired"))
        .await?;
    story
        .workload
        .object(kinds::HTTP_ROUTE, &name)
        .is_gone(seconds(LIMIT))
        .await?;
    assert_eq!(endpoint(story).await?, inside);
    Ok(())
}
