//! The hub as people's commands see it: registrations, `TargetCluster`s, the Glances that name them.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    core::PartialObjectMeta,
};
use serde_json::{Value, json};
use target_registry::{
    Cluster, KUBECONFIG_KEY, Kind, NAMESPACES_KEY, REGISTRATION_LABEL, RENEWAL_LABEL,
    TargetCluster, error_code, is_registration, target_cluster::TARGET_CLUSTER,
};

use super::{
    access::Access,
    args::CommonArgs,
    contexts::Contexts,
    error::{Doing as _, Error},
    fleet::{Entry, Fleet, Placed},
};

/// Field manager of everything that these commands write.
pub const MANAGER: &str = "glance-operator-cli";

/// On a registration that these commands wrote: namespace and name of the account on the target.
pub const ACCOUNT_ANNOTATION: &str = "clusters.openstack.c5c3.io/account";

/// Objects of one page of a list.
const PAGE: u32 = 500;

const GLANCE: Kind = Kind::namespaced("glance.openstack.c5c3.io", "v1alpha1", "Glance", "glances");

/// The hub.
pub struct Hub {
    /// Connected by the user's context.
    pub cluster: Arc<Cluster>,
    /// The namespace of the registrations.
    pub namespace: String,
}

// === impl Hub ===

impl Hub {
    /// Connects by the user's options.
    pub async fn connect(contexts: &Contexts, common: &CommonArgs) -> Result<Self, Error> {
        let context = common.context.as_deref();
        let cluster = contexts.connect(context, common.timeout).await?;
        Ok(Self {
            cluster,
            namespace: common.clusters_namespace.clone(),
        })
    }

    /// UID of the hub's own `kube-system` namespace, if it may be read.
    pub async fn uid(&self) -> Option<String> {
        self.cluster.probe().await.ok()?.uid
    }

