//! What others do to the children of a Glance: undone within seconds, by an event, without a
//! write to the resource. What others have put there under a wanted name is left as it is.

mod forged;
mod impostors;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use e2e::{
    bed::run,
    children::{self, Children, KINDS},
    cluster::Cluster,
    expect::Object,
    fleet::Fleet,
    kinds,
    patience::seconds,
    scenario::{self, Scenario},
    site::Site,
};
use glance_api::keys::labels;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

/// A repair takes this long at most. Everything that comes round by a clock takes longer: waits
/// ten seconds or more, the check of a healthy API half a minute, the sync ten minutes.
fn soon() -> Duration {
    seconds(8)
}

/// A Glance that owns an object of every kind.
fn with_everything(site: &Site<'_>, name: &str) -> Scenario {
    site.scenario(name)
        .backend(&format!("{name}-store"), true)
        .with(
            "autoscaling",
            json!({ "minReplicas": 2, "maxReplicas": 4, "targetCPUUtilization": 80 }),
        )
        .with(
            "networkPolicy",
            json!({ "ingress": [{ "namespaceSelector": { "matchLabels": { "team": "nova" } } }] }),
        )
        .with(
            "gateway",
            json!({ "parentRef": { "name": "public" }, "hostname": "images.example.com" }),
        )
}

async fn apply(site: &Site<'_>, scenario: &Scenario) -> Result<()> {
    for manifest in scenario::gateway(site.namespace(), "public") {
        site.children(scenario)?.apply(&manifest).await?;
    }
    site.apply(scenario).await
}

async fn owned(cluster: &Cluster, scenario: &Scenario) -> Result<Children> {
    match scenario.target() {
        Some(_) => children::by_labels(cluster, scenario.namespace(), scenario.name()).await,
        None => children::by_reference(cluster, scenario.namespace(), scenario.name()).await,
    }
}

/// `Kind/name` as a kind and a name.
fn split(key: &str) -> ((&'static str, &'static str), &str) {
    let (kind, name) = key.split_once('/').expect("Kind/name");
    let kind = KINDS.into_iter().find(|k| k.1 == kind).expect("a kind");
    (kind, name)
}

fn uid(object: &DynamicObject) -> Option<&str> {
    object.metadata.uid.as_deref()
}

/// What a child says: its spec or its data.
fn content(object: &DynamicObject) -> Value {
    json!([object.data.get("spec"), object.data.get("data")])
}

fn is(holds: bool, complaint: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(complaint.to_owned())
    }
}

/// One edit by hand of something that the operator sets; `None` for what cannot be edited.
fn tampering(key: &str) -> Option<Value> {
    let (kind, _) = split(key);
    let spec = match kind.1 {
        "Deployment" => json!({ "template": { "spec": { "containers": [
            { "name": "glance-api", "image": "registry.example/tampered:1" },
        ] } } }),
        "Service" => json!({ "selector": { "app.kubernetes.io/instance": "tampered" } }),
        "CronJob" => json!({ "suspend": true, "schedule": "0 5 1 1 *" }),
        "PodDisruptionBudget" => json!({ "minAvailable": 2 }),
        "HorizontalPodAutoscaler" => json!({ "maxReplicas": 9 }),
        "NetworkPolicy" => json!({ "podSelector": { "matchLabels": { "app": "tampered" } } }),
        "HTTPRoute" => json!({ "hostnames": ["tampered.example.com"] }),
        "Database" => json!({ "characterSet": "latin1" }),
        "User" => json!({ "maxUserConnections": 1 }),
        "Grant" => json!({ "table": "tampered" }),
        _ => return None,
    };
    Some(json!({ "spec": spec }))
}

/// The whole story of one Glance: each of its children is deleted, edited, stripped of its marks.
struct Drift<'f> {
    site: Site<'f>,
    scenario: Scenario,
    cluster: &'f Cluster,
}

