//! A target in the hands of its administrator: what is granted to the hub there, and taken back.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use glance_api::keys::annotations::HUB_UID;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{Secret, ServiceAccount},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    },
};
use secrecy::SecretString;
use serde_json::Value;
use target_registry::{Cluster, error_code};

use super::{
    Session,
    access::Access,
    args::TargetArgs,
    contexts::Contexts,
    error::{Doing as _, Error},
    hub::{MANAGER, delete, delete_with},
    kubeconfig::Server,
    wait,
};

/// Set by an API server on the Secret of a token that it was shown.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";

/// A target, connected by the administrator's context.
pub struct Target {
    /// The connection.
    pub cluster: Arc<Cluster>,
    /// UID of its `kube-system` namespace, if it may be read.
    pub uid: Option<String>,
    context: String,
    contexts: Contexts,
}

/// An object on a target that gives the hub access to it.
pub struct Granted {
    resource: ApiResource,
    metadata: ObjectMeta,
}

/// What no command takes, its waits included.
const A_COMMAND: SignedDuration = SignedDuration::from_mins(15);

/// Set on the Secret of a token: the account that it is of.
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

// === impl Target ===

impl Target {
    /// Connects by the context that was named, else by the one whose server is at `host`.
    pub async fn connect(
        session: &Session,
        args: &TargetArgs,
        name: &str,
        host: Option<&str>,
    ) -> Result<Self, Error> {
        let contexts = match &args.target_kubeconfig {
            Some(file) => Contexts::load(Some(file))?,
            None => session.contexts.clone(),
        };
        let found = || host.and_then(|host| contexts.of_server(host));
        let context = args.target_context.clone().or_else(found);
        let context = context.ok_or_else(|| Error::NoTargetContext {
            name: name.to_owned(),
        })?;
        let cluster = contexts
            .connect(Some(&context), session.common.timeout)
            .await?;
        let what = format!("connecting to {name} by the context {context}");
        let answer = session.progress.during(&what, cluster.probe()).await;
        let uid = answer.doing(|| what.clone())?.uid;
        Ok(Self {
            cluster,
            uid,
            context,
            contexts,
        })
    }

