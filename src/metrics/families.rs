//! The vectors behind [`Metrics`](super::Metrics): names, labels, buckets, help texts.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    sync::{Mutex, OnceLock},
};

use prometheus::{
    GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry,
    core::Collector,
};

use super::{
    JobMetric, REVISION, VERSION, process::ProcessCollector, queue::QueueFamilies,
    schema::SchemaFamilies, webhooks::WebhookFamilies,
};

/// Buckets of `glance_operator_reconcile_duration_seconds`.
const STEP_BUCKETS: [f64; 10] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Buckets of the two Job histograms.
const JOB_BUCKETS: [f64; 8] = [1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// Buckets of `controller_runtime_reconcile_time_seconds`.
const PASS_BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
];

/// Everything that is registered.
#[derive(Debug)]
pub struct Families {
    pub registry: Registry,
    pub step_duration: HistogramVec,
    pub step_errors: IntCounterVec,
    pub db_sync: JobFamilies,
    pub db_purge: JobFamilies,
    pub schema: SchemaFamilies,
    pub condition: IntGaugeVec,
    pub backend_condition: IntGaugeVec,
    pub upgrade_phase: IntGaugeVec,
    pub children_abandoned: IntCounterVec,
    pub definition_missing: IntGaugeVec,
    pub runtime: RuntimeFamilies,
    pub queue: QueueFamilies,
    pub webhooks: WebhookFamilies,
    /// Label values in use, so that the series of a cluster or a CR can be found again.
    pub steps_seen: Mutex<BTreeSet<(String, &'static str)>>,
    pub errors_seen: Mutex<BTreeSet<(String, &'static str, &'static str)>>,
    pub conditions_seen: Mutex<BTreeSet<(String, String, String)>>,
    /// Clusters that children were abandoned on, the latest last.
    pub abandoned_seen: Mutex<VecDeque<String>>,
    pub hosts: OnceLock<Hosts>,
}

/// How the API servers of clusters are called.
pub struct Hosts(pub Box<HostOf>);

type HostOf = dyn Fn(&str) -> Option<String> + Send + Sync;

/// One kind of Job.
#[derive(Debug)]
pub struct JobFamilies {
    pub total: IntCounterVec,
    pub duration: HistogramVec,
}

/// What the Go runtime library counts of every controller, under its names.
#[derive(Debug)]
pub struct RuntimeFamilies {
    pub pass_time: HistogramVec,
    pub passes: IntCounterVec,
    pub pass_errors: IntCounterVec,
    pub terminal_errors: IntCounterVec,
    pub panics: IntCounterVec,
    pub workers: IntGaugeVec,
    pub leader: IntGaugeVec,
}

// === impl Families ===

impl Families {
    pub fn register(registry: Registry) -> prometheus::Result<Self> {
        let build_info = gauges(
            &registry,
            "glance_operator_build_info",
            "Always 1; the labels say what runs.",
            &["version", "revision"],
        )?;
        build_info.with_label_values(&[VERSION, REVISION]).set(1);
        let process = ProcessCollector::new()?;
        #[cfg(test)]
        super::described::remember(&process);
        registry.register(Box::new(process))?;
        Ok(Self {
            step_duration: histograms(
                &registry,
                "glance_operator_reconcile_duration_seconds",
                "Wall time of one sub-reconciler call, however it ended.",
                &["sub_reconciler", "cluster"],
                &STEP_BUCKETS,
            )?,
            step_errors: counters(
                &registry,
                "glance_operator_reconcile_errors_total",
                "Sub-reconciler calls that returned an error; waiting is none.",
                &["sub_reconciler", "condition_type", "cluster"],
            )?,
            db_sync: JobFamilies::register(&registry, "db_sync", "schema Jobs")?,
            db_purge: JobFamilies::register(&registry, "db_purge", "purge Jobs")?,
            schema: SchemaFamilies::register(&registry)?,
            condition: gauges(
                &registry,
                "glance_operator_condition",
                "Whether a condition of a Glance is True (1) or not (0).",
                &["glance", "namespace", "type"],
            )?,
            backend_condition: gauges(
                &registry,
                "glance_operator_backend_condition",
                "Whether a condition of a GlanceBackend is True (1) or not (0).",
                &["backend", "namespace", "type"],
            )?,
            upgrade_phase: gauges(
                &registry,
                "glance_operator_upgrade_phase",
                "1 for the phase that the upgrade of a Glance is in; nothing outside of one.",
                &["glance", "namespace", "phase"],
            )?,
            children_abandoned: counters(
                &registry,
                "glance_operator_children_abandoned_total",
                "Glances released while their children stayed on a target cluster.",
                &["cluster"],
            )?,
            definition_missing: gauges(
                &registry,
                "glance_operator_definition_missing_fields",
                "Fields that this version knows and the API server's definition of a kind does not, so that it drops them.",
                &["kind"],
            )?,
            runtime: RuntimeFamilies::register(&registry)?,
            queue: QueueFamilies::register(&registry)?,
            webhooks: WebhookFamilies::register(&registry)?,
            steps_seen: Mutex::default(),
            errors_seen: Mutex::default(),
            conditions_seen: Mutex::default(),
            abandoned_seen: Mutex::default(),
            hosts: OnceLock::new(),
            registry,
        })
    }

