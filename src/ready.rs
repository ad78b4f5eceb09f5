//! Readiness by handles: the process is ready when every handle that was given out
//! has been dropped, and a heartbeat that tells a stuck runtime from a busy one.
//!
//! Whoever has something to do before the process may count as ready takes a handle
//! and drops it when done, so nobody can forget to report and no list of what is
//! awaited has to be kept anywhere. A handle dropped by a panic stays pending: work
//! that died is not work that is done.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

/// How often the heartbeat beats.
const BEAT_EVERY: Duration = Duration::from_secs(5);

/// Without a beat for this long the runtime counts as stuck (contract: operations, process).
pub const STUCK_AFTER: Duration = Duration::from_mins(2);

/// Gives out handles and knows which are still held.
#[derive(Clone, Debug)]
pub struct Readiness {
    pending: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    changed: Arc<watch::Sender<()>>,
}

/// Something that must happen before the process is ready. Dropping it says it happened.
#[derive(Debug)]
pub struct Handle {
    name: &'static str,
    readiness: Readiness,
}

/// The last time the runtime found time to run a trivial task.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    start: Instant,
    /// Milliseconds since `start`.
    last: Arc<AtomicU64>,
}

// === impl Readiness ===

impl Readiness {
    /// Ready at once, until the first handle is given out.
    pub fn new() -> Self {
        Self {
            pending: Arc::default(),
            changed: Arc::new(watch::Sender::new(())),
        }
    }

    /// A new handle under `name`, which is what `/readyz` shows. Several may share a name.
    pub fn handle(&self, name: &'static str) -> Handle {
        self.with(|pending| *pending.entry(name).or_default() += 1);
        let readiness = self.clone();
        Handle { name, readiness }
    }

    /// Names that still have handles, in order.
    pub fn pending(&self) -> Vec<&'static str> {
        self.with(|pending| pending.keys().copied().collect())
    }

    /// Whether no handle of `name` is left. A name nobody ever took is ready.
    pub fn is_ready(&self, name: &str) -> bool {
        self.with(|pending| !pending.contains_key(name))
    }

    /// Completes when no handle is left.
    pub async fn ready(&self) {
        let mut changed = self.changed.subscribe();
        while !self.pending().is_empty() {
            // The sender lives in `self`, so an error cannot come; it would mean "look again".
            let _ = changed.changed().await;
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<&'static str, usize>) -> T) -> T {
        f(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Handle ===

impl Drop for Handle {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.readiness.with(|pending| {
            if let Some(count) = pending.get_mut(self.name) {
                *count -= 1;
                if *count == 0 {
                    pending.remove(self.name);
                }
            }
        });
        self.readiness.changed.send_replace(());
    }
}

// === impl Heartbeat ===

impl Heartbeat {
    /// Beats on the current runtime until `stop`.
    pub fn start(stop: CancellationToken) -> Self {
        let heart = Self {
            start: Instant::now(),
            last: Arc::default(),
        };
        let beating = heart.clone();
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            let mut ticks = tokio::time::interval(BEAT_EVERY);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                beating.beat();
            }
        }));
        heart
    }

    /// Time since the last beat.
    pub fn age(&self) -> Duration {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(last)
    }

    fn beat(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ready_means_every_handle_was_dropped() {
        let readiness = Readiness::new();
        assert!(readiness.pending().is_empty());
        let first = readiness.handle("caches");
        let second = readiness.handle("caches");
        let webhook = readiness.handle("webhook");
        assert_eq!(readiness.pending(), ["caches", "webhook"]);
        drop(first);
        assert!(!readiness.is_ready("caches"));
        drop(webhook);
        assert!(readiness.is_ready("webhook"));

        let waiting = tokio::spawn({
            let readiness = readiness.clone();
            async move { readiness.ready().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(second);
        tokio::time::timeout(Duration::from_secs(5), waiting)
            .await
            .unwrap()
            .unwrap();
        assert!(readiness.is_ready("caches"));
    }

    #[tokio::test]
    async fn a_handle_lost_in_a_panic_stays_pending() {
        let readiness = Readiness::new();
        let handle = readiness.handle("caches");
        let died = tokio::spawn(async move {
            let _handle = handle;
            panic!("on purpose");
        });
        assert!(died.await.is_err());
        assert_eq!(readiness.pending(), ["caches"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_heart_beats_while_the_runtime_runs_and_stops_with_it() {
        let stop = CancellationToken::new();
        let heart = Heartbeat::start(stop.clone());
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert!(heart.age() <= BEAT_EVERY, "{:?}", heart.age());
        stop.cancel();
        tokio::time::sleep(Duration::from_mins(3)).await;
        assert!(heart.age() > STUCK_AFTER);
    }
}
