//! The only writer of child objects.
//!
//! Server-side apply that is skipped while nothing changed; create-once objects named by their content; deletes that
//! carry the UID and never touch what is not ours (contract: target clusters, ownership; configuration, immutable
//! objects).

use std::sync::Arc;

use glance_api::keys::FIELD_MANAGER;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
    core::DynamicObject,
};
use serde_json::Value;
use target_registry::Kind;

use super::{
    Target,
    ledger::{self, Applied},
    ownership::Claim,
};
use crate::pipeline::report::{ErrorKind, StepError, describe};

/// Why a create did not create.
#[derive(Debug)]
pub enum Created {
    /// It did.
    New(Arc<DynamicObject>),
    /// An object of that name is there.
    Exists,
}

// === impl Target (writes) ===

impl Target {
    /// Brings a child to what `desired` says, by server-side apply, unless it is there already. The live object.
    ///
    /// `desired` carries no ownership: it is stamped here.
    pub async fn apply(
        &self,
        kind: &Kind,
        mut desired: Value,
    ) -> Result<Arc<DynamicObject>, StepError> {
        let name = desired["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        self.check_scope(&name)?;
        self.owner.check_name(kind.kind, &name)?;
        self.owner.stamp(&mut desired);
        let wanted = ledger::of_json(&desired);
        let key = ledger::key(kind, self.namespace(), &name);

        let live = self.child(kind, &name).await?;
        if let Some(live) = &live {
            let now = Applied {
                uid: live.metadata.uid.clone().unwrap_or_default(),
                desired: wanted.clone(),
                managed: ledger::managed_hash(&live.metadata).unwrap_or_default(),
            };
            if self.view.ledger.applied(&key).as_ref() == Some(&now) {
                return Ok(Arc::clone(live));
            }
        } else if self.is_remote() {
            self.check_adoption(kind, &name).await?;
        }
        // With the UID the apply can only update the object we looked at, never re-create or take over another one.
        let uid = live.and_then(|live| live.metadata.uid.clone());
        let applied = match self.send_apply(kind, &name, &desired, uid.as_deref()).await {
            Err(kube::Error::Api(status)) if status.code == 409 && uid.is_some() => {
                if self.is_remote() {
                    self.check_adoption(kind, &name).await?;
                }
                self.send_apply(kind, &name, &desired, None).await
            }
            other => other,
        };
        let applied = applied.map_err(|error| self.write_error(kind, &name, error))?;
        let applied = self.remember(kind, key.clone(), applied);
        self.view.ledger.record(
            key,
            Applied {
                uid: applied.metadata.uid.clone().unwrap_or_default(),
                desired: wanted,
                managed: ledger::managed_hash(&applied.metadata).unwrap_or_default(),
            },
        );
        Ok(applied)
    }

    /// Creates an object once. `desired` carries no ownership: it is stamped here.
    pub async fn create(&self, kind: &Kind, mut desired: Value) -> Result<Created, StepError> {
        let name = desired["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        self.check_scope(&name)?;
        self.owner.check_name(kind.kind, &name)?;
        self.owner.stamp(&mut desired);
        let object: DynamicObject = serde_json::from_value(desired)
            .map_err(|error| StepError::new(ErrorKind::Render, error.to_string()))?;
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        match self.api(kind).create(&params, &object).await {
            Ok(created) => {
                let key = ledger::key(kind, self.namespace(), &name);
                Ok(Created::New(self.remember(kind, key, created)))
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Created::Exists),
            Err(error) => Err(self.write_error(kind, &name, error)),
        }
    }

    /// Replaces an object of ours that was read at this version.
    pub async fn replace(
        &self,
        kind: &Kind,
        name: &str,
        object: &DynamicObject,
    ) -> Result<(), StepError> {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let replaced = self
            .api(kind)
            .replace(name, &params, object)
            .await
            .map_err(|error| self.write_error(kind, name, error))?;
        self.remember(kind, ledger::key(kind, self.namespace(), name), replaced);
        Ok(())
    }

    /// Sends a merge patch to a child of ours.
    pub async fn merge(&self, kind: &Kind, name: &str, patch: &Value) -> Result<(), StepError> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patched = self
            .api(kind)
            .patch(name, &params, &Patch::Merge(patch))
            .await
            .map_err(|error| self.write_error(kind, name, error))?;
        self.remember(kind, ledger::key(kind, self.namespace(), name), patched);
        Ok(())
    }

    /// Deletes a child of this name if there is one and it is ours; others stay. Whether there was one.
    pub async fn ensure_absent(&self, kind: &Kind, name: &str) -> Result<bool, StepError> {
        self.check_scope(name)?;
        match self.child(kind, name).await? {
            Some(live) => self.delete(kind, &live.metadata).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Deletes exactly this object, in the background. One that is gone already is fine.
    pub async fn delete(&self, kind: &Kind, meta: &ObjectMeta) -> Result<(), StepError> {
        // The default for Jobs is to orphan the pods.
        self.delete_by(kind, meta, None, PropagationPolicy::Background)
            .await
    }

    /// Deletes exactly this object as it was looked at: one that somebody has changed since stays.
    pub async fn delete_unchanged(&self, kind: &Kind, meta: &ObjectMeta) -> Result<(), StepError> {
        let version = meta.resource_version.clone();
        self.delete_by(kind, meta, version, PropagationPolicy::Background)
            .await
    }

    /// Deletes exactly this object; it stays until all that it controls is gone.
    pub async fn delete_last(&self, kind: &Kind, meta: &ObjectMeta) -> Result<(), StepError> {
        self.delete_by(kind, meta, None, PropagationPolicy::Foreground)
            .await
    }

    async fn delete_by(
        &self,
        kind: &Kind,
        meta: &ObjectMeta,
        resource_version: Option<String>,
        policy: PropagationPolicy,
    ) -> Result<(), StepError> {
        if meta.deletion_timestamp.is_some() {
            return Ok(());
        }
        let name = meta.name.as_deref().unwrap_or_default();
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: meta.uid.clone().map(|uid| Preconditions {
                uid: Some(uid),
                resource_version,
            }),
            ..DeleteParams::default()
        };
        match self.api(kind).delete(name, &params).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                return Err(StepError::from(error).context(&format!(
                    "deleting {} {}/{name}",
                    kind.kind,
                    self.namespace()
                )));
            }
        }
        self.view
            .ledger
            .forget(&ledger::key(kind, self.namespace(), name));
        Ok(())
    }

