//! What is counted of the admission webhooks.
//!
//! The `controller_runtime_webhook_*` names are those of the Go runtime library, whose dashboards read them. It answers
//! refusals with 200 as well, so the outcome of a review has a counter of its own.

use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};
use tokio::time::Instant;

use super::families::{counters, gauges, histograms, registered};

/// Buckets of `controller_runtime_webhook_latency_seconds`: the library's default ones.
const BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
/// Codes that every webhook has a series of from the start.
const CODES: [&str; 2] = ["200", "500"];

/// Results that every webhook has a series of from the start: a rate cannot see a series that appears with its first
/// sample, and an alert is built on it.
const RESULTS: [&str; 3] = ["allowed", "denied", "error"];

/// The families of all webhooks.
#[derive(Debug)]
pub struct WebhookFamilies {
    requests: IntCounterVec,
    latency: HistogramVec,
    in_flight: IntGaugeVec,
    panics: IntCounter,
    reviews: IntCounterVec,
    certificates: IntCounter,
    certificate_errors: IntCounter,
}

/// The series of one webhook.
#[derive(Clone, Debug)]
pub struct WebhookMetrics {
    path: &'static str,
    requests: IntCounterVec,
    latency: Histogram,
    in_flight: IntGauge,
    panics: IntCounter,
    reviews: IntCounterVec,
}

/// One request that is being answered; timed until dropped, whichever way it ends.
#[derive(Debug)]
#[must_use = "the request is timed until this is dropped"]
pub struct WebhookRequest {
    latency: Histogram,
    in_flight: IntGauge,
    started: Instant,
}

// === impl WebhookFamilies ===

impl WebhookFamilies {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let panics = IntCounter::new(
            "controller_runtime_webhook_panics_total",
            "Reviews that panicked; each was refused.",
        )?;
        let counter = |name, help| registered(registry, IntCounter::new(name, help)?);
        Ok(Self {
            certificates: counter(
                "certwatcher_read_certificate_total",
                "New serving certificates that were read, the first ones included.",
            )?,
            certificate_errors: counter(
                "certwatcher_read_certificate_errors_total",
                "Serving certificates that could not be read or used.",
            )?,
            requests: counters(
                registry,
                "controller_runtime_webhook_requests_total",
                "Admission requests by the code of the HTTP answer.",
                &["webhook", "code"],
            )?,
            latency: histograms(
                registry,
                "controller_runtime_webhook_latency_seconds",
                "Time to answer an admission request.",
                &["webhook"],
                &BUCKETS,
            )?,
            in_flight: gauges(
                registry,
                "controller_runtime_webhook_requests_in_flight",
                "Admission requests that are being answered now.",
                &["webhook"],
            )?,
            panics: registered(registry, panics)?,
            reviews: counters(
                registry,
                "glance_operator_admission_reviews_total",
                "Admission reviews by result: allowed, denied, or error when one could not be judged.",
                &["webhook", "result"],
            )?,
        })
    }

    /// A serving certificate was read, or could not be.
    pub(super) fn certificate_read(&self, success: bool) {
        self.certificates.inc();
        if !success {
            self.certificate_errors.inc();
        }
    }

    /// The series of one webhook; those of its usual codes and of all results begin at zero.
    pub(super) fn of(&self, path: &'static str) -> WebhookMetrics {
        for code in CODES {
            self.requests.with_label_values(&[path, code]);
        }
        for result in RESULTS {
            self.reviews.with_label_values(&[path, result]);
        }
        WebhookMetrics {
            path,
            requests: self.requests.clone(),
            latency: self.latency.with_label_values(&[path]),
            in_flight: self.in_flight.with_label_values(&[path]),
            panics: self.panics.clone(),
            reviews: self.reviews.clone(),
        }
    }
}

// === impl WebhookMetrics ===

impl WebhookMetrics {
    /// A request begins.
    pub fn started(&self) -> WebhookRequest {
        self.in_flight.inc();
        WebhookRequest {
            latency: self.latency.clone(),
            in_flight: self.in_flight.clone(),
            started: Instant::now(),
        }
    }

    /// A request was answered.
    pub fn answered(&self, code: u16, result: &str) {
        self.requests
            .with_label_values(&[self.path, &code.to_string()])
            .inc();
        self.reviews.with_label_values(&[self.path, result]).inc();
    }

    /// A review panicked and was caught.
    pub fn panicked(&self) {
        self.panics.inc();
    }
}

// === impl WebhookRequest ===

impl Drop for WebhookRequest {
    fn drop(&mut self) {
        self.in_flight.dec();
        self.latency.observe(self.started.elapsed().as_secs_f64());
    }
}
