//! What the operator tells the registry about its clusters, and does for them beside the passes.

pub mod expiry;
pub mod reclaim;

use std::sync::Arc;

use target_registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::{context::Context, glance::watches::Router};

/// Starts all of it; it ends with `stop`.
pub fn start(ctx: &Arc<Context>, clusters_namespace: &str, stop: &CancellationToken) {
    let (clusters, stop) = (clusters_namespace.to_owned(), stop.clone());
    tokio::spawn(count(
        ctx.registry.clone(),
        Arc::clone(&ctx.router),
        stop.clone(),
    ));
    let reclaim = reclaim::run(Arc::clone(ctx), clusters.clone(), stop.clone());
    tokio::spawn(reclaim);
    tokio::spawn(expiry::run(Arc::clone(ctx), clusters, stop));
}

/// Keeps count of the Glances on each cluster.
async fn count(registry: Registry, router: Arc<Router>, stop: CancellationToken) {
    let counting = async {
        let mut changes = router.placements_changed();
        router.listed().await;
        loop {
            changes.mark_unchanged();
            registry.set_dependents(router.placements());
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    stop.run_until_cancelled(counting).await;
}
