//! `DatabaseReady` after an edit that no managed database can follow, where no webhook refused it.

use anyhow::{Context as _, Result};
use e2e::{bed::run, cluster::Cluster, expect::eventually, fleet::Fleet, kinds, policy};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::stage::{Stage, holds, later, says};

const TYPE: &str = "DatabaseReady";

#[test]
fn pods_stay_with_their_database_whatever_name_the_spec_gives_it_later() {
    run(async |fleet: &'static Fleet| {
        let stage = Stage::open(fleet, "moved", "edge-1").await?;
        let (children, ns) = (stage.children()?, stage.namespace());
        let scenario = stage.scenario("images").backend("store", true);
        stage.site.apply(&scenario).await?;
        stage.glance("images").is_ready(later()).await?;
        let policy = immutable(ns);
        for manifest in &policy {
            children.apply(manifest).await?;
        }
        let outcome = edited_and_taken_back(&stage, children).await;
        for manifest in &policy {
            children.delete(manifest).await?;
        }
        outcome
    });
}

async fn edited_and_taken_back(stage: &Stage, children: &Cluster) -> Result<()> {
    let ns = stage.namespace();
    let databases = children.any(kinds::DATABASE.0, kinds::DATABASE.1, Some(ns));
    let renamed = Patch::Merge(json!({ "spec": { "name": "other" } }));
    let trial = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    eventually(
        later(),
        "the policy to be enforced",
        async || match databases.patch("images", &trial, &renamed).await {
            Ok(_) => Err("it was renamed"),
            Err(_) => Ok(()),
        },
    )
    .await?;

    let glance = stage.glance("images");
    let before = connection(stage).await?;
    let edit = |name: &str| json!({ "spec": { "database": { "database": name } } });
    stage.patch(kinds::GLANCE, "images", edit("other")).await?;
    let refusal = format!(
        "the database is \"glance\" on MariaDB \"mariadb\" and pods stay with it; set spec.database back: \
         databases.k8s.mariadb.com \"images\" is forbidden: ValidatingAdmissionPolicy '{ns}-fixed' with binding \
         '{ns}-fixed' denied request: immutable"
    );
    says(&glance, later(), (TYPE, "ReconcileError", &refusal)).await?;
    assert_eq!(connection(stage).await?, before);

    // A new password arrives all the same, and with the old name.
    let login = [("username", "glance"), ("password", "rotated")];
    stage.secret("images-db", &login).await?;
    let wanted = before.replace(":db-password@", ":rotated@");
    eventually(later(), "the new password", async || {
        let now = connection(stage).await?;
        (now == wanted).then_some(()).context(now)
    })
    .await?;

    stage.patch(kinds::GLANCE, "images", edit("glance")).await?;
    holds(&glance, later(), (TYPE, "DatabaseSynced")).await?;
    glance.is_ready(later()).await?;
    assert_eq!(connection(stage).await?, wanted);

    // A MariaDB that is not there is no way out either.
    let cluster =
        |name: &str| json!({ "spec": { "database": { "clusterRef": { "name": name } } } });
    stage
        .patch(kinds::GLANCE, "images", cluster("nowhere"))
        .await?;
    let stays = "MariaDB cluster \"nowhere\" is not ready: the database is \"glance\" on MariaDB \"mariadb\" \
                 and pods stay with it; set spec.database back";
    says(&glance, later(), (TYPE, "ClusterNotReady", stays)).await?;
    assert_eq!(connection(stage).await?, wanted);
    stage
        .patch(kinds::GLANCE, "images", cluster("mariadb"))
        .await?;
    glance.is_ready(later()).await?;
    assert_eq!(connection(stage).await?, wanted);
    let database = stage.live(kinds::DATABASE, "images").await?;
    assert_eq!(database.data["spec"]["name"], "glance");
    Ok(())
}

/// The database URL that pods and Jobs use.
async fn connection(stage: &Stage) -> Result<String> {
    let secret = stage.live(kinds::SECRET, "images-db-connection").await?;
    let encoded = secret.data["data"]["connection"].as_str();
    let bytes = data_encoding::BASE64.decode(encoded.context("no URL")?.as_bytes())?;
    Ok(String::from_utf8(bytes)?)
}

/// What the webhooks of the `MariaDB` operator insist on, in one namespace.
fn immutable(namespace: &str) -> [Value; 2] {
    let expression = "object.spec.name == oldObject.spec.name && \
                      object.spec.mariaDbRef.name == oldObject.spec.mariaDbRef.name";
    let rule = json!({
        "apiGroups": ["k8s.mariadb.com"], "apiVersions": ["*"],
        "operations": ["UPDATE"], "resources": ["databases"],
    });
    let name = format!("{namespace}-fixed");
    policy::forbidding(&name, namespace, &rule, expression, "immutable")
}
