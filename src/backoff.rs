//! How long a failed object waits, and when a failure is worth telling people about.
//!
//! [`Backoff`] is the delay between tries: per object 5 ms doubling to 30 s, and all
//! objects of one controller together through a bucket of ten a second (contract:
//! operations, work queue). [`StepFailures`] counts failures in a row of one step of
//! one object; it decides when a condition turns to `ReconcileError`.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Delay after the first failure of an object.
pub const FIRST_DELAY: Duration = Duration::from_millis(5);

/// Longest delay of one object, however often it failed.
pub const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// Failures of all objects of a controller that are retried per second.
const BUCKET_RATE: f64 = 10.0;

/// Failures that may be retried at once before the rate applies.
const BUCKET_BURST: f64 = 100.0;

/// Failures in a row of one step after which its condition says so.
///
/// A single failure that the next try cures demotes nothing.
pub const REPORTED_AFTER: u32 = 3;

/// Retry delays of one controller, keyed by object.
#[derive(Debug)]
pub struct Backoff<K> {
    state: Mutex<State<K>>,
}

/// Failures in a row, per object and step.
#[derive(Debug)]
pub struct StepFailures<K> {
    counts: Mutex<HashMap<K, BTreeMap<&'static str, u32>>>,
}

#[derive(Debug)]
struct State<K> {
    failures: HashMap<K, u32>,
    bucket: Bucket,
}

/// Token bucket that hands out reservations, so tokens may be negative: then the
/// caller waits until they would be zero again.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

// === impl Backoff ===

impl<K: Eq + Hash + Clone> Backoff<K> {
    /// No object has failed yet and the bucket is full.
    pub fn new() -> Self {
        let bucket = Bucket {
            tokens: BUCKET_BURST,
            filled: Instant::now(),
        };
        let failures = HashMap::new();
        Self {
            state: Mutex::new(State { failures, bucket }),
        }
    }

    /// Counts one failure of `key` and says how long to wait before its next try:
    /// the longer one of the object's own delay and the controller's bucket.
    pub fn next(&self, key: &K) -> Duration {
        self.next_at(key, Instant::now())
    }

    /// Forgets the failures of `key`: after a pass without error, and when the object is gone.
    pub fn reset(&self, key: &K) {
        self.lock().failures.remove(key);
    }

    /// Forgets the failures of every key but these: after a list of all objects.
    pub fn retain(&self, is_there: impl Fn(&K) -> bool) {
        self.lock().failures.retain(|key, _| is_there(key));
    }

    /// Failures of `key` since its last reset.
    pub fn failures(&self, key: &K) -> u32 {
        self.lock().failures.get(key).copied().unwrap_or(0)
    }

