//! The check through an API server's `services/proxy`, with the cluster's own client.

use std::error::Error;

use http::{Request, Uri};
use kube::client::Body;
use target_registry::DeadlineExceeded;
use tokio::time::{Instant, timeout_at};

use super::{
    direct::beginning,
    outcome::{Answer, Failure, chain},
};

/// What a Service's name may end with.
const SUFFIXES: [&str; 2] = [".svc", ".svc.cluster.local"];

/// Longest label of a DNS name.
const LONGEST_LABEL: usize = 63;

/// A way to the Services of one cluster.
#[derive(Clone, Copy)]
pub struct ApiServer<'a> {
    client: &'a kube::Client,
    whose: &'static str,
}

/// A URL that leads to no Service; it is never dialled.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not the URL of a Service, so it cannot be reached through an API server")]
pub struct NotAService(String);

// === impl ApiServer ===

impl<'a> ApiServer<'a> {
    pub fn hub(client: &'a kube::Client) -> Self {
        Self {
            client,
            whose: "hub",
        }
    }

    pub fn target(client: &'a kube::Client) -> Self {
        Self {
            client,
            whose: "target cluster",
        }
    }

    /// One `GET` of a Service's URL; the answer is the Service's or the API server's own.
    pub async fn get(self, uri: &Uri, deadline: Instant) -> Result<Answer, Failure> {
        let path = proxy_path(uri).map_err(Failure::other)?;
        let request = Request::get(path)
            .body(Body::empty())
            .map_err(Failure::other)?;
        let response = timeout_at(deadline, self.client.send(request))
            .await
            .map_err(|_| Failure::Timeout)?
            .map_err(|error| self.failure(&error))?;
        let (head, body) = response.into_parts();
        let body = timeout_at(deadline, beginning(body))
            .await
            .unwrap_or_default();
        let status = head.status;
        Ok(Answer { status, body })
    }

    /// Without an answer the fault lies between us and the API server, unless the time was
    /// up: then it may just as well lie behind it.
    fn failure(self, error: &kube::Error) -> Failure {
        if chain(error).any(is_deadline) {
            return Failure::Timeout;
        }
        let failure = if chain(error).any(is_resolver) {
            Failure::NotResolvable
        } else {
            Failure::of_chain(error)
        };
        Failure::Towards(self.whose, Box::new(failure))
    }
}

fn is_deadline(error: &(dyn Error + 'static)) -> bool {
    error.is::<DeadlineExceeded>()
}

/// The client's connector has no type of its own for this phase, only a name.
fn is_resolver(error: &(dyn Error + 'static)) -> bool {
    error.to_string() == "dns error"
}

/// The path under which an API server reaches the Service of `uri`.
///
/// Only `http` and `https`, and only hosts `NAME.NAMESPACE.svc` and
/// `NAME.NAMESPACE.svc.cluster.local`.
pub fn proxy_path(uri: &Uri) -> Result<String, NotAService> {
    let refused = || NotAService(uri.to_string());
    let (scheme, default_port) = match uri.scheme_str() {
        Some("http") => ("http", 80),
        Some("https") => ("https", 443),
        _ => return Err(refused()),
    };
    let has_user = uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'));
    let host = uri.host().unwrap_or_default();
    let service = SUFFIXES.iter().find_map(|suffix| {
        let (name, namespace) = host.strip_suffix(suffix)?.split_once('.')?;
        (is_label(name) && is_label(namespace)).then_some((name, namespace))
    });
    let port = uri.port_u16().unwrap_or(default_port);
    let Some((name, namespace)) = service.filter(|_| !has_user && port != 0) else {
        return Err(refused());
    };
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Ok(format!(
        "/api/v1/namespaces/{namespace}/services/{scheme}:{name}:{port}/proxy{path}"
    ))
}

fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=LONGEST_LABEL).contains(&text.len())
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        "http://keystone.openstack.svc:5000/v3",
        "/api/v1/namespaces/openstack/services/http:keystone:5000/proxy/v3"
    )]
    #[case(
        "https://glance.openstack.svc.cluster.local/healthcheck",
        "/api/v1/namespaces/openstack/services/https:glance:443/proxy/healthcheck"
    )]
    #[case(
        "http://horizon.openstack.svc/auth/login/",
        "/api/v1/namespaces/openstack/services/http:horizon:80/proxy/auth/login/"
    )]
    #[case(
        "http://glance.openstack.svc.cluster.local:9292/healthcheck?detailed=1&x=%2F",
        "/api/v1/namespaces/openstack/services/http:glance:9292/proxy/healthcheck?detailed=1&x=%2F"
    )]
    #[case(
        "http://glance.openstack.svc",
        "/api/v1/namespaces/openstack/services/http:glance:80/proxy/"
    )]
    fn services(#[case] url: &str, #[case] path: &str) {
        assert_eq!(proxy_path(&url.parse().unwrap()).unwrap(), path);
    }

    #[rstest]
    #[case("http://keystone/v3")]
    #[case("http://keystone.openstack/v3")]
    #[case("http://x.y.svc.example.com/")]
    #[case("http://a.b.c.svc/")]
    #[case("http://.b.svc/")]
    #[case("http://svc/")]
    #[case("http://10.0.0.1:9292/")]
    #[case("http://user:secret@glance.openstack.svc/")]
    #[case("http://glance.openstack.svc:0/")]
    #[case("http://GLANCE.openstack.svc/")]
    #[case("ftp://glance.openstack.svc/")]
    #[case("/healthcheck")]
    fn everything_else_is_refused(#[case] url: &str) {
        let error = proxy_path(&url.parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains(url), "{error}");
    }
}
