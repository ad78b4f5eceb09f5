//! A coalescing set of keys that is read as a stream.
//!
//! Watches of many clusters wake one controller. A channel would have to be bounded (and then
//! somebody waits) or unbounded (and then a burst is memory); a set is neither: a key that is
//! already waiting is not added again.

use std::{
    collections::{HashSet, VecDeque},
    hash::Hash,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use futures::Stream;

/// The sending side: never blocks, never fails, cheap to clone.
///
/// ```
/// use futures::StreamExt;
/// use target_registry::Trigger;
///
/// # futures::executor::block_on(async {
/// let (trigger, mut keys) = Trigger::new();
/// for _ in 0..1000 {
///     trigger.send("ns/name");
/// }
/// drop(trigger);
/// assert_eq!(keys.next().await, Some("ns/name"));
/// assert_eq!(keys.next().await, None, "sent a thousand times, delivered once");
/// # });
/// ```
pub struct Trigger<K> {
    shared: Arc<Shared<K>>,
}

/// The receiving side of a [`Trigger`]: yields each waiting key once, in the order of their first
/// sending, and ends when the last sender is gone and nothing waits.
pub struct Triggered<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    waiting: Mutex<Waiting<K>>,
}

struct Waiting<K> {
    order: VecDeque<K>,
    set: HashSet<K>,
    reader: Option<Waker>,
    senders: usize,
}

// === impl Trigger ===

impl<K: Clone + Eq + Hash> Trigger<K> {
    /// A sender and the stream it feeds.
    pub fn new() -> (Self, Triggered<K>) {
        let shared = Arc::new(Shared {
            waiting: Mutex::new(Waiting {
                order: VecDeque::new(),
                set: HashSet::new(),
                reader: None,
                senders: 1,
            }),
        });
        (
            Self {
                shared: shared.clone(),
            },
            Triggered { shared },
        )
    }

    /// Asks for `key` to be delivered. A key that waits already is not queued again; one that was
    /// delivered is.
    pub fn send(&self, key: K) {
        let reader = {
            let mut waiting = self.shared.lock();
            if !waiting.set.insert(key.clone()) {
                return;
            }
            waiting.order.push_back(key);
            waiting.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl<K> Clone for Trigger<K> {
    fn clone(&self) -> Self {
        self.shared.lock().senders += 1;
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<K> Drop for Trigger<K> {
    fn drop(&mut self) {
        let reader = {
            let mut waiting = self.shared.lock();
            waiting.senders -= 1;
            if waiting.senders == 0 {
                waiting.reader.take()
            } else {
                None
            }
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl<K> std::fmt::Debug for Trigger<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trigger")
            .field("waiting", &self.shared.lock().order.len())
            .finish()
    }
}

// === impl Triggered ===

impl<K: Eq + Hash + Unpin> Stream for Triggered<K> {
    type Item = K;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<K>> {
        let mut waiting = self.shared.lock();
        if let Some(key) = waiting.order.pop_front() {
            waiting.set.remove(&key);
            return Poll::Ready(Some(key));
        }
        if waiting.senders == 0 {
            return Poll::Ready(None);
        }
        waiting.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<K> std::fmt::Debug for Triggered<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Triggered")
            .field("waiting", &self.shared.lock().order.len())
            .finish()
    }
}

// === impl Shared ===

impl<K> Shared<K> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting<K>> {
        // Nothing in here can panic half-way, so a poisoned set is still a good one.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};

    use super::*;

    #[tokio::test]
    async fn a_burst_of_one_key_is_one_item_and_order_is_kept() {
        let (trigger, mut keys) = Trigger::new();
        for _ in 0..1000 {
            trigger.send(1);
            trigger.send(2);
        }
        assert_eq!(keys.next().await, Some(1));
        trigger.send(1);
        assert_eq!(keys.next().await, Some(2));
        assert_eq!(
            keys.next().await,
            Some(1),
            "delivered keys may be asked for again"
        );
        assert_eq!(keys.next().now_or_never(), None, "nothing waits");
    }

    #[tokio::test]
    async fn a_waiting_reader_is_woken_from_another_task() {
        let (trigger, mut keys) = Trigger::new();
        let reader = tokio::spawn(async move { keys.next().await });
        tokio::task::yield_now().await;
        trigger.send("late");
        assert_eq!(reader.await.unwrap(), Some("late"));
    }

    #[tokio::test]
    async fn the_stream_ends_with_its_last_sender() {
        let (trigger, mut keys) = Trigger::<u8>::new();
        let other = trigger.clone();
        drop(trigger);
        assert_eq!(keys.next().now_or_never(), None, "one sender is left");
        other.send(7);
        drop(other);
        assert_eq!(keys.next().await, Some(7));
        assert_eq!(keys.next().await, None);
    }
}
