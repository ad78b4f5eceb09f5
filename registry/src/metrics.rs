//! Numbers per cluster, gone when the cluster goes.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use tokio::time::Instant;

use crate::{LOCAL, state::State};

/// Upper bounds of the times of probes, in seconds.
const PROBE_BUCKETS: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 5.0];

/// The metrics of a registry and its clusters, all with the label `cluster`.
///
/// | Name | Labels | Meaning |
/// | --- | --- | --- |
/// | `_target_cluster_up` | | 1 while the cluster resolves |
/// | `_target_cluster_state` | `state` | 1 for the state it is in, 0 for the others |
/// | `_target_cluster_probe_duration_seconds` | | time of one probe, however it ended |
/// | `_target_cluster_engagements_total` | `result` | attempts to connect |
/// | `_target_requests_total` | `verb`, `code` | calls, with the HTTP status or `timeout`, `error`, `throttled`, `fenced` |
/// | `_target_watch_restarts_total` | `kind` | watches that had to be started again after a failure |
/// | `_target_watch_objects` | `kind` | objects held in memory |
/// | `_target_credential_expiry_timestamp_seconds` | | when the credential in use ends, if it does |
///
/// The series of a registration are removed with it, so their number is bounded by what is
/// registered.
#[derive(Clone, Debug)]
pub struct Metrics {
    up: IntGaugeVec,
    state: IntGaugeVec,
    engagements: IntCounterVec,
    requests: IntCounterVec,
    restarts: IntCounterVec,
    objects: IntGaugeVec,
    probes: HistogramVec,
    expiry: IntGaugeVec,
}

/// The series of one cluster.
pub(crate) struct ClusterMetrics {
    label: String,
    metrics: Option<Metrics>,
    /// Label values in use, so that the series can be removed.
    used: Mutex<BTreeSet<(Family, &'static str, String)>>,
    /// Set when the registration is gone: a late answer must not bring a series back.
    retired: AtomicBool,
    requests: AtomicU64,
    /// When a watch last began or brought anything.
    watch_moved: Mutex<Option<Instant>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    Engagements,
    Requests,
    Restarts,
    Objects,
}

// === impl Metrics ===

impl Metrics {
    /// Registers the metrics under `prefix`, for example `my_operator`.
    ///
    /// # Errors
    ///
    /// When metrics of these names are registered already.
    pub fn register(registry: &prometheus::Registry, prefix: &str) -> prometheus::Result<Self> {
        let opts = |name: &str, help: &str| Opts::new(format!("{prefix}_{name}"), help);
        let metrics = Self {
            up: IntGaugeVec::new(
                opts(
                    "target_cluster_up",
                    "Whether the cluster can be used (1) or not (0).",
                ),
                &["cluster"],
            )?,
            state: IntGaugeVec::new(
                opts(
                    "target_cluster_state",
                    "The state of the registration: 1 for the present one.",
                ),
                &["cluster", "state"],
            )?,
            engagements: IntCounterVec::new(
                opts(
                    "target_cluster_engagements_total",
                    "Attempts to connect, by result.",
                ),
                &["cluster", "result"],
            )?,
            requests: IntCounterVec::new(
                opts(
                    "target_requests_total",
                    "Requests to the API server, by verb and HTTP status.",
                ),
                &["cluster", "verb", "code"],
            )?,
            restarts: IntCounterVec::new(
                opts(
                    "target_watch_restarts_total",
                    "Watches started again after a failure, by kind.",
                ),
                &["cluster", "kind"],
            )?,
            probes: HistogramVec::new(
                HistogramOpts::new(
                    format!("{prefix}_target_cluster_probe_duration_seconds"),
                    "Time of one probe of the API server, however it ended.",
                )
                .buckets(PROBE_BUCKETS.to_vec()),
                &["cluster"],
            )?,
            expiry: IntGaugeVec::new(
                opts(
                    "target_credential_expiry_timestamp_seconds",
                    "When the credential in use expires, in seconds since 1970; absent if it does not say.",
                ),
                &["cluster"],
            )?,
            objects: IntGaugeVec::new(
                opts("target_watch_objects", "Objects held in memory, by kind."),
                &["cluster", "kind"],
            )?,
        };
        registry.register(Box::new(metrics.clone()))?;
        Ok(metrics)
    }

    fn families(&self) -> [&dyn Collector; 8] {
        [
            &self.up,
            &self.state,
            &self.probes,
            &self.engagements,
            &self.requests,
            &self.restarts,
            &self.objects,
            &self.expiry,
        ]
    }
}

/// All families as one, for whoever wants to describe them.
impl Collector for Metrics {
    fn desc(&self) -> Vec<&Desc> {
        self.families()
            .into_iter()
            .flat_map(Collector::desc)
            .collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.families()
            .into_iter()
            .flat_map(Collector::collect)
            .collect()
    }
}

// === impl ClusterMetrics ===

impl ClusterMetrics {
    pub(crate) fn hub(metrics: Option<Metrics>) -> Arc<Self> {
        Self::labelled(LOCAL.to_owned(), metrics)
    }

    pub(crate) fn target(name: &str, metrics: Option<Metrics>) -> Arc<Self> {
        // A registration may be called like the hub; a slash is in no object's name.
        let label = if name == LOCAL {
            format!("target/{name}")
        } else {
            name.to_owned()
        };
        Self::labelled(label, metrics)
    }

