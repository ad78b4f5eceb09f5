//! Sees every version of the objects of a kind, so that a test can say what was *never* so: a
//! poll would miss what lasts a moment.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Result, anyhow, bail};
use futures::StreamExt as _;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use tokio::task::JoinSet;

use crate::{
    cluster::{Cluster, told},
    expect::condition,
};

/// What has been seen since the beginning.
#[derive(Debug)]
pub struct Witness {
    seen: Arc<Mutex<Result<Vec<DynamicObject>, String>>>,
    // Aborted on drop.
    _task: JoinSet<()>,
}

// === impl Witness ===

impl Witness {
    /// Looks from now on at all objects of a kind in a namespace.
    pub async fn of(
        cluster: &Cluster,
        (api_version, kind): (&str, &str),
        namespace: &str,
    ) -> Result<Self> {
        let api = cluster.any(api_version, kind, Some(namespace));
        let list = api.list(&ListParams::default().limit(1)).await;
        let list = list.map_err(|e| anyhow!("listing {kind}: {}", told(&e)))?;
        let version = list.metadata.resource_version.unwrap_or_default();
        let events = api.watch(&WatchParams::default(), &version).await;
        let mut events = events
            .map_err(|e| anyhow!("watching {kind}: {}", told(&e)))?
            .boxed();
        let seen = Arc::new(Mutex::new(Ok(Vec::new())));
        let mut task = JoinSet::new();
        let into = seen.clone();
        task.spawn(async move {
            loop {
                let event = events.next().await;
                let mut seen = into.lock().unwrap_or_else(PoisonError::into_inner);
                match event {
                    Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                        if let Ok(seen) = seen.as_mut() {
                            seen.push(object);
                        }
                    }
                    Some(Ok(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_))) => {}
                    other => {
                        *seen = Err(format!("the watch ended: {other:?}"));
                        return;
                    }
                }
            }
        });
        Ok(Self { seen, _task: task })
    }

    /// Every version seen so far, oldest first.
    pub fn versions(&self) -> Result<Vec<DynamicObject>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.as_ref() {
            Ok(seen) => Ok(seen.clone()),
            Err(gap) => bail!("the witness has seen only a part: {gap}"),
        }
    }

    /// Every reason that a condition had, of objects of this name or of all.
    pub fn reasons(&self, name: Option<&str>, type_: &str) -> Result<BTreeSet<String>> {
        Ok(self
            .versions()?
            .iter()
            .filter(|object| name.is_none_or(|name| object.metadata.name.as_deref() == Some(name)))
            .filter_map(|object| condition(object, type_))
            .filter_map(|found| found["reason"].as_str().map(str::to_owned))
            .collect())
    }

    /// How often an object was written.
    pub fn writes(&self, name: &str) -> Result<usize> {
        let is = |object: &&DynamicObject| object.metadata.name.as_deref() == Some(name);
        Ok(self.versions()?.iter().filter(is).count())
    }
}
