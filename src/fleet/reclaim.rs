//! What deleted Glances left behind on a cluster that was gone: shown once the cluster is back, deleted when
//! somebody asks for it.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use target_registry::{
    Cluster, TargetCluster,
    target_cluster::{Abandoned, RECLAIM_ANNOTATION},
};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{Target, placed_on},
    context::Context,
    pipeline::{
        notice::Notice,
        report::{ErrorKind, StepError},
    },
};

/// Reason of the event: what was left behind is deleted now.
const CHILDREN_RECLAIMED: &str = "ChildrenReclaimed";
/// Reason of the event: it could not be deleted.
const RECLAIM_FAILED: &str = "ReclaimFailed";

/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(15);

/// Serves the ledgers until it is stopped.
pub async fn run(ctx: Arc<Context>, clusters_namespace: String, stop: CancellationToken) {
    let serving = async {
        let mut objects = ctx.registry.target_clusters_changed();
        let mut published = ctx.registry.published();
        ctx.router.listed().await;
        loop {
            objects.mark_unchanged();
            published.mark_unchanged();
            let failed = look(&ctx, &clusters_namespace).await;
            let pause = async {
                if failed {
                    tokio::time::sleep(RETRY).await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                changed = objects.changed() => if changed.is_err() { return },
                changed = published.changed() => if changed.is_err() { return },
                () = pause => {}
            }
        }
    };
    stop.run_until_cancelled(serving).await;
}

/// Looks at every ledger; whether something has to be tried again.
async fn look(ctx: &Context, namespace: &str) -> bool {
    let looks = ctx.registry.target_clusters().into_iter();
    // Side by side: one that hangs holds up no other.
    let looks = looks.map(async |(name, object)| {
        let ledger = object.status.as_ref().map_or(&[][..], |s| &s.abandoned);
        if ledger.is_empty() {
            return false;
        }
        match ctx.registry.resolve(&name) {
            Ok(cluster) if is_wanted(&object) => {
                let done = reclaim(ctx, namespace, &object, &cluster, ledger).await;
                ctx.retire_unused(&name);
                !done
            }
            Err(unresolved) if unresolved.may_abandon() => {
                hand_over(ctx, &name, ledger).await;
                false
            }
            Ok(_) | Err(_) => false,
        }
    });
    join_all(looks).await.contains(&true)
}

fn is_wanted(object: &TargetCluster) -> bool {
    object.wants_reclaim() && !object.spec.is_paused()
}

/// Whether the wish still holds, and the cluster is the one it was.
fn may_go_on(ctx: &Context, name: &str, cluster: &Arc<Cluster>) -> bool {
    let wanted = ctx.registry.target_cluster(name);
    wanted.is_some_and(|object| is_wanted(&object))
        && ctx
            .registry
            .resolve(name)
            .is_ok_and(|now| Arc::ptr_eq(&now, cluster))
}

/// Moves entries to the name the cluster is registered under by now, where people will look.
async fn hand_over(ctx: &Context, name: &str, ledger: &[Abandoned]) {
    for entry in ledger {
        let Some(uid) = &entry.cluster_uid else {
            continue;
        };
        let known = ctx.registry.snapshot();
        let is_it = |state: &&target_registry::ClusterState| {
            state.name != name
                && state.state.resolves()
                && state.identified
                && state.uid.as_ref() == Some(uid)
        };
        let Some(heir) = known.iter().find(is_it) else {
            continue;
        };
        let object = ctx.registry.target_cluster(&heir.name);
        let listed = object.and_then(|object| object.status.clone());
        let listed = listed.is_some_and(|s| s.abandoned.iter().any(|a| a.uid == entry.uid));
        if listed {
            ctx.registry.strike(name, [entry.uid.clone()]);
        } else {
            // Struck off at the next look, which the write of this one brings about: a process that ends in between
            // leaves it listed twice and never nowhere.
            ctx.registry.abandon(&heir.name, entry.clone()).await;
        }
    }
}

/// Where something lies that was left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Here,
    Elsewhere,
    /// The cluster does not say who it is.
    Unknown,
}

/// By the cluster it was left on, if that was known, and the one at hand.
fn place(left_on: Option<&str>, cluster: Option<&str>) -> Place {
    match (left_on, cluster) {
        (None, _) => Place::Here,
        (Some(_), None) => Place::Unknown,
        (Some(left_on), Some(cluster)) if left_on == cluster => Place::Here,
        (Some(_), Some(_)) => Place::Elsewhere,
    }
}

