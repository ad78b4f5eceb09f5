//! Says that a cluster was deregistered while Glances name it: whoever took the Secret away may not know of them.

use std::{collections::BTreeSet, sync::Arc};

use target_registry::Registry;
use tokio_util::sync::CancellationToken;

use super::about;
use crate::{context::Context, pipeline::notice::Notice};

/// Reason of the event.
const CLUSTER_DEREGISTERED: &str = "ClusterDeregistered";

/// Looks at every registration that goes, until it is stopped.
pub async fn run(ctx: Arc<Context>, clusters_namespace: String, stop: CancellationToken) {
    let looking = async {
        ctx.router.listed().await;
        let mut published = ctx.registry.published();
        let mut known = names(&ctx.registry);
        loop {
            published.mark_unchanged();
            let now = names(&ctx.registry);
            for name in known.difference(&now) {
                let placements = ctx.router.placements();
                let namespaces = placements.get(name);
                let counts = namespaces.into_iter().flatten();
                let counts: Vec<_> = counts.map(|(ns, count)| (ns.as_str(), *count)).collect();
                let object = about(&ctx, &clusters_namespace, name);
                if let (Some(notice), Some(object)) = (notice(name, &counts), object) {
                    ctx.publisher.publish(&object, notice);
                }
            }
            known = now;
            if published.changed().await.is_err() {
                return;
            }
        }
    };
    stop.run_until_cancelled(looking).await;
}

fn names(registry: &Registry) -> BTreeSet<String> {
    let states = registry.snapshot().into_iter();
    states.map(|state| state.name).collect()
}

/// `None` when nobody needs the cluster.
fn notice(cluster: &str, counts: &[(&str, usize)]) -> Option<Notice> {
    let total: usize = counts.iter().map(|(_, count)| count).sum();
    if total == 0 {
        return None;
    }
    let places: Vec<_> = counts
        .iter()
        .map(|(namespace, count)| format!("{count} in namespace {namespace}"))
        .collect();
    Some(Notice::warning(
        CLUSTER_DEREGISTERED,
        format!(
            "cluster {cluster:?} is not registered any more, and {total} Glances name it ({}): what they have there \
             stays and is not looked after until the cluster is registered again",
            places.join(", ")
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_a_cluster_away_is_told_whom_that_concerns() {
        assert_eq!(notice("blue", &[]), None);
        let notice = notice("blue", &[("images", 2), ("tenant", 1)]).unwrap();
        assert!(
            notice
                .message
                .contains("3 Glances name it (2 in namespace images, 1 in namespace tenant)"),
            "{}",
            notice.message
        );
    }
}
