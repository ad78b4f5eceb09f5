//! What the charts render is accepted by an API server, fits a namespace that confines its pods, and
//! works in the shape that sees one namespace only.

mod shapes;

use anyhow::{Context as _, Result, anyhow, ensure};
use e2e::{
    assets::Neighbour,
    bed::run,
    charts,
    cluster::{CONFINED, Cluster, code, told},
    expect::{Object, Wanted},
    fleet::Fleet,
    kinds,
    operator::Operator,
    patience::seconds,
    registration,
    scenario::secret_store,
    site::Site,
};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

async fn is_accepted(cluster: &Cluster, case: &str, manifests: &[Value]) -> Result<()> {
    ensure!(!manifests.is_empty(), "{case}: nothing rendered");
    for manifest in manifests {
        let (kind, name) = (&manifest["kind"], &manifest["metadata"]["name"]);
        let answer = cluster.admits(manifest).await;
        answer.map_err(|e| anyhow!("{case}: {kind} {name}: {}", told(&e)))?;
    }
    Ok(())
}

#[test]
fn an_api_server_accepts_every_object_of_every_documented_installation() {
    run(async |fleet: &'static Fleet| {
        let site = Site::open(fleet, "charts").await?;
        let (hub, ns) = (site.hub(), site.namespace());
        let definitions = tokio::task::spawn_blocking(|| {
            let certificates = Neighbour::CertManager.crds()?;
            Ok::<_, anyhow::Error>([certificates, Neighbour::PrometheusOperator.crds()?].concat())
        });
        hub.install(&definitions.await??).await?;
        for (case, values) in shapes::installations() {
            // The API server wants a certificate, not a word.
            let authority = json!(hub.authority());
            let mut values = values;
            if values.pointer("/webhookCertificate/caBundle").is_some() {
                values["webhookCertificate"]["caBundle"] = authority;
            }
            let manifests =
                charts::render("glance-operator", "glance-operator", ns, &values).await?;
            is_accepted(hub, case, &manifests).await?;
        }
        for (case, values) in shapes::accesses(ns) {
            let manifests = charts::render("target-cluster-access", "edge", ns, &values).await?;
            is_accepted(fleet.cluster("edge-1")?, case, &manifests).await?;
        }
        Ok(())
    });
}

/// What the old strategy left in the object must not be in the way of the new one.
#[test]
fn an_installation_that_gives_up_its_election_is_upgraded_as_it_stands() {
    run(async |fleet: &'static Fleet| {
        let site = Site::open(fleet, "unelected").await?;
        let (hub, ns) = (site.hub(), site.namespace());
        let deployment = async |values: Value| {
            let all = charts::render("glance-operator", "glance-operator", ns, &values).await?;
            let mut all = all.into_iter();
            let mut found = all
                .find(|manifest| manifest["kind"] == "Deployment")
                .context("no Deployment")?;
            // Nobody is to run it here.
            found["spec"]["replicas"] = json!(0);
            Ok::<_, anyhow::Error>(found)
        };
        hub.apply(&deployment(json!({})).await?).await?;
        let unelected = json!({ "replicas": 1, "leaderElection": { "enabled": false } });
        let upgraded = hub.apply(&deployment(unelected).await?).await?;
        let rolling = &upgraded.data["spec"]["strategy"]["rollingUpdate"];
        assert_eq!(rolling["maxSurge"], 0, "{rolling}");
        Ok(())
    });
}

/// A pod as a template makes it.
fn pod(namespace: &str, name: &str, template: &Value) -> Value {
    let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"] });
    pod["metadata"]["namespace"] = json!(namespace);
    pod["metadata"]["name"] = json!(name);
    // Whatever account there is: this is about the pod.
    pod["spec"]["serviceAccountName"] = json!("default");
    pod
}

#[test]
fn the_operator_and_every_pod_that_it_makes_are_admitted_where_pods_must_be_confined() {
    run(async |fleet: &'static Fleet| {
        let site = Site::open(fleet, "confined").await?;
        let (hub, ns) = (site.hub(), site.namespace());
        let namespaces: Api<Namespace> = Api::all(hub.client());
        let labels = namespaces
            .get(ns)
            .await?
            .metadata
            .labels
            .unwrap_or_default();
        assert_eq!(labels.get(CONFINED.0).map(String::as_str), Some(CONFINED.1));
        let loose =
            json!({ "spec": { "containers": [{ "name": "c", "image": "registry.example/c:1" }] } });
        let refusal = hub.admits(&pod(ns, "loose", &loose)).await.err();
        let refusal = refusal.context("the namespace admits any pod")?;
        assert_eq!(code(&refusal), Some(403), "{}", told(&refusal));

        let manifests =
            charts::render("glance-operator", "glance-operator", ns, &json!({})).await?;
        let deployment = manifests.iter().find(|m| m["kind"] == "Deployment");
        let template = &deployment.context("no Deployment")?["spec"]["template"];
        hub.admits(&pod(ns, "operator", template)).await?;

        let running = site.operator().await?.start().await?;
        let scenario = site
            .scenario("images")
            .backend("store", true)
            .with("imageCache", json!({}))
            .with("dbPurge", json!({ "purgeImagesTable": true }));
        site.apply(&scenario).await?;
        site.glance("images").is_ready(seconds(60)).await?;
        // What the purge will run at night.
        let purge = Object::new(hub, kinds::CRON_JOB, ns, "images-db-purge");
        let purge = purge.exists(seconds(10)).await?;
        let template = &purge.data["spec"]["jobTemplate"]["spec"]["template"];
        hub.admits(&pod(ns, "purge", template)).await?;
        let pods: Api<Pod> = hub.api(ns);
        let pods = pods.list(&ListParams::default()).await?.items;
        let owners: Vec<_> = pods
            .iter()
            .filter_map(|pod| {
                Some(
                    pod.metadata
                        .owner_references
                        .as_ref()?
                        .first()?
                        .kind
                        .as_str(),
                )
            })
            .collect();
        assert!(
            owners.contains(&"ReplicaSet") && owners.contains(&"Job"),
            "{owners:?}"
        );
        running.stop()?;
        Ok(())
    });
}