/// Deletes what one ledger lists; whether all of it is done.
async fn reclaim(
    ctx: &Context,
    namespace: &str,
    object: &TargetCluster,
    cluster: &Arc<Cluster>,
    ledger: &[Abandoned],
) -> bool {
    let mut all_done = true;
    for entry in ledger {
        let uid = match cluster.uid() {
            // The right to ask may have been granted meanwhile.
            None => cluster.probe().await.ok().and_then(|identity| identity.uid),
            uid => uid,
        };
        let place = place(entry.cluster_uid.as_deref(), uid.as_deref());
        if place == Place::Unknown {
            let why = format!(
                "what {} {}/{} left behind is not deleted, for cluster {:?} does not say who it is: grant get on \
                 namespaces there",
                entry.kind,
                entry.namespace,
                entry.name,
                cluster.name()
            );
            let notice = Notice::warning(RECLAIM_FAILED, why);
            ctx.publisher.publish(&object.object_ref(&()), notice);
            all_done = false;
            continue;
        }
        if place == Place::Elsewhere {
            continue;
        }
        if !may_go_on(ctx, &object.name_any(), cluster) {
            return false;
        }
        let mut silent = false;
        let owner = format!("{} {}/{}", entry.kind, entry.namespace, entry.name);
        let notice = match delete(ctx, cluster, entry).await {
            Ok(None) => Notice::normal(
                CHILDREN_RECLAIMED,
                format!("{owner} exists again, and what was left behind belongs to it"),
            ),
            Ok(Some(deleted)) => Notice::normal(
                CHILDREN_RECLAIMED,
                format!(
                    "deleted {} objects that {owner} left behind: {}",
                    deleted.len(),
                    deleted.join(", ")
                ),
            ),
            Err(error) => {
                all_done = false;
                silent = matches!(error.kind, ErrorKind::Api | ErrorKind::Timeout);
                tracing::warn!(cluster = cluster.name(), owner, %error, "cannot reclaim");
                Notice::warning(
                    RECLAIM_FAILED,
                    format!("deleting what {owner} left behind: {error}"),
                )
            }
        };
        if notice.reason == CHILDREN_RECLAIMED {
            ctx.registry.strike(&object.name_any(), [entry.uid.clone()]);
        }
        ctx.publisher.publish(&object.object_ref(&()), notice);
        if silent {
            // The next would wait as long.
            return false;
        }
    }
    if all_done {
        forget_wish(ctx, namespace, &object.name_any()).await;
    }
    all_done
}

/// Deletes what one Glance left behind; `None` when another of its name has taken that over.
async fn delete(
    ctx: &Context,
    cluster: &Arc<Cluster>,
    entry: &Abandoned,
) -> Result<Option<Vec<String>>, StepError> {
    let heir = ctx.router.glance(&entry.namespace, &entry.name);
    if heir.is_some_and(|glance| placed_on(&glance) == Some(cluster.name())) {
        return Ok(None);
    }
    let target = Target::left_by(
        (&entry.namespace, &entry.name, &entry.uid),
        Arc::clone(cluster),
        ctx.view(cluster),
        ctx.settings.hub_uid.clone(),
    );
    let deleted = target.or_void(target.sweep_left_behind().await).await;
    deleted.map(Some)
}

/// The wish is fulfilled: what is left behind later is not meant by it.
async fn forget_wish(ctx: &Context, namespace: &str, name: &str) {
    let api: Api<TargetCluster> = Api::namespaced(ctx.hub.client(), namespace);
    let patch = json!({ "metadata": { "annotations": { RECLAIM_ANNOTATION: null } } });
    let patched = api
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    if let Err(error) = patched {
        tracing::warn!(cluster = name, %error, "the wish to reclaim could not be taken off");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_behind_is_not_taken_for_elsewhere_where_nobody_can_tell() {
        assert_eq!(place(Some("u"), Some("u")), Place::Here);
        assert_eq!(place(Some("u"), Some("v")), Place::Elsewhere);
        assert_eq!(place(Some("u"), None), Place::Unknown);
        assert_eq!(place(None, Some("u")), Place::Here);
    }
}
