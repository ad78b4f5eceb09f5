//! Events: what a step has to say beyond its condition, and who writes it down.
//!
//! A step returns [`Notice`] values; the pipeline hands them to a [`Publisher`], which
//! never waits and never fails: a bounded queue leads to one task that writes core/v1
//! Events. An event that cannot be written is logged and dropped.
//!
//! One Event object per object, type, reason, message and source; repeats raise `count`
//! and `lastTimestamp` by a patch, so `create` and `patch` are all the rights it takes
//! (contract: operations, events plumbing). The name of the object follows from its
//! content, therefore a restarted process goes on counting where its predecessor stopped.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::{mpsc, oneshot};

mod writer;

pub use writer::Writer;

/// The source of every event about a Glance; people filter on it.
pub const COMPONENT: &str = "glance-controller";

/// Events that may wait for the API server; more are dropped.
const QUEUE: usize = 1024;

/// Longest message in bytes, a limit of the API.
const LONGEST_MESSAGE: usize = 1024;

/// Shown at the end of a message that was cut.
const CUT: &str = "…";

/// How an event is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::IntoStaticStr)]
pub enum NoticeType {
    /// A step of a life cycle was completed.
    Normal,
    /// Somebody should look.
    Warning,
}

/// Something worth an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How it is to be read.
    pub type_: NoticeType,
    /// One of the contract's stable identifiers.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Whether it tells of something that no later pass can find out again, and must not be lost with the status of
    /// this pass.
    pub unrepeatable: bool,
}

/// Takes notices and returns at once; a clone feeds the same queue.
#[derive(Clone, Debug)]
pub struct Publisher {
    queue: mpsc::Sender<Item>,
}

/// What waits for the writer.
#[derive(Debug)]
enum Item {
    Event(Box<ObjectReference>, Notice),
    /// Answered when everything before it was dealt with.
    Flush(oneshot::Sender<()>),
}

// === impl Notice ===

impl Notice {
    /// A completed step.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        let (type_, message) = (NoticeType::Normal, message.into());
        Self {
            type_,
            reason,
            message,
            unrepeatable: false,
        }
    }

    /// Something somebody should look at.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        let (type_, message) = (NoticeType::Warning, message.into());
        Self {
            type_,
            reason,
            message,
            unrepeatable: false,
        }
    }

    /// Tells it even when the status of this pass cannot be stored.
    #[must_use]
    pub fn unrepeatable(mut self) -> Self {
        self.unrepeatable = true;
        self
    }
}

// === impl Publisher ===

impl Publisher {
    /// A publisher and the writer that must be run for its events to arrive.
    ///
    /// `component` becomes the source of the events, `instance` names this process.
    pub fn new(component: impl Into<String>, instance: impl Into<String>) -> (Self, Writer) {
        let (queue, items) = mpsc::channel(QUEUE);
        let writer = Writer::new(items, component.into(), instance.into());
        (Self { queue }, writer)
    }

    /// Queues an event about `object`.
    pub fn publish(&self, object: &ObjectReference, notice: Notice) {
        let item = Item::Event(Box::new(object.clone()), notice);
        if let Err(refused) = self.queue.try_send(item)
            && let Item::Event(object, notice) = refused.into_inner()
        {
            tracing::warn!(
                namespace = object.namespace,
                name = object.name,
                reason = notice.reason,
                note = notice.message,
                "event dropped: too many are waiting, or the process is ending"
            );
        }
    }

    /// Waits until everything queued so far was dealt with, at most `deadline`; says
    /// whether it was.
    pub async fn flush(&self, deadline: Duration) -> bool {
        let (done, all_done) = oneshot::channel();
        let flushed =
            async { self.queue.send(Item::Flush(done)).await.is_ok() && all_done.await.is_ok() };
        tokio::time::timeout(deadline, flushed)
            .await
            .unwrap_or(false)
    }
}

/// A message within the API's limit, cut at a character.
fn cut(message: &str) -> String {
    if message.len() <= LONGEST_MESSAGE {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(LONGEST_MESSAGE - CUT.len());
    format!("{}{CUT}", &message[..end])
}

#[cfg(test)]
mod tests;
