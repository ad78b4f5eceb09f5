//! The registry against API servers that run, and misbehave, in this process.

mod calls;
mod fake;
mod informers;
mod registrations;

use std::time::{Duration, Instant};

/// Waits until `check` answers something, and fails with `what` after `limit`.
async fn eventually<T>(what: &str, limit: Duration, mut check: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(started.elapsed() < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
