//! `DatabaseReady` while a migration does not get to work: the cause in the message, and what a correction does.

mod forward;

use std::time::Duration;

use anyhow::Result;
use e2e::{
    assets::Neighbour,
    bed::run,
    cluster::told,
    expect::{Object, eventually},
    fleet::Fleet,
    kinds,
    operator::Operator,
    patience::seconds,
    scenario::{DEFAULT_STORE, Scenario, cluster_secret_store, mariadb},
    site::Site,
};
use kube::{
    ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::stage::{Stage, holds, later, on_hub_and_target, says, soon};

on_hub_and_target!(what_keeps_a_migration_from_starting_is_named_and_a_correction_reaches_it,);

const TYPE: &str = "DatabaseReady";

/// Sets a field of the status of the pod of the sync.
async fn pod_says(stage: &Stage, job: &DynamicObject, status: Value) -> Result<()> {
    let pods = stage
        .children()?
        .any(kinds::POD.0, kinds::POD.1, Some(stage.namespace()));
    let of_job = format!(
        "batch.kubernetes.io/controller-uid={}",
        job.uid().unwrap_or_default()
    );
    let of_job = ListParams::default().labels(&of_job);
    let patch = json!({ "status": status });
    eventually(later(), "the pod of the Job", async || {
        let found = pods.list(&of_job).await.map_err(|e| told(&e))?.items;
        let pod = found.first().ok_or("there is none")?;
        pods.patch_status(
            &pod.name_any(),
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .await
        .map_err(|e| told(&e))
    })
    .await?;
    Ok(())
}

async fn what_keeps_a_migration_from_starting_is_named_and_a_correction_reaches_it(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "stuck", place).await?;
    let ns = stage.namespace();
    let kubelet = stage.doubles()?.kubelet();
    may_see_pods(&stage).await?;
    kubelet.hold(ns).await?;
    let tls = json!({
        "clusterRef": { "name": "mariadb" }, "database": "glance",
        "secretRef": { "name": "images-db" },
        "tls": {
            "mode": "verify-full",
            "caBundleSecretRef": { "name": "db-ca" },
            "clientCertSecretRef": { "name": "db-client" },
        },
    });
    let scenario = stage
        .scenario("images")
        .backend("store", true)
        .with("database", tls);
    stage.site.apply(&scenario).await?;
    let job = says_why(&stage).await?;
    is_replaced(&stage, scenario, &job).await?;
    holds(&stage.glance("images"), later(), (TYPE, "DatabaseSynced")).await?;

    // The driver goes on in clear text where it may, so the server has to insist.
    let user = stage.live(kinds::USER, "images").await?;
    assert_eq!(user.data["spec"]["require"], json!({ "x509": true }));

    // All that reads the files may: five kinds of pods, of which the phases are those of the sync.
    for (kind, name, template) in [
        (kinds::DEPLOYMENT, "images", "/spec/template/spec"),
        (kinds::JOB, "images-db-sync", "/spec/template/spec"),
        (
            kinds::CRON_JOB,
            "images-db-purge",
            "/spec/jobTemplate/spec/template/spec",
        ),
    ] {
        let live = stage.child(kind, name)?.exists(later()).await?;
        let pod = live.data.pointer(template).cloned().unwrap_or_default();
        reads_the_files(&pod);
    }
    Ok(())
}

/// Returns the Job that cannot start.
async fn says_why(stage: &Stage) -> Result<DynamicObject> {
    let (glance, ns) = (stage.glance("images"), stage.namespace());
    let look = async |cause: &str| {
        // Nothing tells the operator of pods of Jobs: it looks every half minute, or when asked to.
        stage.poke("images").await?;
        let because = format!("db_sync job is running: {cause}");
        says(&glance, later(), (TYPE, "DBSyncInProgress", &because)).await
    };

    // A volume that cannot be mounted: Secret by Secret.
    let job = stage
        .child(kinds::JOB, "images-db-sync")?
        .exists(later())
        .await?;
    pod_says(stage, &job, json!({})).await?;
    let lacks = |secret: &str, keys: &str| {
        format!("FailedMount: Secret {ns}/{secret} with the TLS files of the database lacks {keys}")
    };
    look(&lacks("db-ca", "ca.crt")).await?;
    stage.secret("db-ca", &[("ca.crt", "x")]).await?;
    look(&lacks("db-client", "tls.crt, tls.key")).await?;
    stage.secret("db-client", &[("tls.crt", "x")]).await?;
    look(&lacks("db-client", "tls.key")).await?;
    stage
        .secret("db-client", &[("tls.crt", "x"), ("tls.key", "x")])
        .await?;
    stage.poke("images").await?;
    says(
        &glance,
        later(),
        (TYPE, "DBSyncInProgress", "db_sync job is running"),
    )
    .await?;

    // In the scheduler's words, then in the kubelet's.
    let unscheduled = json!({ "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available",
    }] });
    pod_says(stage, &job, unscheduled).await?;
    look("Unschedulable: 0/3 nodes are available").await?;
    let pulling = json!({
        "conditions": [{ "type": "PodScheduled", "status": "True" }],
        "containerStatuses": [{
            "name": "db-sync", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": "ImagePullBackOff", "message": "no such tag" } },
        }],
    });
    pod_says(stage, &job, pulling).await?;
    look("ImagePullBackOff: no such tag").await?;

    Ok(job)
}