/// Values and flags of an operator that sees its own namespace only; the flags are those that the chart
/// renders with these values.
async fn scoped(site: &Site<'_>, more: &Value) -> Result<Operator> {
    let mut values =
        json!({ "rbac": { "namespaceScoped": true }, "webhook": { "enabled": false } });
    if let (Some(values), Some(more)) = (values.as_object_mut(), more.as_object()) {
        values.extend(more.clone());
    }
    let folder = site.fleet().folder().path();
    let operator = Operator::install_with(site.hub(), site.namespace(), folder, &values).await?;
    Ok(operator
        .arg(&format!("--namespace={}", site.namespace()))
        .arg("--clusters-namespace="))
}

#[test]
fn an_operator_with_the_rights_of_one_namespace_runs_its_glances_and_sees_no_other() {
    run(async |fleet: &'static Fleet| {
        let site = Site::open(fleet, "scoped").await?;
        let elsewhere = Site::open(fleet, "scoped-out").await?;
        let (hub, ns) = (site.hub(), site.namespace());
        let operator = scoped(&site, &json!({})).await?;
        let running = operator.start().await?;
        let stranger = elsewhere.scenario("images").backend("store", true);
        elsewhere.apply(&stranger).await?;

        // A store without namespace is beyond a Role, and the Glance that selects one is told so.
        let scenario = site.scenario("images").backend("store", true);
        site.apply(&scenario).await?;
        let glance = site.glance("images");
        let told = Wanted::of("SecretsReady")
            .status("False")
            .reason("SecretStoreNotReady")
            .message("grant get, list and watch on clustersecretstores.external-secrets.io");
        glance.condition(seconds(60), told).await?;

        hub.apply(&secret_store(ns, "tenant")).await?;
        let tenant = json!({ "kind": "SecretStore", "name": "tenant" });
        let scenario = scenario.with("secretStoreRef", tenant);
        hub.apply(&scenario.glance()).await?;
        glance.is_ready(seconds(90)).await?;

        // The same right, granted on request, lets another Glance use the common store.
        scoped(&site, &json!({ "scoped": { "clusterSecretStores": true } })).await?;
        let second = site.scenario("second").backend("other", true);
        site.apply(&second).await?;
        site.glance("second").is_ready(seconds(90)).await?;

        let seen = elsewhere
            .glance("images")
            .get()
            .await?
            .context("no Glance")?;
        assert!(seen.data.get("status").is_none(), "{:?}", seen.data);
        // Who the hub is concerns targets alone, and no Role lets it be read.
        let said = operator.output();
        assert!(!said.contains("kube-system"), "{said}");
        running.stop()?;
        Ok(())
    });
}

/// The least that the chart can grant, with everything that an operator does: election, install, change, deletion.
#[test]
fn an_operator_with_hardened_rights_lacks_none_of_them() {
    run(async |fleet: &'static Fleet| {
        let site = Site::open(fleet, "hardened").await?;
        site.register("edge-1").await?;
        let operator = site.operator_with(&json!({ "hardenedRBAC": true })).await?;
        let operator = operator.arg("--leader-elect");
        let running = operator.start().await?;
        let settings = json!({ "ingress": [{ "namespaceSelector": {} }] });
        let all = [
            site.scenario("here").backend("near", true),
            site.scenario("there").on("edge-1").backend("far", true),
        ]
        .map(|scenario| scenario.with("networkPolicy", settings.clone()));
        for scenario in &all {
            site.apply(scenario).await?;
        }
        for scenario in &all {
            site.glance(scenario.name()).is_ready(seconds(90)).await?;
            // A child that is switched off is deleted, and its metadata is written.
            let without = scenario.clone().with("networkPolicy", Value::Null);
            site.hub().apply(&without.glance()).await?;
            let policy = Object::new(
                site.children(scenario)?,
                kinds::NETWORK_POLICY,
                site.namespace(),
                scenario.name(),
            );
            policy.is_gone(seconds(30)).await?;
            site.hub().delete(&scenario.glance()).await?;
            site.glance(scenario.name()).is_gone(seconds(60)).await?;
        }
        running.stop()?;
        let log = operator.output().to_lowercase();
        ensure!(!log.contains("forbidden"), "{log}");
        Ok(())
    });
}

#[test]
fn a_target_that_grants_its_whole_cluster_runs_glances_in_any_namespace() {
    run(async |fleet: &'static Fleet| {
        let site = Site::open(fleet, "wide").await?;
        let edge = fleet.cluster("edge-2")?;
        let running = site.operator().await?.start().await?;
        let values =
            json!({ "clusterWide": true, "optional": { "identity": true, "causes": true } });
        let kubeconfig = registration::grant(edge, &site.access_namespace(), &[], &values).await?;
        // Without the key `namespaces`: all of them.
        registration::register(
            site.hub(),
            &site.clusters_namespace(),
            "wide",
            &kubeconfig,
            None,
        )
        .await?;
        let scenario = site.scenario("images").on("wide").backend("store", true);
        scenario.apply(site.hub(), edge).await?;
        site.glance("images").is_ready(seconds(90)).await?;
        running.stop()?;
        Ok(())
    });
}
