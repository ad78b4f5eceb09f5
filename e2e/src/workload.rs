//! What a Glance has on its cluster, as a test looks at it.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use kube::api::ListParams;
use serde_json::Value;

use crate::{
    children::KINDS,
    cluster::{Cluster, code, told},
    expect::{Object, eventually},
    kinds,
    scenario::Scenario,
    site::Site,
};

/// The field manager of everything that the operator writes.
const OPERATOR: &str = "cobaltcore-operator";

/// The children of one Glance.
#[derive(Debug, Clone)]
pub struct Workload<'a> {
    cluster: &'a Cluster,
    namespace: String,
    name: String,
}

/// The configuration that the API pods mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// Name of the `ConfigMap`.
    pub config_map: String,
    /// Its files by name.
    pub config: BTreeMap<String, String>,
    /// Name of the Secret with the stores.
    pub secret: String,
    /// Its one file.
    pub backends: String,
}

/// How often the pods have been replaced, and by what.
#[derive(Debug, Clone, PartialEq)]
pub struct Rollout {
    /// The revision that the deployment controller counts; one more per roll.
    pub revision: u64,
    /// The pod template.
    pub template: Value,
    /// The Deployment's generation; also moves when only the number of replicas does.
    pub generation: i64,
}

// === impl Workload ===

impl<'a> Workload<'a> {
    /// Of a scenario.
    pub fn of(site: &'a Site<'_>, scenario: &Scenario) -> Result<Self> {
        Ok(Self {
            cluster: site.children(scenario)?,
            namespace: scenario.namespace().to_owned(),
            name: scenario.name().to_owned(),
        })
    }

    /// The cluster it is on.
    pub fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    /// An object in the Glance's namespace.
    pub fn object<'b>(&'b self, kind: (&'b str, &'b str), name: &'b str) -> Object<'b> {
        Object::new(self.cluster, kind, &self.namespace, name)
    }

    /// An object that has to be there.
    pub async fn get(&self, kind: (&str, &str), name: &str) -> Result<Value> {
        let found = self.object(kind, name).get().await?;
        let found = found
            .with_context(|| format!("there is no {} {name} on {}", kind.1, self.cluster.name()))?;
        Ok(serde_json::to_value(found)?)
    }

    /// The Deployment.
    pub async fn deployment(&self) -> Result<Value> {
        self.get(kinds::DEPLOYMENT, &self.name).await
    }

    /// What the pods of the newest template mount.
    pub async fn files(&self) -> Result<Files> {
        let deployment = self.deployment().await?;
        let volumes = deployment["spec"]["template"]["spec"]["volumes"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let named = |volume: &str, source: &str| {
            let volume = volumes.iter().find(|v| v["name"] == volume)?;
            Some(volume.pointer(source)?.as_str()?.to_owned())
        };
        let config_map = named("config", "/configMap/name").context("no volume config")?;
        let secret = named("backends", "/secret/secretName").context("no volume backends")?;
        let config = self.get(kinds::CONFIG_MAP, &config_map).await?["data"].clone();
        let encoded = self.get(kinds::SECRET, &secret).await?["data"].clone();
        let encoded = encoded["backends.conf"]
            .as_str()
            .context("no backends.conf")?;
        let backends = data_encoding::BASE64.decode(encoded.as_bytes())?;
        Ok(Files {
            config_map,
            config: serde_json::from_value(config)?,
            secret,
            backends: String::from_utf8(backends)?,
        })
    }

    /// The pods' template and how often it has changed.
    pub async fn rollout(&self) -> Result<Rollout> {
        let deployment = self.deployment().await?;
        let revision = &deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
        Ok(Rollout {
            revision: revision.as_str().unwrap_or("0").parse()?,
            template: deployment["spec"]["template"].clone(),
            generation: deployment["metadata"]["generation"].as_i64().unwrap_or(0),
        })
    }

    /// Waits until every pod is of the newest template and ready.
    pub async fn is_rolled_out(&self, limit: Duration) -> Result<Rollout> {
        eventually(limit, "the Deployment to be rolled out", async || {
            let deployment = self.deployment().await?;
            let count = |field: &str| deployment["status"][field].as_i64().unwrap_or(0);
            let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
            let seen =
                deployment["metadata"]["generation"].as_i64() == Some(count("observedGeneration"));
            let counts = ["replicas", "updatedReplicas", "readyReplicas"].map(count);
            if seen && counts == [wanted; 3] {
                return self.rollout().await;
            }
            Err(anyhow!("{}", deployment["status"]))
        })
        .await
    }
}

// === impl Files ===

impl Files {
    /// A file of the `ConfigMap`; empty when there is none.
    pub fn text(&self, file: &str) -> &str {
        self.config.get(file).map_or("", String::as_str)
    }

    /// Fails unless the file has this whole line in this section.
    #[track_caller]
    pub fn assert_line(&self, file: &str, section: &str, line: &str) {
        assert!(
            self.section(file, section).contains(&line),
            "{file} has no line {line:?} in [{section}]:\n{}",
            self.text(file)
        );
    }

    /// The lines of a section; none when there is no such section.
    pub fn section(&self, file: &str, section: &str) -> Vec<&str> {
        let header = format!("[{section}]");
        self.text(file)
            .lines()
            .skip_while(|line| *line != header)
            .skip(1)
            .take_while(|line| !line.starts_with('['))
            .filter(|line| !line.is_empty())
            .collect()
    }
}

/// Everything of the kinds of [`KINDS`] on a cluster that the operator wrote or marked for
/// a Glance of a namespace, wherever it is, as `Kind name`, sorted.
pub async fn traces(cluster: &Cluster, namespace: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (api_version, kind) in KINDS {
        let list = match cluster
            .any(api_version, kind, None)
            .list(&ListParams::default())
            .await
        {
            Ok(list) => list,
            Err(e) if code(&e) == Some(404) => continue,
            Err(e) => return Err(anyhow!("listing {kind}s: {}", told(&e))),
        };
        for object in list.items {
            let meta = &object.metadata;
            let here = meta.namespace.as_deref() == Some(namespace);
            let labelled = meta.labels.as_ref().is_some_and(|labels| {
                labels
                    .get("openstack.c5c3.io/owner-namespace")
                    .map(String::as_str)
                    == Some(namespace)
            });
            let written = meta
                .managed_fields
                .iter()
                .flatten()
                .any(|entry| entry.manager.as_deref() == Some(OPERATOR));
            let owned = meta
                .owner_references
                .iter()
                .flatten()
                .any(|owner| owner.kind == "Glance");
            if labelled || here && (written || owned) {
                found.push(format!(
                    "{kind} {}",
                    meta.name.as_deref().unwrap_or_default()
                ));
            }
        }
    }
    found.sort();
    Ok(found)
}
