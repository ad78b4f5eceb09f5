//! Leader election by a Lease, and the word every writer asks before it writes.
//!
//! The rules are those of client-go (contract: operations, leader election): a foreign
//! lease counts as expired only after *this* process has seen it unchanged for its whole
//! duration on its own monotonic clock, so no two clocks are ever compared. The holder
//! renews every 2 s; a [`Term`] ends 10 s after the start of the last attempt that
//! succeeded, 5 s before anybody else may take over, and then the process ends: it stops
//! by itself instead of being told. Unlike the Go operator it gives the lease back on a
//! graceful stop.
//!
//! The elector runs on a thread and a connection of its own, so that neither a busy
//! runtime nor a full connection pool can cost the lease.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use kube::Client;
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{cli::environment, metrics::Metrics, pipeline::notice::Publisher};

mod elector;
mod lease;

use elector::Elector;

/// Name of the Lease, the same as the Go operator's: the two never work at one time.
pub const LEASE: &str = "glance.openstack.c5c3.io";

/// How long a process without election leads: longer than any process lives.
const FOREVER: Duration = Duration::from_hours(24 * 365 * 30);

/// How long a lease lasts and how often it is renewed.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// Others wait this long after the last renewal they saw.
    pub lease: Duration,
    /// The holder gives up this long after its last renewal.
    pub renew: Duration,
    /// Time between two attempts.
    pub retry: Duration,
}

/// One uninterrupted leadership of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// How often the lease changed hands before.
    pub epoch: i32,
    /// The leadership ends here unless it is renewed.
    pub valid_until: Instant,
}

/// Tells whether this process leads; a clone follows the same election.
#[derive(Clone, Debug)]
pub struct Leadership {
    terms: watch::Receiver<Option<Term>>,
}

/// An election to take part in.
#[derive(Debug)]
pub struct LeaderElection {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Who we are in it.
    pub identity: String,
    /// How long is waited for what.
    pub timings: Timings,
    /// Where the gauge of the election is.
    pub metrics: Metrics,
    /// Takes the events about the Lease.
    pub events: Publisher,
}

/// Why there is no leadership.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither flag nor surroundings name the namespace of the Lease.
    #[error(
        "unable to find leader election namespace: not running in-cluster, please set \
         --leader-election-namespace or POD_NAMESPACE"
    )]
    NoNamespace,
    /// The elector's thread could not be started.
    #[error("cannot start the leader election: {0}")]
    Thread(#[from] std::io::Error),
    /// The elector has no way to the API server.
    #[error("cannot connect the leader election: {0}")]
    Client(#[from] kube::Error),
    /// Another process holds the lease, or may by now.
    #[error("leader election lost")]
    Lost,
}

// === impl Timings ===

impl Default for Timings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

// === impl Leadership ===

impl Leadership {
    /// The leadership of a process that runs without election.
    pub fn unelected() -> Self {
        let valid_until = Instant::now() + FOREVER;
        let term = Term {
            epoch: 0,
            valid_until,
        };
        Self {
            terms: watch::Sender::new(Some(term)).subscribe(),
        }
    }

    /// Whether this process may write now. Ask before each group of writes: after a pause
    /// of the whole process the answer is no, although nobody has told it yet.
    pub fn may_write(&self) -> bool {
        self.term().is_some()
    }

    /// The present term, if it has not run out.
    pub fn term(&self) -> Option<Term> {
        let term = *self.terms.borrow();
        term.filter(|term| Instant::now() < term.valid_until)
    }

    /// Completes when this process leads, or with an error when the election ended before.
    pub async fn acquired(&mut self) -> Result<Term, Error> {
        let term = self.terms.wait_for(Option::is_some).await;
        term.ok().and_then(|term| *term).ok_or(Error::Lost)
    }
}

// === impl LeaderElection ===

impl LeaderElection {
    /// Namespace of the Lease: the flag, else the operator's own namespace.
    pub fn namespace(flag: &str) -> Result<String, Error> {
        Some(flag.to_owned())
            .filter(|flag| !flag.is_empty())
            .or_else(environment::operator_namespace)
            .ok_or(Error::NoNamespace)
    }

    /// `<hostname>_<random>`, as client-go names candidates; new for each process.
    pub fn identity() -> String {
        let random = || RandomState::new().hash_one(std::process::id());
        format!(
            "{}_{:016x}{:016x}",
            environment::hostname(),
            random(),
            random()
        )
    }

    /// Takes part until `stop`, then gives the lease back; the returned future completes
    /// after that. `connect` is called on the elector's own runtime.
    ///
    /// When the lease is lost, `on_lost` is called at once from the elector's thread: it
    /// should end the process, for another one may be writing already.
    pub fn start(
        self,
        connect: impl FnOnce() -> kube::Result<Client> + Send + 'static,
        stop: CancellationToken,
        on_lost: impl FnOnce() + Send + 'static,
    ) -> Result<(Leadership, impl Future<Output = Result<(), Error>> + Send), Error> {
        let (terms, leadership) = watch::channel(None);
        let (ended, end) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let elect = async move {
            let elector = Elector::new(self, connect()?, terms);
            elector.run(stop).await
        };
        std::thread::Builder::new()
            .name("leader-election".to_owned())
            .spawn(move || {
                let result = runtime.block_on(elect);
                if matches!(result, Err(Error::Lost)) {
                    on_lost();
                }
                // Nobody waits for the end of a process that is going anyway.
                drop(ended.send(result));
            })?;
        // A thread that died without a word has lost.
        let end = async move { end.await.unwrap_or(Err(Error::Lost)) };
        Ok((Leadership { terms: leadership }, end))
    }
}

#[cfg(test)]
mod tests;
