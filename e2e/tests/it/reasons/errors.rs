//! `ReconcileError`, the reason for failures that no page has a word for: at once where another
//! try cannot help, after three in a row otherwise.

use anyhow::Result;
use e2e::{
    cluster::{Cluster, code},
    expect::{condition, eventually},
    fleet::Fleet,
    kinds,
    patience::seconds,
    policy,
};
use serde_json::{Value, json};

use super::stage::{Stage, holds, later, on_hub_and_target, says, soon};

on_hub_and_target!(
    a_write_that_can_never_succeed_is_told_at_once,
    an_object_of_somebody_else_is_left_alone_and_named,
    a_server_that_fails_is_told_after_the_third_time_only,
);

const TYPE: &str = "DeploymentReady";

/// Longest pause between two tries of something that fails.
fn next_try() -> std::time::Duration {
    seconds(40)
}

async fn a_write_that_can_never_succeed_is_told_at_once(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "final", place).await?;
    let (children, ns) = (stage.children()?, stage.namespace());
    // Forbidden: the cluster has a policy against what we make.
    let policy = forbidding(ns);
    for manifest in &policy {
        children.apply(manifest).await?;
    }
    let outcome = forbidden_then_invalid(&stage, &policy).await;
    for manifest in &policy {
        children.delete(manifest).await?;
    }
    outcome
}

async fn forbidden_then_invalid(stage: &Stage, policy: &[Value]) -> Result<()> {
    let (children, ns) = (stage.children()?, stage.namespace());
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "namespace": ns, "name": "trial" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "trial" } } },
    });
    eventually(
        later(),
        "the policy to be enforced",
        async || match children.create(&budget).await {
            Err(refused) if code(&refused) == Some(403) => Ok(()),
            other => {
                children.delete(&budget).await?;
                Err(anyhow::anyhow!("{other:?}"))
            }
        },
    )
    .await?;
    let scenario = stage.scenario("images").backend("store", true);
    stage.site.apply(&scenario).await?;
    let glance = stage.glance("images");
    let forbidden = format!(
        "ensuring PodDisruptionBudget: poddisruptionbudgets.policy \"images\" is forbidden: \
         ValidatingAdmissionPolicy '{ns}-none' with binding '{ns}-none' denied request: not here"
    );
    says(&glance, later(), (TYPE, "ReconcileError", &forbidden)).await?;
    for manifest in policy {
        children.delete(manifest).await?;
    }
    holds(&glance, next_try(), (TYPE, "DeploymentReady")).await?;
    glance.is_ready(later()).await?;

    // Invalid: the API server knows better what a pod may ask for.
    let resources = json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "1" } });
    let greedy = json!({ "replicas": 2, "resources": resources });
    stage
        .hub()
        .apply(&scenario.clone().with("deployment", greedy).glance())
        .await?;
    let field = "spec.template.spec.containers[0].resources.requests";
    let invalid = format!(
        "ensuring Deployment: Deployment.apps \"images\" is invalid: {field}: Invalid value: \"2\": \
         must be less than or equal to cpu limit of 1"
    );
    says(&glance, soon(), (TYPE, "ReconcileError", &invalid)).await?;
    let ready = condition(&glance.get().await?.unwrap(), "Ready").unwrap();
    assert_eq!(ready["reason"], "NotAllReady");
    stage.hub().apply(&scenario.glance()).await?;
    holds(&glance, soon(), (TYPE, "DeploymentReady")).await
}

/// A policy that allows no disruption budget in a namespace, and its binding.
fn forbidding(namespace: &str) -> [Value; 2] {
    let rule = json!({
        "apiGroups": ["policy"], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["poddisruptionbudgets"],
    });
    let name = format!("{namespace}-none");
    policy::forbidding(&name, namespace, &rule, "false", "not here")
}

