//! The line between the operator and the API server of a target, which can be broken in the ways
//! that networks, load balancers and servers break.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

use crate::{certificates::Authority, cluster::Cluster};

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nobody listens, and what is open is closed.
    Refuse,
    /// Connections are accepted, and nothing is ever answered, on those that are open neither.
    BlackHole,
    /// What is open stays open and silent; new connections are as good as ever.
    Freeze,
    /// Connections are reset, those that are open too.
    Reset,
    /// Whatever is sent arrives this much later.
    Delay(Duration),
    /// Another server answers every request with this code and, if it is given, this
    /// `Retry-After`.
    Answer(u16, Option<&'static str>),
}

/// A line. It works until it is dropped.
#[derive(Debug)]
pub struct Line {
    address: SocketAddr,
    server: String,
    authorities: String,
    fault: watch::Sender<Option<Fault>>,
    task: JoinHandle<()>,
}

/// What a connection needs.
#[derive(Clone)]
struct Ends {
    server: SocketAddr,
    /// For the answers of another server.
    tls: TlsAcceptor,
    fault: watch::Receiver<Option<Fault>>,
}

// === impl Line ===

impl Line {
    /// A line to a cluster whose address is one of numbers, as those of the bed have.
    pub async fn to(cluster: &Cluster) -> Result<Self> {
        let server = cluster.server();
        let place = server.trim_start_matches("https://");
        let place = place.trim_end_matches('/').parse().with_context(|| {
            format!("{server}: a line can be laid only to an address with a port")
        })?;
        let authority = Authority::new("line")?;
        let pair = authority.server(&["127.0.0.1"])?;
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
        let tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain?, key)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, crate::ports::free()?)).await?;
        let address = listener.local_addr()?;
        let (fault, seen) = watch::channel(None);
        let ends = Ends {
            server: place,
            tls: TlsAcceptor::from(Arc::new(tls)),
            fault: seen,
        };
        Ok(Self {
            address,
            server,
            authorities: format!("{}{}", cluster.authority(), authority.pem()),
            fault,
            task: tokio::spawn(serve(Some(listener), address, ends)),
        })
    }

    /// Breaks it, at once and for what is open too.
    pub fn fail(&self, fault: Fault) {
        self.fault.send_replace(Some(fault));
    }

    /// Repairs it.
    pub fn heal(&self) {
        self.fault.send_replace(None);
    }

    /// A kubeconfig for the cluster at its end, made over so that it leads through the line.
    pub fn kubeconfig(&self, kubeconfig: &str) -> String {
        let authority = |text: &str| {
            let data = BASE64_STANDARD.encode(text);
            format!("certificate-authority-data: {data}")
        };
        let lines = kubeconfig.lines().map(|line| {
            let indent = &line[..line.len() - line.trim_start().len()];
            if line.trim_start().starts_with("server: ") {
                format!("{indent}server: https://{}", self.address)
            } else if line
                .trim_start()
                .starts_with("certificate-authority-data: ")
            {
                format!("{indent}{}", authority(&self.authorities))
            } else {
                line.to_owned()
            }
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The URL of its near end.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The URL it leads to.
    pub fn server(&self) -> &str {
        &self.server
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut listener: Option<TcpListener>, address: SocketAddr, ends: Ends) {
    let mut fault = ends.fault.clone();
    // Connections end with the line, which a task per connection alone would not.
    let mut connections = JoinSet::new();
    loop {
        if *fault.borrow_and_update() == Some(Fault::Refuse) {
            listener = None;
            let opened = fault.wait_for(|fault| *fault != Some(Fault::Refuse));
            if opened.await.is_err() {
                return;
            }
        }
        if listener.is_none() {
            listener = TcpListener::bind(address).await.ok();
        }
        let Some(open) = &listener else {
            // What was open on it is not gone yet.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        tokio::select! {
            accepted = open.accept() => {
                if let Ok((stream, _)) = accepted {
                    let ends = ends.clone();
                    connections.spawn(async move {
                        // However it ends, the operator is the one to judge it.
                        let _ = connection(stream, ends).await;
                    });
                }
            }
            changed = fault.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, mut ends: Ends) -> io::Result<()> {
    let now = *ends.fault.borrow_and_update();
    match now {
        None | Some(Fault::Freeze | Fault::Delay(_) | Fault::Refuse) => {}
        Some(Fault::Reset) => return stream.set_zero_linger(),
        Some(Fault::BlackHole) => {
            let over = ends.fault.wait_for(|fault| *fault != now);
            let _ = over.await;
            return Ok(());
        }
        Some(Fault::Answer(code, wish)) => {
            return tokio::select! {
                done = other_server(stream, &ends.tls, code, wish) => done,
                _ = ends.fault.changed() => Ok(()),
            };
        }
    }
    let server = TcpStream::connect(ends.server).await?;
    for end in [&stream, &server] {
        end.set_nodelay(true)?;
    }
    let mut cut = ends.fault.clone();
    let closes = |fault: &Option<Fault>| {
        matches!(
            fault,
            Some(Fault::Refuse | Fault::Reset | Fault::Answer(..))
        )
    };
    let (mut from, mut to) = stream.into_split();
    let (mut back, mut forth) = server.into_split();
    let mut faults = [ends.fault.clone(), ends.fault.clone()];
    let [there, here] = &mut faults;
    let outcome = tokio::select! {
        outcome = async {
            tokio::try_join!(pump(&mut from, &mut forth, there), pump(&mut back, &mut to, here))
        } => outcome.map(|_| ()),
        _ = cut.wait_for(closes) => Ok(()),
    };
    if *cut.borrow() == Some(Fault::Reset) {
        from.as_ref().set_zero_linger()?;
    }
    outcome
}

/// Hands on what comes, as far as the line lets it.
async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    fault: &mut watch::Receiver<Option<Fault>>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    // What is opened during a freeze is not concerned.
    let begun_in = *fault.borrow_and_update();
    loop {
        let read = from.read(&mut buffer).await?;
        let now = *fault.borrow();
        match now {
            Some(Fault::BlackHole) => {
                let _ = fault.wait_for(|fault| *fault != now).await;
            }
            Some(Fault::Freeze) if begun_in != now => {
                let _ = fault.wait_for(|fault| *fault != now).await;
            }
            Some(Fault::Delay(pause)) => tokio::time::sleep(pause).await,
            _ => {}
        }
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}

/// The server of a load balancer that has none left, or one that knows nobody.
async fn other_server(
    stream: TcpStream,
    tls: &TlsAcceptor,
    code: u16,
    wish: Option<&'static str>,
) -> io::Result<()> {
    let stream = tls.accept(stream).await?;
    let service = service_fn(move |_| async move {
        let mut response = Response::builder().status(code);
        if let Some(wish) = wish {
            response = response.header("retry-after", wish);
        }
        response.body(Full::new(Bytes::from_static(b"as told")))
    });
    hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await
        .map_err(io::Error::other)
}
