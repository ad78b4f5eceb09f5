//! The first line of the log: what runs, and what it was asked to do.

use target_registry::Cluster;

use crate::{cli::RunArgs, metrics};

/// Says it, one line with everything that decides how this process behaves.
pub fn say(args: &RunArgs, hub: &Cluster) {
    let or = |text: &str, empty: &str| if text.is_empty() { empty } else { text }.to_owned();
    tracing::info!(
        version = metrics::VERSION,
        revision = metrics::REVISION,
        hub = hub.server(),
        namespace = or(&args.namespace, "(all)"),
        clusters_namespace = or(&args.clusters_namespace, "(target clusters are off)"),
        leader_elect = args.leader_elect,
        webhooks = args.enable_webhooks,
        metrics = %args.metrics_bind_address,
        metrics_secure = args.metrics_secure,
        health = %args.health_probe_bind_address,
        workers = args.concurrency(),
        sync_period = ?args.sync_period,
        abandon_after = ?args.abandon_after,
        log_level = %args.log.level(),
        "starting the glance-operator"
    );
}
