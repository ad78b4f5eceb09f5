//! What admission says about the target cluster that a Glance names, and a replica that is told to stop.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use e2e::{
    bed::run,
    cluster::{Cluster, code, told},
    expect::eventually,
    fleet::Fleet,
    kinds,
    patience::seconds,
    reviews::{Reviewer, review},
    scenario::Scenario,
    site::{Reviewed, Site},
    webhooks::{dry_run, warnings},
};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

/// Somebody who may write Glances in the reviewed namespace, and some who may use `edge-1` besides.
async fn person(reviewed: &Reviewed<'_>, name: &str, uses: bool) -> Result<Cluster> {
    let (hub, ns) = (reviewed.site.hub(), reviewed.namespace.as_str());
    let clusters = reviewed.site.clusters_namespace();
    let subject = json!([{ "kind": "ServiceAccount", "name": name, "namespace": ns }]);
    let glances = json!({ "apiGroups": ["glance.openstack.c5c3.io"], "resources": ["glances"], "verbs": ["*"] });
    let targets = json!({
        "apiGroups": ["clusters.openstack.c5c3.io"], "resources": ["targetclusters"],
        "resourceNames": ["edge-1"], "verbs": ["use"],
    });
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": ns },
    });
    hub.apply(&account).await?;
    let mut grants = vec![(ns, glances)];
    if uses {
        grants.push((clusters.as_str(), targets));
    }
    for (namespace, rule) in grants {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": name, "namespace": namespace }, "rules": [rule],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": name, "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
            "subjects": subject,
        });
        hub.apply(&role).await?;
        hub.apply(&binding).await?;
    }
    let file = reviewed
        .site
        .fleet()
        .folder()
        .path()
        .join(format!("{ns}-{name}.kubeconfig"));
    std::fs::write(&file, hub.kubeconfig_of(ns, name).await?)?;
    Cluster::open(name, file, None).await
}

fn placed(ns: &str, name: &str, target: &str) -> Value {
    Scenario::new(ns, name).on(target).glance()
}

#[test]
fn with_the_flag_only_those_who_may_use_a_cluster_can_name_it() {
    run(async |fleet: &Fleet| {
        let Some(reviewed) = Site::reviewed(fleet, "use").await? else {
            return Ok(());
        };
        let (hub, ns) = (reviewed.site.hub(), reviewed.namespace.as_str());
        // The right to ask is the chart's.
        let values = json!({ "targetClusters": { "authorizeUse": true } });
        let operator = reviewed.site.operator_with(&values).await?;
        let operator = operator.arg("--authorize-target-use");
        let _running = reviewed.webhooks.on(operator).start().await?;
        reviewed.webhooks.register(hub).await?;
        let user = person(&reviewed, "user", true).await?;
        let stranger = person(&reviewed, "stranger", false).await?;

        eventually(seconds(10), "the right to be known", async || {
            dry_run(&user, &placed(ns, "images", "edge-1"))
                .await
                .map_err(|e| told(&e))
        })
        .await?;
        let refused = async |who: &Cluster, glance: &Value| -> Result<String> {
            let error = dry_run(who, glance).await.err().context("admitted")?;
            ensure!(code(&error) == Some(422), "{}", told(&error));
            Ok(told(&error))
        };
        let name = |who: &str| {
            format!("\"system:serviceaccount:{ns}:{who}\" may not use the target cluster")
        };
        let text = refused(&stranger, &placed(ns, "images", "edge-1")).await?;
        ensure!(
            text.contains("spec.targetClusterRef.name: Forbidden")
                && text.contains(&name("stranger")),
            "{text}"
        );
        let text = refused(&user, &placed(ns, "images", "edge-2")).await?;
        ensure!(
            text.contains(&name("user")),
            "a right for one is none for another: {text}"
        );

        // It is about naming a cluster, and nothing else.
        dry_run(&stranger, &Scenario::new(ns, "local").glance())
            .await
            .map_err(|e| anyhow::anyhow!(told(&e)))?;
        user.create(&placed(ns, "images", "edge-1")).await?;
        let api = stranger.any(kinds::GLANCE.0, kinds::GLANCE.1, Some(ns));
        let region = json!({ "spec": { "region": "elsewhere" } });
        api.patch("images", &PatchParams::default(), &Patch::Merge(&region))
            .await?;
        api.delete("images", &DeleteParams::default()).await?;
        reviewed.webhooks.unregister(hub).await
    });
}

