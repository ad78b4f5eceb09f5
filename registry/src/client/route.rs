//! How a TCP connection to an API server is made: directly, or through an HTTP proxy.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Uri};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tower::{BoxError, Service};

/// Longest answer of a proxy to `CONNECT` that is read, in bytes.
const PROXY_ANSWER_LIMIT: usize = 8 * 1024;

/// Opens TCP connections. Never looks at the environment: what a registration does not say does
/// not happen.
#[derive(Clone)]
pub(crate) struct Route {
    tcp: HttpConnector,
    proxy: Option<Proxy>,
}

#[derive(Clone)]
struct Proxy {
    uri: Uri,
    authorization: Option<HeaderValue>,
}

// === impl Route ===

impl Route {
    pub(crate) fn new(connect_timeout: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(connect_timeout));
        // A peer that vanished without a word is noticed after 15 + 3 * 5 seconds even on a
        // connection that is silent on our side too.
        tcp.set_keepalive(Some(Duration::from_secs(15)));
        tcp.set_keepalive_interval(Some(Duration::from_secs(5)));
        tcp.set_keepalive_retries(Some(3));
        Self { tcp, proxy: None }
    }

    /// Sends everything through the HTTP proxy at `uri`, with `authorization` for the proxy itself.
    pub(crate) fn through(mut self, uri: Uri, authorization: Option<HeaderValue>) -> Self {
        self.proxy = Some(Proxy { uri, authorization });
        self
    }
}

impl Service<Uri> for Route {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let Some(proxy) = self.proxy.clone() else {
            let connecting = self.tcp.call(server);
            return Box::pin(async move { connecting.await.map_err(Into::into) });
        };
        let connecting = self.tcp.call(proxy.uri.clone());
        Box::pin(async move {
            let mut stream = connecting.await?.into_inner();
            tunnel(&mut stream, &server, proxy.authorization.as_ref()).await?;
            Ok(TokioIo::new(stream))
        })
    }
}

async fn tunnel(
    stream: &mut TcpStream,
    server: &Uri,
    authorization: Option<&HeaderValue>,
) -> Result<(), BoxError> {
    let host = server.host().ok_or("the server URL has no host")?;
    let port = server.port_u16().unwrap_or(443);
    let mut ask = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n").into_bytes();
    if let Some(value) = authorization {
        ask.extend_from_slice(b"Proxy-Authorization: ");
        ask.extend_from_slice(value.as_bytes());
        ask.extend_from_slice(b"\r\n");
    }
    ask.extend_from_slice(b"\r\n");
    stream.write_all(&ask).await?;

    // Byte by byte: what follows the empty line already belongs to the server behind the proxy.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= PROXY_ANSWER_LIMIT {
            return Err("the proxy's answer to CONNECT is too long".into());
        }
        answer.push(stream.read_u8().await?);
    }
    let line = answer
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let code = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    if code.first() == Some(&b'2') {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "the proxy refuses to connect to {host}:{port}: HTTP {}",
        String::from_utf8_lossy(code)
    ))
    .into())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn proxy(answer: &'static [u8]) -> (Uri, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let seen = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut ask = Vec::new();
            while !ask.ends_with(b"\r\n\r\n") {
                ask.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer).await.unwrap();
            String::from_utf8(ask).unwrap()
        });
        (uri, seen)
    }

    #[tokio::test]
    async fn a_proxy_is_asked_for_a_tunnel_and_keeps_its_own_credential() {
        let (uri, seen) = proxy(b"HTTP/1.1 200 Connection established\r\n\r\nhello").await;
        let mut route = Route::new(Duration::from_secs(5))
            .through(uri, Some(HeaderValue::from_static("Basic eDp5")));
        let stream = route
            .call("https://api.example.org:6443".parse().unwrap())
            .await
            .unwrap();
        let mut rest = String::new();
        stream.into_inner().read_to_string(&mut rest).await.unwrap();
        assert_eq!(
            rest, "hello",
            "nothing of the server's own bytes is swallowed"
        );
        let asked = seen.await.unwrap();
        assert!(
            asked.starts_with("CONNECT api.example.org:6443 HTTP/1.1\r\n"),
            "{asked}"
        );
        assert!(
            asked.contains("Proxy-Authorization: Basic eDp5\r\n"),
            "{asked}"
        );
    }

    #[tokio::test]
    async fn a_proxy_that_refuses_is_named() {
        let (uri, _seen) = proxy(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
        let mut route = Route::new(Duration::from_secs(5)).through(uri, None);
        let error = route
            .call("https://api.example.org".parse().unwrap())
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("api.example.org:443: HTTP 407"),
            "{error}"
        );
    }
}
