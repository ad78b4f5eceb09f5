//! The skeleton of a pass: which steps there are, how each is timed, counted and folded in, and how a pass ends.
//!
//! A step is a plain future that returns a [`Report`] or a [`StepError`]; it never writes shared state. The
//! [`Pass`] folds what it says into one [`Summary`], and [`persist`] writes that from one place. Nothing here knows
//! what a step does.

use std::{future::Future, panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;
use glance_api::{conditions as names, glance::Glance};
use jiff::Timestamp;
use tracing::Instrument as _;

use crate::{
    backoff::StepFailures,
    metrics::Metrics,
    pipeline::{
        conditions::Conditions,
        notice::Notice,
        report::{EndedJobs, ErrorKind, Report, StatusChange, StepError, Verdict},
    },
};

pub mod conditions;
pub mod notice;
pub mod persist;
pub mod report;

/// The steps, in the order of the pipeline. The last five run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::EnumIter, strum::IntoStaticStr)]
pub enum StepId {
    /// Store gate, credential gates, digest of the service password.
    Secrets,
    /// The DSN Secret.
    #[strum(serialize = "DBConnectionSecret")]
    DbConnectionSecret,
    /// The store sections of the attached backends.
    Backends,
    /// The configuration files.
    Config,
    /// MariaDB objects and schema Jobs.
    Database,
    /// Deployment, Service and disruption budget.
    Deployment,
    /// The route through a Gateway.
    #[strum(serialize = "HTTPRoute")]
    HttpRoute,
    /// The API answers.
    HealthCheck,
    /// The autoscaler.
    #[strum(serialize = "HPA")]
    Hpa,
    /// Network policies.
    NetworkPolicy,
    /// The purge `CronJob`.
    #[strum(serialize = "DBPurge")]
    DbPurge,
}

/// Why the pipeline stopped before its end.
#[derive(Debug)]
pub enum Halt {
    /// A step waits.
    Wait,
    /// A step failed.
    Failed,
}

/// What a pass came to.
#[derive(Debug)]
pub struct Summary {
    /// The conditions as they should be stored, without the aggregate.
    pub conditions: Conditions,
    /// Changes of other status fields.
    pub status: Vec<StatusChange>,
    /// Events to publish.
    pub notices: Vec<Notice>,
    /// Jobs to count.
    pub ended: Vec<EndedJobs>,
    /// The shortest wish to be called again.
    pub requeue: Option<Duration>,
    /// The failure that decides the backoff, first in declared order; a panic before any other, for it is a bug and counted.
    pub error: Option<StepError>,
}

/// What steps are measured and counted with.
#[derive(Clone, Copy)]
pub struct Instruments<'a> {
    /// The pipeline metrics.
    pub metrics: &'a Metrics,
    /// Failures in a row by object and step.
    pub failures: &'a StepFailures<String>,
    /// The cluster label: `local` or the target's name.
    pub cluster: &'a str,
}

/// One pass over one Glance.
pub struct Pass<'a> {
    glance: &'a Glance,
    key: String,
    instruments: Instruments<'a>,
    now: Timestamp,
    summary: Summary,
}

// === impl StepId ===

impl StepId {
    /// The value of the metric label `sub_reconciler`.
    pub fn label(self) -> &'static str {
        self.into()
    }

    /// The condition the step reports through; several may share one.
    pub fn condition(self) -> &'static str {
        match self {
            Self::Secrets | Self::DbConnectionSecret | Self::Config => names::SECRETS_READY,
            Self::Backends => names::BACKENDS_READY,
            Self::Database => names::DATABASE_READY,
            Self::Deployment => names::DEPLOYMENT_READY,
            Self::HttpRoute => names::HTTP_ROUTE_READY,
            Self::HealthCheck => names::GLANCE_API_READY,
            Self::Hpa => names::HPA_READY,
            Self::NetworkPolicy => names::NETWORK_POLICY_READY,
            Self::DbPurge => names::DB_PURGE_READY,
        }
    }
}

// === impl Pass ===

impl<'a> Pass<'a> {
    /// Opens a pass at `now`; nothing inside it asks the clock again for a condition.
    pub fn open(glance: &'a Glance, instruments: Instruments<'a>, now: Timestamp) -> Self {
        let stored = glance
            .status
            .as_ref()
            .map(|status| status.conditions.clone())
            .unwrap_or_default();
        Self {
            glance,
            key: glance.metadata.uid.clone().unwrap_or_default(),
            instruments,
            now,
            summary: Summary {
                conditions: Conditions::of(stored),
                status: Vec::new(),
                notices: Vec::new(),
                ended: Vec::new(),
                requeue: None,
                error: None,
            },
        }
    }

    /// Runs one step and folds it in. Its output, or the reason to stop.
    pub async fn step<T>(
        &mut self,
        id: StepId,
        step: impl Future<Output = Result<Report<T>, StepError>>,
    ) -> Result<T, Halt> {
        let outcome = self.measure(id, step).await;
        self.fold(id, outcome)
    }

