//! Features switched on, changed and switched off: the rendered files are exactly right, the pods
//! are replaced exactly when something that they run with has changed, and nothing of a feature
//! outlives it.

mod exposure;
mod image_cache;
mod imports;
mod policy;

use anyhow::{Context as _, Result};
use data_encoding::HEXLOWER;
use e2e::{
    expect::{Object, eventually},
    kinds,
    patience::seconds,
    scenario::Scenario,
    site::Site,
    workload::{Files, Rollout, Workload},
};
use kube::api::PostParams;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const LIMIT: u64 = 60;
const CONF: &str = "glance-api.conf";
const PASTE: &str = "glance-api-paste.ini";

/// One Glance whose spec changes step by step.
struct Story<'a> {
    site: &'a Site<'a>,
    scenario: Scenario,
    workload: Workload<'a>,
    last: Rollout,
}

// === impl Story ===

impl<'a> Story<'a> {
    async fn begin(site: &'a Site<'a>, scenario: Scenario) -> Result<Self> {
        site.apply(&scenario).await?;
        site.glance(scenario.name())
            .is_ready(seconds(LIMIT))
            .await?;
        let workload = Workload::of(site, &scenario)?;
        let last = workload.is_rolled_out(seconds(LIMIT)).await?;
        Ok(Self {
            site,
            scenario,
            workload,
            last,
        })
    }

    fn glance(&self) -> Object<'_> {
        self.site.glance(self.scenario.name())
    }

    /// Sets a field of the spec (`null` removes it); the pods must be replaced that often.
    async fn change(&mut self, field: &str, value: Value, rolls: u64) -> Result<Files> {
        self.scenario = self.scenario.clone().with(field, value.clone());
        self.write().await?;
        self.settles(&format!("{field}: {value}"), rolls).await
    }

    /// Writes the spec as an editor does. A server-side apply that empties a block makes the server
    /// store `null` there, which no schema without `nullable` takes.
    async fn write(&self) -> Result<()> {
        let api = self.site.hub().any(
            kinds::GLANCE.0,
            kinds::GLANCE.1,
            Some(self.site.namespace()),
        );
        eventually(seconds(20), "the spec to be written", async || {
            let mut live = api.get(self.scenario.name()).await?;
            live.data["spec"] = self.scenario.glance()["spec"].clone();
            api.replace(self.scenario.name(), &PostParams::default(), &live)
                .await
        })
        .await?;
        Ok(())
    }

    /// Waits for everything to come to rest; the pods must have been replaced that often.
    async fn settles(&mut self, what: &str, rolls: u64) -> Result<Files> {
        // A condition of the newest generation tells that a pass has seen all of it.
        self.glance()
            .is_ready(seconds(LIMIT))
            .await
            .with_context(|| what.to_owned())?;
        let wanted = self.last.revision + rolls;
        let revision = async || {
            let now = self.workload.is_rolled_out(seconds(LIMIT)).await?;
            if now.revision >= wanted {
                Ok(now)
            } else {
                Err(anyhow::anyhow!("revision {}", now.revision))
            }
        };
        let now = eventually(seconds(LIMIT), &format!("the roll after {what}"), revision).await?;
        self.glance().is_ready(seconds(LIMIT)).await?;
        assert_eq!(now.revision, wanted, "{what}: rolls");
        if rolls == 0 {
            assert_eq!(now, self.last, "{what} is nothing to the pods");
        } else {
            assert_ne!(now.template, self.last.template, "{what}");
            assert_eq!(
                now.generation,
                self.last.generation + 1,
                "{what}: one write"
            );
        }
        self.last = now;
        self.workload.files().await
    }

    fn volumes(&self) -> Vec<&str> {
        names(&self.last.template["spec"]["volumes"])
    }

    fn containers(&self) -> Vec<&str> {
        names(&self.last.template["spec"]["containers"])
    }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["name"].as_str())
        .collect()
}

fn sha256(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text.as_bytes()))
}

/// The common inputs of the contract's test vectors.
pub fn vector(site: &Site<'_>, name: &str, release: &str) -> Scenario {
    site.scenario(name)
        .release(release)
        .backend(&format!("{name}-s3"), true)
        .with("keystoneEndpoint", json!("http://keystone.openstack.svc.cluster.local:5000/v3"))
        .with("cache", json!({ "backend": "dogpile.cache.pymemcache", "clusterRef": { "name": "openstack-memcached" } }))
        .with(
            "serviceUser",
            json!({
                "username": "admin", "projectName": "admin", "userDomainName": "Default", "projectDomainName": "Default",
                "secretRef": { "name": format!("{name}-service-user"), "key": "password" },
            }),
        )
}
