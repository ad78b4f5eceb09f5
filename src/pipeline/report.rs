//! What a step says: a verdict for its condition, what to wait for, what happened, and what the next step needs.
//!
//! Waiting is a [`Report`], never an error; an error is a [`StepError`] and nothing else.

use std::time::Duration;

use glance_api::glance::UpgradePhase;

use super::notice::Notice;
use crate::{backoff::REPORTED_AFTER, metrics::JobMetric, names::PhaseJob};

/// Requeue of the Deployment, the route and an unhealthy API (contract: target clusters, requeue and backoff).
pub const REQUEUE_ROLLOUT: Duration = Duration::from_secs(10);
/// Requeue of the credential gates, of an unresolved target and of the backend controller.
pub const REQUEUE_SECRETS: Duration = Duration::from_secs(15);
/// Requeue of the database gates and Jobs and of the deletion hold.
pub const REQUEUE_DATABASE: Duration = Duration::from_secs(30);
/// The smallest pause for "look again at once" that still lets the watch catch up.
pub const REQUEUE_NOW: Duration = Duration::from_millis(50);

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The promise of the condition holds.
    True,
    /// It does not.
    False,
}

/// The content of one condition, without times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the condition holds.
    pub status: Status,
    /// A reason of the contract's table.
    pub reason: &'static str,
    /// The sentence for people; may be empty.
    pub message: String,
}

/// A change of a status field other than the conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusChange {
    /// Sets `status.endpoint`.
    Endpoint(String),
    /// Sets `status.targetClusterUID`.
    TargetCluster(String),
    /// Sets `status.installedRelease`.
    InstalledRelease(String),
    /// Sets `status.upgradePhase`.
    UpgradePhase(UpgradePhase),
    /// Begins an upgrade to this release: `status.targetRelease`, and the first phase.
    UpgradeTo(String),
    /// Ends an upgrade: both fields go, in one write.
    UpgradeOver,
}

/// Jobs that have ended and may have to be counted, once per UID over all restarts (contract: database, metrics).
#[derive(Clone, Debug, PartialEq)]
pub struct EndedJobs {
    /// Annotation of the CR that remembers the last one counted.
    pub annotation: &'static str,
    /// The name of the kind of Job in messages: `db-sync`, `db-purge`, …
    pub suffix: &'static str,
    /// Reason of the event when the annotation could not be written.
    pub deferred: &'static str,
    /// Which pair of metrics they feed.
    pub metric: JobMetric,
    /// The phase of an upgrade that they ran, if they did.
    pub phase: Option<PhaseJob>,
    /// UID of the newest.
    pub newest: String,
    /// Further annotations that are written with that one; `None` removes one.
    pub notes: Vec<(&'static str, Option<String>)>,
    /// Success and seconds of each that was not counted yet, oldest first.
    pub runs: Vec<(bool, f64)>,
}

/// What a step returns when it did not fail.
#[derive(Debug)]
pub struct Report<T> {
    /// The step's condition; `None` leaves it to another step or as it is.
    pub verdict: Option<Verdict>,
    /// Informational conditions beside the step's own, by type.
    pub extra: Vec<(&'static str, Verdict)>,
    /// When to look again even if no event comes.
    pub requeue: Option<Duration>,
    /// Events to publish once the status is written.
    pub notices: Vec<Notice>,
    /// Status fields to change.
    pub status: Vec<StatusChange>,
    /// Jobs to count.
    pub ended: Vec<EndedJobs>,
    /// What later steps work with; `None` ends the pass here.
    pub output: Option<T>,
}

/// Why a step failed, as far as the reaction differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum ErrorKind {
    /// The API server or the way to it; retried with backoff.
    Api,
    /// Our rights do not suffice: said at once.
    Forbidden,
    /// The API server refuses the object: said at once.
    Invalid,
    /// An object of that name is not ours: said at once.
    Refused,
    /// What we should render cannot be rendered.
    Render,
    /// The registration does not cover the namespace.
    OutOfScope,
    /// Somebody else wrote in between: look again, quietly.
    Conflict,
    /// The pass took too long.
    Timeout,
    /// The step panicked.
    Panic,
}

/// A failed step.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct StepError {
    /// The class of the failure.
    pub kind: ErrorKind,
    /// The text for the log and, by the three-failures rule, for the condition.
    pub message: String,
    /// What the failure has to say beyond its text.
    pub said: Box<Said>,
}

/// What a failure says beside its text. Boxed, because most have nothing to add and errors travel by value.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// A condition that this failure sets at once, with a reason of the contract.
    pub verdict: Option<Verdict>,
    /// Informational conditions that hold in spite of the failure.
    pub extra: Vec<(&'static str, Verdict)>,
    /// Events that belong to the failure.
    pub notices: Vec<Notice>,
    /// Jobs to count in spite of the failure, or because of it.
    pub ended: Vec<EndedJobs>,
}