    /// Fails when the cluster is another one than the name stands for.
    pub fn must_be(&self, name: &str, known: Option<&str>) -> Result<(), Error> {
        match (known, self.uid.as_deref()) {
            (Some(known), Some(found)) if known != found => Err(Error::OtherCluster {
                name: name.to_owned(),
                known: known.to_owned(),
                found: found.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// The API server as it is registered.
    pub async fn server(&self, url: Option<&str>, access: &Access) -> Result<Server, Error> {
        let entry = self.contexts.cluster(&self.context)?;
        let unverified = entry.insecure_skip_tls_verify == Some(true);
        let authority = if unverified {
            self.authority(access).await?
        } else {
            None
        };
        Server::of(entry, url, authority)
    }

    /// Applies manifests in their order.
    pub async fn apply(&self, manifests: &[Value], force: bool) -> Result<(), Error> {
        let mut parameters = PatchParams::apply(MANAGER);
        parameters.force = force;
        for manifest in manifests {
            let (api, name) = self.any(manifest);
            let written = api.patch(&name, &parameters, &Patch::Apply(manifest)).await;
            written.doing(|| {
                let kind = manifest["kind"].as_str().unwrap_or_default();
                format!("applying {kind} {name} on the target")
            })?;
        }
        Ok(())
    }

    /// The account, if it exists.
    pub async fn account(&self, access: &Access) -> Result<Option<ObjectMeta>, Error> {
        let api: Api<ServiceAccount> = Api::namespaced(self.cluster.client(), &access.namespace);
        let found = api.get_metadata_opt(&access.account).await;
        let found = found.doing(|| {
            format!(
                "reading the account {}/{} on the target",
                access.namespace, access.account
            )
        })?;
        Ok(found.map(|account| account.metadata))
    }

    /// UID of the hub that the account was made for, if that is another one, or if it is not known which one this is.
    pub async fn other_hub(&self, access: &Access) -> Result<Option<String>, Error> {
        let account = self.account(access).await?;
        let marked = account
            .and_then(|account| account.annotations)
            .and_then(|mut all| all.remove(HUB_UID));
        Ok(marked.filter(|hub| access.hub.as_ref() != Some(hub)))
    }

    /// Whether the account's namespace has this Secret.
    pub async fn has_secret(&self, access: &Access, name: &str) -> Result<bool, Error> {
        let found = self.secrets(access).get_metadata_opt(name).await;
        let doing = || {
            format!(
                "reading the Secret {}/{name} on the target",
                access.namespace
            )
        };
        Ok(found.doing(doing)?.is_some())
    }

    /// The token in a Secret, as soon as the cluster has filled it.
    pub async fn token(
        &self,
        session: &Session,
        access: &Access,
        secret: &str,
    ) -> Result<SecretString, Error> {
        let api = self.secrets(access);
        wait::until(
            session,
            "waiting for the token of the account",
            async || {
                let found = api.get_opt(secret).await.doing(|| {
                    format!(
                        "reading the token {}/{secret} on the target",
                        access.namespace
                    )
                })?;
                let Some(found) = found else {
                    return Ok(Err(format!("there is no Secret {secret}")));
                };
                let token = found.data.and_then(|mut data| data.remove("token"));
                let text = token.and_then(|token| String::from_utf8(token.0).ok());
                Ok(text
                    .map(SecretString::from)
                    .ok_or_else(|| "it has not been made yet".to_owned()))
            },
        )
        .await
    }

    /// A token of the account that ends by itself.
    pub async fn request_token(
        &self,
        access: &Access,
        lifetime: Duration,
    ) -> Result<SecretString, Error> {
        let api: Api<ServiceAccount> = Api::namespaced(self.cluster.client(), &access.namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: i64::try_from(lifetime.as_secs()).ok(),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let parameters = PostParams::default();
        let made = api
            .create_token_request(&access.account, &parameters, &request)
            .await;
        let doing = || format!("requesting a token of {} on the target", access.account);
        let made = made.doing(doing)?;
        let token = made.status.map(|status| status.token);
        token
            .map(SecretString::from)
            .ok_or_else(|| Error::Invalid("the target answered without a token".to_owned()))
    }

    /// The Secrets that these commands made for tokens of the account, for this hub, some time ago: others may be about to
    /// be registered. None where they may not be listed.
    pub async fn old_tokens(&self, access: &Access) -> Result<BTreeSet<String>, Error> {
        let parameters = ListParams::default().labels(&made_for(access));
        let found = self.secrets(access).list_metadata(&parameters).await;
        let found = match found {
            Err(error) if error_code(&error) == Some(403) => return Ok(BTreeSet::new()),
            found => {
                found.doing(|| "listing the tokens of the account on the target".to_owned())?
            }
        };
        let now = Timestamp::now();
        let all = found.items.into_iter().map(|item| item.metadata);
        let old = all.filter(|meta| is_old_token(meta, access, now));
        Ok(old.filter_map(|meta| meta.name).collect())
    }

    /// Whether somebody has logged in with the token in a Secret.
    pub async fn was_used(&self, access: &Access, secret: &str) -> Result<bool, Error> {
        let found = self.secrets(access).get_metadata_opt(secret).await;
        let found = found.doing(|| {
            format!(
                "reading the Secret {}/{secret} on the target",
                access.namespace
            )
        })?;
        let labels = found.and_then(|found| found.metadata.labels);
        Ok(labels.is_some_and(|labels| labels.contains_key(LAST_USED)))
    }

    /// Deletes the Secret of a token, which ends the token. One that is gone is fine.
    pub async fn revoke(&self, access: &Access, secret: &str) -> Result<bool, Error> {
        let api = self.secrets(access);
        let doing = || {
            format!(
                "deleting the token {}/{secret} on the target",
                access.namespace
            )
        };
        let Some(found) = api.get_metadata_opt(secret).await.doing(doing)? else {
            return Ok(false);
        };
        delete(&api, secret, found.metadata.uid).await.doing(doing)
    }

    /// Everything that was granted to the account, bindings first: from then on nothing more can be done
    /// with it.
    pub async fn granted(&self, access: &Access) -> Result<Vec<Granted>, Error> {
        let selector = made_for(access);
        let mut granted = Vec::new();
        for (group, kind) in [
            ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
            ("rbac.authorization.k8s.io", "RoleBinding"),
            ("rbac.authorization.k8s.io", "ClusterRole"),
            ("rbac.authorization.k8s.io", "Role"),
            ("", "Secret"),
            ("", "ServiceAccount"),
        ] {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
            let all: Api<DynamicObject> = Api::all_with(self.cluster.client(), &resource);
            let parameters = ListParams::default().labels(&selector);
            let found = all.list_metadata(&parameters).await;
            let found = found.doing(|| format!("listing {kind}s on the target"))?;
            granted.extend(found.into_iter().map(|object| Granted {
                resource: resource.clone(),
                metadata: object.metadata,
            }));
        }
        Ok(granted)
    }

    /// Deletes what was granted, or with `dry_run` only sees whether it could; answers how much of it there still was.
    pub async fn take_back(&self, granted: &[Granted], dry_run: bool) -> Result<usize, Error> {
        let mut gone = 0;
        for Granted { resource, metadata } in granted {
            let name = metadata.name.as_deref().unwrap_or_default();
            let client = self.cluster.client();
            let api: Api<DynamicObject> = match &metadata.namespace {
                Some(namespace) => Api::namespaced_with(client, namespace, resource),
                None => Api::all_with(client, resource),
            };
            let deleted = delete_with(&api, name, metadata.uid.clone(), dry_run).await;
            let kind = &resource.kind;
            let deleted = deleted.doing(|| format!("deleting {kind} {name} on the target"))?;
            gone += usize::from(deleted);
        }
        Ok(gone)
    }

    /// The authority that the cluster gives to its own pods.
    async fn authority(&self, access: &Access) -> Result<Option<String>, Error> {
        let api: Api<k8s_openapi::api::core::v1::ConfigMap> =
            Api::namespaced(self.cluster.client(), &access.namespace);
        let found = api.get_opt("kube-root-ca.crt").await;
        let found = found.doing(|| "reading the authority of the target".to_owned())?;
        let authority = found.and_then(|found| found.data?.remove("ca.crt"));
        authority.map(Some).ok_or_else(|| {
            Error::Invalid(
                "the context does not verify its server, and the target does not say how to"
                    .to_owned(),
            )
        })
    }

    fn secrets(&self, access: &Access) -> Api<Secret> {
        Api::namespaced(self.cluster.client(), &access.namespace)
    }

    fn any(&self, manifest: &Value) -> (Api<DynamicObject>, String) {
        let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
        let version = text("/apiVersion").unwrap_or_default();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = text("/kind").unwrap_or_default();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let client = self.cluster.client();
        let api = match text("/metadata/namespace") {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        (api, text("/metadata/name").unwrap_or_default().to_owned())
    }
}

/// Namespaces as the key of a registration writes them.
pub fn joined(namespaces: &BTreeSet<String>) -> String {
    let names: Vec<_> = namespaces.iter().map(String::as_str).collect();
    names.join(",")
}

/// Selects what these commands made for an account.
fn made_for(access: &Access) -> String {
    format!(
        "app.kubernetes.io/instance={},app.kubernetes.io/managed-by={}",
        access.name(),
        super::access::MANAGER
    )
}

/// Whether a Secret holds a token of the account that was made for this hub, and longer ago than a command takes.
fn is_old_token(meta: &ObjectMeta, access: &Access, now: Timestamp) -> bool {
    let annotation = |key: &str| meta.annotations.as_ref()?.get(key);
    let made = meta.creation_timestamp.as_ref().map(|made| made.0);
    annotation(ACCOUNT_NAME) == Some(&access.account)
        && access.hub.is_some()
        && annotation(HUB_UID) == access.hub.as_ref()
        && made.is_some_and(|made| now.duration_since(made) > A_COMMAND)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn only_a_token_of_this_hub_and_of_some_time_ago_is_left_over() {
        let access = |hub: Option<&str>| Access {
            namespace: "access".to_owned(),
            account: "account".to_owned(),
            scope: None,
            create_namespaces: false,
            hub: hub.map(str::to_owned),
        };
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let token = |hub: &str, account: &str, age: i64| {
            let marks = [(HUB_UID, hub), (ACCOUNT_NAME, account)];
            let marks = marks.map(|(key, value)| (key.to_owned(), value.to_owned()));
            ObjectMeta {
                annotations: Some(marks.into()),
                creation_timestamp: Some(Time(now - SignedDuration::from_secs(age))),
                ..ObjectMeta::default()
            }
        };
        let here = access(Some("here"));
        assert!(is_old_token(&token("here", "account", 3600), &here, now));
        assert!(
            !is_old_token(&token("here", "account", 60), &here, now),
            "of a command that may be under way"
        );
        assert!(
            !is_old_token(&token("there", "account", 3600), &here, now),
            "of another hub"
        );
        assert!(
            !is_old_token(&token("here", "another", 3600), &here, now),
            "of another account"
        );
        let unknown = access(None);
        assert!(
            !is_old_token(&token("here", "account", 3600), &unknown, now),
            "of whichever hub"
        );
    }
}