impl Drift<'_> {
    fn object<'a>(&'a self, key: &'a str) -> Object<'a> {
        let (kind, name) = split(key);
        Object::new(self.cluster, kind, self.site.namespace(), name)
    }

    /// Nothing of the last repair may wake the operator for the next one.
    async fn settled(&self) -> Result<()> {
        let glance = self.site.glance(self.scenario.name());
        glance.is_ready(seconds(60)).await?;
        let deployment = format!("Deployment/{}", self.scenario.name());
        self.object(&deployment)
            .satisfies(seconds(60), "to have rolled out", |live| {
                let status = |field: &str| live.data["status"][field].as_i64();
                is(
                    status("observedGeneration") == live.metadata.generation
                        && status("updatedReplicas") == Some(2)
                        && status("availableReplicas") == Some(2)
                        && status("replicas") == Some(2),
                    &live.data["status"].to_string(),
                )
            })
            .await?;
        glance.is_ready(seconds(60)).await?;
        tokio::time::sleep(Duration::from_millis(400)).await;
        Ok(())
    }

    async fn patch(&self, key: &str, patch: &Value) -> Result<()> {
        let (kind, name) = split(key);
        let api = self
            .cluster
            .any(kind.0, kind.1, Some(self.site.namespace()));
        let params = PatchParams {
            field_manager: Some("somebody".to_owned()),
            ..PatchParams::default()
        };
        let sent = if kind == kinds::DEPLOYMENT {
            api.patch(name, &params, &Patch::Strategic(patch)).await
        } else {
            api.patch(name, &params, &Patch::Merge(patch)).await
        };
        sent.with_context(|| format!("patching {key}"))?;
        Ok(())
    }

    async fn delete(&self, key: &str, before: &DynamicObject) -> Result<()> {
        self.settled().await?;
        let started = Instant::now();
        let (kind, name) = split(key);
        self.cluster
            .any(kind.0, kind.1, Some(self.site.namespace()))
            .delete(name, &DeleteParams::background())
            .await?;
        self.object(key)
            .satisfies(soon(), "to be made again", |now| {
                is(uid(now) != uid(before), "it is still the old one")?;
                let same = kind != kinds::SECRET && kind != kinds::CONFIG_MAP
                    || content(now) == content(before);
                is(same, "it says something else")
            })
            .await?;
        eprintln!("{key} was back {} ms later", started.elapsed().as_millis());
        Ok(())
    }

    async fn edit(&self, key: &str, patch: &Value, before: &DynamicObject) -> Result<()> {
        self.settled().await?;
        let started = Instant::now();
        self.patch(key, patch).await?;
        self.object(key)
            .satisfies(soon(), "to be as it was", |now| {
                is(uid(now) == uid(before), "it was made again")?;
                is(
                    content(now) == content(before),
                    &format!("{} instead of {}", content(now), content(before)),
                )
            })
            .await?;
        eprintln!("{key} was right {} ms later", started.elapsed().as_millis());
        Ok(())
    }

    async fn unmark(&self, key: &str, patch: &Value, before: &DynamicObject) -> Result<()> {
        self.settled().await?;
        let started = Instant::now();
        self.patch(key, patch).await?;
        let wanted = marks(before);
        self.object(key)
            .satisfies(soon(), "to bear its marks again", |now| {
                is(uid(now) == uid(before), "it was made again")?;
                let marks = marks(now);
                is(marks == wanted, &format!("{marks} instead of {wanted}"))
            })
            .await?;
        eprintln!("{key} was ours {} ms later", started.elapsed().as_millis());
        Ok(())
    }

    /// Labels and owners that are ours, on every kind of child.
    fn unmarking(&self) -> Vec<Value> {
        if self.scenario.target().is_none() {
            return vec![json!({ "metadata": { "ownerReferences": null } })];
        }
        let nothing = json!({
            labels::OWNER_KIND: null, labels::OWNER_NAME: null, labels::OWNER_NAMESPACE: null,
        });
        vec![
            json!({ "metadata": { "labels": nothing } }),
            json!({ "metadata": { "labels": { labels::OWNER_NAME: "somebody-else" } } }),
        ]
    }

    async fn tell(&self) -> Result<()> {
        let glance = self.site.glance(self.scenario.name());
        let before = glance.is_ready(seconds(60)).await?;
        self.settled().await?;
        let all = owned(self.cluster, &self.scenario).await?;
        let owned_kinds: Vec<_> = all.keys().map(|key| split(key).0.1).collect();
        for (_, kind) in KINDS {
            assert!(owned_kinds.contains(&kind), "no {kind} in {owned_kinds:?}");
        }

        // What others add, they keep.
        let mine = json!({ "metadata": {
            "labels": { "e2e/mine": "kept" }, "annotations": { "e2e/mine": "kept" },
        } });
        for key in all.keys() {
            self.patch(key, &mine).await?;
        }
        for (key, child) in &all {
            if let Some(patch) = tampering(key) {
                self.edit(key, &patch, child).await?;
            }
        }
        let connection = format!("Secret/{}-db-connection", self.scenario.name());
        for patch in [
            json!({ "stringData": { "connection": "mysql+pymysql://somebody@else/where" } }),
            json!({ "stringData": { "stray": "key" } }),
            json!({ "data": { "connection": null } }),
        ] {
            self.edit(&connection, &patch, &all[&connection]).await?;
        }
        for (key, child) in &all {
            for patch in self.unmarking() {
                self.unmark(key, &patch, child).await?;
            }
            if marks(child)[0][3].is_string() {
                let base = json!({ "metadata": { "labels": { labels::CONFIG_BASE: null } } });
                self.unmark(key, &base, child).await?;
            }
        }
        self.settled().await?;
        for (key, child) in &owned(self.cluster, &self.scenario).await? {
            let kept = |map: Option<&std::collections::BTreeMap<String, String>>| {
                map.and_then(|m| m.get("e2e/mine")).map(String::as_str) == Some("kept")
            };
            assert!(kept(child.metadata.labels.as_ref()), "labels of {key}");
            assert!(
                kept(child.metadata.annotations.as_ref()),
                "annotations of {key}"
            );
            assert_eq!(uid(child), uid(&all[key]), "{key}");
        }
        let job = format!("Job/{}-db-sync", self.scenario.name());
        for (key, child) in &all {
            self.delete(key, child).await?;
            if split(key).0 == kinds::DATABASE {
                // What has its name now is empty.
                self.settled().await?;
                let now = self.object(&job).exists(soon()).await?;
                assert_ne!(uid(&now), uid(&all[&job]), "the schema was made again");
            }
        }
        self.lock(&connection).await?;

        self.settled().await?;
        self.object(&job)
            .satisfies(soon(), "to have run again", |now| {
                is(now.data["status"]["succeeded"] == 1, "it has not succeeded")
            })
            .await?;
        let left = owned(self.cluster, &self.scenario).await?;
        let names = |children: &Children| children.keys().cloned().collect::<Vec<_>>();
        assert_eq!(
            names(&left),
            names(&all),
            "neither more nor less than before"
        );
        let after = glance.get().await?.context("the Glance")?;
        assert_eq!(after.metadata.generation, before.metadata.generation);
        Ok(())
    }
}

