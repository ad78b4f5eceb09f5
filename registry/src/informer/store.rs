//! What an informer knows, ordered by resourceVersion.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use kube::api::DynamicObject;

/// UIDs of deleted objects that are remembered, so that the late answer of an own write does not
/// bring one back.
const GRAVES: usize = 512;

/// Longest UID that is remembered; a server of ours has 36 characters, another one may say anything.
const LONGEST_UID: usize = 128;

/// Objects by namespace (empty: none) and name.
#[derive(Default)]
pub(super) struct Store {
    objects: BTreeMap<String, BTreeMap<String, Entry>>,
    /// Names seen by a list that has not ended, by its namespace (`None`: the whole cluster).
    listing: BTreeMap<Option<String>, BTreeSet<(String, String)>>,
    graves: Graves,
    /// Weight of all objects.
    weight: usize,
    /// Objects the metrics know of.
    pub(super) counted: usize,
    /// Weight the budget knows of.
    pub(super) weighed: usize,
    /// Nothing is kept up to date any more.
    pub(super) closed: bool,
}

struct Entry {
    object: Arc<DynamicObject>,
    /// Folded in from the answer of an own call; a watch may lag behind it.
    observed: bool,
    weight: usize,
}

#[derive(Default)]
struct Graves {
    order: VecDeque<String>,
    /// When each was buried, if that is known.
    buried: HashMap<String, Option<u64>>,
}

/// Where an object comes from, which decides whether it may overwrite what is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A list: replaces everything but what was observed since.
    List,
    /// A watch event.
    Watch,
    /// The answer of an own call.
    Observed,
}

// === impl Store ===

impl Store {
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Arc<DynamicObject>> {
        Some(self.objects.get(namespace)?.get(name)?.object.clone())
    }

    pub(super) fn list(&self, namespace: Option<&str>) -> Vec<Arc<DynamicObject>> {
        let objects = |map: &BTreeMap<String, Entry>| -> Vec<_> {
            map.values().map(|entry| entry.object.clone()).collect()
        };
        match namespace {
            Some(namespace) => self.objects.get(namespace).map(objects).unwrap_or_default(),
            None => self.objects.values().flat_map(objects).collect(),
        }
    }

    /// The objects of a namespace whose names begin with `prefix`, without a look at the others.
    pub(super) fn beginning(&self, namespace: &str, prefix: &str) -> Vec<Arc<DynamicObject>> {
        let Some(names) = self.objects.get(namespace) else {
            return Vec::new();
        };
        names
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|(name, _)| name.starts_with(prefix))
            .map(|(_, entry)| entry.object.clone())
            .collect()
    }

    pub(super) fn len(&self) -> usize {
        self.objects.values().map(BTreeMap::len).sum()
    }

    /// Whether `object` is news; what is older than what is known, or belongs to an object that is
    /// known to be gone, is not.
    pub(super) fn accepts(&self, object: &DynamicObject, source: Source) -> bool {
        if self.graves.holds(object) {
            return false;
        }
        let (namespace, name) = key(object);
        let Some(known) = self
            .objects
            .get(namespace)
            .and_then(|names| names.get(name))
        else {
            return true;
        };
        // A list is the truth even if its numbers are smaller, as they are after a restored
        // backup; only an own write since the list began is newer.
        if source == Source::List && !known.observed {
            return true;
        }
        match (version(object), version(&known.object)) {
            (Some(news), Some(known)) => news >= known,
            // What has no number cannot be ordered: the last one wins.
            _ => true,
        }
    }

    /// Remembers `object`, which weighs so much, or that there is none of its name if it is not `kept`.
    pub(super) fn put(&mut self, object: Arc<DynamicObject>, kept: Option<usize>, source: Source) {
        let (namespace, name) = key(&object);
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.take(&namespace, &name);
        let Some(weight) = kept else {
            return;
        };
        for (scope, seen) in &mut self.listing {
            if scope.as_ref().is_none_or(|scope| *scope == namespace) {
                seen.insert((namespace.clone(), name.clone()));
            }
        }
        let entry = Entry {
            object,
            observed: source == Source::Observed,
            weight,
        };
        self.weight += weight;
        self.objects
            .entry(namespace)
            .or_default()
            .insert(name, entry);
    }

    /// Of all objects.
    pub(super) fn weight(&self) -> usize {
        if self.closed { 0 } else { self.weight }
    }

    /// Forgets the object with this UID, whatever late news come of it. What a watch with a selector
    /// calls deleted may only have lost a label: news that are newer than `at` bring it back.
    pub(super) fn bury(&mut self, namespace: &str, name: &str, uid: Option<&str>, at: Option<u64>) {
        if let Some(uid) = uid {
            self.graves.add(uid, at);
        }
        let known = self.get(namespace, name);
        if known.is_some_and(|known| uid.is_none() || known.metadata.uid.as_deref() == uid) {
            self.take(namespace, name);
        }
    }

    /// A list of `scope` begins.
    pub(super) fn begin(&mut self, scope: Option<&str>) {
        self.listing
            .insert(scope.map(str::to_owned), BTreeSet::new());
        for entry in self.scoped(scope).flat_map(BTreeMap::values_mut) {
            entry.observed = false;
        }
    }

    /// The list of `scope` is complete: takes out and returns what was not in it.
    pub(super) fn end(&mut self, scope: Option<&str>) -> Vec<Arc<DynamicObject>> {
        let seen = self
            .listing
            .remove(&scope.map(str::to_owned))
            .unwrap_or_default();
        let mut gone = Vec::new();
        for (namespace, name) in self.names(scope) {
            if !seen.contains(&(namespace.clone(), name.clone())) {
                gone.extend(self.take(&namespace, &name));
            }
        }
        gone
    }

    /// Takes out everything of `scope`.
    pub(super) fn clear(&mut self, scope: Option<&str>) -> Vec<Arc<DynamicObject>> {
        self.listing.remove(&scope.map(str::to_owned));
        let names = self.names(scope);
        names
            .iter()
            .filter_map(|(namespace, name)| self.take(namespace, name))
            .collect()
    }

    fn names(&self, scope: Option<&str>) -> Vec<(String, String)> {
        self.objects
            .iter()
            .filter(|(namespace, _)| scope.is_none_or(|scope| scope == namespace.as_str()))
            .flat_map(|(namespace, names)| {
                names
                    .keys()
                    .map(move |name| (namespace.clone(), name.clone()))
            })
            .collect()
    }

    fn scoped<'a>(
        &'a mut self,
        scope: Option<&'a str>,
    ) -> impl Iterator<Item = &'a mut BTreeMap<String, Entry>> {
        self.objects
            .iter_mut()
            .filter(move |(namespace, _)| scope.is_none_or(|scope| scope == namespace.as_str()))
            .map(|(_, names)| names)
    }

    fn take(&mut self, namespace: &str, name: &str) -> Option<Arc<DynamicObject>> {
        let names = self.objects.get_mut(namespace)?;
        let entry = names.remove(name)?;
        self.weight -= entry.weight;
        if names.is_empty() {
            self.objects.remove(namespace);
        }
        Some(entry.object)
    }
}