    fn labelled(label: String, metrics: Option<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            label,
            metrics,
            used: Mutex::default(),
            retired: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            watch_moved: Mutex::default(),
        })
    }

    pub(crate) fn request(&self, verb: &'static str, code: &str) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.with(Family::Requests, verb, code, |metrics| {
            metrics
                .requests
                .with_label_values(&[self.label.as_str(), verb, code])
                .inc();
        });
    }

    /// Requests so far, of every generation.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn watch_moved(&self) {
        let mut moved = self
            .watch_moved
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *moved = Some(Instant::now());
    }

    /// How long no watch has moved; `None` before the first one.
    pub(crate) fn watch_silence(&self) -> Option<Duration> {
        let moved = self
            .watch_moved
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        moved.map(|moved| moved.elapsed())
    }

    pub(crate) fn engagement(&self, result: &'static str) {
        self.with(Family::Engagements, result, "", |metrics| {
            metrics
                .engagements
                .with_label_values(&[self.label.as_str(), result])
                .inc();
        });
    }

    pub(crate) fn restart(&self, kind: &'static str) {
        self.with(Family::Restarts, kind, "", |metrics| {
            metrics
                .restarts
                .with_label_values(&[self.label.as_str(), kind])
                .inc();
        });
    }

    /// By how many the objects of `kind` in memory changed. Several informers may watch one kind.
    pub(crate) fn objects(&self, kind: &'static str, change: i64) {
        self.with(Family::Objects, kind, "", |metrics| {
            metrics
                .objects
                .with_label_values(&[self.label.as_str(), kind])
                .add(change);
        });
    }

    pub(crate) fn state(&self, now: State) {
        self.alive(|metrics, cluster| {
            for state in State::ALL {
                metrics
                    .state
                    .with_label_values(&[cluster, state.as_str()])
                    .set(i64::from(state == now));
            }
            metrics
                .up
                .with_label_values(&[cluster])
                .set(i64::from(now.resolves()));
        });
    }

    pub(crate) fn probe(&self, took: Duration) {
        self.alive(|metrics, cluster| {
            metrics
                .probes
                .with_label_values(&[cluster])
                .observe(took.as_secs_f64());
        });
    }

    /// When the credential in use ends; `None` where it does not say.
    pub(crate) fn expiry(&self, at: Option<Timestamp>) {
        self.alive(|metrics, cluster| match at {
            Some(at) => metrics
                .expiry
                .with_label_values(&[cluster])
                .set(at.as_second()),
            None => {
                // An error only says that there is none.
                let _ = metrics.expiry.remove_label_values(&[cluster]);
            }
        });
    }

    /// Acts on series whose labels are known without a list.
    fn alive(&self, act: impl FnOnce(&Metrics, &str)) {
        let Some(metrics) = &self.metrics else { return };
        // Under the lock, so that nothing slips in between retiring and removing.
        let _used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_retired() {
            act(metrics, &self.label);
        }
    }

    fn with(&self, family: Family, first: &'static str, second: &str, act: impl FnOnce(&Metrics)) {
        let Some(metrics) = &self.metrics else { return };
        // Under the lock, so that nothing slips in between retiring and removing.
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_retired() {
            return;
        }
        let key = (family, first, second.to_owned());
        if !used.contains(&key) {
            used.insert(key);
        }
        act(metrics);
    }

    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Removes every series of the cluster, for good.
    pub(crate) fn retire(&self) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        self.retired.store(true, Ordering::Release);
        let Some(metrics) = &self.metrics else { return };
        let cluster = self.label.as_str();
        for (family, first, second) in std::mem::take(&mut *used) {
            // An error only says that the series is gone already.
            let _ = match family {
                Family::Engagements => metrics.engagements.remove_label_values(&[cluster, first]),
                Family::Requests => {
                    metrics
                        .requests
                        .remove_label_values(&[cluster, first, second.as_str()])
                }
                Family::Restarts => metrics.restarts.remove_label_values(&[cluster, first]),
                Family::Objects => metrics.objects.remove_label_values(&[cluster, first]),
            };
        }
        for state in State::ALL {
            let _ = metrics
                .state
                .remove_label_values(&[cluster, state.as_str()]);
        }
        let _ = metrics.up.remove_label_values(&[cluster]);
        let _ = metrics.probes.remove_label_values(&[cluster]);
        let _ = metrics.expiry.remove_label_values(&[cluster]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(registry: &prometheus::Registry) -> Vec<String> {
        registry
            .gather()
            .iter()
            .map(|family| family.name().to_owned())
            .collect()
    }

    #[test]
    fn the_series_of_a_cluster_go_with_it_and_stay_away() {
        let registry = prometheus::Registry::new();
        let metrics = Metrics::register(&registry, "test").unwrap();
        for name in ["blue", LOCAL] {
            let cluster = ClusterMetrics::target(name, Some(metrics.clone()));
            cluster.request("get", "200");
            cluster.request("list", "403");
            cluster.engagement("connected");
            cluster.restart("Secret");
            cluster.objects("Secret", 3);
            cluster.state(State::Connected);
            cluster.probe(Duration::from_millis(3));
            cluster.expiry(Some(Timestamp::now()));
            assert_eq!(names(&registry).len(), 8, "{:?}", names(&registry));
            cluster.retire();
            cluster.request("get", "200");
            cluster.objects("Secret", -3);
            cluster.state(State::Lost);
            cluster.probe(Duration::from_millis(3));
            cluster.expiry(Some(Timestamp::now()));
            assert_eq!(names(&registry), Vec::<String>::new(), "for {name}");
        }
    }
}
