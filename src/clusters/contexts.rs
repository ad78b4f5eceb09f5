//! The user's kubeconfig: ways to the hub and to targets, as kubectl takes them.

use std::{path::Path, sync::Arc, time::Duration};

use kube::config::{
    Cluster as ClusterEntry, Config, KubeConfigOptions, Kubeconfig, KubeconfigError,
};
use target_registry::{ClientOptions, Cluster};

use super::error::Error;

/// The contexts of one kubeconfig.
#[derive(Clone, Debug, Default)]
pub struct Contexts {
    kubeconfig: Option<Kubeconfig>,
    /// As it was named on the command line, for commands that are printed.
    file: Option<String>,
}

// === impl Contexts ===

impl Contexts {
    /// The named file, else `$KUBECONFIG`, else `~/.kube/config`. None of them is fine inside of a cluster.
    pub fn load(file: Option<&Path>) -> Result<Self, Error> {
        let read = match file {
            Some(file) => Kubeconfig::read_from(file),
            None => Kubeconfig::read(),
        };
        let kubeconfig = match read {
            Ok(kubeconfig) => Some(kubeconfig),
            Err(_) if file.is_none() && Config::incluster().is_ok() => None,
            Err(error) => return Err(Box::new(error).into()),
        };
        let file = file.map(|file| file.display().to_string());
        Ok(Self { kubeconfig, file })
    }

    /// The file that was named on the command line.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// Connects by a context; without a name by the current one, or as the pod this runs in.
    pub async fn connect(
        &self,
        context: Option<&str>,
        timeout: Duration,
    ) -> Result<Arc<Cluster>, Error> {
        let mut config = match (&self.kubeconfig, context) {
            (Some(kubeconfig), _) => {
                if let Some(name) = context {
                    self.must_have(name)?;
                }
                let options = KubeConfigOptions {
                    context: context.map(str::to_owned),
                    ..KubeConfigOptions::default()
                };
                Config::from_custom_kubeconfig(kubeconfig.clone(), &options)
                    .await
                    .map_err(Box::new)?
            }
            (None, Some(name)) => return Err(self.unknown(name)),
            (None, None) => {
                Config::incluster().map_err(|_| Box::new(KubeconfigError::CurrentContextNotSet))?
            }
        };
        config.default_retry = false;
        let options = ClientOptions {
            user_agent: concat!("glance-operator-cli/", env!("CARGO_PKG_VERSION")).to_owned(),
            request_timeout: timeout.min(Duration::from_secs(15)),
            ..ClientOptions::default()
        };
        Cluster::hub(config, None, &options).map_err(|error| {
            Error::Invalid(format!(
                "the context cannot be used: {}",
                target_registry::error_text(&error)
            ))
        })
    }

    /// The cluster that a context names.
    pub fn cluster(&self, context: &str) -> Result<&ClusterEntry, Error> {
        self.must_have(context)?;
        let kubeconfig = self.kubeconfig.iter();
        let found = kubeconfig.flat_map(|kubeconfig| {
            let contexts = kubeconfig.contexts.iter().filter(|c| c.name == context);
            contexts.filter_map(|c| c.context.as_ref()).flat_map(|c| {
                let clusters = kubeconfig.clusters.iter();
                clusters
                    .filter(|entry| entry.name == c.cluster)
                    .filter_map(|entry| entry.cluster.as_ref())
            })
        });
        let mut found = found;
        found.next().ok_or_else(|| {
            Error::Invalid(format!(
                "the context {context:?} names a cluster that the kubeconfig lacks"
            ))
        })
    }

    /// The context whose server is at this host and port, if exactly one cluster is.
    pub fn of_server(&self, host: &str) -> Option<String> {
        let kubeconfig = self.kubeconfig.as_ref()?;
        let at = |entry: &&kube::config::NamedCluster| {
            let server = entry.cluster.as_ref().and_then(|c| c.server.as_deref());
            server.and_then(host_of).as_deref() == Some(host)
        };
        let clusters: Vec<_> = kubeconfig.clusters.iter().filter(at).collect();
        // Behind a proxy many clusters share one host: a guess could change rights on the wrong one.
        let way = |entry: &&kube::config::NamedCluster| {
            let cluster = entry.cluster.as_ref()?;
            Some((cluster.server.clone(), cluster.tls_server_name.clone()))
        };
        let first = clusters.first().map(way);
        if clusters.iter().any(|entry| Some(way(entry)) != first) {
            return None;
        }
        let mut contexts = kubeconfig.contexts.iter().filter(|context| {
            let cluster = context.context.as_ref().map(|c| c.cluster.as_str());
            clusters
                .iter()
                .any(|entry| Some(entry.name.as_str()) == cluster)
        });
        let first = contexts.next()?;
        Some(first.name.clone())
    }

    /// Whether there is a context of this name.
    pub fn has(&self, name: &str) -> bool {
        self.names().iter().any(|known| known == name)
    }

    fn must_have(&self, name: &str) -> Result<(), Error> {
        if self.has(name) {
            Ok(())
        } else {
            Err(self.unknown(name))
        }
    }

    fn unknown(&self, name: &str) -> Error {
        Error::NoContext {
            name: name.to_owned(),
            known: self.names(),
        }
    }

    fn names(&self) -> Vec<String> {
        let contexts = self.kubeconfig.iter().flat_map(|k| &k.contexts);
        contexts.map(|context| context.name.clone()).collect()
    }
}

/// `host:port` of an https URL.
pub fn host_of(server: &str) -> Option<String> {
    let url = url::Url::parse(server).ok()?;
    Some(format!(
        "{}:{}",
        url.host_str()?,
        url.port_or_known_default()?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts() -> Contexts {
        let text = "
apiVersion: v1
kind: Config
current-context: hub
clusters:
- {name: h, cluster: {server: 'https://hub.example'}}
- {name: e, cluster: {server: 'https://10.0.0.7:6443'}}
- {name: again, cluster: {server: 'https://10.0.0.7:6443'}}
- {name: a, cluster: {server: 'https://proxy.example/clusters/a'}}
- {name: b, cluster: {server: 'https://proxy.example/clusters/b'}}
contexts:
- {name: hub, context: {cluster: h, user: u}}
- {name: edge, context: {cluster: e, user: u}}
- {name: a, context: {cluster: a, user: u}}
- {name: torn, context: {cluster: nowhere, user: u}}
users: [{name: u, user: {token: t}}]
";
        Contexts {
            kubeconfig: Some(Kubeconfig::from_yaml(text).unwrap()),
            file: None,
        }
    }

    #[test]
    fn a_context_is_found_by_the_server_that_is_registered() {
        let contexts = contexts();
        assert_eq!(contexts.of_server("10.0.0.7:6443").as_deref(), Some("edge"));
        assert_eq!(
            contexts.of_server("hub.example:443").as_deref(),
            Some("hub")
        );
        assert_eq!(contexts.of_server("elsewhere:443"), None);
        assert_eq!(
            contexts.of_server("proxy.example:443"),
            None,
            "which of two clusters it is nobody can tell"
        );
    }

    #[test]
    fn an_unknown_context_is_told_with_the_known_ones() {
        let error = contexts().cluster("egde").unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no context \"egde\" in the kubeconfig; it has hub, edge, a, torn"
        );
        assert!(contexts().cluster("torn").is_err());
        assert!(contexts().cluster("edge").is_ok());
    }
}
