//! Whether the API of a Glance answers: the health check behind `GlanceAPIReady`.
//!
//! The question is always the same, `GET http://NAME.NS.svc.cluster.local:9292/healthcheck`,
//! and so are the texts; only the way differs. On the hub the Service is dialled, through
//! `HTTP_PROXY` when that is set. A placed Glance is asked through its API server's
//! `services/proxy`, because that name resolves on the target only.
//!
//! What went wrong is told by the phase it went wrong in (resolve, connect, request),
//! never by the wording of an error. A success is remembered for 30 s, per name, UID and
//! URL; every other answer forgets it (contract: workload, health check).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::Uri;
use tokio::time::Instant;

mod api_server;
mod direct;
pub mod environment;
mod outcome;

use api_server::ApiServer;
use direct::Direct;
use environment::ProxyRules;
pub use outcome::Outcome;
use outcome::{Answer, Failure};

/// Longest time of one check, from the first name look-up to the last byte that is read.
const DEADLINE: Duration = Duration::from_secs(10);

/// How long a success is believed.
const BELIEVED: Duration = Duration::from_secs(30);

/// The DNS domain of most clusters.
pub const DEFAULT_DOMAIN: &str = "cluster.local";

/// The port of the API, on the Service as in the pod.
const PORT: u16 = 9292;

/// Which Glance is asked.
#[derive(Clone, Copy, Debug)]
pub struct ProbeTarget<'a> {
    /// Namespace of the CR and of its Service.
    pub namespace: &'a str,
    /// Name of the CR and of its Service.
    pub name: &'a str,
    /// UID of the CR: one that was re-created under the same name is another one.
    pub uid: &'a str,
}

/// The way to the API.
#[derive(Clone, Copy)]
pub enum Transport<'a> {
    /// Dial the Service.
    Direct,
    /// Through the hub's API server.
    Hub(&'a kube::Client),
    /// Through the API server of the target cluster.
    Target(&'a kube::Client),
}

/// Asks, and remembers who answered. One for the whole process.
pub struct Probe {
    direct: Direct,
    domain: String,
    successes: Mutex<HashMap<(String, String), Success>>,
    clock: Clock,
}

type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

#[derive(Debug)]
struct Success {
    uid: String,
    url: String,
    at: Instant,
}

// === impl Probe ===

impl Probe {
    /// A probe that honours the process's proxy variables, in clusters whose DNS domain is `domain`.
    pub fn new(domain: &str) -> Self {
        Self::with(
            ProxyRules::from_environment(),
            domain,
            Arc::new(Instant::now),
        )
    }

    fn with(proxy: ProxyRules, domain: &str, clock: Clock) -> Self {
        Self {
            direct: Direct::new(proxy),
            domain: domain.to_owned(),
            successes: Mutex::default(),
            clock,
        }
    }

    /// Asks the API of `target`, or repeats a recent success if the condition still says
    /// so (`is_healthy`): then the same text comes without a request.
    ///
    /// Dropping the future changes nothing that is remembered.
    pub async fn check(
        &self,
        how: Transport<'_>,
        target: ProbeTarget<'_>,
        is_healthy: bool,
    ) -> Outcome {
        let url = target.url(&self.domain);
        if is_healthy && let Some(age) = self.believed(target, &url) {
            return Outcome {
                age,
                ..Outcome::healthy(&url)
            };
        }
        let outcome = match self.ask(how, target, &url).await {
            Ok(answer) => answer.judge(&url),
            Err(failure) => failure.into_outcome(),
        };
        if outcome.healthy {
            self.remember(target, url);
        } else {
            self.evict(target.namespace, target.name);
        }
        outcome
    }

    /// Forgets a Glance, when its deletion completes.
    pub fn evict(&self, namespace: &str, name: &str) {
        self.successes()
            .remove(&(namespace.to_owned(), name.to_owned()));
    }

    async fn ask(
        &self,
        how: Transport<'_>,
        target: ProbeTarget<'_>,
        url: &str,
    ) -> Result<Answer, Failure> {
        // An API server is asked for a Service by its name and namespace, whatever the domain.
        let uri = match how {
            Transport::Direct => url.parse(),
            Transport::Hub(_) | Transport::Target(_) => target.url(DEFAULT_DOMAIN).parse(),
        };
        let uri: Uri = uri.map_err(Failure::other)?;
        let deadline = Instant::now() + DEADLINE;
        match how {
            Transport::Direct => self.direct.get(&uri, deadline).await,
            Transport::Hub(client) => ApiServer::hub(client).get(&uri, deadline).await,
            Transport::Target(client) => ApiServer::target(client).get(&uri, deadline).await,
        }
    }

    /// The age of a success that is still believed.
    fn believed(&self, target: ProbeTarget<'_>, url: &str) -> Option<Duration> {
        let successes = self.successes();
        let key = (target.namespace.to_owned(), target.name.to_owned());
        let success = successes.get(&key)?;
        let age = (self.clock)().saturating_duration_since(success.at);
        (success.uid == target.uid && success.url == url && age < BELIEVED).then_some(age)
    }

    fn remember(&self, target: ProbeTarget<'_>, url: String) {
        let success = Success {
            uid: target.uid.to_owned(),
            url,
            at: (self.clock)(),
        };
        let key = (target.namespace.to_owned(), target.name.to_owned());
        self.successes().insert(key, success);
    }

    fn successes(&self) -> MutexGuard<'_, HashMap<(String, String), Success>> {
        self.successes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ProbeTarget ===

impl ProbeTarget<'_> {
    /// The URL of the health check: always the Service, never a gateway, for it is the API
    /// that is tested and not what stands before it.
    pub fn url(&self, domain: &str) -> String {
        let Self {
            namespace, name, ..
        } = self;
        format!("http://{name}.{namespace}.svc.{domain}:{PORT}/healthcheck")
    }
}

#[cfg(test)]
mod tests;
