//! The check over a connection of its own, phase by phase.

use std::{io, net::SocketAddr};

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    body::{Body, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    environment::{HttpProxy, ProxyRules},
    outcome::{Answer, BODY_LIMIT, Failure},
};

/// Asks over plain HTTP, one connection per question.
#[derive(Debug)]
pub struct Direct {
    proxy: ProxyRules,
}

// === impl Direct ===

impl Direct {
    pub fn new(proxy: ProxyRules) -> Self {
        Self { proxy }
    }

    /// One `GET`, redirects not followed. The body may be cut short; a failure to read it
    /// leaves it empty.
    pub async fn get(&self, uri: &Uri, deadline: Instant) -> Result<Answer, Failure> {
        let exchange = self.exchange(uri);
        let (response, connection) = timeout_at(deadline, exchange)
            .await
            .map_err(|_| Failure::Timeout)??;
        let (head, body) = response.into_parts();
        let body = timeout_at(deadline, beginning(body))
            .await
            .unwrap_or_default();
        drop(connection);
        let status = head.status;
        Ok(Answer { status, body })
    }

    async fn exchange(
        &self,
        uri: &Uri,
    ) -> Result<(Response<Incoming>, AbortOnDropHandle<()>), Failure> {
        let host = uri
            .authority()
            .ok_or_else(|| Failure::other("the URL names no host"))?;
        let proxy = self.proxy.proxy_for(uri);
        let peer = match proxy {
            Some(HttpProxy {
                unsupported: Some(scheme),
                ..
            }) => {
                return Err(Failure::Other(format!("a {scheme} proxy is not supported")));
            }
            Some(proxy) => proxy.authority.clone(),
            None if uri.port().is_none() => format!("{host}:80"),
            None => host.to_string(),
        };
        let stream = connect(&peer).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Failure::of_chain(&error))?;
        let connection = AbortOnDropHandle::new(tokio::spawn(async move {
            // The sender reports what goes wrong with the one request there is.
            drop(connection.await);
        }));
        let response = sender
            .send_request(request(uri, host.as_str(), proxy)?)
            .await
            .map_err(|error| Failure::of_chain(&error))?;
        Ok((response, connection))
    }
}

/// A proxy is asked for the whole URL, a server for its path.
fn request(
    uri: &Uri,
    host: &str,
    proxy: Option<&HttpProxy>,
) -> Result<Request<Empty<Bytes>>, Failure> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::get(if proxy.is_some() {
        uri.to_string()
    } else {
        path.to_owned()
    })
    .header(header::HOST, host)
    .header(
        header::USER_AGENT,
        concat!("glance-operator/", env!("CARGO_PKG_VERSION")),
    )
    .header(header::CONNECTION, "close");
    if let Some(value) = proxy.and_then(|proxy| proxy.authorization.as_ref()) {
        request = request.header(header::PROXY_AUTHORIZATION, value);
    }
    request.body(Empty::new()).map_err(Failure::other)
}

/// Resolves, then connects to the first address that takes it.
async fn connect(peer: &str) -> Result<TcpStream, Failure> {
    let addresses: Vec<SocketAddr> = match lookup_host(peer).await {
        Ok(addresses) => addresses.collect(),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(Failure::Timeout),
        Err(_) => return Err(Failure::NotResolvable),
    };
    let mut first_failure = Failure::NotResolvable;
    for (n, address) in addresses.into_iter().enumerate() {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) if n == 0 => {
                first_failure = Failure::io(&error, &format!("dial tcp {address}"));
            }
            Err(_) => {}
        }
    }
    Err(first_failure)
}

/// What arrives of a body, up to the limit; nothing if it breaks off.
pub async fn beginning<B>(mut body: B) -> Vec<u8>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut bytes = Vec::new();
    while bytes.len() < BODY_LIMIT {
        match body.frame().await {
            None => break,
            Some(Ok(frame)) => bytes.extend(frame.data_ref().into_iter().flatten()),
            Some(Err(_)) => return Vec::new(),
        }
    }
    bytes.truncate(BODY_LIMIT);
    bytes
}
