//! What others have put under a wanted name is left as it is, and reported.

use anyhow::{Context as _, Result};
use e2e::{
    bed::run,
    cluster::Cluster,
    expect::{Object, Wanted, eventually},
    fleet::Fleet,
    kinds,
    patience::seconds,
    scenario::Scenario,
    site::Site,
};
use glance_api::keys::{FIELD_MANAGER, annotations, labels};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{apply, owned, split, uid, with_everything};
use crate::strangers::{essence, impostor};

/// Who has put objects under the names that a Glance wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stranger {
    /// Somebody without any mark of ours.
    Nobody,
    /// A Glance of the same name and namespace on another hub.
    OtherHub,
    /// Another controller on the same cluster.
    Controller,
}

/// A name that is taken, and where the Glance must say so.
struct Taken {
    kind: (&'static str, &'static str),
    name: String,
    condition: &'static str,
    /// Immutable objects are refused in words of their own.
    revision: bool,
}

/// Objects by strangers under all names that a Glance wants, in the order in which it comes
/// across them. Those of one entry are met in one pass.
fn taken(name: &str, config_map: &str, backends: &str) -> Vec<Vec<Taken>> {
    let one = |kind, name: &str, condition| Taken {
        kind,
        name: name.to_owned(),
        condition,
        revision: false,
    };
    let revision = |kind, name: &str, condition| Taken {
        revision: true,
        ..one(kind, name, condition)
    };
    vec![
        vec![one(
            kinds::SECRET,
            &format!("{name}-db-connection"),
            "SecretsReady",
        )],
        vec![revision(kinds::SECRET, backends, "BackendsReady")],
        vec![revision(kinds::CONFIG_MAP, config_map, "SecretsReady")],
        vec![one(kinds::DATABASE, name, "DatabaseReady")],
        vec![one(kinds::USER, name, "DatabaseReady")],
        vec![one(kinds::GRANT, name, "DatabaseReady")],
        vec![one(kinds::JOB, &format!("{name}-db-sync"), "DatabaseReady")],
        vec![one(kinds::DEPLOYMENT, name, "DeploymentReady")],
        vec![one(kinds::SERVICE, name, "DeploymentReady")],
        vec![one(kinds::DISRUPTION_BUDGET, name, "DeploymentReady")],
        vec![
            one(kinds::HTTP_ROUTE, name, "HTTPRouteReady"),
            one(kinds::AUTOSCALER, name, "HPAReady"),
            one(kinds::NETWORK_POLICY, name, "NetworkPolicyReady"),
            one(kinds::CRON_JOB, &format!("{name}-db-purge"), "DBPurgeReady"),
        ],
    ]
}

/// A Glance whose every name is taken, one after the other given back.
struct Impostors<'f> {
    site: &'f Site<'f>,
    scenario: Scenario,
    stranger: Stranger,
}

