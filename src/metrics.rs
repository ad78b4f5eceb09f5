//! Everything the process counts, under the names dashboards already query.
//!
//! Names, labels and buckets of `glance_operator_*` are contract (contract: operations,
//! metrics); `cluster` is an additional label on the two pipeline vectors. The
//! `controller_runtime_*` and `workqueue_*` families carry the names of the Go runtime
//! library because the shipped dashboard and existing ones read them.
//!
//! A series appears with its first sample, so a healthy fleet shows no error series;
//! those that name a CR go with it ([`Metrics::forget`]), those that name a cluster go
//! with its registration ([`Metrics::forget_cluster`]). Two are otherwise: the results of
//! reviews begin at zero, and what was left behind on a cluster is told after it has gone.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use glance_api::glance::UpgradePhase;
use prometheus::{Encoder as _, Histogram, Registry, TextEncoder};
use tokio::time::Instant;

#[cfg(test)]
pub mod described;
mod families;
mod process;
mod queue;
mod rest_client;
mod schema;
mod webhooks;

use families::{Families, Hosts};
pub use queue::{ActivePass, WaitingPass};
pub use webhooks::{WebhookMetrics, WebhookRequest};

/// Clusters that children were abandoned on and that are told at one time: those are kept whose last one is the least
/// ago. Names come and go, and none of these goes with its registration.
const MOST_ABANDONED: usize = 100;

/// Shown instead of an empty label: a sample nobody can attribute must not look like none.
const UNKNOWN: &str = "UNKNOWN";

/// The version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of this build, when the build was told; the Dockerfile passes on nothing when it was not.
pub const REVISION: &str = match option_env!("GLANCE_OPERATOR_REVISION") {
    Some(revision) if !revision.is_empty() => revision,
    _ => "unknown",
};

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Which Job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobMetric {
    /// `db-sync` and the three Jobs of an upgrade.
    DbSync,
    /// A run of the purge `CronJob`.
    DbPurge,
}

/// How a whole pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum PassResult {
    /// Nothing more to do until something changes.
    Success,
    /// It failed and is retried with backoff.
    Error,
    /// It asked to be run again at once.
    Requeue,
    /// It asked to be run again after a time.
    RequeueAfter,
}

/// The process's metrics; a clone shares them.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Families>);

/// Measures one step from its creation until it is dropped, whichever way the step ends.
#[derive(Debug)]
#[must_use = "the step is timed until this is dropped"]
pub struct StepTimer {
    histogram: Histogram,
    started: Instant,
}

// === impl Metrics ===

impl Metrics {
    /// Registers everything in a registry of its own.
    ///
    /// Fails when a name is registered twice; the process then ends before any
    /// controller starts.
    pub fn new() -> prometheus::Result<Self> {
        Self::register(Registry::new())
    }

    fn register(registry: Registry) -> prometheus::Result<Self> {
        Ok(Self(Arc::new(Families::register(registry)?)))
    }

