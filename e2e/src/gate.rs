//! A gate between an operator and its API servers. Reads pass. At each write the test may stop the operator twice:
//! before the write is done, and once more when it is done and the operator has not heard of it.
//!
//! A write is known by what it asks for, times and versions aside, so an operator that was killed and comes back with
//! the same wish is let one stop further. Hence every write of a story is met, and the story always ends.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Result;
use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{Method, StatusCode, request::Parts},
    response::{IntoResponse as _, Response},
};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::{
    net::TcpListener,
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::JoinSet,
};

use crate::cluster::Cluster;

/// The gate. Dropping it closes all connections through it.
#[derive(Debug)]
pub struct Gate {
    shared: Arc<Shared>,
    stops: UnboundedReceiver<Stop>,
    tasks: JoinSet<()>,
}

/// Which side of a write the operator was stopped at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The API server has not seen it.
    Before,
    /// The API server has answered; the operator has not got the answer.
    After,
}

/// The operator waits at a write, and everything else that it wants to write waits too.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stop {
    /// The cluster.
    pub cluster: String,
    /// Method and path.
    pub write: String,
    /// Before or after.
    pub side: Side,
}

#[derive(Debug)]
struct Shared {
    scope: String,
    state: Mutex<Passage>,
    tell: UnboundedSender<Stop>,
}

#[derive(Debug, Default)]
struct Passage {
    armed: bool,
    closed: bool,
    met: HashMap<String, Met>,
}

/// How often a write was stopped.
#[derive(Debug, Clone, Copy)]
enum Met {
    Before,
    After,
}

/// What happens to a request.
enum Fate {
    Pass,
    Hold,
    Stop(Side),
}

// === impl Gate ===

impl Gate {
    /// A gate that minds the writes in one namespace. It lets everything pass until it is armed.
    pub fn new(namespace: &str) -> Self {
        let (tell, stops) = mpsc::unbounded_channel();
        let shared = Shared {
            scope: format!("/namespaces/{namespace}/"),
            state: Mutex::default(),
            tell,
        };
        Self {
            shared: Arc::new(shared),
            stops,
            tasks: JoinSet::new(),
        }
    }

    /// Opens a door to a cluster. Returns the URL to use instead of the API server's.
    pub async fn door(&mut self, cluster: &Cluster) -> Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let door = Door {
            cluster: cluster.name().to_owned(),
            client: cluster.anonymous()?,
            shared: Arc::clone(&self.shared),
        };
        let router = Router::new().fallback(pass).with_state(door);
        self.tasks.spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                eprintln!("the gate broke down: {error}");
            }
        });
        Ok(url)
    }

    /// Stops at writes from now on.
    pub fn arm(&self) {
        self.shared.passage().armed = true;
    }

    /// Lets everything pass from now on.
    pub fn disarm(&self) {
        let mut passage = self.shared.passage();
        passage.armed = false;
        passage.closed = false;
    }

    /// Waits for the next stop. What the stopped process still wants to write is held until [`Self::open`].
    pub async fn stop(&mut self) -> Option<Stop> {
        self.stops.recv().await
    }

    /// Opens again, after the stopped process has been killed.
    pub fn open(&self) {
        self.shared.passage().closed = false;
    }
}

// === impl Shared ===

impl Shared {
    fn passage(&self) -> std::sync::MutexGuard<'_, Passage> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a test minds this request. Events change nothing that anybody decides by.
    fn minds(&self, parts: &Parts) -> bool {
        let path = parts.uri.path();
        parts.method != Method::GET && path.contains(&self.scope) && !path.contains("/events")
    }

    fn meet(&self, identity: String) -> Fate {
        let mut passage = self.passage();
        if !passage.armed {
            return Fate::Pass;
        }
        if passage.closed {
            return Fate::Hold;
        }
        let (met, side) = match passage.met.get(&identity) {
            None => (Met::Before, Side::Before),
            Some(Met::Before) => (Met::After, Side::After),
            Some(Met::After) => return Fate::Pass,
        };
        passage.met.insert(identity, met);
        passage.closed = true;
        Fate::Stop(side)
    }
}

// === impl Stop ===

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cluster,
            write,
            side,
        } = self;
        let side = match side {
            Side::Before => "before",
            Side::After => "after",
        };
        write!(f, "{side} {write} on {cluster}")
    }
}

#[derive(Clone)]
struct Door {
    cluster: String,
    client: Client,
    shared: Arc<Shared>,
}

async fn pass(State(door): State<Door>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        // The client is gone.
        return StatusCode::BAD_REQUEST.into_response();
    };
    if !door.shared.minds(&parts) {
        return door.forward(parts, bytes).await;
    }
    let write = format!("{} {}", parts.method, parts.uri.path());
    let fate = door
        .shared
        .meet(format!("{} {write} {}", door.cluster, essence(&bytes)));
    let side = match fate {
        Fate::Pass => return door.forward(parts, bytes).await,
        Fate::Hold => return std::future::pending().await,
        Fate::Stop(side) => side,
    };
    if side == Side::After {
        let _ = door.forward(parts, bytes).await;
    }
    let stop = Stop {
        cluster: door.cluster.clone(),
        write,
        side,
    };
    // Nobody listens when the test is over.
    let _ = door.shared.tell.send(stop);
    std::future::pending().await
}

// === impl Door ===

impl Door {
    async fn forward(&self, parts: Parts, body: Bytes) -> Response {
        let request = http::Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
        match self.client.send(request).await {
            Ok(answer) => answer.map(Body::new),
            Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
        }
    }
}

/// A digest of a body without what differs from one try to the next: versions and times.
fn essence(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(mut value) => {
            strip(&mut value);
            value.to_string()
        }
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    data_encoding::HEXLOWER.encode(&Sha256::digest(text))
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("resourceVersion");
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::String(text) if text.parse::<Timestamp>().is_ok() => text.clear(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_wish_at_another_time_is_the_same_write() {
        let body = |version: &str, time: &str, phase: &str| {
            format!(
                r#"{{"metadata":{{"resourceVersion":"{version}"}},"status":{{"upgradePhase":"{phase}","conditions":[{{"lastTransitionTime":"{time}"}}]}}}}"#
            )
        };
        let first = essence(body("1", "2026-01-01T00:00:00Z", "Expanding").as_bytes());
        let again = essence(body("2", "2026-01-01T00:00:05Z", "Expanding").as_bytes());
        let other = essence(body("2", "2026-01-01T00:00:05Z", "Migrating").as_bytes());
        assert_eq!(first, again);
        assert_ne!(first, other);
    }

    #[test]
    fn a_write_is_stopped_on_both_sides_and_then_let_go() {
        let gate = Gate::new("ns");
        let meet = || gate.shared.meet("w".to_owned());
        assert!(matches!(meet(), Fate::Pass));
        gate.arm();
        assert!(matches!(meet(), Fate::Stop(Side::Before)));
        assert!(matches!(gate.shared.meet("v".to_owned()), Fate::Hold));
        gate.open();
        assert!(matches!(meet(), Fate::Stop(Side::After)));
        gate.open();
        assert!(matches!(meet(), Fate::Pass));
    }
}
