//! Access to one cluster as its administrator, whoever runs it.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::{
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{Secret, ServiceAccount},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams, ValidationDirective,
    },
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use secrecy::SecretString;
use serde_json::Value;

use crate::{
    audit::Audit,
    expect::eventually,
    kubeconfig::{Login, document},
    patience,
};

/// Namespaces of tests refuse pods that are not confined as far as pods can be, so that every test shows
/// that the pods of a Glance are.
pub const CONFINED: (&str, &str) = ("pod-security.kubernetes.io/enforce", "restricted");

/// The field manager of everything that the bed writes.
pub const MANAGER: &str = "e2e";

/// One cluster. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    name: String,
    config: Config,
    authority: String,
    client: Client,
    kubeconfig: PathBuf,
    audit: Option<Audit>,
}

// === impl Cluster ===

impl Cluster {
    /// Reads the kubeconfig file of an administrator. `audit` is the API server's audit
    /// log, if it can be read.
    pub async fn open(name: &str, kubeconfig: PathBuf, audit: Option<Audit>) -> Result<Self> {
        let parsed = Kubeconfig::read_from(&kubeconfig)
            .with_context(|| format!("reading {}", kubeconfig.display()))?;
        let mut config =
            Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
        // A test wants to see a refusal, not the fifteenth try.
        config.default_retry = false;
        config.read_timeout = Some(patience::seconds(60));
        config.reset_reader_on_write = true;
        let authority = config
            .root_cert
            .iter()
            .flatten()
            .map(|der| pem(der))
            .collect::<Vec<_>>()
            .concat();
        let client = Client::try_from(config.clone())?;
        Ok(Self {
            name: name.to_owned(),
            config,
            authority,
            client,
            kubeconfig,
            audit,
        })
    }

    /// The name of the cluster in the fleet, `hub`, `edge-1`, …
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client with the administrator's rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A client that logs nobody in: requests through it carry their own credentials.
    pub fn anonymous(&self) -> Result<Client> {
        let mut config = self.config.clone();
        config.auth_info = AuthInfo::default();
        // What passes through it may be a watch.
        config.read_timeout = None;
        Ok(Client::try_from(config)?)
    }

    /// The file with the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// The URL of the API server, without a trailing slash.
    pub fn server(&self) -> String {
        self.config
            .cluster_url
            .to_string()
            .trim_end_matches('/')
            .to_owned()
    }

    /// The certificate of the API server's authority, PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The audit log; an existing cluster has none that we can read.
    pub fn audit(&self) -> Option<&Audit> {
        self.audit.as_ref()
    }