// === impl Verdict ===

impl Verdict {
    /// A condition that holds.
    pub fn yes(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            status: Status::True,
            reason,
            message: message.into(),
        }
    }

    /// A condition that does not hold.
    pub fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            status: Status::False,
            reason,
            message: message.into(),
        }
    }
}

// === impl Report ===

impl<T> Report<T> {
    /// The step is through and leaves its condition to others.
    pub fn done(output: T) -> Self {
        Self {
            verdict: None,
            extra: Vec::new(),
            requeue: None,
            notices: Vec::new(),
            status: Vec::new(),
            ended: Vec::new(),
            output: Some(output),
        }
    }

    /// The step is through, with this condition.
    pub fn with(verdict: Verdict, output: T) -> Self {
        Self {
            verdict: Some(verdict),
            ..Self::done(output)
        }
    }

    /// The step waits: the pass ends here and comes back after `pause` at the latest.
    pub fn waiting(verdict: Verdict, pause: Duration) -> Self {
        Self {
            verdict: Some(verdict),
            extra: Vec::new(),
            requeue: Some(pause),
            notices: Vec::new(),
            status: Vec::new(),
            ended: Vec::new(),
            output: None,
        }
    }

    /// Adds an event.
    #[must_use]
    pub fn notice(mut self, notice: Notice) -> Self {
        self.notices.push(notice);
        self
    }

    /// Adds events.
    #[must_use]
    pub fn notices(mut self, notices: impl IntoIterator<Item = Notice>) -> Self {
        self.notices.extend(notices);
        self
    }

    /// Sets a status field.
    #[must_use]
    pub fn status(mut self, change: StatusChange) -> Self {
        self.status.push(change);
        self
    }

    /// Adds Jobs to count.
    #[must_use]
    pub fn ended(mut self, jobs: impl IntoIterator<Item = EndedJobs>) -> Self {
        self.ended.extend(jobs);
        self
    }

    /// Sets an informational condition beside the step's own.
    #[must_use]
    pub fn extra(mut self, type_: &'static str, verdict: Verdict) -> Self {
        self.extra.push((type_, verdict));
        self
    }

    /// Asks for another look after `pause`, although the step is through.
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        self.requeue = Some(pause);
        self
    }
}

// === impl StepError ===

impl StepError {
    /// A failure of this class.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            said: Box::default(),
        }
    }

    /// Puts `context: ` in front of the text, as the contract has it for most steps.
    #[must_use]
    pub fn context(mut self, context: &str) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Sets the condition at once instead of after three failures.
    #[must_use]
    pub fn verdict(mut self, verdict: Verdict) -> Self {
        self.said.verdict = Some(verdict);
        self
    }

    /// Adds an event.
    #[must_use]
    pub fn notice(mut self, notice: Notice) -> Self {
        self.said.notices.push(notice);
        self
    }

    /// Adds Jobs to count.
    #[must_use]
    pub fn ended(mut self, jobs: impl IntoIterator<Item = EndedJobs>) -> Self {
        self.said.ended.extend(jobs);
        self
    }

    /// Keeps an informational condition up to date in spite of the failure.
    #[must_use]
    pub fn extra(mut self, type_: &'static str, verdict: Verdict) -> Self {
        self.said.extra.push((type_, verdict));
        self
    }

    /// Whether the first failure already says all there is to say.
    pub fn is_final(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Forbidden | ErrorKind::Invalid | ErrorKind::Refused
        )
    }

    /// Whether a condition shows it: at once, or when the same step has failed this often in a row.
    pub fn lasts(&self, failures: u32) -> bool {
        self.is_final() || (failures >= REPORTED_AFTER && self.kind != ErrorKind::Conflict)
    }

    /// The label for logs.
    pub fn category(&self) -> &'static str {
        self.kind.into()
    }
}

impl From<kube::Error> for StepError {
    fn from(error: kube::Error) -> Self {
        Self::new(ErrorKind::of(&error), describe(&error))
    }
}

// === impl ErrorKind ===

impl ErrorKind {
    /// The class of an API error, by its code: the `is_…` methods of a status miss plain-text answers.
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => match status.code {
                401 | 403 => Self::Forbidden,
                409 => Self::Conflict,
                422 => Self::Invalid,
                _ => Self::Api,
            },
            _ => Self::Api,
        }
    }
}

/// The text of an API error for people, of bounded length: the server's message, once (`kube::Error` prints the whole
/// status twice).
pub fn describe(error: &kube::Error) -> String {
    target_registry::one_line(&whole(error))
}

fn whole(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("the API server answered {}", status.code),
        other => {
            let mut text = other.to_string();
            let mut source = std::error::Error::source(other);
            while let Some(inner) = source {
                let inner_text = inner.to_string();
                if !text.contains(&inner_text) {
                    text.push_str(": ");
                    text.push_str(&inner_text);
                }
                source = inner.source();
            }
            text
        }
    }
}
