//! Waiting for the cluster to become what a test says, and a good account of what it was
//! instead when time is up.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api,
    api::{DynamicObject, ListParams},
};
use serde_json::Value;

use crate::cluster::{Cluster, code, told};

/// How often we look.
const INTERVAL: Duration = Duration::from_millis(150);

/// Something that a test waits for.
#[derive(Debug, Clone)]
pub struct Object<'a> {
    cluster: &'a Cluster,
    api_version: &'a str,
    kind: &'a str,
    namespace: Option<&'a str>,
    name: &'a str,
}

/// A condition as a test wants it; what is `None` does not matter.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// The condition's type.
    pub type_: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: Option<&'a str>,
    /// The exact reason.
    pub reason: Option<&'a str>,
    /// A part of the message.
    pub message: Option<&'a str>,
}

/// Asks again and again until the answer is `Ok`, and fails with the last answer.
pub async fn eventually<T, E: std::fmt::Display>(
    limit: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        match look().await {
            Ok(found) => return Ok(found),
            Err(seen) if start.elapsed() >= limit => {
                return Err(anyhow!(
                    "waited {:.1} s for {what}; last seen: {seen}",
                    start.elapsed().as_secs_f64()
                ));
            }
            Err(_) => tokio::time::sleep(INTERVAL).await,
        }
    }
}

/// Asks again and again for the whole of `time` and fails as soon as the answer is an error.
pub async fn always<T, E: std::fmt::Display>(
    time: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T, E>,
) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < time {
        if let Err(seen) = look().await {
            return Err(anyhow!(
                "{what} did not hold after {:.1} s: {seen}",
                start.elapsed().as_secs_f64()
            ));
        }
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(())
}

// === impl Object ===

impl<'a> Object<'a> {
    /// Names an object of a namespace.
    pub fn new(
        cluster: &'a Cluster,
        (api_version, kind): (&'a str, &'a str),
        namespace: &'a str,
        name: &'a str,
    ) -> Self {
        Self {
            cluster,
            api_version,
            kind,
            namespace: Some(namespace),
            name,
        }
    }

    /// A namespace.
    pub fn namespace(cluster: &'a Cluster, name: &'a str) -> Self {
        Self {
            cluster,
            api_version: "v1",
            kind: "Namespace",
            namespace: None,
            name,
        }
    }

    /// A Glance.
    pub fn glance(cluster: &'a Cluster, namespace: &'a str, name: &'a str) -> Self {
        Self::new(cluster, crate::kinds::GLANCE, namespace, name)
    }

    /// A `GlanceBackend`.
    pub fn backend(cluster: &'a Cluster, namespace: &'a str, name: &'a str) -> Self {
        Self::new(cluster, crate::kinds::BACKEND, namespace, name)
    }

    fn api(&self) -> Api<DynamicObject> {
        self.cluster
            .any(self.api_version, self.kind, self.namespace)
    }

    /// How messages name it.
    fn title(&self) -> String {
        let namespace = self.namespace.map(|n| format!("{n}/")).unwrap_or_default();
        format!(
            "{} {namespace}{} on {}",
            self.kind,
            self.name,
            self.cluster.name()
        )
    }

    /// The object as it is now.
    pub async fn get(&self) -> Result<Option<DynamicObject>> {
        match self.api().get_opt(self.name).await {
            Ok(found) => Ok(found),
            // The kind itself is not served.
            Err(e) if code(&e) == Some(404) => Ok(None),
            Err(e) => Err(anyhow!("reading {}: {}", self.title(), told(&e))),
        }
    }

    /// Waits for the object to exist.
    pub async fn exists(&self, limit: Duration) -> Result<DynamicObject> {
        self.satisfies(limit, "to exist", |_| Ok(())).await
    }

    /// Waits for the object to be gone from the store.
    pub async fn is_gone(&self, limit: Duration) -> Result<()> {
        let what = format!("{} to be gone", self.title());
        eventually(limit, &what, async || match self.get().await? {
            None => Ok(()),
            Some(found) => Err(anyhow!(
                "it is there; deletion {:?}, finalizers {:?}\n{}",
                found.metadata.deletion_timestamp.as_ref().map(|t| &t.0),
                found.metadata.finalizers,
                conditions_table(&found)
            )),
        })
        .await
    }

    /// Waits until `judge` is content with the object; its complaint ends up in the failure.
    pub async fn satisfies(
        &self,
        limit: Duration,
        wish: &str,
        judge: impl Fn(&DynamicObject) -> Result<(), String>,
    ) -> Result<DynamicObject> {
        let what = format!("{} {wish}", self.title());
        eventually(limit, &what, async || {
            let found = self
                .get()
                .await?
                .ok_or_else(|| anyhow!("it does not exist"))?;
            judge(&found).map_err(|complaint| anyhow!(complaint))?;
            Ok::<_, anyhow::Error>(found)
        })
        .await
    }

    /// Waits for a condition, and for the controller to have seen the newest generation.
    pub async fn condition(&self, limit: Duration, wanted: Wanted<'_>) -> Result<DynamicObject> {
        let wish = format!("to have {wanted}");
        let outcome = self
            .satisfies(limit, &wish, |found| wanted.judge(found))
            .await;
        match outcome {
            Ok(found) => Ok(found),
            Err(error) => Err(error.context(self.account().await)),
        }
    }

