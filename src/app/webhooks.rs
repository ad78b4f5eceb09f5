//! The admission webhooks of this replica: opened early, closed late.

use std::sync::{Arc, OnceLock};

use target_registry::{Cluster, Registry};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

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

/// Serves until a little after `stop`; the task that is returned ends with the last answer. `engaged` is filled once
/// this replica leads.
pub fn serve(
    webhooks: Option<Webhooks>,
    args: &RunArgs,
    (hub, engaged): (&Cluster, &Arc<OnceLock<Registry>>),
    metrics: &Metrics,
    stop: &CancellationToken,
) -> Option<JoinHandle<()>> {
    let webhooks = webhooks?;
    let lookup = Lookup::new(hub.client(), &args.clusters_namespace, Arc::clone(engaged))
        .authorize_use(args.authorize_target_use);
    let (metrics, stop) = (metrics.clone(), stop.clone());
    Some(tokio::spawn(async move {
        webhooks.serve(lookup, &metrics, stop).await;
    }))
}