    /// Runs a step without folding it in, so that several can run at once.
    pub async fn measure<T>(
        &self,
        id: StepId,
        step: impl Future<Output = Result<Report<T>, StepError>>,
    ) -> Result<Report<T>, StepError> {
        let span = tracing::error_span!("step", sub_reconciler = id.label());
        // Boxed: eleven inlined state machines would make one future of many kilobytes.
        let step = Box::pin(step);
        let _timer = self
            .instruments
            .metrics
            .step_started(id.label(), self.instruments.cluster);
        AssertUnwindSafe(step)
            .catch_unwind()
            .instrument(span)
            .await
            .unwrap_or_else(|_| {
                Err(StepError::new(
                    ErrorKind::Panic,
                    format!(
                        "the step {} panicked; this is a bug, the log has its trace",
                        id.label()
                    ),
                ))
            })
    }

    /// Folds in what [`Pass::measure`] gave.
    pub fn fold<T>(
        &mut self,
        id: StepId,
        outcome: Result<Report<T>, StepError>,
    ) -> Result<T, Halt> {
        match outcome {
            Ok(report) => {
                self.instruments.failures.succeeded(&self.key, id.label());
                if let Some(verdict) = report.verdict {
                    self.set(id.condition(), verdict);
                }
                for (type_, verdict) in report.extra {
                    self.set(type_, verdict);
                }
                self.summary.notices.extend(report.notices);
                self.summary.status.extend(report.status);
                self.summary.ended.extend(report.ended);
                if let Some(pause) = report.requeue {
                    self.requeue(pause);
                }
                report.output.ok_or(Halt::Wait)
            }
            Err(error) => {
                self.fail(id, error);
                Err(Halt::Failed)
            }
        }
    }

    /// Sets a condition ahead of or beside the steps.
    pub fn set(&mut self, type_: &str, verdict: Verdict) {
        let generation = self.glance.metadata.generation;
        self.summary
            .conditions
            .set(type_, verdict, generation, self.now);
    }

    /// Changes a status field outside a step.
    pub fn change(&mut self, change: StatusChange) {
        self.summary.status.push(change);
    }

    /// Asks for another pass within `pause`; the shortest wish wins.
    pub fn requeue(&mut self, pause: Duration) {
        self.summary.requeue = Some(self.summary.requeue.map_or(pause, |known| known.min(pause)));
    }

    /// Ends the pass.
    pub fn close(self) -> Summary {
        self.summary
    }

    fn fail(&mut self, id: StepId, error: StepError) {
        let failures = self.instruments.failures.failed(&self.key, id.label());
        if error.kind != ErrorKind::Conflict {
            self.instruments.metrics.step_error(
                id.label(),
                id.condition(),
                self.instruments.cluster,
            );
        }
        // Which Glance it was says the span of the pass.
        tracing::warn!(
            sub_reconciler = id.label(),
            category = error.category(),
            failures,
            error = %error,
            "the step failed"
        );
        if let Some(verdict) = error.said.verdict.clone() {
            self.set(id.condition(), verdict);
        } else if error.lasts(failures) {
            self.set(
                id.condition(),
                Verdict::no(names::reasons::RECONCILE_ERROR, error.message.clone()),
            );
        }
        for (type_, verdict) in error.said.extra.clone() {
            self.set(type_, verdict);
        }
        self.summary.notices.extend(error.said.notices.clone());
        self.summary.ended.extend(error.said.ended.clone());
        let hides_a_bug =
            |known: &StepError| error.kind == ErrorKind::Panic && known.kind != ErrorKind::Panic;
        if self.summary.error.as_ref().is_none_or(hides_a_bug) {
            self.summary.error = Some(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator;

    use super::*;
    use crate::testing;

    struct Bench {
        glance: Glance,
        metrics: Metrics,
        failures: StepFailures<String>,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                glance: testing::glance("images"),
                metrics: Metrics::new().unwrap(),
                failures: StepFailures::new(),
            }
        }

        fn pass(&self) -> Pass<'_> {
            let instruments = Instruments {
                metrics: &self.metrics,
                failures: &self.failures,
                cluster: "edge-1",
            };
            Pass::open(&self.glance, instruments, Timestamp::UNIX_EPOCH)
        }
    }

    fn fails(kind: ErrorKind) -> impl Future<Output = Result<Report<()>, StepError>> {
        std::future::ready(Err(StepError::new(kind, "it does not work")))
    }

    fn reason(summary: &Summary, type_: &str) -> Option<String> {
        summary
            .conditions
            .get(type_)
            .map(|condition| condition.reason.clone())
    }

    #[test]
    fn the_steps_are_the_documented_ones_in_the_documented_order() {
        let table: Vec<_> = StepId::iter()
            .map(|id| (id.label(), id.condition()))
            .collect();
        assert_eq!(
            table,
            [
                ("Secrets", "SecretsReady"),
                ("DBConnectionSecret", "SecretsReady"),
                ("Backends", "BackendsReady"),
                ("Config", "SecretsReady"),
                ("Database", "DatabaseReady"),
                ("Deployment", "DeploymentReady"),
                ("HTTPRoute", "HTTPRouteReady"),
                ("HealthCheck", "GlanceAPIReady"),
                ("HPA", "HPAReady"),
                ("NetworkPolicy", "NetworkPolicyReady"),
                ("DBPurge", "DBPurgeReady"),
            ]
        );
    }

