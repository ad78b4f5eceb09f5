//! What a Glance is made of, on the hub and on targets, object by object and field by field.

mod fields;
mod releases;

use anyhow::{Context as _, Result};
use data_encoding::HEXLOWER;
use e2e::{
    bed::run,
    children::KINDS,
    cluster::Cluster,
    expect::{Object, condition},
    fleet::Fleet,
    kinds,
    patience::seconds,
    scenario::{Scenario, gateway},
    shape::differences,
    site::Site,
    workload::{Workload, traces},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use self::fields::check_objects;

/// Every sub-condition that `Ready` stands for.
const SUB_CONDITIONS: [&str; 9] = [
    "SecretsReady",
    "BackendsReady",
    "DatabaseReady",
    "DeploymentReady",
    "HTTPRouteReady",
    "GlanceAPIReady",
    "HPAReady",
    "NetworkPolicyReady",
    "DBPurgeReady",
];

const READY: u64 = 60;

/// A Glance with everything that the overview's table of owned objects has a row for.
fn full(site: &Site<'_>, name: &str) -> Scenario {
    site.scenario(name)
        .backend(&format!("{name}-archive"), false)
        .backend(&format!("{name}-s3"), true)
        .with(
            "autoscaling",
            json!({ "minReplicas": 2, "maxReplicas": 4, "targetCPUUtilization": 80, "targetMemoryUtilization": 70 }),
        )
        .with(
            "networkPolicy",
            json!({
                "ingress": [{
                    "namespaceSelector": { "matchLabels": { "team": "compute" } },
                    "podSelector": { "matchLabels": { "app": "nova" } },
                }],
                "additionalEgress": [{ "ports": [{ "protocol": "TCP", "port": 8443 }] }],
            }),
        )
        .with(
            "gateway",
            json!({
                "parentRef": { "name": "gw", "sectionName": "http" },
                "hostname": "images.example.org",
                "annotations": { "example.org/team": "images" },
            }),
        )
}

/// Kind and name of everything that [`full`] owns, sorted; hashes of names left out.
fn owned_by_full(name: &str) -> Vec<String> {
    let mut all = vec![
        format!("ConfigMap {name}-config-*"),
        format!("CronJob {name}-db-purge"),
        format!("Database {name}"),
        format!("Deployment {name}"),
        format!("Grant {name}"),
        format!("HTTPRoute {name}"),
        format!("HorizontalPodAutoscaler {name}"),
        format!("Job {name}-db-sync"),
        format!("NetworkPolicy {name}"),
        format!("NetworkPolicy {name}-jobs-egress"),
        format!("NetworkPolicy {name}-keystone-egress"),
        format!("PodDisruptionBudget {name}"),
        format!("Secret {name}-backends-*"),
        format!("Secret {name}-db-connection"),
        format!("Service {name}"),
        format!("User {name}"),
    ];
    all.sort();
    all
}

/// The eight hex digits at the end of a content-addressed name, as a star.
fn without_hash(trace: &str) -> String {
    match trace.rsplit_once('-') {
        Some((base, hash))
            if (base.ends_with("-config") || base.ends_with("-backends"))
                && hash.len() == 8
                && hash.bytes().all(|b| b.is_ascii_hexdigit()) =>
        {
            format!("{base}-*")
        }
        _ => trace.to_owned(),
    }
}

fn sha256(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text.as_bytes()))
}

/// A digest as the pod template has it, salted with the CR's UID.
fn salted(uid: &str, value: &str) -> String {
    sha256(&format!("{uid}\0{value}"))
}

async fn uid_of(cluster: &Cluster) -> Result<String> {
    let system: Api<Namespace> = Api::all(cluster.client());
    Ok(system
        .get("kube-system")
        .await?
        .metadata
        .uid
        .unwrap_or_default())
}

fn selector(name: &str) -> Value {
    json!({ "app.kubernetes.io/name": "glance", "app.kubernetes.io/instance": name })
}

fn common(name: &str) -> Value {
    let mut labels = selector(name);
    labels["app.kubernetes.io/managed-by"] = json!("glance-operator");
    labels
}

fn component(name: &str, component: &str) -> Value {
    let mut labels = common(name);
    labels["app.kubernetes.io/component"] = json!(component);
    labels
}

fn restricted() -> Value {
    json!({
        "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 42424, "runAsGroup": 42424,
        "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
        "seccompProfile": { "type": "RuntimeDefault" },
    })
}

