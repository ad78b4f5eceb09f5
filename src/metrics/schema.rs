//! What is counted of upgrades and of the purge beyond the contract's four vectors, which know neither the phase of an
//! upgrade nor the time since rows were last deleted.

use jiff::Timestamp;
use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::{
    Metrics,
    families::{counters, gauges},
};
use crate::names::PhaseJob;

/// The additional families.
#[derive(Debug)]
pub struct SchemaFamilies {
    phase_jobs: IntCounterVec,
    purged: IntGaugeVec,
}

// === impl SchemaFamilies ===

impl SchemaFamilies {
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            phase_jobs: counters(
                registry,
                "glance_operator_upgrade_jobs_total",
                "Terminal Jobs of release upgrades by phase and result, each counted once.",
                &["glance", "namespace", "phase", "result"],
            )?,
            purged: gauges(
                registry,
                "glance_operator_db_purge_last_success_timestamp_seconds",
                "When the newest successful purge Job ended, in seconds since 1970.",
                &["glance", "namespace"],
            )?,
        })
    }

    /// Removes every series that names this Glance. One that is missing is what is wanted.
    pub fn forget(&self, glance: &str, namespace: &str) {
        for phase in PhaseJob::ALL {
            for result in ["succeeded", "failed"] {
                let _ =
                    self.phase_jobs
                        .remove_label_values(&[glance, namespace, phase.word(), result]);
            }
        }
        let _ = self.purged.remove_label_values(&[glance, namespace]);
    }
}

// === impl Metrics ===

impl Metrics {
    /// Counts a Job of an upgrade that ended; the caller makes sure that each is counted once.
    pub fn phase_finished(&self, glance: &str, namespace: &str, phase: PhaseJob, succeeded: bool) {
        let result = if succeeded { "succeeded" } else { "failed" };
        self.0
            .schema
            .phase_jobs
            .with_label_values(&[glance, namespace, phase.word(), result])
            .inc();
    }

    /// Says when the newest successful purge of a Glance ended.
    pub fn purged(&self, glance: &str, namespace: &str, at: Timestamp) {
        self.0
            .schema
            .purged
            .with_label_values(&[glance, namespace])
            .set(at.as_second());
    }
}
