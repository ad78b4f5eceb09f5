//! How the hub is found.

use anyhow::Context as _;
use kube::config::{Config, KubeConfigOptions};

use crate::cluster::probe::environment;

/// The configuration of the hub: `KUBECONFIG`, else the pod's service account, else `~/.kube/config` (contract:
/// operations, environment and files). `HTTPS_PROXY` and `NO_PROXY` hold for all three.
pub async fn config() -> anyhow::Result<Config> {
    let asked = std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty());
    let mut config = match Config::incluster() {
        Ok(config) if !asked => config,
        _ => Config::from_kubeconfig(&KubeConfigOptions::default()).await.context(
            "no usable Kubernetes configuration: set KUBECONFIG, run in a cluster, or provide ~/.kube/config",
        )?,
    };
    // One answered 503 would otherwise keep a call for minutes.
    config.default_retry = false;
    let (variable, chosen) = environment::https_proxy(&config.cluster_url);
    // A proxy that the kubeconfig itself names stays; the client would take one from the variable without asking NO_PROXY.
    if config.proxy_url.is_none() || config.proxy_url == variable {
        config.proxy_url = chosen;
    }
    Ok(config)
}
