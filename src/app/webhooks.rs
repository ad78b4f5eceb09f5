//! The admission webhooks of this replica: opened early, closed late.

use std::sync::{Arc, OnceLock};

use target_registry::{Cluster, Registry};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admission::{Lookup, OpenError, Webhooks},
    cli::RunArgs,
    metrics::Metrics,
};

/// Opens what the flags ask for.
pub async fn open(args: &RunArgs) -> Result<Option<Webhooks>, OpenError> {
    if !args.enable_webhooks {
        return Ok(None);
    }
    let folder = args.webhook_certificate();
    let webhooks = Webhooks::open(&args.webhook_bind_address, &folder).await?;
    Ok(Some(webhooks))
}

/// Serves on `tasks`, until the token that is returned is cancelled. `engaged` is filled once this replica leads.
pub fn serve(
    webhooks: Option<Webhooks>,
    args: &RunArgs,
    (hub, engaged): (&Cluster, &Arc<OnceLock<Registry>>),
    metrics: &Metrics,
    tasks: &TaskTracker,
) -> CancellationToken {
    let closing = CancellationToken::new();
    if let Some(webhooks) = webhooks {
        let lookup = Lookup::new(hub.client(), &args.clusters_namespace, Arc::clone(engaged))
            .authorize_use(args.authorize_target_use);
        let (metrics, closing) = (metrics.clone(), closing.clone());
        tasks.spawn(async move { webhooks.serve(lookup, &metrics, closing).await });
    }
    closing
}
