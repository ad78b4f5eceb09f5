//! The registry against API servers that run, and misbehave, in this process.
//!
//! The modules are marked as tests so that the lints for tests hold in their
//! helpers too.

#[cfg(test)]
mod breaker;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod informers;
#[cfg(test)]
mod isolation;
#[cfg(test)]
mod log;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod registrations;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod tls;

#[cfg(test)]
use std::time::{Duration, Instant};

#[cfg(test)]
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