    /// The Secrets of the clusters namespace.
    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.cluster.client(), &self.namespace)
    }

    /// The `TargetCluster`s of the clusters namespace.
    pub fn targets(&self) -> Api<TargetCluster> {
        Api::namespaced(self.cluster.client(), &self.namespace)
    }

    /// Whether the kind `TargetCluster` is installed.
    pub async fn serves_targets(&self) -> Result<bool, Error> {
        let answer = self.cluster.serves(&TARGET_CLUSTER).await;
        answer.map_err(|error| Error::Api {
            doing: "asking the hub whether it serves TargetClusters".to_owned(),
            text: error.to_string(),
            code: error.code,
        })
    }

    /// Everything about the fleet, or about some of it.
    pub async fn fleet(&self, names: &[String]) -> Result<Fleet, Error> {
        let serves_targets = self.serves_targets().await?;
        let (secrets, targets, glances) = tokio::join!(
            self.list(self.secrets(), "Secrets"),
            async {
                if serves_targets {
                    self.list(self.targets(), "TargetClusters").await
                } else {
                    Ok(Vec::new())
                }
            },
            self.glances(),
        );
        let targets = targets?;
        // Who may not read Secrets still sees what the operator says.
        let (secrets, reads_secrets) = match secrets {
            Err(Error::Api {
                code: Some(403), ..
            }) if serves_targets => (Vec::new(), false),
            secrets => (secrets?, true),
        };
        let glances = match glances {
            Err(Error::Api {
                code: Some(403 | 404),
                ..
            }) => None,
            glances => Some(glances?),
        };
        let is_renewal = |secret: &&Secret| secret.labels().contains_key(RENEWAL_LABEL);
        let renewals: Arc<[Secret]> = secrets.iter().filter(is_renewal).cloned().collect();
        let mut entries = BTreeMap::new();
        let entry = |name: &str| Entry {
            name: name.to_owned(),
            secret: None,
            target: None,
            glances: glances.as_ref().map(|all| {
                let here = all.iter().filter(|placed| placed.cluster == name);
                here.cloned().collect()
            }),
            renewals: Arc::clone(&renewals),
        };
        for secret in secrets {
            let name = secret.metadata.name.clone().unwrap_or_default();
            // A name that was asked for is told of even if its label is wrong.
            if is_registration(&secret.metadata) || names.contains(&name) {
                let known = entries.entry(name.clone()).or_insert_with(|| entry(&name));
                known.secret = Some(secret);
            }
        }
        for target in targets {
            let name = target.metadata.name.clone().unwrap_or_default();
            let known = entries.entry(name.clone()).or_insert_with(|| entry(&name));
            known.target = Some(target);
        }
        if !names.is_empty() {
            for name in names {
                if !entries.contains_key(name) {
                    return Err(self.not_registered(name));
                }
            }
            entries.retain(|name, _| names.contains(name));
        }
        Ok(Fleet {
            entries: entries.into_values().collect(),
            serves_targets,
            reads_secrets,
        })
    }

    /// The Glances of all namespaces that name a cluster.
    pub async fn glances(&self) -> Result<Vec<Placed>, Error> {
        let api = GLANCE.api(self.cluster.client(), None);
        let all = self.list(api, "Glances").await?;
        Ok(all.iter().filter_map(Placed::read).collect())
    }

    /// The Secret of that name.
    pub async fn secret(&self, name: &str) -> Result<Option<Secret>, Error> {
        let api = self.secrets();
        let answer = api.get_opt(name).await;
        answer.doing(|| format!("reading the Secret {}/{name}", self.namespace))
    }

    /// The `TargetCluster` of that name; `None` also when the kind is not installed.
    pub async fn target(&self, name: &str) -> Result<Option<TargetCluster>, Error> {
        match self.targets().get(name).await {
            Ok(target) => Ok(Some(target)),
            Err(error) if error_code(&error) == Some(404) => Ok(None),
            Err(error) => {
                Err(error).doing(|| format!("reading the TargetCluster {}/{name}", self.namespace))
            }
        }
    }

    /// Writes the registration Secret. The namespace is made if it is missing.
    pub async fn write_registration(
        &self,
        name: &str,
        kubeconfig: &[u8],
        namespaces: Option<&str>,
        access: &Access,
    ) -> Result<(), Error> {
        let encode = |bytes: &[u8]| data_encoding::BASE64.encode(bytes);
        let mut data = json!({ KUBECONFIG_KEY: encode(kubeconfig) });
        if let Some(namespaces) = namespaces {
            data[NAMESPACES_KEY] = json!(encode(namespaces.as_bytes()));
        }
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": name, "namespace": self.namespace,
                "labels": { REGISTRATION_LABEL: "true" },
                "annotations": {
                    ACCOUNT_ANNOTATION: format!("{}/{}", access.namespace, access.account),
                },
            },
            "data": data,
        });
        let doing = || format!("writing the Secret {}/{name}", self.namespace);
        // The registration is this command's own: what another wrote there is meant to change.
        let parameters = PatchParams::apply(MANAGER).force();
        let api = self.secrets();
        let write = || async { api.patch(name, &parameters, &Patch::Apply(&secret)).await };
        match write().await {
            Err(error) if error_code(&error) == Some(404) => {
                self.create_namespace().await?;
                write().await.map(drop).doing(doing)
            }
            written => written.map(drop).doing(doing),
        }
    }

    /// Applies the part of a `TargetCluster`'s spec that a command has to say.
    pub async fn write_target(&self, name: &str, spec: Value) -> Result<TargetCluster, Error> {
        let target = json!({
            "apiVersion": TARGET_CLUSTER.api_version(), "kind": TARGET_CLUSTER.kind,
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": spec,
        });
        let parameters = PatchParams::apply(MANAGER).force();
        let api = self.targets();
        let written = api.patch(name, &parameters, &Patch::Apply(&target)).await;
        written.doing(|| format!("writing the TargetCluster {}/{name}", self.namespace))
    }

    /// Changes some of a `TargetCluster` and leaves the rest, whoever wrote it.
    pub async fn patch_target(&self, name: &str, patch: Value) -> Result<TargetCluster, Error> {
        let parameters = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let api = self.targets();
        let written = api.patch(name, &parameters, &Patch::Merge(&patch)).await;
        written.doing(|| format!("changing the TargetCluster {}/{name}", self.namespace))
    }

    /// Labels of a namespace of the hub; `None` when they may not be read.
    pub async fn namespace_labels(&self, name: &str) -> Option<BTreeMap<String, String>> {
        let api: Api<PartialObjectMeta<Namespace>> = Api::all(self.cluster.client());
        let namespace = api.get(name).await.ok()?;
        Some(namespace.metadata.labels.unwrap_or_default())
    }

    /// The error for a name that stands for nothing.
    pub fn not_registered(&self, name: &str) -> Error {
        Error::NotRegistered {
            name: name.to_owned(),
            namespace: self.namespace.clone(),
        }
    }

    async fn create_namespace(&self) -> Result<(), Error> {
        let api: Api<Namespace> = Api::all(self.cluster.client());
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.namespace },
        });
        let parameters = PatchParams::apply(MANAGER);
        let written = api
            .patch(&self.namespace, &parameters, &Patch::Apply(&namespace))
            .await;
        written
            .map(drop)
            .doing(|| format!("creating the namespace {} on the hub", self.namespace))
    }

    async fn list<K>(&self, api: Api<K>, what: &str) -> Result<Vec<K>, Error>
    where
        K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let mut parameters = ListParams::default().limit(PAGE);
        let mut all = Vec::new();
        loop {
            let page = api
                .list(&parameters)
                .await
                .doing(|| format!("listing {what} on the hub"))?;
            all.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(all),
            }
        }
    }
}

/// Deletes exactly the object that was looked at; one that is gone is fine.
pub async fn delete<K>(api: &Api<K>, name: &str, uid: Option<String>) -> Result<bool, kube::Error>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    delete_with(api, name, uid, false).await
}

/// The same, or with `dry_run` only whether it could be done.
pub async fn delete_with<K>(
    api: &Api<K>,
    name: &str,
    uid: Option<String>,
    dry_run: bool,
) -> Result<bool, kube::Error>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let parameters = DeleteParams {
        dry_run,
        preconditions: Some(Preconditions {
            uid,
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(name, &parameters).await {
        Ok(_) => Ok(true),
        Err(error) if error_code(&error) == Some(404) => Ok(false),
        Err(error) => Err(error),
    }
}
