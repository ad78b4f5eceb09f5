//! How much work may be under way on one cluster; the limit can be changed while it is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Counts the pieces of work on one cluster against a limit.
#[derive(Debug)]
pub(crate) struct Permits {
    limit: AtomicUsize,
    used: AtomicUsize,
}

/// Permission for one piece of work, given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    permits: Arc<Permits>,
}

/// Works, and lets go of `held` after a while: work that only waits for an answer costs nothing, and must not keep others waiting.
pub(crate) async fn keeping<T>(
    held: impl Send,
    limit: Duration,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    if let Ok(done) = tokio::time::timeout(limit, &mut work).await {
        return done;
    }
    drop(held);
    work.await
}

// === impl Permits ===

impl Permits {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
        })
    }

    /// From now on. Work that is under way goes on, also above a lower limit.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        let limit = self.limit.load(Ordering::Relaxed);
        let one_more = |used| (used < limit).then_some(used + 1);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .ok()?;
        Some(Permit {
            permits: Arc::clone(self),
        })
    }
}

// === impl Permit ===

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.used.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_limit_holds_as_soon_as_the_surplus_has_ended() {
        let permits = Permits::new(2);
        let one = permits.try_acquire();
        let two = permits.try_acquire();
        assert!(one.is_some() && two.is_some() && permits.try_acquire().is_none());
        permits.set_limit(1);
        drop(one);
        assert!(permits.try_acquire().is_none(), "one is still under way");
        drop(two);
        assert!(permits.try_acquire().is_some());
        permits.set_limit(3);
        assert!(permits.try_acquire().is_some());
    }
}
