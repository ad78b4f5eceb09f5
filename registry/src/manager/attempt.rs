//! Attempts to connect, each a task: until one succeeds, or nobody wants it any more.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Message, Owner, join, member::Member};
use crate::{
    Cause, Cluster, Registration, RegistryOptions, State,
    client::Shared as Keepsakes,
    cluster::Identity,
    failure::{cause_of, error_text},
    permits::{Permits, keeping},
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
    Swap(Arc<Cluster>),
}

/// The end of one try.
pub(super) struct Report {
    pub(super) attempt: Attempt,
    pub(super) outcome: Outcome,
}

pub(super) enum Outcome {
    /// What was accepted may be the token of the Secret where a renewed one was not.
    Connected(Arc<Cluster>, Arc<Registration>, Identity),
    Swapped(Arc<Registration>, Identity),
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

    /// Tries what is wanted, and where a renewed token is not accepted, the one that the Secret holds. The renewed one
    /// goes first at the next try again: one refusal may be the server's passing fault.
    async fn make(&self, goal: &Goal, options: &RegistryOptions) -> Result<Outcome, kube::Error> {
        let outcome = Box::pin(connect(&self.registration, goal, options)).await;
        let original = match &outcome {
            Err(error) if cause_of(error) == Cause::Unauthorized => self.registration.original(),
            _ => None,
        };
        match original {
            Some(original) => Box::pin(connect(&Arc::new(original), goal, options)).await,
            None => outcome,
        }
    }
}

async fn connect(
    registration: &Arc<Registration>,
    goal: &Goal,
    options: &RegistryOptions,
) -> Result<Outcome, kube::Error> {
    match goal {
        Goal::Swap(cluster) => {
            let identity = match &registration.access.credential {
                Some(header) => cluster.probe_as(header.clone()).await?,
                None => cluster.probe().await?,
            };
            Ok(Outcome::Swapped(registration.clone(), identity))
        }
        Goal::Connect {
            generation,
            permits,
            keepsakes,
        } => {
            let cluster = registration
                .open(*generation, permits.clone(), &options.client, keepsakes)
                .await?;
            let identity = cluster.probe().await?;
            Ok(Outcome::Connected(cluster, registration.clone(), identity))
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
            let tried = keeping(permit, BUSY, attempt.make(&goal, &options));
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

// === impl Owner ===

impl Owner {
    /// Starts to connect; after a first failure, with a pause.
    pub(super) fn attempt(
        &mut self,
        member: &mut Member,
        registration: Arc<Registration>,
        after: Option<Timestamp>,
    ) {
        let current = member.current.as_ref();
        let same = current.filter(|(_, current)| registration.same_connection(current));
        let goal = if let (Some((cluster, _)), Some(_)) = (same, &registration.access.credential) {
            Goal::Swap(cluster.clone())
        } else {
            self.generations += 1;
            Goal::Connect {
                generation: self.generations,
                permits: member.permits.clone(),
                keepsakes: member.keepsakes.clone(),
            }
        };
        self.attempts += 1;
        let attempt = Attempt::new(self.attempts, registration, self.stop.child_token());
        let run = run(
            attempt.clone(),
            goal,
            after,
            self.options.clone(),
            (self.gate.clone(), self.shared.policies.settled()),
            self.inbox.clone(),
        );
        let stop = attempt.stop.clone();
        self.shared.tasks.spawn(async move {
            stop.run_until_cancelled(run).await;
        });
        member.attempt = Some(attempt);
    }

    pub(super) fn report(&mut self, report: Report) {
        let name = report.attempt.registration.name().to_owned();
        let Some(mut member) = self.members.remove(&name) else {
            return;
        };
        // The present attempt, or one that was given up while its report was under way?
        if member
            .attempt
            .as_ref()
            .is_some_and(|attempt| attempt.id == report.attempt.id)
        {
            member.tried = true;
            self.conclude(&mut member, report);
        }
        self.members.insert(name, member);
    }

    fn conclude(&mut self, member: &mut Member, report: Report) {
        match report.outcome {
            Outcome::Failed {
                cause,
                detail,
                next_try,
            } => {
                member.keepsakes.metrics.engagement("failed");
                tracing::warn!(
                    cluster = member.state.name,
                    %cause,
                    %detail,
                    %next_try,
                    "cannot connect to the cluster"
                );
                let current = member.current.as_ref();
                let is_renewal = report.attempt.registration.original().is_some()
                    && current.is_some_and(|(_, current)| {
                        current.content_hash() == report.attempt.registration.content_hash()
                    });
                // The token in use is as good as it was before it was renewed.
                if cause == Cause::Unauthorized && current.is_some() && !is_renewal {
                    // Whoever wrote a credential that is not accepted meant to replace the old one.
                    member.give_up();
                    self.disengage(member);
                    self.attempt(member, report.attempt.registration, Some(next_try));
                }
                let trouble = (cause, detail, Some(next_try));
                if member.current.is_some() {
                    member.content = Some(trouble);
                    self.settle(member, true);
                } else {
                    self.publish(member, State::Lost, Some(trouble));
                }
            }
            Outcome::Connected(cluster, registration, identity) => {
                member.attempt = None;
                if self.identify(member, &registration, identity.uid.as_deref()) {
                    member.keepsakes.metrics.engagement("connected");
                    self.watch_over(&cluster);
                    let old = member.use_now(cluster, registration);
                    self.settle(member, true);
                    tracing::info!(
                        cluster = member.state.name,
                        generation = member.state.generation,
                        version = identity.version,
                        "cluster engaged"
                    );
                    if let Some(old) = old {
                        join(&self.shared, old);
                    }
                    self.plan_renewal(member);
                } else {
                    join(&self.shared, cluster);
                }
            }
            Outcome::Swapped(registration, identity) => {
                member.attempt = None;
                if self.identify(member, &registration, identity.uid.as_deref())
                    && let Some((cluster, _)) = &member.current
                    && let Some(header) = registration.access.credential.clone()
                {
                    let cluster = cluster.clone();
                    cluster.set_credential(header);
                    cluster.set_usable(true);
                    member.use_now(cluster.clone(), registration);
                    member.keepsakes.metrics.engagement("rotated");
                    tracing::info!(
                        cluster = member.state.name,
                        generation = cluster.generation(),
                        "cluster engaged"
                    );
                    self.settle(member, true);
                    self.plan_renewal(member);
                }
            }
        }
    }
}