    /// Makes sure that an object that only others create or nobody updates bears our marks and these labels; one
    /// that is not ours is refused. `live` was read from the server, or is what the watch knows of a child. Whether
    /// anything was missing.
    pub async fn reclaim(
        &self,
        kind: &Kind,
        live: &ObjectMeta,
        labels: &[(&str, &str)],
    ) -> Result<bool, StepError> {
        let name = live.name.as_deref().unwrap_or_default();
        let claim = self.owner.claim(live);
        if !matches!(claim, Claim::Mine | Claim::Unmarked) {
            return Err(self.owner.refuse(kind.kind, name, &claim));
        }
        let labelled = labels.iter().all(|(key, value)| {
            live.labels
                .as_ref()
                .and_then(|labels| labels.get(*key))
                .is_some_and(|label| label == value)
        });
        if claim == Claim::Mine && labelled {
            return Ok(false);
        }
        let mut patch = self.owner.mark(live);
        for (key, value) in labels {
            patch["metadata"]["labels"][*key] = Value::from(*value);
        }
        self.merge(kind, name, &patch).await.map(|()| true)
    }

    /// Refuses when an object of this name is there and not ours; read live, since a watch only shows our own.
    pub async fn check_adoption(&self, kind: &Kind, name: &str) -> Result<(), StepError> {
        let live = self.read_metadata(kind, name).await.map_err(|error| {
            error.context(&format!(
                "looking for a pre-existing {} {}/{name}",
                kind.kind,
                self.namespace()
            ))
        })?;
        match live.map(|live| self.owner.claim(&live)) {
            None | Some(Claim::Mine | Claim::Unmarked) => Ok(()),
            Some(claim) => Err(self.owner.refuse(kind.kind, name, &claim)),
        }
    }

    async fn send_apply(
        &self,
        kind: &Kind,
        name: &str,
        desired: &Value,
        uid: Option<&str>,
    ) -> Result<DynamicObject, kube::Error> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let api = self.api(kind);
        match uid {
            Some(uid) => {
                let mut desired = desired.clone();
                desired["metadata"]["uid"] = Value::String(uid.to_owned());
                api.patch(name, &params, &Patch::Apply(&desired)).await
            }
            None => api.patch(name, &params, &Patch::Apply(desired)).await,
        }
    }

    fn remember(
        &self,
        kind: &Kind,
        key: ledger::ObjectKey,
        object: DynamicObject,
    ) -> Arc<DynamicObject> {
        if let Some(version) = object.metadata.resource_version.clone() {
            self.view.ledger.wrote(key, version);
        }
        self.view.observe(kind, object)
    }

    fn write_error(&self, kind: &Kind, name: &str, error: kube::Error) -> StepError {
        let Target { owner, .. } = self;
        if let kube::Error::Api(status) = &error {
            // The server's way to say that somebody else controls the object.
            if status.code == 422
                && status
                    .message
                    .contains("Only one reference can have Controller")
            {
                return owner.refuse(kind.kind, name, &Claim::Foreign);
            }
            if status.code == 404 && status.message.contains("namespaces") {
                return StepError::new(
                    ErrorKind::Api,
                    format!(
                        "{}; create the namespace on that cluster (kubectl create namespace {})",
                        describe(&error),
                        owner.namespace
                    ),
                );
            }
            if status.code == 404 {
                return StepError::new(
                    ErrorKind::Api,
                    format!(
                        "the cluster does not serve {}.{}; install its custom resource definition there",
                        kind.kind, kind.group
                    ),
                );
            }
        }
        StepError::from(error)
    }
}