/// How every child says whose it is: by a controller reference on the hub, by labels and marks
/// on a target, and never by both.
async fn check_ownership(site: &Site<'_>, scenario: &Scenario) -> Result<()> {
    let (ns, name) = (site.namespace(), scenario.name());
    let glance = site.glance(name).get().await?.context("the Glance")?;
    let uid = glance.metadata.uid.unwrap_or_default();
    let hub = uid_of(site.hub()).await?;
    let workload = Workload::of(site, scenario)?;
    for trace in traces(workload.cluster(), ns).await? {
        let (kind, child) = trace.split_once(' ').context("no name")?;
        let kind = KINDS
            .into_iter()
            .find(|k| k.1 == kind)
            .context("no such kind")?;
        let object = workload.get(kind, child).await?;
        let wanted = if scenario.target().is_none() {
            json!({
                "labels": { "openstack.c5c3.io/owner-kind": null, "openstack.c5c3.io/owner-name": null,
                    "openstack.c5c3.io/owner-namespace": null },
                "annotations": { "openstack.c5c3.io/hub-uid": null, "openstack.c5c3.io/owner-uid": null },
                "ownerReferences": [{
                    "apiVersion": "glance.openstack.c5c3.io/v1alpha1", "kind": "Glance", "name": name, "uid": uid,
                    "controller": true, "blockOwnerDeletion": true,
                }],
            })
        } else {
            json!({
                "labels": { "openstack.c5c3.io/owner-kind": "Glance", "openstack.c5c3.io/owner-name": name,
                    "openstack.c5c3.io/owner-namespace": ns },
                "annotations": { "openstack.c5c3.io/hub-uid": hub, "openstack.c5c3.io/owner-uid": uid },
                "ownerReferences": null,
            })
        };
        let mut meta = object["metadata"].clone();
        // A child without any labels or annotations has none of ours, either.
        for field in ["labels", "annotations"] {
            if meta[field].is_null() {
                meta[field] = json!({});
            }
        }
        let complaints = differences(&meta, &wanted);
        assert!(complaints.is_empty(), "{trace}: {complaints:?}");
        // What a template carries lands on pods and on Jobs, where it would be taken for a child.
        for template in [
            "/spec/template/metadata",
            "/spec/jobTemplate/metadata",
            "/spec/jobTemplate/spec/template/metadata",
        ] {
            let text = object
                .pointer(template)
                .map(Value::to_string)
                .unwrap_or_default();
            assert!(
                !text.contains("openstack.c5c3.io/owner"),
                "{trace}{template}: {text}"
            );
        }
    }
    Ok(())
}

/// Applies [`full`], waits for it and checks everything on the cluster where it runs; nothing of
/// it may be on any other.
async fn install_full(site: &Site<'_>, scenario: &Scenario) -> Result<()> {
    let children = site.children(scenario)?;
    for manifest in gateway(site.namespace(), "gw") {
        children.apply(&manifest).await?;
    }
    let operator = site.operator().await?;
    let _running = operator.start().await?;
    site.apply(scenario).await?;
    let name = scenario.name();
    let glance = site.glance(name).is_ready(seconds(READY)).await?;
    for type_ in SUB_CONDITIONS {
        let found = condition(&glance, type_).map(|c| c["status"].clone());
        assert_eq!(found, Some(json!("True")), "{type_}");
    }
    for backend in scenario.backends() {
        let backend = backend["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        site.backend(&backend).is_ready(seconds(READY)).await?;
    }
    Workload::of(site, scenario)?
        .is_rolled_out(seconds(READY))
        .await?;

    // The Service narrows in the pass after the roll-out.
    let service = Object::new(children, kinds::SERVICE, site.namespace(), name);
    service
        .satisfies(seconds(20), "to select API pods only", |service| {
            let selector = service.data["spec"]["selector"].clone();
            (selector["app.kubernetes.io/component"] == "api")
                .then_some(())
                .ok_or(selector.to_string())
        })
        .await?;
    let mut found: Vec<_> = traces(children, site.namespace())
        .await?
        .iter()
        .map(|t| without_hash(t))
        .collect();
    // A revision from before the second backend was ready may still be kept.
    found.dedup();
    assert_eq!(found, owned_by_full(name));
    check_objects(site, scenario).await?;
    check_ownership(site, scenario).await?;
    for member in site.fleet().members() {
        let cluster = member.cluster();
        if cluster.name() != children.name() {
            let found = traces(cluster, site.namespace()).await?;
            assert!(found.is_empty(), "on {}: {found:?}", cluster.name());
        }
    }
    Ok(())
}

#[test]
fn a_local_glance_gets_everything_that_the_overview_lists_and_owns_it() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "local").await?;
        install_full(&site, &full(&site, "images")).await
    });
}

#[test]
fn a_placed_glance_lives_on_its_target_and_leaves_no_trace_elsewhere() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "placed").await?;
        site.register("edge-1").await?;
        site.register("edge-2").await?;
        install_full(&site, &full(&site, "images").on("edge-1")).await
    });
}