    /// Waits for `Ready=True`.
    pub async fn is_ready(&self, limit: Duration) -> Result<DynamicObject> {
        self.condition(limit, Wanted::of("Ready").status("True"))
            .await
    }

    /// Waits for an event about the object with this reason.
    pub async fn event(&self, limit: Duration, reason: &str) -> Result<Event> {
        let what = format!("the event {reason} about {}", self.title());
        eventually(limit, &what, async || {
            let events = self.events().await?;
            let seen: Vec<_> = events.iter().filter_map(|e| e.reason.clone()).collect();
            events
                .into_iter()
                .find(|e| e.reason.as_deref() == Some(reason))
                .ok_or_else(|| anyhow!("events {seen:?}"))
        })
        .await
    }

    /// The events about the object, oldest first.
    pub async fn events(&self) -> Result<Vec<Event>> {
        let events: Api<Event> = match self.namespace {
            Some(namespace) => self.cluster.api(namespace),
            None => Api::all(self.cluster.client()),
        };
        let selector = format!(
            "involvedObject.kind={},involvedObject.name={}",
            self.kind, self.name
        );
        let mut found = events
            .list(&ListParams::default().fields(&selector))
            .await
            .map_err(|e| anyhow!("listing events: {}", told(&e)))?
            .items;
        // Times have seconds only; what was written later has the higher version.
        found.sort_by_key(|event| {
            let version = event
                .metadata
                .resource_version
                .as_deref()
                .unwrap_or_default();
            (
                event.metadata.creation_timestamp.clone(),
                version.parse::<u64>().ok(),
            )
        });
        Ok(found)
    }

    /// Conditions and events of the object, for people.
    pub async fn account(&self) -> String {
        let mut text = format!("{}:\n", self.title());
        match self.get().await {
            Ok(Some(found)) => text.push_str(&conditions_table(&found)),
            Ok(None) => text.push_str("  does not exist\n"),
            Err(error) => drop(writeln!(text, "  {error:#}")),
        }
        for event in self.events().await.unwrap_or_default() {
            let _ = writeln!(
                text,
                "  event {} {}: {}",
                event.type_.unwrap_or_default(),
                event.reason.unwrap_or_default(),
                event.message.unwrap_or_default()
            );
        }
        text
    }
}

// === impl Wanted ===

impl<'a> Wanted<'a> {
    /// Any state of this condition.
    pub fn of(type_: &'a str) -> Self {
        Self {
            type_,
            ..Self::default()
        }
    }

    /// With this status.
    #[must_use]
    pub fn status(self, status: &'a str) -> Self {
        Self {
            status: Some(status),
            ..self
        }
    }

    /// With this reason.
    #[must_use]
    pub fn reason(self, reason: &'a str) -> Self {
        Self {
            reason: Some(reason),
            ..self
        }
    }

    /// With a message that contains this text.
    #[must_use]
    pub fn message(self, message: &'a str) -> Self {
        Self {
            message: Some(message),
            ..self
        }
    }

    fn judge(&self, object: &DynamicObject) -> Result<(), String> {
        let conditions = conditions(object);
        let found = conditions.iter().find(|c| c["type"] == self.type_);
        let text = |key: &str| found.and_then(|c| c[key].as_str()).unwrap_or("(none)");
        let same = |wanted: Option<&str>, key: &str| wanted.is_none_or(|w| text(key) == w);
        let holds = found.is_some()
            && same(self.status, "status")
            && same(self.reason, "reason")
            && self
                .message
                .is_none_or(|part| text("message").contains(part));
        if !holds {
            return Err(format!(
                "{}={}/{}: {}",
                self.type_,
                text("status"),
                text("reason"),
                text("message")
            ));
        }
        // A condition of an older generation says nothing about the manifest of the test.
        let seen = found.and_then(|c| c["observedGeneration"].as_i64());
        match (seen, object.metadata.generation) {
            (Some(seen), Some(now)) if seen < now => Err(format!(
                "{} is of generation {seen}, the object is at {now}",
                self.type_
            )),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.type_, self.status.unwrap_or("*"))?;
        write!(f, "/{}", self.reason.unwrap_or("*"))?;
        self.message
            .map_or(Ok(()), |message| write!(f, " with {message:?}"))
    }
}

/// The conditions in an object's status.
pub fn conditions(object: &DynamicObject) -> Vec<Value> {
    object
        .data
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default()
}

/// One condition of an object.
pub fn condition(object: &DynamicObject, type_: &str) -> Option<Value> {
    conditions(object).into_iter().find(|c| c["type"] == type_)
}

/// One line per condition.
pub fn conditions_table(object: &DynamicObject) -> String {
    let mut text = String::new();
    for c in conditions(object) {
        let get = |key: &str| c[key].as_str().unwrap_or_default().to_owned();
        let _ = writeln!(
            text,
            "  {:<22} {:<8} {:<28} {}",
            get("type"),
            get("status"),
            get("reason"),
            get("message")
        );
    }
    text
}
