//! The kubeconfig that a registration holds: one server, its authority, one token.

use data_encoding::BASE64;
use kube::config::Cluster;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::error::Error;

/// How the API server of a target is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    url: String,
    /// PEM; `None`: the authorities of the operating system.
    authority: Option<String>,
    tls_server_name: Option<String>,
}

// === impl Server ===

impl Server {
    /// The server of a context, at another address if `url` says so. `fallback` is the authority as
    /// the cluster itself names it, for a context that does not verify its server.
    pub fn of(
        context: &Cluster,
        url: Option<&str>,
        fallback: Option<String>,
    ) -> Result<Self, Error> {
        let url = url
            .or(context.server.as_deref())
            .ok_or_else(|| Error::Invalid("the context names no server".to_owned()))?;
        if !url.starts_with("https://") {
            return Err(Error::Invalid(format!(
                "{url} is not an https URL, and no other is registered"
            )));
        }
        let authority = match (
            &context.certificate_authority_data,
            &context.certificate_authority,
        ) {
            (Some(data), _) => Some(decoded(data)?),
            (None, Some(file)) => Some(std::fs::read_to_string(file).map_err(|error| {
                Error::Invalid(format!(
                    "the authority of the context cannot be read from {file}: {error}"
                ))
            })?),
            (None, None) if context.insecure_skip_tls_verify == Some(true) => fallback,
            (None, None) => None,
        };
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            authority,
            tls_server_name: context.tls_server_name.clone(),
        })
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether only the machine it runs on can reach it by this address.
    pub fn is_loopback(&self) -> bool {
        let url = url::Url::parse(&self.url).ok();
        match url.as_ref().and_then(url::Url::host) {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
    }

    /// The document that logs in with this token.
    pub fn kubeconfig(&self, name: &str, token: &SecretString) -> Result<SecretString, Error> {
        let mut cluster = json!({ "server": self.url });
        if let Some(authority) = &self.authority {
            cluster["certificate-authority-data"] =
                Value::String(BASE64.encode(authority.as_bytes()));
        }
        if let Some(server_name) = &self.tls_server_name {
            cluster["tls-server-name"] = Value::String(server_name.clone());
        }
        let document = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": name, "cluster": cluster }],
            "users": [{ "name": name, "user": { "token": token.expose_secret() } }],
            "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
            "current-context": name,
        });
        let text = serde_saphyr::to_string(&document)
            .map_err(|_| Error::Invalid("the kubeconfig cannot be written".to_owned()))?;
        Ok(SecretString::from(text))
    }
}

fn decoded(data: &str) -> Result<String, Error> {
    let bytes = BASE64.decode(data.trim().as_bytes()).ok();
    bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| {
            Error::Invalid("the authority in the context is not PEM in base64".to_owned())
        })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{ByteString, api::core::v1::Secret};
    use target_registry::Registration;

    use super::*;

    fn context() -> Cluster {
        Cluster {
            server: Some("https://10.0.0.7:6443/".to_owned()),
            certificate_authority_data: Some(BASE64.encode("-----BEGIN…".as_bytes())),
            ..Cluster::default()
        }
    }

    #[test]
    fn a_registry_accepts_what_is_built() {
        let cluster = Cluster {
            certificate_authority_data: None,
            ..context()
        };
        let server = Server::of(&cluster, None, None).unwrap();
        let text = server
            .kubeconfig("edge-1", &SecretString::from("e30.e30.c2ln"))
            .unwrap();
        let mut secret = Secret::default();
        secret.metadata.name = Some("edge-1".to_owned());
        let bytes = ByteString(text.expose_secret().as_bytes().to_vec());
        secret.data = Some([("kubeconfig".to_owned(), bytes)].into());
        let registration = Registration::from_secret(&secret, false).unwrap();
        assert_eq!(registration.server(), "10.0.0.7:6443");
    }

    #[test]
    fn another_address_keeps_the_authority_of_the_context() {
        let server = Server::of(&context(), Some("https://edge.example"), None).unwrap();
        assert_eq!(server.url(), "https://edge.example");
        assert_eq!(server.authority.as_deref(), Some("-----BEGIN…"));
        assert!(Server::of(&context(), Some("http://edge.example"), None).is_err());
    }

    #[test]
    fn a_context_that_does_not_verify_gets_the_authority_that_the_cluster_names() {
        let open = Cluster {
            certificate_authority_data: None,
            insecure_skip_tls_verify: Some(true),
            ..context()
        };
        let server = Server::of(&open, None, Some("pem".to_owned())).unwrap();
        assert_eq!(server.authority.as_deref(), Some("pem"));
    }

    #[test]
    fn addresses_that_a_pod_cannot_reach_are_known() {
        for (url, local) in [
            ("https://127.0.0.1:6443", true),
            ("https://localhost:6443", true),
            ("https://[::1]:6443", true),
            ("https://10.0.0.7:6443", false),
        ] {
            let server = Server::of(&context(), Some(url), None).unwrap();
            assert_eq!(server.is_loopback(), local, "{url}");
        }
    }
}