    /// Where further metrics of the process are registered.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// All metrics in the Prometheus text format.
    pub fn encode(&self) -> String {
        self.0.queue.refresh();
        let mut families = self.0.registry.gather();
        match rest_client::requests(&families, |cluster| self.host(cluster)) {
            Ok(requests) => families.extend(requests),
            Err(error) => tracing::error!(%error, "the requests cannot be counted by host"),
        }
        let mut bytes = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&families, &mut bytes) {
            tracing::error!(%error, "some metrics cannot be written");
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Tells how the API server of a cluster is called; until then a cluster's own name
    /// stands in for its host. Only the first call counts.
    pub fn name_hosts(&self, host: impl Fn(&str) -> Option<String> + Send + Sync + 'static) {
        if self.0.hosts.set(Hosts(Box::new(host))).is_err() {
            tracing::debug!("the hosts of clusters are named already");
        }
    }

    fn host(&self, cluster: &str) -> String {
        let named = self.0.hosts.get().and_then(|hosts| (hosts.0)(cluster));
        named.unwrap_or_else(|| cluster.to_owned())
    }

    /// Starts to time a step that works for a CR whose children are on `cluster`.
    pub fn step_started(&self, label: &'static str, cluster: &str) -> StepTimer {
        let label = known(label);
        remember(&self.0.steps_seen, (cluster.to_owned(), label));
        StepTimer {
            histogram: self.0.step_duration.with_label_values(&[label, cluster]),
            started: Instant::now(),
        }
    }

    /// Counts a step that returned an error.
    pub fn step_error(&self, label: &'static str, condition: &'static str, cluster: &str) {
        let (label, condition) = (known(label), known(condition));
        remember(&self.0.errors_seen, (cluster.to_owned(), label, condition));
        self.0
            .step_errors
            .with_label_values(&[label, condition, cluster])
            .inc();
    }

    /// Counts a Job that ended; the caller makes sure that each is counted once.
    pub fn job_finished(
        &self,
        kind: JobMetric,
        glance: &str,
        namespace: &str,
        succeeded: bool,
        seconds: f64,
    ) {
        let family = self.0.job(kind);
        let result = if succeeded { "succeeded" } else { "failed" };
        family
            .total
            .with_label_values(&[glance, namespace, result])
            .inc();
        family
            .duration
            .with_label_values(&[glance, namespace])
            .observe(seconds.max(0.0));
    }

    /// Says whether a condition of a Glance holds.
    pub fn condition(&self, glance: &str, namespace: &str, type_: &str, holds: bool) {
        let key = [namespace, glance, type_].map(str::to_owned);
        remember(&self.0.conditions_seen, key.into());
        self.0
            .condition
            .with_label_values(&[glance, namespace, type_])
            .set(i64::from(holds));
    }

    /// Says which phase the upgrade of a Glance is in, if it is upgraded.
    pub fn upgrade_phase(&self, glance: &str, namespace: &str, phase: Option<UpgradePhase>) {
        let family = &self.0.upgrade_phase;
        for other in UpgradePhase::ALL {
            let labels = [glance, namespace, other.as_str()];
            if Some(*other) == phase {
                family.with_label_values(&labels).set(1);
            } else {
                let _ = family.remove_label_values(&labels);
            }
        }
    }

    /// Says whether a condition of a `GlanceBackend` holds.
    pub fn backend_condition(&self, backend: &str, namespace: &str, type_: &str, holds: bool) {
        self.0
            .backend_condition
            .with_label_values(&[backend, namespace, type_])
            .set(i64::from(holds));
    }

    /// Removes every series that names this Glance, when its cleanup finalizer is released.
    pub fn forget(&self, glance: &str, namespace: &str) {
        // A missing series is what is wanted; removing it again is no error worth a word.
        for family in [&self.0.db_sync, &self.0.db_purge] {
            for result in ["succeeded", "failed"] {
                let _ = family
                    .total
                    .remove_label_values(&[glance, namespace, result]);
            }
            let _ = family.duration.remove_label_values(&[glance, namespace]);
        }
        self.upgrade_phase(glance, namespace, None);
        self.0.schema.forget(glance, namespace);
        for (_, _, type_) in take(&self.0.conditions_seen, |(ns, name, _)| {
            ns == namespace && name == glance
        }) {
            let _ = self
                .0
                .condition
                .remove_label_values(&[glance, namespace, &type_]);
        }
    }

    /// Removes every series that names this `GlanceBackend`.
    pub fn forget_backend(&self, backend: &str, namespace: &str, types: &[&str]) {
        for type_ in types {
            let _ = self
                .0
                .backend_condition
                .remove_label_values(&[backend, namespace, type_]);
        }
    }

    /// Removes the pipeline's series of this cluster, when its registration is gone. What was left behind on it is
    /// mostly counted after that, and its registration may be looked at again at any time: it is told until a restart.
    pub fn forget_cluster(&self, cluster: &str) {
        self.retain_clusters(|name| name != cluster);
    }

    /// Removes the pipeline's series of every cluster that is not `known`: a pass that was under way when its cluster
    /// was deregistered brings some back.
    pub fn retain_clusters(&self, known: impl Fn(&str) -> bool) {
        for (cluster, label) in take(&self.0.steps_seen, |(name, _)| !known(name)) {
            let _ = self.0.step_duration.remove_label_values(&[label, &cluster]);
        }
        for (cluster, label, condition) in take(&self.0.errors_seen, |(name, ..)| !known(name)) {
            let _ = self
                .0
                .step_errors
                .remove_label_values(&[label, condition, &cluster]);
        }
    }

    /// Counts a Glance that was released while its children stayed on `cluster`.
    pub fn children_abandoned(&self, cluster: &str) {
        let family = &self.0.children_abandoned;
        let mut told = self.0.abandoned_seen.lock();
        let told = told.as_mut().unwrap_or_else(|poisoned| poisoned.get_mut());
        told.retain(|name| name != cluster);
        told.push_back(cluster.to_owned());
        if told.len() > MOST_ABANDONED
            && let Some(oldest) = told.pop_front()
        {
            let _ = family.remove_label_values(&[&oldest]);
        }
        family.with_label_values(&[cluster]).inc();
    }

    /// Says how many fields the API server's definition of a kind lacks.
    pub fn definition(&self, kind: &str, missing: usize) {
        self.0
            .definition_missing
            .with_label_values(&[kind])
            .set(i64::try_from(missing).unwrap_or(i64::MAX));
    }

    /// A whole pass of `controller` ended, status write included.
    pub fn reconciled(&self, controller: &'static str, result: PassResult, took: Duration) {
        let name: &'static str = result.into();
        self.0
            .runtime
            .passes
            .with_label_values(&[controller, name])
            .inc();
        self.0
            .runtime
            .pass_time
            .with_label_values(&[controller])
            .observe(took.as_secs_f64());
        if result == PassResult::Error {
            self.0
                .runtime
                .pass_errors
                .with_label_values(&[controller])
                .inc();
        }
    }

    /// A pass of `controller` failed in a way that the next try is not expected to cure.
    pub fn terminal_error(&self, controller: &'static str) {
        let errors = &self.0.runtime.terminal_errors;
        errors.with_label_values(&[controller]).inc();
    }

    /// A pass of `controller` panicked and was caught.
    pub fn panicked(&self, controller: &'static str) {
        self.0.runtime.panics.with_label_values(&[controller]).inc();
    }

    /// How many passes of `controller` may run at one time.
    pub fn max_concurrent(&self, controller: &'static str, workers: usize) {
        self.0
            .runtime
            .workers
            .with_label_values(&[controller])
            .set(i64::try_from(workers).unwrap_or(i64::MAX));
    }

    /// A serving certificate was read, or could not be.
    pub fn certificate_read(&self, success: bool) {
        self.0.webhooks.certificate_read(success);
    }

    /// What is counted of the admission webhook at `path`.
    pub fn webhook(&self, path: &'static str) -> WebhookMetrics {
        self.0.webhooks.of(path)
    }

    /// Whether this replica holds the lease `name`.
    pub fn leader(&self, name: &str, leads: bool) {
        self.0
            .runtime
            .leader
            .with_label_values(&[name])
            .set(i64::from(leads));
    }
}

// === impl StepTimer ===

impl Drop for StepTimer {
    fn drop(&mut self) {
        self.histogram.observe(self.started.elapsed().as_secs_f64());
    }
}

fn known(label: &'static str) -> &'static str {
    if label.is_empty() { UNKNOWN } else { label }
}

fn remember<T: Ord>(seen: &Mutex<BTreeSet<T>>, key: T) {
    seen.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(key);
}

/// Removes and returns the keys that match.
fn take<T: Ord>(seen: &Mutex<BTreeSet<T>>, matches: impl Fn(&T) -> bool) -> BTreeSet<T> {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.extract_if(.., |key| matches(key)).collect()
}

#[cfg(test)]
mod shipped;
#[cfg(test)]
mod tests;
