//! What others tell the writer of the objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::target_cluster::{Abandoned, MissingPermission};

/// Entries a ledger holds at most; the oldest go first.
const LONGEST_LEDGER: usize = 500;

/// How many resources of each namespace name each cluster: by cluster, then by namespace.
pub type Dependents = BTreeMap<String, BTreeMap<String, usize>>;

/// What a look at the rights and kinds of a cluster brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Needed and not granted.
    pub(crate) missing: Vec<MissingPermission>,
    /// Declared and not there.
    pub(crate) missing_namespaces: Vec<String>,
    /// Optional kinds that are served.
    pub(crate) capabilities: Vec<String>,
    /// Why the rights could not be found out.
    pub(crate) failure: Option<String>,
}

/// Everything that is shown and not decided by the registry itself.
#[derive(Default)]
pub(crate) struct Reports {
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    findings: BTreeMap<String, Arc<Findings>>,
    dependents: Option<Dependents>,
    /// By cluster: what has to be added to its ledger, and the owners to be struck off.
    added: BTreeMap<String, Vec<Abandoned>>,
    struck: BTreeMap<String, BTreeSet<String>>,
    /// There is no object to write to.
    nowhere: bool,
}

// === impl Reports ===

impl Reports {
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn findings(&self, name: &str) -> Option<Arc<Findings>> {
        self.lock().findings.get(name).cloned()
    }

    pub(crate) fn set_findings(&self, name: &str, findings: Findings) {
        self.change(|inner| {
            let known = inner.findings.get(name);
            if known.is_some_and(|known| **known == findings) {
                return false;
            }
            inner.findings.insert(name.to_owned(), Arc::new(findings));
            true
        });
    }

    pub(crate) fn forget_findings(&self, name: &str) {
        self.change(|inner| inner.findings.remove(name).is_some());
    }

    /// How many resources name a cluster; `None` while that is not known.
    pub(crate) fn dependents(&self, name: &str) -> Option<usize> {
        let inner = self.lock();
        let all = inner.dependents.as_ref()?;
        Some(all.get(name).map_or(0, |counts| counts.values().sum()))
    }

