//! What the operator tells the registry about its clusters, and does for them beside the passes.

pub mod deregistration;
pub mod expiry;
pub mod reclaim;

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
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
    let deregistration = deregistration::run(Arc::clone(ctx), clusters.clone(), stop.clone());
    tokio::spawn(deregistration);
    tokio::spawn(expiry::run(Arc::clone(ctx), clusters, stop));
}

/// The object that people look at: the `TargetCluster`, where there are none the Secret; `None` before it was made.
fn about(ctx: &Context, namespace: &str, name: &str) -> Option<ObjectReference> {
    if ctx.registry.shows_target_clusters() {
        return Some(ctx.registry.target_cluster(name)?.object_ref(&()));
    }
    Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Secret".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    })
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