async fn is_replaced(stage: &Stage, scenario: Scenario, job: &DynamicObject) -> Result<()> {
    let (glance, ns) = (stage.glance("images"), stage.namespace());
    let kubelet = stage.doubles()?.kubelet();
    // Nothing of it ever ran, so the corrected tag replaces it at once.
    let image = json!({ "repository": "registry.example/openstack/glance", "tag": "2025.2-p1" });
    stage
        .hub()
        .apply(&scenario.clone().with("image", image).glance())
        .await?;
    let second = another(stage, job).await?;
    kubelet.hold_jobs(ns).await?;
    kubelet.release(ns).await?;
    // What runs is left alone, whatever is corrected meanwhile.
    stage
        .child(kinds::JOB, "images-db-sync")?
        .satisfies(later(), "to run", |job| {
            let ready = &job.data["status"]["ready"];
            (ready == 1).then_some(()).ok_or(ready.to_string())
        })
        .await?;
    let image = json!({ "repository": "registry.example/openstack/glance", "tag": "2025.2-p2" });
    let newest = scenario.with("image", image);
    stage.hub().apply(&newest.glance()).await?;
    says(
        &glance,
        soon(),
        (TYPE, "DBSyncInProgress", "db_sync job is running"),
    )
    .await?;
    let same = stage.live(kinds::JOB, "images-db-sync").await?;
    assert_eq!(same.metadata.uid, second.metadata.uid);
    // Its end is; then the newest image has its turn.
    kubelet.heal(ns).await?;
    let third = another(stage, &second).await?;
    assert_eq!(
        third.data["spec"]["template"]["spec"]["containers"][0]["image"],
        "registry.example/openstack/glance:2025.2-p2"
    );
    Ok(())
}

/// Where pods may not be looked at, the counts of a Job have to do, once they had a minute to follow.
#[test]
fn a_correction_reaches_a_migration_whose_pods_may_not_be_seen() {
    run(async |fleet: &'static Fleet| {
        let stage = Stage::open(fleet, "unseen", "edge-2").await?;
        stage.doubles()?.kubelet().hold(stage.namespace()).await?;
        let image =
            json!({ "repository": "registry.example/openstack/glance", "tag": "2025.2-p0" });
        let scenario = stage.scenario("images").backend("store", true);
        stage
            .site
            .apply(&scenario.clone().with("image", image))
            .await?;
        let job = stage.child(kinds::JOB, "images-db-sync")?;
        let first = job.exists(later()).await?;
        stage.hub().apply(&scenario.glance()).await?;
        tokio::time::sleep(Duration::from_secs(62)).await;
        stage.poke("images").await?;
        let second = another(&stage, &first).await?;
        assert_eq!(
            second.data["spec"]["template"]["spec"]["containers"][0]["image"],
            "registry.example/openstack/glance:2025.2"
        );
        stage
            .doubles()?
            .kubelet()
            .release(stage.namespace())
            .await?;
        holds(&stage.glance("images"), later(), (TYPE, "DatabaseSynced")).await
    });
}

/// On a target that is the access chart's option.
async fn may_see_pods(stage: &Stage) -> Result<()> {
    if !stage.is_remote() {
        return Ok(());
    }
    let (api, ns) = ("rbac.authorization.k8s.io", stage.namespace());
    let (version, name) = (format!("{api}/v1"), "see-pods");
    for manifest in [
        json!({
            "apiVersion": version, "kind": "Role",
            "metadata": { "namespace": ns, "name": name },
            "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] }],
        }),
        json!({
            "apiVersion": version, "kind": "RoleBinding",
            "metadata": { "namespace": ns, "name": name },
            "roleRef": { "apiGroup": api, "kind": "Role", "name": name },
            "subjects": [{ "apiGroup": api, "kind": "User", "name": stage.site.user_on_targets() }],
        }),
    ] {
        stage.children()?.apply(&manifest).await?;
    }
    Ok(())
}

async fn another(stage: &Stage, than: &DynamicObject) -> Result<DynamicObject> {
    stage
        .child(kinds::JOB, "images-db-sync")?
        .satisfies(later(), "to be another one", |job| {
            (job.metadata.uid != than.metadata.uid)
                .then_some(())
                .ok_or_else(|| "it is the old one".to_owned())
        })
        .await
}

