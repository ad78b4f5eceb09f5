//! What every replica serves over plain HTTP: metrics, health, and the state of the registry.

use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use target_registry::{Cluster, Registry};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::election::Standing;
use crate::{
    admin::{Check, Checks, ClusterReport, Listener, Reviewer, health_router, metrics_router},
    cli::RunArgs,
    metrics::Metrics,
    ready::{Heartbeat, Readiness, STUCK_AFTER},
    telemetry::Telemetry,
    tls::ServingCertificate,
};

/// The check that holds until the custom resources of the hub are listed, and its handle.
pub const CACHES: &str = "caches";

/// What the checks look at. Nothing of a target is in it: one that is broken makes no replica unready.
pub struct Vitals {
    /// What this replica still has to do.
    pub readiness: Readiness,
    /// Its part in the election.
    pub standing: Standing,
    /// Whose watches must move.
    pub hub: Arc<Cluster>,
    /// Filled once this replica leads.
    pub engaged: Arc<OnceLock<Registry>>,
    /// Whether the webhooks answer, if they are served.
    pub webhooks: Option<Check>,
}

/// Opens the listeners that the flags ask for and serves on `tasks` until `stop`.
pub async fn serve(
    args: &RunArgs,
    metrics: &Metrics,
    vitals: Vitals,
    telemetry: Telemetry,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    if let Some(listener) = Listener::metrics(&args.metrics_bind_address).await? {
        if args.metrics_secure {
            let folder = args.metrics_certificate();
            let certificate = ServingCertificate::load(&folder).await;
            let certificate = certificate.context(
                "--metrics-secure needs a certificate: mount one and name its folder with --metrics-cert-dir",
            )?;
            let certificate = certificate.counted(metrics);
            let reviewer = Reviewer::new(vitals.hub.client());
            let router = metrics_router(metrics.clone(), Some(reviewer));
            tasks.spawn(listener.serve_securely(router, certificate, stop.clone()));
        } else {
            tasks.spawn(listener.serve(metrics_router(metrics.clone(), None), stop.clone()));
        }
    }
    if let Some(listener) = Listener::health(&args.health_probe_bind_address).await? {
        let engaged = Arc::clone(&vitals.engaged);
        let report: ClusterReport = Arc::new(move || {
            let clusters = engaged.get().map(Registry::snapshot).unwrap_or_default();
            serde_json::to_value(clusters).unwrap_or_default()
        });
        let healthz = Checks::default()
            .with(runtime(Heartbeat::start(stop.clone())))
            .with(watches(&vitals));
        let readyz = Checks::default()
            .with(leader_or_standby(&vitals))
            .with(caches(&vitals));
        let readyz = vitals.webhooks.into_iter().fold(readyz, Checks::with);
        let router = health_router(healthz, readyz, report, telemetry);
        tasks.spawn(listener.serve(router, stop.clone()));
    }
    Ok(())
}

fn runtime(heartbeat: Heartbeat) -> Check {
    Check::new("runtime", move || {
        let age = heartbeat.age();
        (age < STUCK_AFTER)
            .then_some(())
            .ok_or_else(|| format!("no task has run for {} s", age.as_secs()))
    })
}

/// A failed watch that is tried again has moved: an API server that is down is no reason to restart.
fn watches(vitals: &Vitals) -> Check {
    let (hub, engaged) = (Arc::clone(&vitals.hub), Arc::clone(&vitals.engaged));
    Check::new("watches", move || {
        let silence = hub.watch_silence().unwrap_or_default();
        // A standby watches nothing.
        if engaged.get().is_none() || silence < STUCK_AFTER {
            return Ok(());
        }
        Err(format!(
            "no watch of the hub has moved for {} s",
            silence.as_secs()
        ))
    })
}

fn leader_or_standby(vitals: &Vitals) -> Check {
    let standing = vitals.standing.clone();
    Check::new("leader-or-standby", move || standing.check())
}

fn caches(vitals: &Vitals) -> Check {
    let readiness = vitals.readiness.clone();
    Check::new(CACHES, move || {
        let listed = readiness.is_ready(CACHES);
        listed
            .then_some(())
            .ok_or_else(|| "the custom resources are not listed yet".to_owned())
    })
}
