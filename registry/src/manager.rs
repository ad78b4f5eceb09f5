//! The one task that owns the registry.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{Cluster, RegistryOptions, registry::Shared};

/// Starts the owner.
pub(crate) fn spawn(
    shared: &Arc<Shared>,
    _hub: &Arc<Cluster>,
    _options: RegistryOptions,
    stop: CancellationToken,
) {
    let owner = shared.clone();
    shared.tasks.spawn(async move {
        owner.set_attempted();
        stop.cancelled().await;
    });
}
