//! Metrics that are served with TLS, to those who may have them.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    bed::run, cluster::Cluster, expect::eventually, fleet::Fleet, operator::Operator,
    patience::seconds, prometheus::Prometheus, site::Site, webhooks::Webhooks,
};
use serde_json::json;

use super::is_to_be_had;

#[test]
fn metrics_that_are_served_securely_are_for_who_may_get_them() {
    if !is_to_be_had("a scrape of the secure metrics") {
        return;
    }
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "sealed").await?;
        let (hub, ns, folder) = (site.hub(), site.namespace(), fleet.folder().path());
        let certificate = Webhooks::prepare(ns, folder)?;
        let values = json!({ "secureMetrics": { "enabled": true } });
        let operator = Operator::install_with(hub, ns, folder, &values).await?;
        let running = operator
            .arg(&format!("--namespace={ns}"))
            .arg("--clusters-namespace=")
            .arg("--metrics-secure")
            .arg(&format!(
                "--metrics-cert-dir={}",
                certificate.folder().display()
            ))
            .log("sealed")
            .start()
            .await?;
        let authority = folder.join("sealed-authority.pem");
        std::fs::write(&authority, certificate.bundle())?;
        for account in ["scraper", "stranger"] {
            hub.apply(&json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": { "namespace": ns, "name": account },
            }))
            .await?;
        }
        // What the chart's ClusterRole is for.
        let role = format!("glance-operator-{ns}-metrics");
        hub.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": format!("{role}-scraper") },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "kind": "ServiceAccount", "namespace": ns, "name": "scraper" }],
        }))
        .await?;
        let job = |name: &str, token: Option<String>| {
            let mut job = json!({
                "job_name": name, "scheme": "https",
                "tls_config": { "ca_file": authority },
                "static_configs": [{ "targets": [running.metrics_address()] }],
            });
            if let Some(token) = token {
                job["authorization"] = json!({ "credentials": token });
            }
            job
        };
        let jobs = [
            job("scraper", Some(token_of(hub, ns, "scraper").await?)),
            job("stranger", Some(token_of(hub, ns, "stranger").await?)),
            job("nobody", None),
        ];
        let prometheus = Prometheus::start_with(&jobs, folder).await?;
        eventually(
            seconds(20),
            "each to be answered as it deserves",
            async || {
                let scrapes = prometheus.scrapes().await?;
                let is = |name: &str, words: &str| {
                    let mut of = scrapes.iter().filter(|(job, _)| job == name);
                    of.any(|(_, error)| {
                        if words.is_empty() {
                            error.is_empty()
                        } else {
                            error.contains(words)
                        }
                    })
                };
                let found = prometheus.query("glance_operator_build_info").await?.len();
                let right =
                    is("scraper", "") && is("stranger", "403") && is("nobody", "401") && found == 1;
                ensure!(right, "{scrapes:?}, {found} series");
                Ok(())
            },
        )
        .await
    });
}

/// A token of an account, out of its kubeconfig.
async fn token_of(hub: &Cluster, ns: &str, account: &str) -> Result<String> {
    let kubeconfig = hub.kubeconfig_of(ns, account).await?;
    let token = regex::Regex::new(r"eyJ[\w.-]+")?;
    Ok(token
        .find(&kubeconfig)
        .context("no token")?
        .as_str()
        .to_owned())
}