impl Impostors<'_> {
    fn cluster(&self) -> Result<&Cluster> {
        self.site.children(&self.scenario)
    }

    async fn metadata(&self, taken: &Taken) -> Result<Value> {
        let mut metadata = json!({ "namespace": self.site.namespace(), "name": taken.name });
        match self.stranger {
            Stranger::Nobody => {}
            Stranger::OtherHub => {
                metadata["labels"] = json!({
                    labels::OWNER_KIND: "Glance",
                    labels::OWNER_NAME: self.scenario.name(),
                    labels::OWNER_NAMESPACE: self.site.namespace(),
                });
                metadata["annotations"] = json!({ annotations::HUB_UID: "another-hub" });
            }
            Stranger::Controller => {
                let keeper = self
                    .cluster()?
                    .apply(&json!({
                        "apiVersion": "v1", "kind": "ConfigMap",
                        "metadata": { "namespace": self.site.namespace(), "name": "keeper" },
                    }))
                    .await?;
                metadata["ownerReferences"] = json!([{
                    "apiVersion": "v1", "kind": "ConfigMap", "name": "keeper",
                    "uid": keeper.metadata.uid, "controller": true,
                }]);
            }
        }
        Ok(metadata)
    }

    fn refusal(&self, taken: &Taken) -> String {
        let (ns, name) = (self.site.namespace(), &taken.name);
        let kind = taken.kind.1;
        match self.stranger {
            _ if taken.revision => format!(
                "existing {kind} {ns}/{name} is not owned by {ns}/{}",
                self.scenario.name()
            ),
            Stranger::OtherHub => format!(
                "refusing to write {kind} {ns}/{name}: its mark says that it belongs to the hub another-hub"
            ),
            _ => format!(
                "refusing to adopt pre-existing {kind} {ns}/{name}: it was not created by this Glance, so adopting \
                 it would overwrite its spec and delete it at teardown"
            ),
        }
    }

    /// Shows the operator that something has changed, which it cannot see by itself.
    async fn poke(&self, number: usize) -> Result<()> {
        let patch = json!({ "metadata": { "annotations": { "e2e/poke": number.to_string() } } });
        self.site
            .hub()
            .any(
                kinds::GLANCE.0,
                kinds::GLANCE.1,
                Some(self.site.namespace()),
            )
            .patch(
                self.scenario.name(),
                &PatchParams::default(),
                &Patch::Merge(&patch),
            )
            .await?;
        Ok(())
    }

    async fn tell(&self) -> Result<()> {
        let (cluster, ns, name) = (self.cluster()?, self.site.namespace(), self.scenario.name());
        let glance = self.site.glance(name);
        // Once without strangers, to learn the names that depend on content.
        apply(self.site, &self.scenario).await?;
        glance.is_ready(seconds(60)).await?;
        let all = owned(cluster, &self.scenario).await?;
        let family = |kind: &str, base: &str| {
            all.keys()
                .find_map(|key| key.strip_prefix(kind).filter(|name| name.contains(base)))
                .map(str::to_owned)
                .unwrap()
        };
        let config_map = family("ConfigMap/", "-config-");
        let backends = family("Secret/", "-backends-");
        self.site.hub().delete(&self.scenario.glance()).await?;
        glance.is_gone(seconds(60)).await?;
        for key in all.keys() {
            let (kind, name) = split(key);
            Object::new(cluster, kind, ns, name)
                .is_gone(seconds(60))
                .await?;
        }

        let stages = taken(name, &config_map, &backends);
        for entry in stages.iter().flatten() {
            let metadata = self.metadata(entry).await?;
            let planted = cluster.create(&impostor(entry.kind, &metadata)).await;
            if let Err(error) = planted {
                panic!("{} {}: {error}", entry.kind.1, entry.name);
            }
        }
        let strangers = self.essences(&stages).await?;
        self.site.apply(&self.scenario).await?;
        for (number, stage) in stages.iter().enumerate() {
            self.poke(number).await?;
            for entry in stage {
                let text = self.refusal(entry);
                let reason = match entry.kind {
                    kinds::CONFIG_MAP => "ConfigError",
                    _ => "ReconcileError",
                };
                let wanted = Wanted::of(entry.condition).status("False").reason(reason);
                glance.condition(seconds(15), wanted.message(&text)).await?;
            }
            let now = self.essences(&stages[number..]).await?;
            assert_eq!(now[..], strangers[strangers.len() - now.len()..]);
            for entry in stage {
                self.give_back(entry).await?;
            }
        }
        self.poke(stages.len()).await?;
        glance.is_ready(seconds(60)).await?;
        Ok(())
    }

    /// Deletes a stranger's object; ours may be there a moment later.
    async fn give_back(&self, entry: &Taken) -> Result<()> {
        let (cluster, ns) = (self.cluster()?, self.site.namespace());
        let object = Object::new(cluster, entry.kind, ns, &entry.name);
        let theirs = object.get().await?;
        let metadata = json!({ "namespace": ns, "name": entry.name });
        cluster.delete(&impostor(entry.kind, &metadata)).await?;
        let what = format!("{} {} to be given back", entry.kind.1, entry.name);
        eventually(seconds(15), &what, async || {
            let now = object.get().await?;
            let same = now.as_ref().and_then(uid) == theirs.as_ref().and_then(uid);
            anyhow::ensure!(now.is_none() || !same, "it is still theirs");
            Ok(())
        })
        .await
    }

    /// What the strangers' objects are, none of them touched by us.
    async fn essences(&self, stages: &[Vec<Taken>]) -> Result<Vec<Value>> {
        let mut essences = Vec::new();
        for entry in stages.iter().flatten() {
            let object = Object::new(
                self.cluster()?,
                entry.kind,
                self.site.namespace(),
                &entry.name,
            )
            .get()
            .await?
            .with_context(|| format!("{} {} is gone", entry.kind.1, entry.name))?;
            let managers = object.metadata.managed_fields.iter().flatten();
            for entry in managers {
                assert_ne!(entry.manager.as_deref(), Some(FIELD_MANAGER));
            }
            essences.push(essence(&object));
        }
        Ok(essences)
    }
}

#[test]
fn what_others_have_on_a_target_under_a_wanted_name_is_left_alone_and_reported() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "taken-t").await?;
        let _operator = site.operator().await?.start().await?;
        site.register("edge-1").await?;
        let tell = async |name: &str, stranger| {
            let scenario = with_everything(&site, name).on("edge-1");
            Impostors {
                site: &site,
                scenario,
                stranger,
            }
            .tell()
            .await
            .with_context(|| format!("{stranger:?}"))
        };
        tokio::try_join!(
            tell("plain", Stranger::Nobody),
            tell("twin", Stranger::OtherHub)
        )?;
        Ok(())
    });
}

#[test]
fn what_others_control_on_the_hub_under_a_wanted_name_is_left_alone_and_reported() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "taken-h").await?;
        let _operator = site.operator().await?.start().await?;
        let scenario = with_everything(&site, "images");
        Impostors {
            site: &site,
            scenario,
            stranger: Stranger::Controller,
        }
        .tell()
        .await
    });
}