/// Namespace (or nothing) and name.
pub(super) fn key(object: &DynamicObject) -> (&str, &str) {
    let metadata = &object.metadata;
    (
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

/// The resourceVersion as the number it is.
pub(super) fn version(object: &DynamicObject) -> Option<u64> {
    object.metadata.resource_version.as_deref()?.parse().ok()
}

// === impl Graves ===

impl Graves {
    fn holds(&self, object: &DynamicObject) -> bool {
        let buried = object
            .metadata
            .uid
            .as_ref()
            .and_then(|uid| self.buried.get(uid));
        buried.is_some_and(|at| match (at, version(object)) {
            (Some(at), Some(news)) => news <= *at,
            _ => true,
        })
    }

    fn add(&mut self, uid: &str, at: Option<u64>) {
        if uid.len() > LONGEST_UID {
            return;
        }
        if self.buried.insert(uid.to_owned(), at).is_none() {
            self.order.push_back(uid.to_owned());
        }
        if self.order.len() > GRAVES
            && let Some(oldest) = self.order.pop_front()
        {
            self.buried.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(namespace: &str, name: &str, uid: &str, version: &str) -> Arc<DynamicObject> {
        Arc::new(
            serde_json::from_value(serde_json::json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {
                    "namespace": namespace, "name": name, "uid": uid, "resourceVersion": version,
                },
            }))
            .unwrap(),
        )
    }

    fn fold(store: &mut Store, object: &Arc<DynamicObject>, source: Source) -> bool {
        let accepted = store.accepts(object, source);
        if accepted {
            store.put(object.clone(), Some(100), source);
        }
        accepted
    }

    fn version_of(store: &Store, name: &str) -> Option<String> {
        store.get("ns", name)?.metadata.resource_version.clone()
    }

    #[test]
    fn versions_are_numbers_and_the_newer_one_stays() {
        let mut store = Store::default();
        assert!(fold(
            &mut store,
            &object("ns", "a", "1", "9"),
            Source::Watch
        ));
        assert!(fold(
            &mut store,
            &object("ns", "a", "1", "10"),
            Source::Observed
        ));
        assert!(
            !fold(&mut store, &object("ns", "a", "1", "9"), Source::Watch),
            "an echo of the past"
        );
        assert!(!fold(
            &mut store,
            &object("ns", "a", "1", "9"),
            Source::Observed
        ));
        assert_eq!(version_of(&store, "a").as_deref(), Some("10"));
        assert!(fold(
            &mut store,
            &object("ns", "a", "1", "11"),
            Source::Watch
        ));
    }

    #[test]
    fn the_late_answer_of_a_write_does_not_bring_back_the_dead() {
        let mut store = Store::default();
        fold(&mut store, &object("ns", "a", "1", "9"), Source::Watch);
        store.bury("ns", "a", Some("1"), None);
        assert!(!fold(
            &mut store,
            &object("ns", "a", "1", "12"),
            Source::Observed
        ));
        assert_eq!(store.len(), 0);
        assert!(
            fold(&mut store, &object("ns", "a", "2", "13"), Source::Observed),
            "a successor"
        );
        store.bury("ns", "a", Some("1"), None);
        assert_eq!(
            version_of(&store, "a").as_deref(),
            Some("13"),
            "the successor is untouched"
        );
    }

    #[test]
    fn what_left_a_selector_and_came_back_is_alive() {
        let mut store = Store::default();
        fold(&mut store, &object("ns", "a", "1", "9"), Source::Watch);
        store.bury("ns", "a", Some("1"), Some(10));
        assert!(
            !fold(&mut store, &object("ns", "a", "1", "9"), Source::Observed),
            "from before"
        );
        assert!(
            fold(&mut store, &object("ns", "a", "1", "11"), Source::Observed),
            "written since, so it cannot be gone"
        );
        assert!(fold(
            &mut store,
            &object("ns", "a", "1", "12"),
            Source::Watch
        ));
        assert_eq!(version_of(&store, "a").as_deref(), Some("12"));
    }

    #[test]
    fn graves_are_bounded() {
        let mut store = Store::default();
        for uid in 0..GRAVES + 10 {
            store.bury("ns", "a", Some(&uid.to_string()), None);
        }
        assert_eq!(store.graves.buried.len(), GRAVES);
        store.bury("ns", "a", Some(&"x".repeat(LONGEST_UID + 1)), None);
        assert!(store.graves.buried.keys().all(|uid| uid.len() < 10));
        assert!(
            store.accepts(&object("ns", "a", "0", "1"), Source::Watch),
            "the oldest is forgotten"
        );
    }

    #[test]
    fn a_list_takes_out_what_it_does_not_contain_except_own_writes_since() {
        let mut store = Store::default();
        for (namespace, name) in [("ns", "stays"), ("ns", "goes"), ("other", "elsewhere")] {
            fold(
                &mut store,
                &object(namespace, name, name, "5"),
                Source::Watch,
            );
        }
        store.begin(Some("ns"));
        fold(
            &mut store,
            &object("ns", "stays", "stays", "7"),
            Source::List,
        );
        fold(
            &mut store,
            &object("ns", "written", "written", "8"),
            Source::Observed,
        );
        let gone = store.end(Some("ns"));
        assert_eq!(
            gone.iter().map(|object| key(object).1).collect::<Vec<_>>(),
            ["goes"]
        );
        assert!(store.get("ns", "written").is_some());
        assert!(store.get("other", "elsewhere").is_some(), "of another list");
    }

    #[test]
    fn a_list_may_go_back_in_time_unless_we_wrote_since() {
        let mut store = Store::default();
        fold(
            &mut store,
            &object("ns", "restored", "1", "900"),
            Source::Watch,
        );
        fold(
            &mut store,
            &object("ns", "written", "2", "900"),
            Source::Watch,
        );
        store.begin(None);
        fold(
            &mut store,
            &object("ns", "written", "2", "950"),
            Source::Observed,
        );
        assert!(fold(
            &mut store,
            &object("ns", "restored", "1", "3"),
            Source::List
        ));
        assert!(!fold(
            &mut store,
            &object("ns", "written", "2", "3"),
            Source::List
        ));
        store.end(None);
        assert_eq!(version_of(&store, "restored").as_deref(), Some("3"));
        assert_eq!(version_of(&store, "written").as_deref(), Some("950"));
    }

    #[test]
    fn what_is_not_kept_is_absent() {
        let mut store = Store::default();
        fold(&mut store, &object("ns", "a", "1", "5"), Source::Watch);
        assert_eq!(store.weight(), 100);
        store.put(object("ns", "a", "1", "6"), None, Source::Watch);
        assert_eq!(store.list(None).len(), 0);
        assert_eq!((store.len(), store.weight()), (0, 0));
    }

    #[test]
    fn names_that_begin_alike_are_found_beside_others() {
        let mut store = Store::default();
        for (namespace, name) in [
            ("ns", "a"),
            ("ns", "b-1"),
            ("ns", "b-2"),
            ("ns", "bc"),
            ("other", "b-3"),
        ] {
            fold(
                &mut store,
                &object(namespace, name, name, "5"),
                Source::Watch,
            );
        }
        let names = |namespace: &str, prefix: &str| -> Vec<_> {
            let found = store.beginning(namespace, prefix);
            found
                .iter()
                .map(|object| key(object).1.to_owned())
                .collect()
        };
        assert_eq!(names("ns", "b-"), ["b-1", "b-2"]);
        assert_eq!(names("ns", "").len(), 4);
        assert!(names("ns", "c").is_empty() && names("none", "b-").is_empty());
    }

    #[test]
    fn clearing_is_by_scope() {
        let mut store = Store::default();
        fold(&mut store, &object("ns", "a", "1", "5"), Source::Watch);
        fold(&mut store, &object("other", "b", "2", "5"), Source::Watch);
        assert_eq!(store.clear(Some("ns")).len(), 1);
        assert_eq!(store.list(None).len(), 1);
        assert_eq!(store.list(Some("other")).len(), 1);
    }
}