    pub fn job(&self, kind: JobMetric) -> &JobFamilies {
        match kind {
            JobMetric::DbSync => &self.db_sync,
            JobMetric::DbPurge => &self.db_purge,
        }
    }
}

// === impl Hosts ===

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hosts")
    }
}

// === impl JobFamilies ===

impl JobFamilies {
    fn register(registry: &Registry, name: &str, of: &str) -> prometheus::Result<Self> {
        Ok(Self {
            total: counters(
                registry,
                &format!("glance_operator_{name}_total"),
                &format!("Terminal {of} by result, each counted once."),
                &["glance", "namespace", "result"],
            )?,
            duration: histograms(
                registry,
                &format!("glance_operator_{name}_duration_seconds"),
                &format!("Time from creation to the end of {of}."),
                &["glance", "namespace"],
                &JOB_BUCKETS,
            )?,
        })
    }
}

// === impl RuntimeFamilies ===

impl RuntimeFamilies {
    fn register(registry: &Registry) -> prometheus::Result<Self> {
        let count = |name, help| counters(registry, name, help, &["controller"]);
        Ok(Self {
            pass_time: histograms(
                registry,
                "controller_runtime_reconcile_time_seconds",
                "Wall time of a whole reconcile, status write included.",
                &["controller"],
                &PASS_BUCKETS,
            )?,
            passes: counters(
                registry,
                "controller_runtime_reconcile_total",
                "Reconciles by how they ended.",
                &["controller", "result"],
            )?,
            pass_errors: count(
                "controller_runtime_reconcile_errors_total",
                "Reconciles that failed.",
            )?,
            terminal_errors: count(
                "controller_runtime_terminal_reconcile_errors_total",
                "Reconciles that failed for a reason that another try is not expected to cure.",
            )?,
            panics: count(
                "controller_runtime_reconcile_panics_total",
                "Reconciles that panicked; each also counts as failed.",
            )?,
            workers: gauges(
                registry,
                "controller_runtime_max_concurrent_reconciles",
                "Reconciles that may run at one time.",
                &["controller"],
            )?,
            leader: gauges(
                registry,
                "leader_election_master_status",
                "Whether this replica holds the lease (1) or not (0).",
                &["name"],
            )?,
        })
    }
}

pub(super) fn counters(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntCounterVec> {
    registered(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
}

pub(super) fn gauges(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntGaugeVec> {
    registered(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
}

pub(super) fn fractions(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<GaugeVec> {
    registered(registry, GaugeVec::new(Opts::new(name, help), labels)?)
}

pub(super) fn histograms(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
    buckets: &[f64],
) -> prometheus::Result<HistogramVec> {
    let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    registered(registry, HistogramVec::new(opts, labels)?)
}

pub(super) fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> prometheus::Result<C> {
    #[cfg(test)]
    super::described::remember(&collector);
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}
