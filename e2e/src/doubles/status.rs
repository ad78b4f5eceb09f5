//! The part that all doubles of operators share: watch a kind, decide what its status
//! should say, write it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, future::BoxFuture, pin_mut};
use jiff::Timestamp;
use kube::{
    api::{DynamicObject, Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::cluster::{Cluster, code, told};

/// What a double does with the objects of a kind in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Behaviour {
    /// Its job.
    #[default]
    Healthy,
    /// Reports failure, and does not let go of deleted objects.
    Broken,
    /// Nothing at all, as if it were not installed: new objects get no status, old ones
    /// keep theirs, deleted ones are not let go.
    Silent,
}

/// Behaviours by kind and scope. The scope is the namespace, or the name of an object that
/// has no namespace.
#[derive(Debug, Clone)]
pub struct Mood {
    table: Arc<Mutex<HashMap<(String, String), Behaviour>>>,
    changed: watch::Sender<u64>,
}

/// What a double wants of one object.
#[derive(Debug, Default)]
pub struct Wish {
    /// The new status, merged into the old one; `None` leaves it.
    pub status: Option<Value>,
    /// A finalizer that the real operator holds while the object lives.
    pub finalizer: Option<&'static str>,
}

/// Work beside the status, done before it is written.
pub type Errand =
    Arc<dyn Fn(Cluster, DynamicObject) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// One kind and what its operator does.
#[derive(Clone)]
pub struct Role {
    /// `apiVersion` and kind.
    pub kind: (&'static str, &'static str),
    /// What the object should be like.
    pub wish: fn(&DynamicObject, Behaviour) -> Wish,
    /// Done for healthy objects before the status is written.
    pub errand: Option<Errand>,
}

// === impl Mood ===

impl Default for Mood {
    fn default() -> Self {
        Self {
            table: Arc::default(),
            changed: watch::Sender::new(0),
        }
    }
}

impl Mood {
    /// Changes the behaviour towards the objects of a kind in a scope. It reaches objects
    /// that exist as well.
    pub fn set(&self, kind: (&str, &str), scope: &str, behaviour: Behaviour) {
        let key = (kind.1.to_owned(), scope.to_owned());
        self.table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, behaviour);
        self.changed.send_modify(|version| *version += 1);
    }

    fn towards(&self, object: &DynamicObject, kind: &str) -> Behaviour {
        let scope = object
            .metadata
            .namespace
            .as_ref()
            .or(object.metadata.name.as_ref());
        let key = (kind.to_owned(), scope.cloned().unwrap_or_default());
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.get(&key).copied().unwrap_or_default()
    }
}

/// Plays a role until the task is dropped. A kind that is not served is asked for again.
pub async fn play(cluster: Cluster, role: Role, mood: Mood) {
    let mut changed = mood.changed.subscribe();
    let mut known: BTreeMap<String, DynamicObject> = BTreeMap::new();
    loop {
        let api = cluster.any(role.kind.0, role.kind.1, None);
        let events = watcher(api, watcher::Config::default().timeout(120)).default_backoff();
        pin_mut!(events);
        loop {
            let due: Vec<DynamicObject> = tokio::select! {
                event = events.next() => match event {
                    Some(Ok(watcher::Event::Init)) => { known.clear(); continue }
                    Some(Ok(watcher::Event::Apply(o) | watcher::Event::InitApply(o))) => {
                        known.insert(key(&o), o.clone());
                        vec![o]
                    }
                    Some(Ok(watcher::Event::Delete(o))) => { known.remove(&key(&o)); continue }
                    Some(Ok(watcher::Event::InitDone)) => continue,
                    // Not served yet or no longer: the definitions come and go in tests, and
                    // the backoff of a fresh watcher is short.
                    Some(Err(_)) => {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                        break;
                    }
                    None => break,
                },
                _ = changed.changed() => known.values().cloned().collect(),
            };
            for object in due {
                let behaviour = mood.towards(&object, role.kind.1);
                if let Err(cause) = tend(&cluster, &role, object, behaviour).await {
                    eprintln!("double of {} on {}: {cause}", role.kind.1, cluster.name());
                }
            }
        }
    }
}