    #[tokio::test]
    async fn a_step_that_panics_fails_alone_and_is_counted() {
        let bench = Bench::new();
        let mut pass = bench.pass();
        let panicking = async {
            assert!(!is_a_bug(), "a bug");
            Ok(Report::done(()))
        };
        let halt = pass.step(StepId::Hpa, panicking).await.unwrap_err();
        assert!(matches!(halt, Halt::Failed));
        let fine = async { Ok(Report::with(Verdict::yes("NetworkPolicyReady", ""), ())) };
        pass.step(StepId::NetworkPolicy, fine).await.unwrap();
        let summary = pass.close();
        assert_eq!(summary.error.unwrap().kind, ErrorKind::Panic);
        assert!(summary.conditions.is_true("NetworkPolicyReady"));
        let page = bench.metrics.encode();
        assert!(page.contains(
            "glance_operator_reconcile_errors_total{cluster=\"edge-1\",condition_type=\"HPAReady\",sub_reconciler=\"HPA\"} 1"
        ), "{page}");
        assert!(page.contains(
            "glance_operator_reconcile_duration_seconds_count{cluster=\"edge-1\",sub_reconciler=\"HPA\"} 1"
        ), "{page}");
    }

    #[tokio::test]
    async fn a_bug_is_what_a_pass_fails_with_also_when_another_step_failed_before_it() {
        let bench = Bench::new();
        let mut pass = bench.pass();
        for kind in [ErrorKind::Api, ErrorKind::Panic, ErrorKind::Forbidden] {
            pass.step(StepId::Hpa, fails(kind)).await.unwrap_err();
        }
        assert_eq!(pass.close().error.unwrap().kind, ErrorKind::Panic);
    }

    /// Keeps the compiler from seeing that the step above never returns.
    fn is_a_bug() -> bool {
        std::hint::black_box(true)
    }

    #[tokio::test]
    async fn a_single_failure_demotes_nothing_and_the_third_in_a_row_is_shown() {
        let bench = Bench::new();
        for (pass_number, shown) in [(1, false), (2, false), (3, true), (4, true)] {
            let mut pass = bench.pass();
            pass.step(StepId::Hpa, fails(ErrorKind::Api))
                .await
                .unwrap_err();
            let reason = reason(&pass.close(), "HPAReady");
            assert_eq!(
                reason.as_deref(),
                shown.then_some("ReconcileError"),
                "pass {pass_number}"
            );
        }
        let mut pass = bench.pass();
        let healed = async { Ok(Report::with(Verdict::yes("HPAReady", ""), ())) };
        pass.step(StepId::Hpa, healed).await.unwrap();
        let mut pass = bench.pass();
        pass.step(StepId::Hpa, fails(ErrorKind::Api))
            .await
            .unwrap_err();
        assert_eq!(
            reason(&pass.close(), "HPAReady"),
            None,
            "the row was broken"
        );
    }

    #[tokio::test]
    async fn what_the_next_try_cannot_cure_is_shown_at_once_and_a_conflict_never() {
        for (kind, shown) in [
            (ErrorKind::Forbidden, true),
            (ErrorKind::Invalid, true),
            (ErrorKind::Refused, true),
            (ErrorKind::Api, false),
            (ErrorKind::Timeout, false),
        ] {
            let bench = Bench::new();
            let mut pass = bench.pass();
            pass.step(StepId::Deployment, fails(kind))
                .await
                .unwrap_err();
            assert_eq!(
                reason(&pass.close(), "DeploymentReady").is_some(),
                shown,
                "{kind:?}"
            );
        }
        let bench = Bench::new();
        for _ in 0..5 {
            let mut pass = bench.pass();
            pass.step(StepId::Hpa, fails(ErrorKind::Conflict))
                .await
                .unwrap_err();
            assert_eq!(reason(&pass.close(), "HPAReady"), None);
        }
        assert!(!bench.metrics.encode().contains("reconcile_errors_total{"));
    }

    #[tokio::test]
    async fn waiting_ends_the_pass_and_is_no_error() {
        let bench = Bench::new();
        let mut pass = bench.pass();
        let waiting = async {
            Ok(Report::<()>::waiting(
                Verdict::no("WaitingForDBCredentials", "soon"),
                report::REQUEUE_SECRETS,
            ))
        };
        let halt = pass.step(StepId::Secrets, waiting).await.unwrap_err();
        assert!(matches!(halt, Halt::Wait));
        pass.requeue(Duration::from_mins(10));
        let summary = pass.close();
        assert!(summary.error.is_none());
        assert_eq!(
            summary.requeue,
            Some(report::REQUEUE_SECRETS),
            "the shortest wish wins"
        );
        assert!(!bench.metrics.encode().contains("reconcile_errors_total{"));
    }
}