    /// The namespaces whose resources name a cluster.
    pub(crate) fn used(&self, name: &str) -> BTreeSet<String> {
        let inner = self.lock();
        let counts = inner.dependents.as_ref().and_then(|all| all.get(name));
        counts
            .map(|counts| counts.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// Whether a namespace was found not to exist on a cluster.
    pub(crate) fn lacks(&self, name: &str, namespace: &str) -> bool {
        let inner = self.lock();
        let findings = inner.findings.get(name);
        findings.is_some_and(|f| f.missing_namespaces.iter().any(|n| n == namespace))
    }

    pub(crate) fn set_dependents(&self, dependents: Dependents) {
        self.change(|inner| {
            let is_news = inner.dependents.as_ref() != Some(&dependents);
            inner.dependents = Some(dependents);
            is_news
        });
    }

    /// Enters what one resource left behind.
    pub(crate) fn add(&self, name: &str, entry: Abandoned) {
        self.change(|inner| {
            let added = inner.added.entry(name.to_owned()).or_default();
            added.retain(|known| known.uid != entry.uid);
            added.push(entry);
            true
        });
    }

    /// Strikes off what owners of these UIDs left behind.
    pub(crate) fn strike(&self, name: &str, owners: impl IntoIterator<Item = String>) {
        self.change(|inner| {
            let struck = inner.struck.entry(name.to_owned()).or_default();
            struck.extend(owners);
            true
        });
    }

    /// Clusters something has to be entered for.
    pub(crate) fn with_ledger(&self) -> Vec<String> {
        self.lock().added.keys().cloned().collect()
    }

    /// The ledger as it should be, from what is written.
    pub(crate) fn ledger(&self, name: &str, written: &[Abandoned]) -> Vec<Abandoned> {
        let inner = self.lock();
        let struck = inner.struck.get(name);
        let is_struck = |entry: &&Abandoned| struck.is_some_and(|s| s.contains(&entry.uid));
        let added = inner.added.get(name).map_or(&[][..], Vec::as_slice);
        let mut ledger: Vec<Abandoned> = written
            .iter()
            .filter(|entry| !added.iter().any(|new| new.uid == entry.uid))
            .chain(added)
            .filter(|entry| !is_struck(entry))
            .cloned()
            .collect();
        let surplus = ledger.len().saturating_sub(LONGEST_LEDGER);
        ledger.drain(..surplus);
        ledger
    }

    /// The ledger is written like this now.
    pub(crate) fn written(&self, name: &str, ledger: &[Abandoned]) {
        self.change(|inner| {
            let mut is_news = false;
            if let Some(added) = inner.added.get_mut(name) {
                let before = added.len();
                added.retain(|entry| !ledger.contains(entry));
                is_news |= added.len() != before;
            }
            if let Some(struck) = inner.struck.get_mut(name) {
                struck.retain(|uid| ledger.iter().any(|entry| entry.uid == *uid));
            }
            inner.added.retain(|_, added| !added.is_empty());
            inner.struck.retain(|_, struck| !struck.is_empty());
            is_news
        });
    }

    /// Whether objects can be written at all.
    pub(crate) fn nowhere_to_write(&self, live: bool) {
        self.change(|inner| std::mem::replace(&mut inner.nowhere, !live) == live);
    }

    /// Whether an entry is safe, as far as it can be.
    pub(crate) fn is_written(&self, name: &str, owner: &str) -> bool {
        let inner = self.lock();
        let waits = |added: &Vec<Abandoned>| added.iter().any(|entry| entry.uid == owner);
        inner.nowhere || !inner.added.get(name).is_some_and(waits)
    }

    fn change(&self, act: impl FnOnce(&mut Inner) -> bool) {
        let is_news = act(&mut self.lock());
        if is_news {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each change is one step, so a poisoned lock guards something whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn entry(uid: &str) -> Abandoned {
        Abandoned {
            kind: "Glance".into(),
            namespace: "tenant".into(),
            name: "images".into(),
            uid: uid.into(),
            cluster_uid: None,
            abandoned_at: Time(jiff::Timestamp::UNIX_EPOCH),
            objects: Vec::new(),
        }
    }

    #[test]
    fn an_entry_waits_until_it_is_written_and_is_struck_off_once() {
        let reports = Reports::default();
        reports.add("blue", entry("1"));
        assert!(!reports.is_written("blue", "1"));
        let ledger = reports.ledger("blue", &[entry("0")]);
        assert_eq!(ledger, [entry("0"), entry("1")]);
        reports.written("blue", &ledger);
        assert!(reports.is_written("blue", "1"));
        assert!(reports.with_ledger().is_empty());

        reports.strike("blue", ["0".to_owned()]);
        let ledger = reports.ledger("blue", &ledger);
        assert_eq!(ledger, [entry("1")]);
        reports.written("blue", &ledger);
        assert_eq!(reports.ledger("blue", &[entry("0")]), [entry("0")]);
    }

    #[test]
    fn a_ledger_has_an_end() {
        let reports = Reports::default();
        for number in 0..600 {
            reports.add("blue", entry(&number.to_string()));
        }
        let ledger = reports.ledger("blue", &[]);
        assert_eq!(ledger.len(), LONGEST_LEDGER);
        assert_eq!(ledger.last().unwrap().uid, "599");
    }

    fn dependents() -> Dependents {
        [("blue".to_owned(), [("tenant".to_owned(), 1)].into())].into()
    }

    #[test]
    fn nothing_new_wakes_nobody() {
        let reports = Reports::default();
        reports.set_dependents(dependents());
        let mut changes = reports.changes();
        changes.mark_unchanged();
        reports.set_dependents(dependents());
        reports.written("blue", &[]);
        assert!(!changes.has_changed().unwrap());
        reports.set_findings("blue", Findings::default());
        assert!(changes.has_changed().unwrap());
    }
}