fn key(object: &DynamicObject) -> String {
    let m = &object.metadata;
    format!(
        "{}/{}",
        m.namespace.as_deref().unwrap_or(""),
        m.name.as_deref().unwrap_or("")
    )
}

/// Brings one object to what its operator would make of it.
async fn tend(
    cluster: &Cluster,
    role: &Role,
    object: DynamicObject,
    behaviour: Behaviour,
) -> Result<(), String> {
    if behaviour == Behaviour::Silent {
        return Ok(());
    }
    let name = object.metadata.name.clone().unwrap_or_default();
    let api = cluster.any(
        role.kind.0,
        role.kind.1,
        object.metadata.namespace.as_deref(),
    );
    let wish = (role.wish)(&object, behaviour);
    let held = object.metadata.finalizers.clone().unwrap_or_default();
    let ours = |held: &[String]| wish.finalizer.is_some_and(|f| held.iter().any(|h| h == f));
    if object.metadata.deletion_timestamp.is_some() {
        if behaviour == Behaviour::Healthy && ours(&held) {
            let rest: Vec<_> = held
                .iter()
                .filter(|f| Some(f.as_str()) != wish.finalizer)
                .collect();
            let patch = json!({ "metadata": { "finalizers": rest } });
            forgive(
                api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                    .await,
            )?;
        }
        return Ok(());
    }
    if let (Some(finalizer), false) = (wish.finalizer, ours(&held)) {
        let mut all = held.clone();
        all.push(finalizer.to_owned());
        let patch = json!({ "metadata": {
            "finalizers": all,
            "resourceVersion": object.metadata.resource_version,
        } });
        // A conflict means that a newer event is on its way.
        return forgive(
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await,
        );
    }
    if let (Some(errand), Behaviour::Healthy) = (&role.errand, behaviour) {
        errand(cluster.clone(), object.clone()).await?;
    }
    let Some(status) = wish.status else {
        return Ok(());
    };
    let old = object.data.get("status").cloned().unwrap_or(Value::Null);
    if same(&status, &old) {
        return Ok(());
    }
    let patch = json!({ "status": status });
    forgive(
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await,
    )
}

/// Absent and changed meanwhile are no errors: the watch tells the rest.
fn forgive<T>(outcome: Result<T, kube::Error>) -> Result<(), String> {
    match outcome {
        Ok(_) => Ok(()),
        Err(e) if matches!(code(&e), Some(404 | 409 | 422)) => Ok(()),
        Err(e) => Err(told(&e)),
    }
}

/// Whether `old` says all that `new` says, times of transition aside.
fn same(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => new.iter().all(|(key, value)| {
            matches!(key.as_str(), "lastTransitionTime" | "refreshTime")
                || old.get(key).is_some_and(|o| same(value, o))
        }),
        (Value::Array(new), Value::Array(old)) => {
            new.len() == old.len() && new.iter().zip(old).all(|(n, o)| same(n, o))
        }
        (new, old) => new == old,
    }
}

/// A condition in the form that all these kinds share.
pub fn condition(type_: &str, good: bool, reason: &str, message: &str) -> Value {
    json!({
        "type": type_,
        "status": if good { "True" } else { "False" },
        "reason": reason,
        "message": message,
        "lastTransitionTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_rewritten_only_for_a_reason() {
        let old = json!({ "conditions": [condition("Ready", true, "Valid", "m")], "x": 1 });
        let mut new = json!({ "conditions": [condition("Ready", true, "Valid", "m")] });
        new["conditions"][0]["lastTransitionTime"] = json!("2000-01-01T00:00:00Z");
        assert!(same(&new, &old));
        new["conditions"][0]["status"] = json!("False");
        assert!(!same(&new, &old));
    }
}