/// The files are mounted where the URL says, and the user of the container is in the group that may read them.
fn reads_the_files(pod: &Value) {
    let volumes = pod["volumes"].as_array().cloned().unwrap_or_default();
    let volume = volumes.iter().find(|v| v["name"] == "db-tls");
    assert_eq!(
        volume.map(|v| v["projected"].clone()),
        Some(json!({ "defaultMode": 0o400, "sources": [
            { "secret": { "name": "db-ca", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
            { "secret": { "name": "db-client", "items": [
                { "key": "tls.crt", "path": "tls.crt" }, { "key": "tls.key", "path": "tls.key" },
            ] } },
        ] }))
    );
    let container = &pod["containers"][0];
    let mounts = container["volumeMounts"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert!(
        mounts.iter().any(|m| m["name"] == "db-tls"
            && m["mountPath"] == "/etc/glance/db-tls/"
            && m["readOnly"] == true),
        "{mounts:#?}"
    );
    // The kubelet gives files of a pod with an fsGroup to that group and lets it read them.
    let group = &pod["securityContext"]["fsGroup"];
    assert_eq!(group, &container["securityContext"]["runAsGroup"]);
    assert_eq!(group, 42424);
}

/// One control plane without the kinds of the `MariaDB` operator plays both: the target of one hub, and a hub.
#[test]
fn kinds_of_the_database_operator_that_a_cluster_lacks_or_loses_are_named() {
    run(async |fleet: &'static Fleet| {
        let bare = fleet.another("no-mariadb", true).await?;
        let cluster = bare.cluster();
        let definitions = Neighbour::MariaDb.crds()?;
        cluster.uninstall(&definitions).await?;
        cluster.apply(&cluster_secret_store(DEFAULT_STORE)).await?;

        let site = Site::open(fleet, "no-db").await?;
        let _far = site.operator().await?.start().await?;
        site.register_as("no-mariadb", cluster).await?;
        let placed = site
            .scenario("images")
            .on("no-mariadb")
            .backend("store", true);
        placed.apply_credentials(cluster).await?;
        placed.apply_resources(site.hub()).await?;
        let there = site.glance("images");

        let ns = "database-alone";
        cluster.namespace(ns).await?;
        let operator = Operator::install(cluster, ns, fleet.folder().path()).await?;
        let _near = operator
            .arg(&format!("--namespace={ns}"))
            .arg("--clusters-namespace=")
            .start()
            .await?;
        let local = Scenario::new(ns, "images").backend("store", true);
        local.apply_credentials(cluster).await?;
        local.apply_resources(cluster).await?;
        let here = Object::glance(cluster, ns, "images");

        let lacks = |name: &str, kinds: &str| {
            format!(
                "MariaDB cluster \"mariadb\" is not ready: cluster {name} does not serve {kinds}; install the \
                 MariaDB operator there"
            )
        };
        let all = "mariadbs.k8s.mariadb.com, databases.k8s.mariadb.com, users.k8s.mariadb.com, \
                   grants.k8s.mariadb.com";
        let reason = "ClusterNotReady";
        says(&there, later(), (TYPE, reason, &lacks("no-mariadb", all))).await?;
        says(&here, later(), (TYPE, reason, &lacks("local", all))).await?;

        // Half of an installation is named too.
        let (first, rest): (Vec<_>, Vec<_>) = definitions
            .clone()
            .into_iter()
            .partition(|(name, _)| name.starts_with("mariadbs."));
        cluster.install(&first).await?;
        for namespace in [site.namespace(), ns] {
            cluster.apply(&mariadb(namespace, "mariadb")).await?;
        }
        let some = "databases.k8s.mariadb.com, users.k8s.mariadb.com, grants.k8s.mariadb.com";
        says(&there, later(), (TYPE, reason, &lacks("no-mariadb", some))).await?;
        says(&here, later(), (TYPE, reason, &lacks("local", some))).await?;
        cluster.install(&rest).await?;
        holds(&there, seconds(60), (TYPE, "DatabaseSynced")).await?;
        holds(&here, seconds(60), (TYPE, "DatabaseSynced")).await?;

        // Taken away from under Glances that work, and given back: named, and the new database gets its schema.
        let job = Object::new(cluster, kinds::JOB, site.namespace(), "images-db-sync");
        let sync = job.exists(soon()).await?.metadata.uid;
        cluster.uninstall(&definitions).await?;
        says(&there, later(), (TYPE, reason, &lacks("no-mariadb", all))).await?;
        says(&here, later(), (TYPE, reason, &lacks("local", all))).await?;
        cluster.install(&definitions).await?;
        for namespace in [site.namespace(), ns] {
            cluster.apply(&mariadb(namespace, "mariadb")).await?;
        }
        holds(&there, seconds(60), (TYPE, "DatabaseSynced")).await?;
        holds(&here, seconds(60), (TYPE, "DatabaseSynced")).await?;
        assert_ne!(job.exists(soon()).await?.metadata.uid, sync);
        Ok(())
    });
}