#[test]
fn a_namespace_that_a_cluster_does_not_admit_is_told_so_at_once() {
    run(async |fleet: &Fleet| {
        let Some(reviewed) = Site::reviewed(fleet, "ungranted").await? else {
            return Ok(());
        };
        let (site, hub, ns) = (
            &reviewed.site,
            reviewed.site.hub(),
            reviewed.namespace.as_str(),
        );
        let admits = |names: Value| json!({ "allowedNamespaces": { "names": names } });
        site.policy("edge-1", admits(json!(["somebody-else"])))
            .await?;
        site.register("edge-1").await?;
        let _running = reviewed.start().await?;
        let glance = placed(ns, "images", "edge-1");
        let told = format!(
            "spec.targetClusterRef.name: cluster \"edge-1\" does not admit namespace \"{ns}\""
        );
        eventually(seconds(20), "a warning", async || {
            let warnings = warnings(hub, &glance).await?;
            ensure!(
                warnings.iter().any(|text| text.contains(&told)),
                "{warnings:?}"
            );
            Ok(())
        })
        .await?;
        // Granted, nothing is said any more; nor of a Glance that names no cluster.
        site.policy("edge-1", admits(json!([ns]))).await?;
        eventually(seconds(20), "no warning", async || {
            let warnings = warnings(hub, &glance).await?;
            ensure!(warnings.is_empty(), "{warnings:?}");
            Ok(())
        })
        .await?;
        let local = warnings(hub, &Scenario::new(ns, "local").glance()).await?;
        ensure!(local.is_empty(), "{local:?}");
        let unknown = warnings(hub, &placed(ns, "images", "edge-9")).await?;
        ensure!(
            unknown
                .iter()
                .any(|text| text.contains("no cluster \"edge-9\" is registered")),
            "{unknown:?}"
        );
        reviewed.webhooks.unregister(hub).await
    });
}

/// API servers hear of it a little later, and send their reviews here until then.
#[test]
fn a_replica_that_is_told_to_stop_is_unready_first_and_refuses_nobody_meanwhile() {
    run(async |fleet: &Fleet| {
        let Some(corner) = Site::reviewed(fleet, "stop").await? else {
            return Ok(());
        };
        let mut running = corner.start().await?;
        let reviewer = Reviewer::new(corner.webhooks.port(), &corner.webhooks.bundle())?;
        let glance = Scenario::new(&corner.namespace, "images").glance();
        let review = review(&Value::Null, &glance);
        let ask = async || -> Result<()> {
            let path = "/validate-glance-openstack-c5c3-io-v1alpha1-glance";
            let answer = reviewer.connect().await?.ask(path, &review).await?;
            ensure!(answer["allowed"] == true, "{answer}");
            Ok(())
        };
        ask().await?;
        running.ask_to_stop();
        eventually(seconds(5), "the replica to be unready", async || {
            let ready = running.health("/readyz").await;
            ensure!(ready.is_err(), "it is still ready");
            Ok(())
        })
        .await?;
        // Each on a connection of its own, until nobody listens any more.
        let began = Instant::now();
        let mut answered = 0;
        while ask().await.is_ok() {
            answered += 1;
            ensure!(began.elapsed() < seconds(30), "it goes on");
        }
        ensure!(
            answered >= 3,
            "{answered} reviews after {:?}",
            began.elapsed()
        );
        let status = eventually(seconds(20), "the operator to end", async || {
            running.exited().context("it still runs")
        })
        .await?;
        ensure!(status.success(), "{status}");
        corner.webhooks.unregister(corner.site.hub()).await
    });
}
