//! The Glance API behind a Service: an HTTP server on port 9292 of this machine's own
//! address, which every simulated pod shares. The API server's proxy says in
//! `X-Forwarded-Uri` which Service was meant, so one server plays all of them.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::progress::Progress;
use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// The port of Glance's API.
pub const PORT: u16 = 9292;

/// What a Glance answers to a health check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Answer {
    /// 200.
    #[default]
    Healthy,
    /// This code with this body.
    Code(u16, String),
    /// Nothing, for as long as the client waits.
    Hang,
    /// The connection is closed.
    Close,
}

/// The server.
#[derive(Debug)]
pub struct GlanceApi {
    address: IpAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    answers: Mutex<HashMap<(String, String), Answer>>,
    seen: Mutex<HashMap<(String, String), u64>>,
}

// === impl GlanceApi ===

impl GlanceApi {
    /// Listens on `address`. Another bed on this machine may hold the port: then this waits
    /// for `limit`.
    pub async fn start(address: IpAddr, limit: Duration, progress: Progress) -> Result<Self> {
        let place = SocketAddr::new(address, PORT);
        let deadline = tokio::time::Instant::now() + limit;
        let mut told = false;
        let listener = loop {
            match TcpListener::bind(place).await {
                Ok(listener) => break listener,
                Err(cause) if cause.kind() == std::io::ErrorKind::AddrInUse => {
                    if tokio::time::Instant::now() >= deadline {
                        bail!(
                            "port {PORT} on {address} is taken, and the simulated Glance pods answer \
                             there: end the program that listens on it (another test run?), or set \
                             E2E_PEER_ADDRESS to another address of this machine"
                        );
                    }
                    if !told {
                        told = true;
                        progress.say(format_args!(
                            "waiting for port {PORT} on {address}, which is taken"
                        ));
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                Err(cause) => {
                    return Err(anyhow!(
                        "this machine cannot listen on {place} ({cause}): set E2E_PEER_ADDRESS to one \
                         of its own addresses, not a loopback one"
                    ));
                }
            }
        };
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(serve(listener, shared.clone()));
        Ok(Self {
            address,
            shared,
            task,
        })
    }

    /// The address that pods must have.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Changes the answer of one Glance.
    pub fn set(&self, namespace: &str, name: &str, answer: Answer) {
        locked(&self.shared.answers).insert((namespace.to_owned(), name.to_owned()), answer);
    }

    /// How often the Glance was asked.
    pub fn asked(&self, namespace: &str, name: &str) -> u64 {
        let key = (namespace.to_owned(), name.to_owned());
        locked(&self.shared.seen)
            .get(&key)
            .copied()
            .unwrap_or_default()
    }
}

impl Drop for GlanceApi {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// This machine's address towards others, or the one in `E2E_PEER_ADDRESS`.
pub fn machine_address() -> Result<IpAddr> {
    if let Ok(text) = std::env::var("E2E_PEER_ADDRESS") {
        return text.parse().with_context(|| {
            format!("E2E_PEER_ADDRESS is {text:?}: set it to an IP address of this machine")
        });
    }
    // Connecting a datagram socket sends nothing; it only asks the routing table.
    let look = || -> std::io::Result<IpAddr> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket
            .connect("192.0.2.1:9")
            .or_else(|_| socket.connect("10.255.255.255:9"))?;
        Ok(socket.local_addr()?.ip())
    };
    match look() {
        Ok(address) if !address.is_loopback() && !address.is_unspecified() => Ok(address),
        _ => bail!(
            "this machine has no address besides loopback, and Kubernetes refuses loopback \
             addresses for pods: connect a network, or set E2E_PEER_ADDRESS to an address of this \
             machine"
        ),
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Connections end with the server, which a task per connection alone would not.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(connection(stream, shared.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(move |request| answer(request, shared.clone()));
    // A connection that a test told us to cut ends with an error; that is the point of it.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, String> {
    let key = meant(&request);
    let answer = {
        *locked(&shared.seen).entry(key.clone()).or_default() += 1;
        locked(&shared.answers)
            .get(&key)
            .cloned()
            .unwrap_or_default()
    };
    let (code, body) = match answer {
        Answer::Healthy => (200, "OK".to_owned()),
        Answer::Code(code, body) => (code, body),
        Answer::Hang => std::future::pending().await,
        Answer::Close => return Err("told to close the connection".to_owned()),
    };
    Response::builder()
        .status(code)
        .header("content-type", "text/plain")
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| e.to_string())
}

/// Namespace and name of the Service that a request was meant for; empty texts for a
/// request that came by itself.
fn meant(request: &Request<Incoming>) -> (String, String) {
    let forwarded = request
        .headers()
        .get("x-forwarded-uri")
        .and_then(|v| v.to_str().ok());
    forwarded.and_then(service_of).unwrap_or_default()
}

/// `/api/v1/namespaces/NS/services/http:NAME:9292/proxy/…` → (`NS`, `NAME`).
fn service_of(uri: &str) -> Option<(String, String)> {
    let mut parts = uri.trim_start_matches('/').split('/');
    let namespace = parts.by_ref().skip_while(|p| *p != "namespaces").nth(1)?;
    let service = parts.by_ref().skip_while(|p| *p != "services").nth(1)?;
    let mut fields = service.split(':');
    let first = fields.next()?;
    let name = fields.next().unwrap_or(first);
    Some((namespace.to_owned(), name.to_owned()))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forwarded_path_names_the_service() {
        let named = |uri| service_of(uri).unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let uri = "/api/v1/namespaces/ns/services/http:glance:9292/proxy/healthcheck";
        assert_eq!(named(uri), pair("ns", "glance"));
        assert_eq!(
            named("/api/v1/namespaces/a/services/b/proxy/"),
            pair("a", "b")
        );
        assert_eq!(service_of("/healthcheck"), None);
    }
}