    fn next_at(&self, key: &K, now: Instant) -> Duration {
        let mut state = self.lock();
        let failures = state.failures.entry(key.clone()).or_default();
        let own = delay_after(*failures);
        *failures = failures.saturating_add(1);
        own.max(state.bucket.reserve(now))
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash + Clone> Default for Backoff<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// Delay of an object that failed `before` times before this failure.
fn delay_after(before: u32) -> Duration {
    2_u32
        .checked_pow(before)
        .and_then(|factor| FIRST_DELAY.checked_mul(factor))
        .map_or(LONGEST_DELAY, |delay| delay.min(LONGEST_DELAY))
}

// === impl StepFailures ===

impl<K: Eq + Hash + Clone> StepFailures<K> {
    /// No step has failed yet.
    pub fn new() -> Self {
        Self {
            counts: Mutex::new(HashMap::new()),
        }
    }

    /// Counts one failure of `step` and returns how many it has failed in a row.
    pub fn failed(&self, key: &K, step: &'static str) -> u32 {
        let mut counts = self.lock();
        let steps = counts.entry(key.clone()).or_default();
        let count = steps.entry(step).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// Ends the row of `step`: it came back without an error.
    pub fn succeeded(&self, key: &K, step: &'static str) {
        let mut counts = self.lock();
        if let Some(steps) = counts.get_mut(key) {
            steps.remove(step);
            if steps.is_empty() {
                counts.remove(key);
            }
        }
    }

    /// How often `step` has failed in a row.
    pub fn failures_in_row(&self, key: &K, step: &'static str) -> u32 {
        let counts = self.lock();
        counts
            .get(key)
            .and_then(|steps| steps.get(step))
            .copied()
            .unwrap_or(0)
    }

    /// Drops everything about an object that is gone.
    pub fn forget(&self, key: &K) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, BTreeMap<&'static str, u32>>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash + Clone> Default for StepFailures<K> {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Bucket ===

impl Bucket {
    fn reserve(&mut self, now: Instant) -> Duration {
        let grown = now.saturating_duration_since(self.filled).as_secs_f64() * BUCKET_RATE;
        self.filled = self.filled.max(now);
        self.tokens = (self.tokens + grown).min(BUCKET_BURST) - 1.0;
        Duration::from_secs_f64((-self.tokens).max(0.0) / BUCKET_RATE)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0, 5)]
    #[case(1, 10)]
    #[case(2, 20)]
    #[case(5, 160)]
    #[case(12, 20_480)]
    #[case(13, 30_000)]
    #[case(31, 30_000)]
    #[case(u32::MAX, 30_000)]
    fn the_delay_doubles_up_to_half_a_minute(#[case] before: u32, #[case] millis: u64) {
        assert_eq!(delay_after(before), Duration::from_millis(millis));
    }

    #[test]
    fn objects_wait_independently_and_start_over_after_a_success() {
        let backoff = Backoff::new();
        let now = Instant::now();
        assert_eq!(backoff.next_at(&"a", now), Duration::from_millis(5));
        assert_eq!(backoff.next_at(&"a", now), Duration::from_millis(10));
        assert_eq!(backoff.next_at(&"b", now), Duration::from_millis(5));
        assert_eq!(backoff.failures(&"a"), 2);
        backoff.reset(&"a");
        assert_eq!(backoff.failures(&"a"), 0);
        assert_eq!(backoff.next_at(&"a", now), Duration::from_millis(5));
    }

    #[test]
    fn many_failing_objects_share_ten_retries_a_second_after_a_burst_of_a_hundred() {
        let backoff = Backoff::new();
        let now = Instant::now();
        for key in 0..100 {
            assert_eq!(backoff.next_at(&key, now), FIRST_DELAY, "key {key}");
        }
        assert_eq!(backoff.next_at(&100, now), Duration::from_millis(100));
        assert_eq!(backoff.next_at(&101, now), Duration::from_millis(200));
        // Ten seconds later the bucket is full again, minus nothing but the debt.
        let later = now + Duration::from_secs(20);
        assert_eq!(backoff.next_at(&102, later), FIRST_DELAY);
    }

    #[test]
    fn a_step_is_reported_after_three_failures_in_a_row_only() {
        let failures = StepFailures::new();
        assert_eq!(failures.failed(&"glance", "Database"), 1);
        assert_eq!(failures.failed(&"glance", "Database"), 2);
        failures.succeeded(&"glance", "Database");
        assert_eq!(failures.failures_in_row(&"glance", "Database"), 0);
        assert_eq!(failures.failed(&"glance", "HPA"), 1);
        for _ in 0..3 {
            failures.failed(&"glance", "Database");
        }
        assert_eq!(
            failures.failures_in_row(&"glance", "Database"),
            REPORTED_AFTER
        );
        assert_eq!(failures.failures_in_row(&"glance", "HPA"), 1);
        assert_eq!(failures.failures_in_row(&"other", "Database"), 0);
        failures.forget(&"glance");
        assert_eq!(failures.failures_in_row(&"glance", "Database"), 0);
    }

    #[test]
    fn nothing_is_kept_for_objects_that_work() {
        let failures = StepFailures::new();
        failures.failed(&1, "Secrets");
        failures.succeeded(&1, "Secrets");
        failures.succeeded(&2, "Secrets");
        assert!(failures.lock().is_empty());
    }
}
