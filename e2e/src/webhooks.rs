//! The admission webhooks of one installation: the registration that its chart renders, pointed at the operator on this
//! machine, and the certificate that the operator serves.
//!
//! Everything but the address is the chart's, so a mistake in it fails here. Only objects of the installation's own namespace are reviewed, so that tests do not see each other.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, ensure};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::{
    certificates::Authority,
    charts,
    cluster::{Cluster, code, told},
    expect::eventually,
    operator::Operator,
    patience, ports, scenario,
};

/// Names under which the API server may reach the operator.
const NAMES: [&str; 2] = ["127.0.0.1", "localhost"];
/// The chart, and the base of the names that it makes.
const CHART: &str = "glance-operator";

/// Webhooks to be.
#[derive(Debug)]
pub struct Webhooks {
    namespace: String,
    folder: PathBuf,
    port: u16,
    authorities: Vec<Authority>,
}

// === impl Webhooks ===

impl Webhooks {
    /// Makes an authority and a first certificate. Files go to a folder in `folder`.
    pub fn prepare(namespace: &str, folder: &Path) -> Result<Self> {
        let folder = folder.join(format!("webhooks-{namespace}"));
        std::fs::create_dir_all(&folder)?;
        let webhooks = Self {
            namespace: namespace.to_owned(),
            folder,
            port: ports::free()?,
            authorities: vec![Authority::new("webhooks")?],
        };
        webhooks.renew()?;
        Ok(webhooks)
    }

    /// An operator that serves them.
    #[must_use]
    pub fn on(&self, operator: Operator) -> Operator {
        operator
            .arg("--enable-webhooks=true")
            .arg(&format!("--webhook-bind-address=127.0.0.1:{}", self.port))
            .arg(&format!("--webhook-cert-dir={}", self.folder.display()))
    }

    /// The port on this machine.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder with the certificate.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The authorities that API servers trust, PEM, the newest last.
    pub fn bundle(&self) -> String {
        self.authorities.iter().map(Authority::pem).collect()
    }

    /// Replaces certificate and key, one file after the other. Returns the certificate, PEM.
    pub fn renew(&self) -> Result<String> {
        let newest = self.authorities.last().context("no authority")?;
        let pair = newest.server(&NAMES)?;
        for (file, text) in [("tls.crt", &pair.certificate), ("tls.key", &pair.key)] {
            // Whole or not at all, as a mounted Secret changes.
            let new = self.folder.join(format!(".{file}"));
            std::fs::write(&new, text)?;
            std::fs::rename(&new, self.folder.join(file))?;
        }
        Ok(pair.certificate)
    }

    /// Adds an authority, which signs from now on. The registration has to be written again.
    pub fn another_authority(&mut self) -> Result<()> {
        self.authorities.push(Authority::new("next-webhooks")?);
        Ok(())
    }

    /// What the chart registers, for this operator.
    pub async fn configurations(&self) -> Result<Vec<Value>> {
        let release = format!("{CHART}-{}", self.namespace);
        let certificate =
            json!({ "mode": "existing", "secretName": "webhooks", "caBundle": self.bundle() });
        let values = json!({ "webhookCertificate": certificate });
        let all = charts::render(CHART, &release, &self.namespace, &values).await?;
        let service = all
            .iter()
            .find(|manifest| manifest["kind"] == "Service")
            .context("the chart renders no Service")?;
        let is_configuration = |manifest: &&Value| {
            let kind = manifest["kind"].as_str().unwrap_or_default();
            kind.ends_with("WebhookConfiguration")
        };
        let configurations = all.iter().filter(is_configuration);
        configurations
            .map(|configuration| self.pointed_here(configuration, service))
            .collect()
    }

    /// Registers them and waits until the API server asks.
    pub async fn register(&self, hub: &Cluster) -> Result<()> {
        for configuration in self.configurations().await? {
            hub.apply(&configuration).await?;
        }
        // A name that no schema refuses.
        let refused = scenario::backend(&self.namespace, "nobody", "default", false);
        eventually(
            patience::seconds(30),
            "the webhooks to be asked",
            async || match dry_run(hub, &refused).await {
                Err(error) if code(&error) == Some(422) => Ok(()),
                Err(error) => Err(anyhow!(told(&error))),
                Ok(_) => Err(anyhow!("nobody was asked")),
            },
        )
        .await
    }

    /// Takes the registration back.
    pub async fn unregister(&self, hub: &Cluster) -> Result<()> {
        for configuration in self.configurations().await? {
            hub.delete(&configuration).await?;
        }
        Ok(())
    }

    /// A configuration of the chart whose webhooks are reached on this machine and not through the chart's Service, and
    /// are asked about one namespace only.
    fn pointed_here(&self, configuration: &Value, service: &Value) -> Result<Value> {
        let mut configuration = configuration.clone();
        let webhooks = configuration["webhooks"].as_array_mut();
        for webhook in webhooks.context("a configuration without webhooks")? {
            let client = &mut webhook["clientConfig"];
            let target = client["service"].take();
            for field in ["name", "namespace"] {
                ensure!(
                    target[field] == service["metadata"][field],
                    "the webhooks are not behind the chart's Service: {target}"
                );
            }
            let port = target["port"].as_u64().unwrap_or(443);
            let ports = service["spec"]["ports"].as_array().into_iter().flatten();
            ensure!(
                ports.clone().any(|known| known["port"] == port),
                "the chart's Service has no port {port}"
            );
            let path = target["path"]
                .as_str()
                .context("a webhook without a path")?;
            let url = format!("https://127.0.0.1:{}{path}", self.port);
            *client = json!({ "url": url, "caBundle": client["caBundle"] });
            webhook["namespaceSelector"] =
                json!({ "matchLabels": { "kubernetes.io/metadata.name": self.namespace } });
        }
        Ok(configuration)
    }
}

/// Creates an object without storing it.
pub async fn dry_run(
    cluster: &Cluster,
    manifest: &Value,
) -> Result<kube::api::DynamicObject, kube::Error> {
    let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
    let api = cluster.any(
        text("/apiVersion").unwrap_or_default(),
        text("/kind").unwrap_or_default(),
        text("/metadata/namespace"),
    );
    let object = serde_json::from_value(manifest.clone()).map_err(kube::Error::SerdeError)?;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    api.create(&params, &object).await
}

/// The same, and the warnings that came with the answer.
pub async fn warnings(cluster: &Cluster, manifest: &Value) -> Result<Vec<String>> {
    let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
    let api: Api<kube::api::DynamicObject> = cluster.any(
        text("/apiVersion").unwrap_or_default(),
        text("/kind").unwrap_or_default(),
        text("/metadata/namespace"),
    );
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let request = kube::core::Request::new(api.resource_url());
    let request = request.create(&params, manifest.to_string().into_bytes())?;
    let (parts, body) = request.into_parts();
    let request = http::Request::from_parts(parts, kube::client::Body::from(body));
    let response = cluster.client().send(request).await?;
    ensure!(response.status().is_success(), "{}", response.status());
    let values = response.headers().get_all("warning").into_iter();
    // `299 - "text"`, quotes and backslashes in it escaped.
    let texts = values.map(|value| {
        let text = String::from_utf8_lossy(value.as_bytes());
        text.replace("\\\"", "\"")
    });
    Ok(texts.collect())
}
