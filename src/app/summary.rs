//! The first lines of the log: what runs, and what it was asked to do.

use target_registry::Cluster;

use crate::{cli::RunArgs, metrics};

/// Says it: one line with everything that decides how this process behaves, and one each for what it watches. Every
/// replica does, whether it will lead or not.
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
    if let Some(namespace) = args.watched_namespace() {
        tracing::info!(
            namespace,
            "namespace-scoped: only this namespace is watched"
        );
    }
    if args.clusters_namespace.is_empty() {
        tracing::info!("target clusters are switched off");
    } else {
        tracing::info!(namespace = %args.clusters_namespace, "target clusters are enabled and registered here");
    }
}
