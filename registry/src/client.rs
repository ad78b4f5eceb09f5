//! The clients of one cluster: one for calls, some for watches, all over connections that notice
//! when nobody answers any more.

mod answer;
mod credential;
mod fence;
mod guard;
mod limits;
mod route;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Uri, header::USER_AGENT};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioTimer},
};
use kube::{Client, Config, client::Body, client::ConfigExt as _};
use tower::{BoxError, ServiceBuilder};

use self::credential::Headers;
pub(crate) use self::{
    credential::Credential,
    guard::{Guard, Throttle},
    limits::Limits,
    route::Route,
};
pub use self::{
    fence::{Fence, Fenced},
    guard::DeadlineExceeded,
    limits::AnswerTooLong,
};
use crate::metrics::{ClusterMetrics, Metrics};

/// Watches that share one connection. An API server serves 100 streams on one and lets further
/// requests hang without an error, so some are kept for the lists between watches.
const WATCHES_PER_CONNECTION: usize = 80;

/// How clusters are spoken to.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The `User-Agent` header.
    pub user_agent: String,
    /// For TCP and TLS together. Default 5 s.
    pub connect_timeout: Duration,
    /// For a whole call, body included, and for the headers of a watch. Default 10 s.
    pub request_timeout: Duration,
    /// Pieces of work that may use one cluster at a time, see
    /// [`Cluster::try_permit`](crate::Cluster::try_permit). Default 8.
    pub max_in_flight: usize,
    /// Bytes that the informers of one target may remember, roughly; what is beyond makes them
    /// [`Readiness::Failing`](crate::Readiness::Failing). `None`, the default, for no limit. The hub has none.
    pub memory_limit: Option<usize>,
    /// Where numbers go.
    pub metrics: Option<Metrics>,
    /// Asked before every change, for a process that is one of several.
    pub fence: Option<Fence>,
}

/// What one cluster's connections have in common.
pub(crate) struct Connection {
    config: Config,
    connector: TimeoutConnector<HttpsConnector<Route>>,
    headers: Headers,
    /// Present when kube's own authentication is used, which may read files and run plugins. For
    /// the hub only: its configuration comes from the operator's own environment.
    kube_auth: bool,
    guard: Guard,
    calls: Pool,
    unary: Client,
    watches: Mutex<Vec<(Client, Arc<()>)>>,
}

/// A client for one watch. Keep it for as long as the watch is wanted: it holds a place on its
/// connection.
pub(crate) struct WatchClient {
    pub(crate) client: Client,
    _place: Arc<()>,
}

/// What a cluster keeps for longer than a connection.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) throttle: Arc<Throttle>,
    pub(crate) metrics: Arc<ClusterMetrics>,
    pub(crate) limits: Limits,
}

type Pool = legacy::Client<TimeoutConnector<HttpsConnector<Route>>, Body>;

// === impl ClientOptions ===

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            user_agent: concat!("target-registry/", env!("CARGO_PKG_VERSION")).to_owned(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
            max_in_flight: 8,
            memory_limit: None,
            metrics: None,
            fence: None,
        }
    }
}

// === impl Connection ===

