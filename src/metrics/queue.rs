//! Passes that wait and passes that run, under the names of the Go runtime library.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use prometheus::{GaugeVec, HistogramVec, IntCounterVec, IntGaugeVec, Registry};
use tokio::time::Instant;

use super::{
    Metrics,
    families::{counters, fractions, gauges, histograms},
};

/// Buckets of the two time families, a decade each.
const BUCKETS: [f64; 12] = [
    1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0,
];

/// One vector per name; all carry the controller's name twice, as the Go library has it.
#[derive(Debug)]
pub struct QueueFamilies {
    depth: IntGaugeVec,
    adds: IntCounterVec,
    retries: IntCounterVec,
    waited: HistogramVec,
    worked: HistogramVec,
    unfinished: GaugeVec,
    longest: GaugeVec,
    active: IntGaugeVec,
    running: Arc<Running>,
}

/// The passes that run now.
#[derive(Debug, Default)]
struct Running(Mutex<Passes>);

#[derive(Debug, Default)]
struct Passes {
    last: u64,
    /// Whose each is and when it began, by a number of its own.
    begun: BTreeMap<u64, (&'static str, Instant)>,
}

/// One pass that waits for its turn; it counts as queued until dropped.
#[derive(Debug)]
#[must_use = "the pass counts as queued until this is dropped"]
pub struct WaitingPass {
    metrics: Metrics,
    controller: &'static str,
    since: Instant,
}

/// One pass that is running; it counts as an active worker until dropped.
#[derive(Debug)]
#[must_use = "the pass counts as active until this is dropped"]
pub struct ActivePass {
    metrics: Metrics,
    controller: &'static str,
    number: u64,
    since: Instant,
}

// === impl QueueFamilies ===

impl QueueFamilies {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        const LABELS: [&str; 2] = ["name", "controller"];
        let times = |name, help| histograms(registry, name, help, &LABELS, &BUCKETS);
        let seconds = |name, help| fractions(registry, name, help, &LABELS);
        Ok(Self {
            depth: gauges(
                registry,
                "workqueue_depth",
                "Reconciles that wait for their turn.",
                &["name", "controller", "priority"],
            )?,
            adds: counters(
                registry,
                "workqueue_adds_total",
                "Reconciles that were due.",
                &LABELS,
            )?,
            retries: counters(
                registry,
                "workqueue_retries_total",
                "Reconciles that are tried again after a failure.",
                &LABELS,
            )?,
            waited: times(
                "workqueue_queue_duration_seconds",
                "How long reconciles wait for their turn.",
            )?,
            worked: times(
                "workqueue_work_duration_seconds",
                "How long reconciles take, their turn having come.",
            )?,
            unfinished: seconds(
                "workqueue_unfinished_work_seconds",
                "How long the reconciles that run now have run, added up.",
            )?,
            longest: seconds(
                "workqueue_longest_running_processor_seconds",
                "How long the oldest reconcile that runs now has run.",
            )?,
            active: gauges(
                registry,
                "controller_runtime_active_workers",
                "Reconciles that run now.",
                &["controller"],
            )?,
            running: Arc::default(),
        })
    }

    /// Brings the two gauges of running passes up to date, for a scrape.
    pub(super) fn refresh(&self) {
        for (controller, (sum, longest)) in self.running.ages() {
            let labels = [controller, controller];
            self.unfinished
                .with_label_values(&labels)
                .set(sum.as_secs_f64());
            self.longest
                .with_label_values(&labels)
                .set(longest.as_secs_f64());
        }
    }
}

// === impl Running ===

impl Running {
    fn with<T>(&self, f: impl FnOnce(&mut Passes) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn begin(&self, controller: &'static str, now: Instant) -> u64 {
        self.with(|passes| {
            passes.last += 1;
            passes.begun.insert(passes.last, (controller, now));
            passes.last
        })
    }

    /// Sum and longest of each controller that has or had a pass.
    fn ages(&self) -> BTreeMap<&'static str, (Duration, Duration)> {
        self.with(|passes| {
            let mut ages: BTreeMap<_, (Duration, Duration)> = BTreeMap::new();
            for (controller, since) in passes.begun.values() {
                let age = since.elapsed();
                let (sum, longest) = ages.entry(*controller).or_default();
                *sum += age;
                *longest = age.max(*longest);
            }
            ages
        })
    }
}

// === impl Metrics ===

impl Metrics {
    /// A pass of `controller` waits for its turn until the guard is dropped.
    pub fn waiting(&self, controller: &'static str) -> WaitingPass {
        let queue = &self.0.queue;
        let labels = [controller, controller];
        queue.adds.with_label_values(&labels).inc();
        queue
            .depth
            .with_label_values(&[controller, controller, ""])
            .inc();
        WaitingPass {
            metrics: self.clone(),
            controller,
            since: Instant::now(),
        }
    }

    /// A pass of `controller` begins.
    pub fn pass_started(&self, controller: &'static str) -> ActivePass {
        let queue = &self.0.queue;
        let since = Instant::now();
        queue.active.with_label_values(&[controller]).inc();
        ActivePass {
            metrics: self.clone(),
            controller,
            number: queue.running.begin(controller, since),
            since,
        }
    }

    /// A pass of `controller` failed and is tried again.
    pub fn retried(&self, controller: &'static str) {
        let retries = &self.0.queue.retries;
        retries.with_label_values(&[controller, controller]).inc();
    }
}

// === impl WaitingPass ===

impl Drop for WaitingPass {
    fn drop(&mut self) {
        let (queue, name) = (&self.metrics.0.queue, self.controller);
        queue.depth.with_label_values(&[name, name, ""]).dec();
        queue
            .waited
            .with_label_values(&[name, name])
            .observe(self.since.elapsed().as_secs_f64());
    }
}

// === impl ActivePass ===

impl Drop for ActivePass {
    fn drop(&mut self) {
        let (queue, name) = (&self.metrics.0.queue, self.controller);
        queue.active.with_label_values(&[name]).dec();
        queue
            .worked
            .with_label_values(&[name, name])
            .observe(self.since.elapsed().as_secs_f64());
        queue
            .running
            .with(|passes| passes.begun.remove(&self.number));
        for gauge in [&queue.unfinished, &queue.longest] {
            gauge.with_label_values(&[name, name]).set(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_hangs_is_seen_before_it_ends() {
        let metrics = Metrics::new().unwrap();
        let waiting = metrics.waiting("glance");
        tokio::time::advance(Duration::from_secs(2)).await;
        drop(waiting);
        let hanging = metrics.pass_started("glance");
        tokio::time::advance(Duration::from_secs(30)).await;
        let second = metrics.pass_started("glance");
        tokio::time::advance(Duration::from_secs(1)).await;
        metrics.retried("glance");
        let page = metrics.encode();
        for line in [
            r#"workqueue_unfinished_work_seconds{controller="glance",name="glance"} 32"#,
            r#"workqueue_longest_running_processor_seconds{controller="glance",name="glance"} 31"#,
            r#"workqueue_queue_duration_seconds_sum{controller="glance",name="glance"} 2"#,
            r#"workqueue_retries_total{controller="glance",name="glance"} 1"#,
            r#"controller_runtime_active_workers{controller="glance"} 2"#,
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        drop((hanging, second));
        let page = metrics.encode();
        let idle = r#"workqueue_unfinished_work_seconds{controller="glance",name="glance"} 0"#;
        assert!(page.contains(idle), "{page}");
        let worked =
            r#"workqueue_work_duration_seconds_count{controller="glance",name="glance"} 2"#;
        assert!(page.contains(worked), "{page}");
    }
}
