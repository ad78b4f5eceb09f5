//! Attempts to connect, each a task: until one succeeds, or nobody wants it any more.

use std::{sync::Arc, time::Duration};

use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::Message;
use crate::{
    Cause, Cluster, Registration, RegistryOptions,
    client::Shared as Keepsakes,
    cluster::Identity,
    failure::{cause_of, error_text},
    permits::Permits,
};

/// How long a try counts among those that run at one time. One that takes longer waits for an answer
/// and costs nothing; counted on, it would keep those waiting whose clusters answer at once.
const BUSY: Duration = Duration::from_millis(500);

/// One content of a registration that is being tried.
#[derive(Clone)]
pub(super) struct Attempt {
    pub(super) id: u64,
    pub(super) registration: Arc<Registration>,
    pub(super) stop: CancellationToken,
}

/// What an attempt is to bring about.
pub(super) enum Goal {
    /// A new generation, beside the one in use.
    Connect {
        generation: u64,
        permits: Arc<Permits>,
        keepsakes: Keepsakes,
    },
    /// The generation in use with another token, if the server accepts it.
    Swap(Arc<Cluster>, HeaderValue),
}

/// The end of one try.
pub(super) struct Report {
    pub(super) attempt: Attempt,
    pub(super) outcome: Outcome,
}

pub(super) enum Outcome {
    Connected(Arc<Cluster>, Identity),
    Swapped(HeaderValue, Identity),
    Failed {
        cause: Cause,
        detail: String,
        next_try: Timestamp,
    },
}

// === impl Attempt ===

impl Attempt {
    pub(super) fn new(id: u64, registration: Arc<Registration>, stop: CancellationToken) -> Self {
        Self {
            id,
            registration,
            stop,
        }
    }
}

/// Tries and reports until a try succeeds. With `after` the first one waits until then.
pub(super) async fn run(
    attempt: Attempt,
    goal: Goal,
    after: Option<Timestamp>,
    options: Arc<RegistryOptions>,
    (gate, mut settled): (Arc<Semaphore>, watch::Receiver<bool>),
    inbox: mpsc::UnboundedSender<Message>,
) {
    let mut backoff = options.probe.retries();
    if let Some(after) = after {
        backoff.next();
        let pause = after.duration_since(Timestamp::now());
        tokio::time::sleep(pause.try_into().unwrap_or_default()).await;
    }
    loop {
        let result = {
            // The gate is never closed; without a permit the try would only be less polite.
            let permit = gate.acquire().await;
            let tried = attempt.registration.attempt(&goal, &options);
            let tried = keeping(permit, BUSY, tried);
            match tokio::time::timeout(options.engage_timeout, tried).await {
                Ok(Ok(outcome)) => Ok(outcome),
                Ok(Err(error)) => Err(explain(&error)),
                Err(_) => Err((
                    Cause::Timeout,
                    format!(
                        "no connection within {}s",
                        options.engage_timeout.as_secs_f32()
                    ),
                )),
            }
        };
        let (outcome, pause) = match result {
            Ok(outcome) => (outcome, None),
            Err((cause, detail)) => {
                let pause = backoff.next();
                let wait = SignedDuration::try_from(pause).unwrap_or_default();
                let next_try = Timestamp::now().saturating_add(wait).unwrap_or_default();
                (
                    Outcome::Failed {
                        cause,
                        detail,
                        next_try,
                    },
                    Some(pause),
                )
            }
        };
        // Who may answer is known only with the policies. An error says that nobody waits any more.
        let _ = settled.wait_for(|settled| *settled).await;
        // Nobody listens when the owner has ended; then this task is about to end as well.
        let _ = inbox.send(Message::Report(Report {
            attempt: attempt.clone(),
            outcome,
        }));
        match pause {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return,
        }
    }
}

/// Works, and lets go of `held` after a while.
async fn keeping<T>(held: impl Send, limit: Duration, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    if let Ok(done) = tokio::time::timeout(limit, &mut work).await {
        return done;
    }
    drop(held);
    work.await
}

/// A failure as the kind it is and in words that help.
pub(super) fn explain(error: &kube::Error) -> (Cause, String) {
    let (cause, text) = (cause_of(error), error_text(error));
    let detail = match cause {
        Cause::Unauthorized => format!(
            "the API server does not accept the credential, write a valid one into the \
             registration Secret ({text})"
        ),
        _ => text,
    };
    (cause, detail)
}

// === impl Registration ===

impl Registration {
    async fn attempt(
        &self,
        goal: &Goal,
        options: &RegistryOptions,
    ) -> Result<Outcome, kube::Error> {
        match goal {
            Goal::Swap(cluster, header) => {
                let identity = cluster.probe_as(header.clone()).await?;
                Ok(Outcome::Swapped(header.clone(), identity))
            }
            Goal::Connect {
                generation,
                permits,
                keepsakes,
            } => {
                let cluster = self
                    .open(*generation, permits.clone(), &options.client, keepsakes)
                    .await?;
                let identity = cluster.probe().await?;
                Ok(Outcome::Connected(cluster, identity))
            }
        }
    }
}
