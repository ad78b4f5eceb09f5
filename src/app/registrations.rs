//! What follows from a registration that changes or goes: passes that are woken, memory and numbers that go with it.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use target_registry::{Cluster, LOCAL, Registry};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::{context::Context, controller, metrics::Metrics};

/// After this, no pass that was under way when a registration went can still remember or count anything.
const LATER: Duration = controller::PASS_DEADLINE;

/// Wakes the CRs of a cluster when its registration changes: by the event, not by their poll. What is remembered and
/// counted of a cluster goes with its registration.
pub(super) async fn follow(ctx: Arc<Context>, stop: CancellationToken) {
    let mut changes = ctx.registry.subscribe();
    loop {
        let change = tokio::select! {
            change = changes.recv() => change,
            () = stop.cancelled() => return,
        };
        match change {
            Ok(change) => {
                ctx.router.wake_cluster(&change.name);
                // The last Glance may have been let go while the cluster was away.
                ctx.retire_unused(&change.name);
                if !is_registered(&ctx.registry, &change.name) {
                    ctx.metrics.forget_cluster(&change.name);
                    let ctx = Arc::clone(&ctx);
                    let later = async move {
                        tokio::time::sleep(LATER).await;
                        retain_registered(&ctx);
                    };
                    tokio::spawn(stop.clone().run_until_cancelled_owned(later));
                }
            }
            Err(RecvError::Lagged(_)) => {
                for cluster in ctx.registry.snapshot() {
                    ctx.router.wake_cluster(&cluster.name);
                }
                retain_registered(&ctx);
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Lets the metrics of requests name API servers by their hosts, on a standby too: it asks the hub alone.
pub(super) fn name_hosts(metrics: &Metrics, hub: &Arc<Cluster>, engaged: &Arc<OnceLock<Registry>>) {
    let (hub, engaged) = (Arc::clone(hub), Arc::clone(engaged));
    metrics.name_hosts(move |name| {
        if name == LOCAL {
            return Some(hub.server().to_owned());
        }
        let mut clusters = engaged.get()?.snapshot().into_iter();
        clusters.find(|cluster| cluster.name == name)?.server
    });
}

/// Forgets what belongs to clusters that are not registered any more.
fn retain_registered(ctx: &Context) {
    let known = |name: &str| is_registered(&ctx.registry, name);
    ctx.metrics.retain_clusters(known);
    ctx.ledgers.retain(known);
}

/// Whether the pipeline may still count for a cluster; the hub is always there.
fn is_registered(registry: &Registry, name: &str) -> bool {
    let mut registered = registry.snapshot().into_iter();
    name == LOCAL || registered.any(|cluster| cluster.name == name)
}