    /// A typed interface to the objects of one namespace.
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client(), namespace)
    }

    /// An interface to any kind, `apiVersion` and `kind` as a manifest writes them.
    pub fn any(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, &resource),
            None => Api::all_with(self.client(), &resource),
        }
    }

    fn any_of(&self, manifest: &Value) -> Result<(Api<DynamicObject>, String)> {
        let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
        let missing = || anyhow!("not a manifest: {manifest}");
        let api = self.any(
            text("/apiVersion").ok_or_else(missing)?,
            text("/kind").ok_or_else(missing)?,
            text("/metadata/namespace"),
        );
        Ok((api, text("/metadata/name").ok_or_else(missing)?.to_owned()))
    }

    /// Applies a manifest as the bed's field manager, by force.
    pub async fn apply(&self, manifest: &Value) -> Result<DynamicObject> {
        let (api, name) = self.any_of(manifest)?;
        api.patch(
            &name,
            &PatchParams::apply(MANAGER).force(),
            &Patch::Apply(manifest),
        )
        .await
        .map_err(|e| {
            anyhow!(
                "applying {} {name} on {}: {}",
                kind(manifest),
                self.name,
                told(&e)
            )
        })
    }

    /// What the API server says of a manifest, as strictly as it can, without storing anything.
    pub async fn admits(&self, manifest: &Value) -> Result<DynamicObject, kube::Error> {
        let (api, name) = self
            .any_of(manifest)
            .map_err(|e| kube::Error::Service(e.into()))?;
        let strictly = PatchParams {
            dry_run: true,
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::apply(MANAGER).force()
        };
        api.patch(&name, &strictly, &Patch::Apply(manifest)).await
    }

    /// Creates an object, as a user would with `kubectl create`.
    pub async fn create(&self, manifest: &Value) -> Result<DynamicObject, kube::Error> {
        let (api, _) = self
            .any_of(manifest)
            .map_err(|e| kube::Error::Service(e.into()))?;
        let object = serde_json::from_value(manifest.clone()).map_err(kube::Error::SerdeError)?;
        api.create(&PostParams::default(), &object).await
    }

    /// Deletes what a manifest names; absent is fine.
    pub async fn delete(&self, manifest: &Value) -> Result<()> {
        let (api, name) = self.any_of(manifest)?;
        match api.delete(&name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(e) if code(&e) == Some(404) => Ok(()),
            Err(e) => Err(anyhow!("deleting {} {name}: {}", kind(manifest), told(&e))),
        }
    }

    /// Makes sure that a namespace exists, and that it admits confined pods only.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        self.apply(&serde_json::json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "labels": { CONFINED.0: CONFINED.1 } },
        }))
        .await?;
        Ok(())
    }

    /// Applies an opaque Secret.
    pub async fn secret(&self, namespace: &str, name: &str, data: &[(&str, &str)]) -> Result<()> {
        let data: BTreeMap<_, _> = data.iter().copied().collect();
        self.apply(&serde_json::json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "namespace": namespace, "name": name },
            "stringData": data,
        }))
        .await?;
        Ok(())
    }

    /// Installs custom resource definitions, given as YAML by name, and waits until they
    /// are served.
    pub async fn install(&self, definitions: &[(String, String)]) -> Result<()> {
        futures::future::try_join_all(definitions.iter().map(|(name, text)| async move {
            let path = format!(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}?fieldManager={MANAGER}&force=true"
            );
            // As text: the API server reads YAML, and some of these are a megabyte.
            let request = http::Request::patch(path)
                .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
                .body(text.clone().into_bytes())?;
            self.client
                .request::<Value>(request)
                .await
                .map_err(|e| anyhow!("installing {name} on {}: {}", self.name, told(&e)))
        }))
        .await?;
        let crds: Api<CustomResourceDefinition> = Api::all(self.client());
        eventually(
            patience::seconds(60),
            "the definitions to be served",
            async || {
                let served = crds
                    .list(&ListParams::default())
                    .await
                    .map_err(|e| told(&e))?;
                let established = |name: &str| {
                    served.items.iter().any(|crd| {
                        crd.metadata.name.as_deref() == Some(name)
                            && crd
                                .status
                                .iter()
                                .flat_map(|s| s.conditions.iter().flatten())
                                .any(|c| c.type_ == "Established" && c.status == "True")
                    })
                };
                match definitions.iter().find(|(name, _)| !established(name)) {
                    Some((name, _)) => Err(format!("{name} is not established")),
                    None => Ok(()),
                }
            },
        )
        .await
    }

    /// Removes custom resource definitions, and with them all objects of their kinds.
    pub async fn uninstall(&self, definitions: &[(String, String)]) -> Result<()> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client());
        for (name, _) in definitions {
            match crds.delete(name, &DeleteParams::default()).await {
                Ok(_) => {}
                Err(e) if code(&e) == Some(404) => {}
                Err(e) => return Err(anyhow!("removing {name}: {}", told(&e))),
            }
        }
        eventually(
            patience::seconds(60),
            "the definitions to be gone",
            async || {
                for (name, _) in definitions {
                    if crds
                        .get_metadata_opt(name)
                        .await
                        .map_err(|e| told(&e))?
                        .is_some()
                    {
                        return Err(format!("{name} is still there"));
                    }
                }
                Ok(())
            },
        )
        .await
    }

    /// A kubeconfig that logs a service account in with a fresh, short-lived token.
    pub async fn kubeconfig_of(&self, namespace: &str, account: &str) -> Result<String> {
        let accounts: Api<ServiceAccount> = self.api(namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(6 * 3600),
                ..Default::default()
            },
            ..Default::default()
        };
        let answer = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await
            .map_err(|e| anyhow!("asking for a token of {namespace}/{account}: {}", told(&e)))?;
        let token = answer
            .status
            .context("the token request came back without a token")?
            .token;
        Ok(self.kubeconfig_with(account, token))
    }

    /// A kubeconfig with the token in a Secret of type `kubernetes.io/service-account-token`,
    /// as soon as the cluster has filled it.
    pub async fn kubeconfig_from(&self, namespace: &str, secret: &str) -> Result<String> {
        let secrets: Api<Secret> = self.api(namespace);
        let token = eventually(
            patience::seconds(30),
            "the token to be filled in",
            async || {
                let found = secrets.get(secret).await.map_err(|e| told(&e))?;
                let token = found.data.and_then(|mut data| data.remove("token"));
                let token = token.ok_or_else(|| format!("{namespace}/{secret} has no token"))?;
                String::from_utf8(token.0).map_err(|e| e.to_string())
            },
        )
        .await?;
        Ok(self.kubeconfig_with(secret, token))
    }

    /// A kubeconfig that logs in with a token.
    pub fn kubeconfig_with(&self, user: &str, token: String) -> String {
        let login = Login::Token(SecretString::from(token));
        document(
            &format!("{}-{user}", self.name),
            &self.server(),
            &self.authority,
            &login,
        )
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The HTTP code of an API server's refusal.
pub fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// An error in the API server's words; kube's own text repeats the whole answer.
pub fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        other => other.to_string(),
    }
}

fn kind(manifest: &Value) -> &str {
    manifest["kind"].as_str().unwrap_or("object")
}

fn pem(der: &[u8]) -> String {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<_> = text
        .as_bytes()
        .chunks(64)
        .map(String::from_utf8_lossy)
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}
