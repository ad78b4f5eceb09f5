//! What every replica serves over plain HTTP: metrics, health, and the state of the registry.

use std::sync::{Arc, OnceLock};

use target_registry::Registry;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admin::{Check, Checks, ClusterReport, Listener, health_router, metrics_router},
    cli::RunArgs,
    metrics::Metrics,
    ready::{Heartbeat, Readiness, STUCK_AFTER},
    telemetry::Telemetry,
};

/// Opens the listeners that the flags ask for and serves on `tasks` until `stop`. `engaged` is filled once this
/// replica leads.
pub async fn serve(
    args: &RunArgs,
    metrics: &Metrics,
    readiness: &Readiness,
    engaged: &Arc<OnceLock<Registry>>,
    telemetry: Telemetry,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    if let Some(listener) = Listener::metrics(&args.metrics_bind_address).await? {
        tasks.spawn(listener.serve(metrics_router(metrics.clone()), stop.clone()));
    }
    if let Some(listener) = Listener::health(&args.health_probe_bind_address).await? {
        let heartbeat = Heartbeat::start(stop.clone());
        let engaged = Arc::clone(engaged);
        let report: ClusterReport = Arc::new(move || {
            let clusters = engaged.get().map(Registry::snapshot).unwrap_or_default();
            serde_json::to_value(clusters).unwrap_or_default()
        });
        let router = health_router(
            Checks::default().with(alive(heartbeat)),
            Checks::default().with(ready(readiness.clone())),
            report,
            telemetry,
        );
        tasks.spawn(listener.serve(router, stop.clone()));
    }
    Ok(())
}

fn alive(heartbeat: Heartbeat) -> Check {
    Check::new("runtime", move || {
        let age = heartbeat.age();
        (age < STUCK_AFTER)
            .then_some(())
            .ok_or_else(|| format!("no task has run for {} s", age.as_secs()))
    })
}

fn ready(readiness: Readiness) -> Check {
    Check::new("started", move || match readiness.pending().as_slice() {
        [] => Ok(()),
        pending => Err(format!("waiting for: {}", pending.join(", "))),
    })
}
