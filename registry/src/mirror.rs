//! A kind on the hub in memory, reduced to what its reader makes of each object.
//!
//! Beside [`Informer`](crate::Informer), which watches what a cluster declares: the registry's own
//! objects may lie outside of that.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwap;
use kube::api::DynamicObject;
use tokio::sync::watch;

use crate::informer::{
    Phase,
    leg::{Full, Sink},
};

/// What is known of the objects, by name.
pub(crate) struct Mirror<T> {
    items: ArcSwap<BTreeMap<String, Item<T>>>,
    listed: Mutex<BTreeSet<String>>,
    phase: watch::Sender<Phase>,
    /// A list has ended: what is not known is not there.
    complete: AtomicBool,
    changed: watch::Sender<u64>,
    read: fn(DynamicObject) -> Option<T>,
    /// Told of each change.
    tell: Box<Tell<T>>,
}

/// Is told the name of an object, what it was and what it is.
type Tell<T> = dyn Fn(&str, Option<&T>, Option<&T>) + Send + Sync;

/// Where an object comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Listed,
    Watched,
    Written,
}

struct Item<T> {
    version: u64,
    /// From the answer of an own write since the last list began; that list may be older.
    written: bool,
    value: Arc<T>,
}

impl<T> Clone for Item<T> {
    fn clone(&self) -> Self {
        Self {
            version: self.version,
            written: self.written,
            value: Arc::clone(&self.value),
        }
    }
}

// === impl Mirror ===

