//! The admission webhooks of one installation: the registration that its chart makes, pointed at the operator on this
//! machine, and the certificate that the operator serves.
//!
//! Only objects of the installation's own namespace are reviewed, so that tests do not see each other.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::{
    certificates::Authority,
    cluster::{Cluster, code, told},
    expect::eventually,
    operator::Operator,
    patience, ports, scenario,
};

/// Names under which the API server may reach the operator.
const NAMES: [&str; 2] = ["127.0.0.1", "localhost"];
/// API group of both kinds.
const GROUP: &str = "glance.openstack.c5c3.io";

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
    pub fn configurations(&self) -> [Value; 2] {
        ["Mutating", "Validating"].map(|kind| self.configuration(kind))
    }

    /// Registers them and waits until the API server asks.
    pub async fn register(&self, hub: &Cluster) -> Result<()> {
        for configuration in self.configurations() {
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
        for configuration in self.configurations() {
            hub.delete(&configuration).await?;
        }
        Ok(())
    }

    fn configuration(&self, kind: &str) -> Value {
        let verb = if kind == "Mutating" {
            "mutate"
        } else {
            "validate"
        };
        let webhook = |resource: &str| {
            let path = format!("{verb}-glance-openstack-c5c3-io-v1alpha1-{resource}");
            json!({
                "name": format!("{}{resource}.kb.io", &verb[..1]),
                "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "url": format!("https://127.0.0.1:{}/{path}", self.port),
                    "caBundle": BASE64_STANDARD.encode(self.bundle()),
                },
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "matchConditions": [{ "name": "not-being-deleted", "expression": "!has(object.metadata.deletionTimestamp)" }],
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": self.namespace } },
                "rules": [{
                    "apiGroups": [GROUP], "apiVersions": ["v1alpha1"],
                    "operations": ["CREATE", "UPDATE"], "resources": [format!("{resource}s")],
                }],
            })
        };
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("{kind}WebhookConfiguration"),
            "metadata": { "name": format!("glance-operator-{}-{}", self.namespace, kind.to_lowercase()) },
            "webhooks": [webhook("glance"), webhook("glancebackend")],
        })
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
