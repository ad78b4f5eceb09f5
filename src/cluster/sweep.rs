//! Teardown of a placed Glance: every child of every kind, found live, deleted by UID.
//!
//! Lists without a selector, because children marked only by an older operator's reference must be found too; by
//! metadata and in pages, because a namespace is shared. All kinds are tried before failures are joined (contract:
//! target clusters, the sweep; deletion that cannot wedge).

use futures::future::join_all;
use glance_api::keys::labels::OWNER_KIND;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use target_registry::{Kind, Pages};

use super::{
    Target,
    kinds::{self, CHILDREN, MARIADB_CHILDREN},
    ownership,
    reads::PAGE,
};
use crate::pipeline::report::{ErrorKind, StepError, describe};

/// The MariaDB objects that stand for the database of a Glance.
#[derive(Debug, Default)]
pub struct DatabaseObjects {
    /// Kinds of which a live object was found and deleted.
    pub deleted: Vec<&'static str>,
}

// === impl Target (teardown) ===

impl Target {
    /// Deletes everything this Glance owns on its target. The objects that were deleted, as `Kind name`.
    pub async fn sweep(&self) -> Result<Vec<String>, StepError> {
        let may_delete = |meta: &ObjectMeta| self.owner.may_delete(meta);
        self.sweep_where(may_delete, false).await
    }

    /// The same of a Glance that is gone: only what bears its very mark, and still does when it is deleted, for another
    /// Glance of its name may take it over at any time.
    pub async fn sweep_left_behind(&self) -> Result<Vec<String>, StepError> {
        let has_left = |meta: &ObjectMeta| self.owner.has_left(meta);
        self.sweep_where(has_left, true).await
    }

    async fn sweep_where(
        &self,
        is_meant: impl Fn(&ObjectMeta) -> bool + Send + Sync,
        unchanged: bool,
    ) -> Result<Vec<String>, StepError> {
        // Looked for at once, deleted in order. Boxed: a list is large, and so is every future around it.
        let lists = join_all(CHILDREN.map(|child| {
            let list = Box::pin(self.list_marked(child.kind));
            self.view.lists.of(child.kind, self.namespace(), list)
        }));
        let mut deleted = Vec::new();
        let mut failures: Vec<StepError> = Vec::new();
        for (child, listed) in CHILDREN.iter().zip(lists.await) {
            let swept = match listed {
                Ok(all) => {
                    let meant = all.iter().filter(|meta| is_meant(meta));
                    self.sweep_kind(&child.kind, meant, unchanged).await
                }
                Err(error) => Err(error),
            };
            match swept {
                Ok(names) => deleted.extend(names),
                Err(error) => failures.push(error),
            }
        }
        match failures.first() {
            None => Ok(deleted),
            Some(first) => {
                let texts: Vec<_> = failures.iter().map(|error| error.message.clone()).collect();
                Err(StepError::new(first.kind, texts.join("; ")))
            }
        }
    }

    /// Deletes the Database, User and Grant of this Glance, so that the MariaDB operator drops them. Others' objects
    /// of the same name stay; a cluster without the kinds has none.
    pub async fn delete_database(&self, name: &str) -> Result<DatabaseObjects, StepError> {
        let mut found = DatabaseObjects::default();
        for kind in MARIADB_CHILDREN {
            let live = self.read_metadata(&kind, name).await.map_err(|error| {
                error.context(&format!(
                    "looking for {} {}/{name}",
                    kind.kind,
                    self.namespace()
                ))
            })?;
            let Some(live) = live else { continue };
            if !self.owner.may_delete(&live) {
                continue;
            }
            if live.deletion_timestamp.is_none() {
                found.deleted.push(kind.kind);
            }
            self.delete(&kind, &live).await?;
        }
        Ok(found)
    }

    /// Of a namespace that is gone, with the rights that were granted in it, nothing is left to delete.
    pub async fn or_void<T: Default>(&self, outcome: Result<T, StepError>) -> Result<T, StepError> {
        match outcome {
            Err(error)
                if self.is_remote()
                    && error.kind == ErrorKind::Forbidden
                    && self
                        .cluster
                        .lacks_namespace(self.namespace())
                        .await
                        .unwrap_or(false) =>
            {
                Ok(T::default())
            }
            outcome => outcome,
        }
    }

    /// Whether the cluster really does not serve a kind. Kinds that every cluster has are missing only where something
    /// else answers, a proxy whose route is gone as a rule: that must not pass for an empty cluster.
    async fn lacks(&self, kind: &Kind) -> bool {
        if kinds::is_everywhere(kind) {
            return false;
        }
        self.cluster.forget_capability(kind).await;
        self.cluster.serves(kind).await.is_ok_and(|served| !served)
    }

    async fn sweep_kind(
        &self,
        kind: &Kind,
        meant: impl Iterator<Item = &ObjectMeta> + Send,
        unchanged: bool,
    ) -> Result<Vec<String>, StepError> {
        let mut deleted = Vec::new();
        for meta in meant {
            let done = if unchanged {
                self.delete_unchanged(kind, meta).await
            } else {
                self.delete(kind, meta).await
            };
            done.map_err(|error| StepError {
                message: error.message.replacen("deleting ", "deleting remote ", 1),
                ..error
            })?;
            let name = meta.name.as_deref().unwrap_or_default();
            deleted.push(format!("{} {name}", kind.kind));
        }
        Ok(deleted)
    }

    /// Every object of a kind that may be a child of some Glance.
    async fn list_marked(&self, kind: Kind) -> Result<Vec<ObjectMeta>, StepError> {
        let list = || Pages::new(ListParams::default().limit(PAGE));
        let mut pages = list();
        let mut found = Vec::new();
        let mut restarted = false;
        loop {
            let page = pages.next(|params| self.metadata_page(&kind, params));
            let page = match page.await {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(found),
                // Not served: nothing can be there.
                Err(kube::Error::Api(status)) if status.code == 404 && self.lacks(&kind).await => {
                    return Ok(found);
                }
                Err(kube::Error::Api(status)) if status.code == 410 && !restarted => {
                    restarted = true;
                    found.clear();
                    pages = list();
                    continue;
                }
                Err(error) => {
                    return Err(StepError::new(
                        ErrorKind::of(&error),
                        format!(
                            "listing remote {} children for teardown: {}",
                            kind.kind,
                            describe(&error)
                        ),
                    ));
                }
            };
            for mut item in page.items {
                if is_marked(&item.metadata) {
                    item.metadata.managed_fields = None;
                    found.push(item.metadata);
                }
            }
        }
    }
}

/// Whether an object bears the mark of any Glance: the label, or a reference of an older operator.
fn is_marked(meta: &ObjectMeta) -> bool {
    let labels = meta.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(OWNER_KIND))
        || ownership::controller(meta).is_some()
}