impl<T> Mirror<T> {
    pub(crate) fn new(
        read: fn(DynamicObject) -> Option<T>,
        tell: impl Fn(&str, Option<&T>, Option<&T>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            items: ArcSwap::default(),
            listed: Mutex::default(),
            phase: watch::Sender::new(Phase::Starting),
            complete: AtomicBool::new(false),
            changed: watch::Sender::new(0),
            read,
            tell: Box::new(tell),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<T>> {
        self.items.load().get(name).map(|item| item.value.clone())
    }

    pub(crate) fn all(&self) -> BTreeMap<String, Arc<T>> {
        let items = self.items.load();
        let pairs = items.iter();
        pairs
            .map(|(name, item)| (name.clone(), item.value.clone()))
            .collect()
    }

    /// Changes with every change of an object.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Whether the hub serves the kind and lets us read it, and has once said all it has.
    pub(crate) fn is_live(&self) -> bool {
        self.complete.load(Ordering::Acquire)
            && matches!(*self.phase.borrow(), Phase::Synced | Phase::Failing(_))
    }

    /// Folds in the answer to an own write; older news are ignored.
    pub(crate) fn fold(&self, object: DynamicObject) {
        self.take(object, Source::Written);
    }

    fn take(&self, object: DynamicObject, source: Source) {
        let Some(name) = object.metadata.name.clone() else {
            return;
        };
        let version = version(&object);
        let Some(value) = (self.read)(object) else {
            // What cannot be read must not look as if it were not there.
            tracing::error!(
                name,
                "an object cannot be decoded and is left as it was known"
            );
            return;
        };
        let item = Item {
            version,
            written: source == Source::Written,
            value: Arc::new(value),
        };
        let before = self.change(|items| {
            let known = items.get(&name).cloned();
            let is_news = known.as_ref().is_none_or(|known| match source {
                // A list is the truth also where its numbers are smaller, as on a hub that was restored.
                Source::Listed if !known.written => known.version != version,
                _ => known.version < version,
            });
            if !is_news {
                return Err(());
            }
            items.insert(name.clone(), item.clone());
            Ok(known)
        });
        if let Ok(before) = before {
            let before = before.as_ref().map(|item| &*item.value);
            (self.tell)(&name, before, Some(&item.value));
        }
    }

    /// Forgets an object that is certainly gone.
    pub(crate) fn forget(&self, name: &str) {
        let before = self.change(|items| items.remove(name).ok_or(()));
        if let Ok(before) = before {
            (self.tell)(name, Some(&before.value), None);
        }
    }

    /// Changes the map in one step; an error leaves it.
    fn change<R>(
        &self,
        act: impl Fn(&mut BTreeMap<String, Item<T>>) -> Result<R, ()>,
    ) -> Result<R, ()> {
        let mut answer = Err(());
        self.items.rcu(|items| {
            let mut next = BTreeMap::clone(items);
            answer = act(&mut next);
            if answer.is_ok() {
                Arc::new(next)
            } else {
                Arc::clone(items)
            }
        });
        if answer.is_ok() {
            self.changed.send_modify(|count| *count += 1);
        }
        answer
    }

    fn listed(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + Sync> Sink for Mirror<T> {
    fn begin(&self) {
        self.listed().clear();
        self.items.rcu(|items| {
            let items = items.iter();
            let items = items.map(|(name, item)| {
                let mut item = item.clone();
                item.written = false;
                (name.clone(), item)
            });
            Arc::new(items.collect())
        });
    }

    fn put(&self, object: DynamicObject, listed: bool) -> Result<(), Full> {
        if listed && let Some(name) = object.metadata.name.clone() {
            self.listed().insert(name);
        }
        let source = if listed {
            Source::Listed
        } else {
            Source::Watched
        };
        self.take(object, source);
        Ok(())
    }

    fn remove(&self, object: DynamicObject) {
        if let Some(name) = object.metadata.name {
            self.forget(&name);
        }
    }

    fn end(&self) {
        let listed = std::mem::take(&mut *self.listed());
        for name in self.all().into_keys() {
            if !listed.contains(&name) {
                self.forget(&name);
            }
        }
        self.complete.store(true, Ordering::Release);
    }

    fn forget(&self) {
        self.complete.store(false, Ordering::Release);
        for name in self.all().into_keys() {
            Self::forget(self, &name);
        }
    }

    fn served(&self) {}

    fn gone(&self) {
        Sink::forget(self);
    }

    fn phase(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let is_news = *now != phase;
            *now = phase;
            is_news
        });
        self.changed.send_modify(|count| *count += 1);
    }
}

/// Versions of one kind compare as numbers on every server we support.
fn version(object: &DynamicObject) -> u64 {
    let version = object.metadata.resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, version: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "resourceVersion": version, "labels": { "v": version } },
        }))
        .unwrap()
    }

    fn mirror() -> Mirror<BTreeMap<String, String>> {
        Mirror::new(
            |object| Some(object.metadata.labels.unwrap_or_default()),
            |_, _, _| {},
        )
    }

    #[test]
    fn an_own_write_is_not_undone_by_older_news() {
        let mirror = mirror();
        mirror.fold(object("blue", "10"));
        let _ = mirror.put(object("blue", "9"), false);
        assert_eq!(mirror.get("blue").unwrap()["v"], "10");
        let _ = mirror.put(object("blue", "11"), false);
        assert_eq!(mirror.get("blue").unwrap()["v"], "11");
    }

    #[test]
    fn a_hub_that_was_restored_is_believed_and_an_own_write_since_the_list_began_is_newer() {
        let mirror = mirror();
        let _ = mirror.put(object("blue", "900"), false);
        let _ = mirror.put(object("green", "900"), false);
        mirror.begin();
        mirror.fold(object("green", "950"));
        let _ = mirror.put(object("blue", "3"), true);
        let _ = mirror.put(object("green", "3"), true);
        mirror.end();
        assert_eq!(mirror.get("blue").unwrap()["v"], "3");
        assert_eq!(mirror.get("green").unwrap()["v"], "950");
    }

    #[test]
    fn what_was_never_listed_does_not_count_as_absent() {
        let mirror = mirror();
        assert!(!mirror.is_live());
        mirror.phase(Phase::Failing("no answer".to_owned()));
        assert!(!mirror.is_live(), "nothing is known");
        mirror.begin();
        mirror.end();
        assert!(mirror.is_live(), "what was listed is known, if of then");
        mirror.gone();
        mirror.phase(Phase::NotServed);
        assert!(!mirror.is_live());
    }

    #[test]
    fn what_a_new_list_lacks_is_gone() {
        let mirror = mirror();
        mirror.fold(object("blue", "1"));
        mirror.fold(object("green", "1"));
        mirror.begin();
        let _ = mirror.put(object("green", "1"), true);
        mirror.end();
        assert!(mirror.get("blue").is_none());
        assert!(mirror.get("green").is_some());
    }
}
