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

use std::time::Duration;

use kube::Client;
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    cli::environment,
    metrics::Metrics,
    pipeline::notice::{COMPONENT, Publisher},
    random,
};

mod elector;
mod lease;

use elector::Elector;

/// Name of the Lease, the same as the Go operator's: the two never work at one time.
pub const LEASE: &str = "glance.openstack.c5c3.io";

/// How long a process without election leads: longer than any process lives.
const FOREVER: Duration = Duration::from_hours(24 * 365 * 30);

/// A replica that has heard nothing of the lease for this long could not take over either.
const DEAF_AFTER: Duration = Duration::from_secs(30);

/// Between the end of a leader's last write and the first of its successor.
const GAP: Duration = Duration::from_secs(1);

/// What the last event gets to be written on a stop.
const LAST_WORD: Duration = Duration::from_secs(1);

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
    /// When the API server last answered about the lease.
    heard: watch::Receiver<Option<Instant>>,
    timings: Timings,
}

/// Where the elector says what a [`Leadership`] tells.
#[derive(Debug)]
struct Ballot {
    terms: watch::Sender<Option<Term>>,
    heard: watch::Sender<Option<Instant>>,
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

impl Timings {
    /// How long a change may still be under way after the end of a term: until shortly before somebody else may
    /// take over.
    fn slack(&self) -> Duration {
        self.lease
            .saturating_sub(self.renew)
            .saturating_sub(GAP.min(self.lease / 10))
    }
}

// === impl Ballot ===

impl Ballot {
    fn new(timings: Timings) -> (Self, Leadership) {
        let (terms, term) = watch::channel(None);
        let (heard, last) = watch::channel(None);
        let leadership = Leadership {
            terms: term,
            heard: last,
            timings,
        };
        (Self { terms, heard }, leadership)
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
        let (ballot, leadership) = Ballot::new(Timings::default());
        ballot.terms.send_replace(Some(term));
        leadership
    }

    /// Whether this process may write now. Ask before each group of writes: after a pause
    /// of the whole process the answer is no, although nobody has told it yet.
    pub fn may_write(&self) -> bool {
        self.term().is_some()
    }

    /// Until when a change that is sent now may be under way; `None` when none may be sent.
    pub fn write_until(&self) -> Option<Instant> {
        let term = self.term()?;
        Some(term.valid_until + self.timings.slack())
    }

    /// Whether this replica leads, or stands by and could take over; else why not.
    pub fn standing(&self) -> Result<(), String> {
        if self.term().is_some() {
            return Ok(());
        }
        let last = *self.heard.borrow();
        match last.map(|last| last.elapsed()) {
            Some(silence) if silence < DEAF_AFTER => Ok(()),
            Some(silence) => Err(format!(
                "no answer about the lease for {} s",
                silence.as_secs()
            )),
            None => Err("no answer about the lease yet".to_owned()),
        }
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

    /// `<hostname>_<uuid>`, as client-go names candidates; new for each process.
    pub fn identity() -> String {
        format!("{}_{}", environment::hostname(), random::uuid())
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
        let (ballot, leadership) = Ballot::new(self.timings);
        let (ended, end) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let elect = async move {
            let client = connect()?;
            // Of its own: the process's other writes stop before the lease is given back.
            let (events, writer) = Publisher::new(COMPONENT, environment::hostname());
            let writing = tokio::spawn(writer.run(client.clone()));
            let elector = Elector::new(self, client, ballot, events.clone());
            let result = elector.run(stop).await;
            if result.is_ok() {
                events.flush(LAST_WORD).await;
            }
            writing.abort();
            result
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
        Ok((leadership, end))
    }
}

#[cfg(test)]
mod tests;
