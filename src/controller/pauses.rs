//! How long a failed CR of one controller waits before its next pass.

use std::{collections::HashSet, hash::Hash, time::Duration};

use kube::{
    Resource, ResourceExt,
    runtime::{
        reflector::{ObjectRef, Store},
        watcher,
    },
};

use crate::backoff::Backoff;

/// The pauses of one controller, by the UIDs of its CRs. What is remembered of a CR goes with it.
pub struct Pauses<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    backoff: Backoff<String>,
    reader: Store<K>,
}

// === impl Pauses ===

impl<K> Pauses<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone + Default,
{
    /// Of the CRs in a store; none has failed yet.
    pub fn new(reader: Store<K>) -> Self {
        Self {
            backoff: Backoff::new(),
            reader,
        }
    }

    /// The pause after one more failed pass. Of a CR that went meanwhile nothing is kept: nobody would forget it again.
    pub fn after_failure(&self, object: &K) -> Duration {
        let uid = object.uid().unwrap_or_default();
        let pause = self.backoff.next(&uid);
        if !self.is_there(object) {
            self.backoff.reset(&uid);
        }
        pause
    }

    /// The failures of a CR are over.
    pub fn after_success(&self, object: &K) {
        self.backoff.reset(&object.uid().unwrap_or_default());
    }

    /// Forgets CRs that are gone. Told of an event once the store knows of it: who fails later finds the CR gone there.
    pub fn observe(&self, event: &Result<watcher::Event<K>, watcher::Error>) {
        match event {
            Ok(watcher::Event::Delete(object)) => {
                self.backoff.reset(&object.uid().unwrap_or_default());
            }
            Ok(watcher::Event::InitDone) => {
                let present = self.reader.state();
                let present: HashSet<_> = present.iter().filter_map(|found| found.uid()).collect();
                self.backoff.retain(|uid| present.contains(uid));
            }
            _ => {}
        }
    }

    fn is_there(&self, object: &K) -> bool {
        let found = self.reader.get(&ObjectRef::from_obj(object));
        found.is_some_and(|found| found.uid() == object.uid())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{core::ObjectMeta, runtime::reflector};

    use super::*;
    use crate::backoff::FIRST_DELAY;

    fn cr(name: &str, uid: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                namespace: Some("tenant".into()),
                name: Some(name.into()),
                uid: Some(uid.into()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    #[test]
    fn what_is_remembered_of_a_cr_goes_with_it_however_its_end_is_seen() {
        let (reader, mut writer) = reflector::store();
        let pauses = Pauses::new(reader);
        let mut happens = |event| {
            writer.apply_watcher_event(&event);
            pauses.observe(&Ok(event));
        };
        let [stays, goes, missed] = ["stays", "goes", "missed"].map(|name| cr(name, name));
        happens(watcher::Event::Init);
        for object in [&stays, &goes, &missed] {
            happens(watcher::Event::InitApply(object.clone()));
        }
        happens(watcher::Event::InitDone);
        for object in [&stays, &goes, &missed] {
            pauses.after_failure(object);
            assert_eq!(pauses.after_failure(object), FIRST_DELAY * 2);
        }
        happens(watcher::Event::Delete(goes.clone()));
        // The end of this one was not seen, and another has its name.
        happens(watcher::Event::Init);
        happens(watcher::Event::InitApply(stays.clone()));
        happens(watcher::Event::InitApply(cr("missed", "another")));
        happens(watcher::Event::InitDone);
        let failures = |object: &ConfigMap| pauses.backoff.failures(&object.uid().unwrap());
        assert_eq!([&stays, &goes, &missed].map(failures), [2, 0, 0]);
        // Passes that were under way.
        pauses.after_failure(&goes);
        pauses.after_failure(&missed);
        pauses.after_failure(&stays);
        assert_eq!([&stays, &goes, &missed].map(failures), [3, 0, 0]);
        pauses.after_success(&stays);
        assert_eq!(failures(&stays), 0);
    }
}