/// The marks that make an object a child.
fn marks(object: &DynamicObject) -> Value {
    let all = object.metadata.labels.clone().unwrap_or_default();
    let ours = [
        labels::OWNER_KIND,
        labels::OWNER_NAME,
        labels::OWNER_NAMESPACE,
        labels::CONFIG_BASE,
    ];
    let found: Vec<_> = ours.map(|key| all.get(key).cloned()).to_vec();
    json!([found, object.metadata.owner_references])
}

#[test]
fn whatever_is_done_to_the_children_on_a_target_is_undone_at_once() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "drift-t").await?;
        let mut running = site.operator().await?.start().await?;
        site.register("edge-1").await?;
        let scenario = with_everything(&site, "images").on("edge-1");
        apply(&site, &scenario).await?;
        let cluster = site.children(&scenario)?;
        let drift = Drift {
            site,
            scenario,
            cluster,
        };
        drift.tell().await?;
        drift.forge(&mut running).await
    });
}

#[test]
fn whatever_is_done_to_the_children_on_the_hub_is_undone_at_once() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "drift-h").await?;
        let mut running = site.operator().await?.start().await?;
        let scenario = with_everything(&site, "images");
        apply(&site, &scenario).await?;
        let cluster = site.children(&scenario)?;
        let drift = Drift {
            site,
            scenario,
            cluster,
        };
        drift.tell().await?;
        drift.forge(&mut running).await
    });
}