impl Connection {
    /// A connection as `config` describes it, with `tls` made from it. `credential` replaces whatever `config` says about
    /// authentication; without one kube's own layer is used.
    pub(crate) fn new(
        config: Config,
        tls: rustls::ClientConfig,
        credential: Option<Credential>,
        mut fixed: HeaderMap,
        options: &ClientOptions,
        shared: &Shared,
    ) -> Result<Self, kube::Error> {
        let mut route = Route::new(options.connect_timeout);
        if let Some(proxy) = &config.proxy_url {
            if proxy.scheme_str() != Some("http") {
                return Err(kube::Error::ProxyProtocolUnsupported {
                    proxy_url: Box::new(without_user_info(proxy)),
                });
            }
            route = route.through(proxy.clone(), basic_auth_of(proxy));
        }
        let mut https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http();
        if let Some(name) = &config.tls_server_name {
            let name = name.clone().try_into().map_err(|error| {
                kube::Error::Service(format!("the TLS server name is not one: {error}").into())
            })?;
            https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        // The API server serves a hundred watches on one HTTP/2 connection, and a PING notices a
        // frozen one. Where a proxy does not speak it, HTTP/1.1 is agreed on instead.
        let mut connector =
            TimeoutConnector::new(https.enable_all_versions().wrap_connector(route));
        // Around TLS as well: a frozen server still completes the TCP handshake.
        connector.set_connect_timeout(Some(options.connect_timeout));
        // Bookmarks come every minute, so a shorter one would break quiet HTTP/1.1 watches.
        connector.set_read_timeout(Some(Duration::from_secs(90)));
        connector.set_reset_reader_on_write(true);

        if let Ok(agent) = HeaderValue::from_str(&options.user_agent) {
            fixed.insert(USER_AGENT, agent);
        }
        let guard = Guard {
            deadline: options.request_timeout,
            limits: shared.limits.clone(),
            throttle: shared.throttle.clone(),
            metrics: shared.metrics.clone(),
            fence: options.fence.clone(),
        };
        let kube_auth = credential.is_none();
        let headers = Headers {
            credential: credential.unwrap_or_default(),
            fixed: Arc::new(fixed),
        };
        let calls = pool(&connector);
        let unary = stack(&config, &headers, kube_auth, &guard, calls.clone())?;
        let watches = Mutex::default();
        Ok(Self {
            config,
            connector,
            headers,
            kube_auth,
            guard,
            calls,
            unary,
            watches,
        })
    }

    /// For calls. Shares one connection among all users of the cluster.
    pub(crate) fn unary(&self) -> Client {
        self.unary.clone()
    }

    /// Like [`Self::unary`], over the same connection, with another credential: to try it.
    pub(crate) fn unary_as(&self, header: HeaderValue) -> Result<Client, kube::Error> {
        let headers = Headers {
            credential: Credential::new(Some(header)),
            fixed: self.headers.fixed.clone(),
        };
        stack(
            &self.config,
            &headers,
            self.kube_auth,
            &self.guard,
            self.calls.clone(),
        )
    }

    /// From now on, calls and new watches are made with this credential.
    pub(crate) fn set_credential(&self, header: HeaderValue) {
        self.headers.credential.set(Some(header));
    }

    /// A place for one watch on a connection that has one free.
    pub(crate) fn watch(&self) -> Result<WatchClient, kube::Error> {
        let mut pools = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        // An empty connection is closed; the next watch opens a new one.
        pools.retain(|(_, places)| Arc::strong_count(places) > 1);
        if let Some((client, place)) = pools
            .iter()
            .find(|(_, places)| Arc::strong_count(places) <= WATCHES_PER_CONNECTION)
        {
            return Ok(WatchClient {
                client: client.clone(),
                _place: place.clone(),
            });
        }
        let http = pool(&self.connector);
        let client = stack(
            &self.config,
            &self.headers,
            self.kube_auth,
            &self.guard,
            http,
        )?;
        let place = Arc::new(());
        pools.push((client.clone(), place.clone()));
        Ok(WatchClient {
            client,
            _place: place,
        })
    }

    pub(crate) fn throttle(&self) -> &Arc<Throttle> {
        &self.guard.throttle
    }

    /// Host and port of the server, without anything that could be a secret.
    pub(crate) fn server(&self) -> String {
        host_of(&self.config.cluster_url)
    }
}

/// One pool holds one HTTP/2 connection to a server.
fn pool(connector: &TimeoutConnector<HttpsConnector<Route>>) -> Pool {
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(Duration::from_secs(10))
        .http2_keep_alive_timeout(Duration::from_secs(5))
        .http2_keep_alive_while_idle(true)
        .build(connector.clone())
}

fn stack(
    config: &Config,
    headers: &Headers,
    kube_auth: bool,
    guard: &Guard,
    http: Pool,
) -> Result<Client, kube::Error> {
    let auth = if kube_auth {
        config.auth_layer()?
    } else {
        None
    };
    let service = ServiceBuilder::new()
        .and_then(answer::explained)
        .layer(guard.clone())
        .layer(config.base_uri_layer())
        .option_layer(auth)
        .layer(headers.clone())
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// `host:port` of a URL.
pub(crate) fn host_of(uri: &Uri) -> String {
    let port = uri
        .port_u16()
        .unwrap_or(if uri.scheme_str() == Some("http") {
            80
        } else {
            443
        });
    format!("{}:{port}", uri.host().unwrap_or_default())
}

fn without_user_info(uri: &Uri) -> Uri {
    format!("{}://{}", uri.scheme_str().unwrap_or("http"), host_of(uri))
        .parse()
        .unwrap_or_default()
}

/// The user and password of a URL as a header, if it has some.
pub(crate) fn basic_auth_of(uri: &Uri) -> Option<HeaderValue> {
    let (user_info, _) = uri.authority()?.as_str().rsplit_once('@')?;
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    basic_auth(&decoded(user), &decoded(password))
}

/// `Authorization: Basic …`.
pub(crate) fn basic_auth(user: &str, password: &str) -> Option<HeaderValue> {
    let pair = data_encoding::BASE64.encode(format!("{user}:{password}").as_bytes());
    let mut header = HeaderValue::from_str(&format!("Basic {pair}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// Percent-decoded; what is no valid escape stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escape = (*first == b'%').then(|| tail.get(..2)).flatten();
        let byte = escape.and_then(|hex| data_encoding::HEXLOWER_PERMISSIVE.decode(hex).ok());
        if let Some([byte]) = byte.as_deref() {
            bytes.push(*byte);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_url_says_nothing_more() {
        let uri = "https://user:secret@api.example.org/clusters/blue"
            .parse()
            .unwrap();
        assert_eq!(host_of(&uri), "api.example.org:443");
        assert_eq!(
            without_user_info(&uri).to_string(),
            "https://api.example.org:443/"
        );
    }

    #[test]
    fn user_info_becomes_a_header() {
        let uri = "http://us%40er:pa%3Ass%@proxy:3128"
            .parse()
            .unwrap_or_else(|_| {
                // `%@` is refused by the URL type itself.
                "http://us%40er:pa%3Ass@proxy:3128".parse().unwrap()
            });
        let header = basic_auth_of(&uri).unwrap();
        assert!(header.is_sensitive());
        let pair = header
            .to_str()
            .unwrap()
            .strip_prefix("Basic ")
            .unwrap()
            .to_owned();
        let pair = data_encoding::BASE64.decode(pair.as_bytes()).unwrap();
        assert!(String::from_utf8(pair).unwrap().starts_with("us@er:pa:ss"));
        assert_eq!(basic_auth_of(&"http://proxy:3128".parse().unwrap()), None);
    }
}
