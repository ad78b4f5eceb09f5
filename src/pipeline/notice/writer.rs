//! The one task that writes events.

use std::{collections::HashMap, time::Duration};

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use target_registry::{error_code, error_text};
use tokio::{sync::mpsc, time::Instant};

use super::{Item, Notice, cut};

/// Where events about cluster-scoped objects live.
const DEFAULT_NAMESPACE: &str = "default";

/// Longest time one event may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// How long the count of an event is remembered after its last repeat.
const REMEMBERED: Duration = Duration::from_mins(10);

/// Counts that are kept before old ones are looked for.
const MOST_REMEMBERED: usize = 4096;

/// Bytes of an object's name that fit an event's name with the hash behind it.
const LONGEST_OBJECT_NAME: usize = 253 - 17;

/// Writes what publishers queue, one event after the other.
#[derive(Debug)]
pub struct Writer {
    items: mpsc::Receiver<Item>,
    component: String,
    instance: String,
    counts: HashMap<String, Count>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    value: i32,
    at: Instant,
}

// === impl Writer ===

impl Writer {
    pub(super) fn new(items: mpsc::Receiver<Item>, component: String, instance: String) -> Self {
        let counts = HashMap::new();
        Self {
            items,
            component,
            instance,
            counts,
        }
    }

    /// Runs until every publisher is gone and the queue is empty.
    pub async fn run(mut self, client: Client) {
        while let Some(item) = self.items.recv().await {
            match item {
                Item::Event(object, notice) => self.write(&client, &object, &notice).await,
                // Whoever asked may have stopped waiting.
                Item::Flush(done) => drop(done.send(())),
            }
        }
    }

    async fn write(&mut self, client: &Client, object: &ObjectReference, notice: &Notice) {
        let event = self.event(object, notice);
        let namespace = event
            .metadata
            .namespace
            .as_deref()
            .unwrap_or(DEFAULT_NAMESPACE);
        let api = Api::namespaced(client.clone(), namespace);
        let error = match tokio::time::timeout(DEADLINE, self.raise(&api, &event)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error_text(&error),
            Err(elapsed) => elapsed.to_string(),
        };
        tracing::warn!(
            namespace,
            name = object.name,
            reason = notice.reason,
            note = notice.message,
            error,
            "event not written"
        );
    }

    /// One more occurrence of `event`.
    async fn raise(&mut self, api: &Api<Event>, event: &Event) -> kube::Result<()> {
        let name = event.metadata.name.as_deref().unwrap_or_default();
        let now = event.last_timestamp.as_ref();
        if let Some(count) = self.known(name) {
            let count = count.saturating_add(1);
            match patch(api, name, json!({"count": count, "lastTimestamp": now})).await {
                // The API server forgets events after an hour; then it starts anew.
                Err(error) if error_code(&error) == Some(404) => {}
                Err(error) => return Err(error),
                Ok(_) => return self.remember(name, count),
            }
        }
        match api.create(&PostParams::default(), event).await {
            Err(error) if error_code(&error) == Some(409) => {}
            Err(error) => return Err(error),
            Ok(_) => return self.remember(name, 1),
        }
        // An earlier process wrote it. The answer to the first patch tells its count,
        // which saves the right to read.
        let written = patch(api, name, json!({"lastTimestamp": now})).await?;
        let count = written.count.unwrap_or(1).saturating_add(1);
        patch(api, name, json!({"count": count})).await?;
        self.remember(name, count)
    }

    fn event(&self, object: &ObjectReference, notice: &Notice) -> Event {
        let message = cut(&notice.message);
        let now = Time(Timestamp::now());
        let namespace = object.namespace.clone();
        Event {
            metadata: ObjectMeta {
                name: Some(self.name(object, notice, &message)),
                namespace: Some(namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())),
                ..ObjectMeta::default()
            },
            involved_object: object.clone(),
            type_: Some(notice.type_.to_string()),
            reason: Some(notice.reason.to_owned()),
            message: Some(message),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            source: Some(EventSource {
                component: Some(self.component.clone()),
                host: None,
            }),
            reporting_component: Some(self.component.clone()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }

    /// The same name for the same occurrence, in every process.
    fn name(&self, object: &ObjectReference, notice: &Notice, message: &str) -> String {
        let mut hash = Sha256::new();
        let uid = object.uid.as_deref().unwrap_or_default();
        let type_: &str = notice.type_.into();
        for part in [uid, type_, notice.reason, message, &self.component] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        let hash = HEXLOWER.encode(&hash.finalize()[..8]);
        let name = object.name.as_deref().unwrap_or_default();
        let name = &name[..name.floor_char_boundary(LONGEST_OBJECT_NAME)];
        format!("{name}.{hash}")
    }

    fn known(&self, name: &str) -> Option<i32> {
        let count = self.counts.get(name)?;
        (count.at.elapsed() < REMEMBERED).then_some(count.value)
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "reads as the last step of a write"
    )]
    fn remember(&mut self, name: &str, value: i32) -> kube::Result<()> {
        if self.counts.len() >= MOST_REMEMBERED {
            self.counts
                .retain(|_, count| count.at.elapsed() < REMEMBERED);
        }
        // Still full: forgetting costs one request more per repeat, nothing else.
        if self.counts.len() >= MOST_REMEMBERED {
            self.counts.clear();
        }
        let at = Instant::now();
        self.counts.insert(name.to_owned(), Count { value, at });
        Ok(())
    }
}

async fn patch(api: &Api<Event>, name: &str, change: serde_json::Value) -> kube::Result<Event> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(change))
        .await
}