async fn an_object_of_somebody_else_is_left_alone_and_named(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "foreign", place).await?;
    let (children, ns) = (stage.children()?, stage.namespace());
    let owner = children
        .apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "namespace": ns, "name": "somebody" },
        }))
        .await?;
    let foreign = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "namespace": ns, "name": "images",
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "ConfigMap", "name": "somebody",
                "uid": owner.metadata.uid, "controller": true,
            }],
        },
        "spec": { "ports": [{ "port": 1, "targetPort": 1 }], "selector": { "app": "other" } },
    });
    children.apply(&foreign).await?;
    stage
        .site
        .apply(&stage.scenario("images").backend("store", true))
        .await?;
    let glance = stage.glance("images");
    let refused = format!(
        "ensuring Service: refusing to adopt pre-existing Service {ns}/images: it was not created by \
         this Glance, so adopting it would overwrite its spec and delete it at teardown"
    );
    says(&glance, later(), (TYPE, "ReconcileError", &refused)).await?;
    let live = stage.live(kinds::SERVICE, "images").await?;
    assert_eq!(
        live.data.pointer("/spec/selector"),
        Some(&json!({ "app": "other" }))
    );
    children.delete(&foreign).await?;
    holds(&glance, next_try(), (TYPE, "DeploymentReady")).await?;
    glance.is_ready(later()).await?;
    Ok(())
}

async fn a_server_that_fails_is_told_after_the_third_time_only(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "failing", place).await?;
    let (children, ns) = (stage.children()?, stage.namespace());
    stage
        .site
        .apply(&stage.scenario("images").backend("store", true))
        .await?;
    let glance = stage.glance("images");
    glance.is_ready(later()).await?;

    let webhook = unreachable_webhook(ns);
    children.apply(&webhook).await?;
    let outcome = fails_and_heals(&stage, children, &webhook).await;
    // It is for the whole cluster, if only about our namespace.
    children.delete(&webhook).await?;
    outcome
}

async fn fails_and_heals(stage: &Stage, children: &Cluster, webhook: &Value) -> Result<()> {
    let glance = stage.glance("images");
    let failures = async || {
        let labels = [("sub_reconciler", "NetworkPolicy")];
        let found = stage
            .operator
            .metric("glance_operator_reconcile_errors_total", &labels);
        anyhow::Ok(found.await?.unwrap_or(0.0))
    };
    // The watch of an admission configuration is no faster than that.
    tokio::time::sleep(seconds(2)).await;
    let isolated =
        json!({ "spec": { "networkPolicy": { "ingress": [{ "namespaceSelector": {} }] } } });
    let before = failures().await?;
    stage.patch(kinds::GLANCE, "images", isolated).await?;
    glance
        .satisfies(later(), "to have failed", |found| {
            let said = condition(found, "NetworkPolicyReady").unwrap_or_default();
            let text = said["message"].as_str().unwrap_or_default();
            let failed = said["reason"] == "ReconcileError"
                && text.starts_with(
                    "ensuring NetworkPolicy: Internal error occurred: failed calling webhook \"never.e2e.c5c3.io\"",
                );
            failed.then_some(()).ok_or_else(|| said.to_string())
        })
        .await?;
    let count = failures().await? - before;
    assert!(count >= 3.0, "told after {count} failures");
    // The others of its group have their say all the same.
    let found = glance.get().await?.unwrap();
    for type_ in [
        "GlanceAPIReady",
        "HPAReady",
        "HTTPRouteReady",
        "DBPurgeReady",
    ] {
        let said = condition(&found, type_).unwrap();
        assert_eq!(said["status"], "True", "{said}");
        assert_eq!(
            said["observedGeneration"].as_i64(),
            found.metadata.generation
        );
    }
    children.delete(webhook).await?;
    holds(
        &glance,
        next_try(),
        ("NetworkPolicyReady", "NetworkPolicyReady"),
    )
    .await?;
    glance.is_ready(later()).await?;
    Ok(())
}

fn unreachable_webhook(namespace: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": format!("{namespace}-never") },
        "webhooks": [{
            "name": "never.e2e.c5c3.io",
            "clientConfig": { "url": "https://127.0.0.1:1/never" },
            "rules": [{
                "apiGroups": ["networking.k8s.io"], "apiVersions": ["*"],
                "operations": ["*"], "resources": ["networkpolicies"],
            }],
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 2,
        }],
    })
}
