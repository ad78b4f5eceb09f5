//! Growing pauses between tries, different for everybody.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// Pauses that double from a first one up to a longest one, each shortened at random by up to a
/// quarter, so that what failed together does not come back together.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    tries: u32,
}

// === impl Backoff ===

impl Backoff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            tries: 0,
        }
    }

    /// The pause before the next try.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self
            .first
            .saturating_mul(1 << self.tries.min(16))
            .min(self.longest);
        self.tries = self.tries.saturating_add(1);
        jittered(pause)
    }

    /// All is well again.
    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }

    /// Failures since the last [`Self::reset`].
    pub(crate) fn tries(&self) -> u32 {
        self.tries
    }
}

/// `pause`, shortened by up to a quarter.
pub(crate) fn jittered(pause: Duration) -> Duration {
    // The keys of the standard library's hasher are random per process and differ per call; a
    // generator of its own would be one more dependency for one line.
    let random = u32::try_from(RandomState::new().hash_one(0_u8) >> 32).unwrap_or_default();
    pause.mul_f64(1.0 - f64::from(random) / f64::from(u32::MAX) / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_differ() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));
        for expected in [1, 2, 4, 8, 8, 8] {
            let pause = backoff.next();
            let full = Duration::from_secs(expected);
            assert!(
                pause <= full && pause >= full.mul_f64(0.74),
                "{pause:?} for {full:?}"
            );
        }
        assert_eq!(backoff.tries(), 6);
        backoff.reset();
        assert!(backoff.next() <= Duration::from_secs(1));
        let pauses: std::collections::HashSet<_> =
            (0..20).map(|_| jittered(Duration::from_mins(1))).collect();
        assert!(pauses.len() > 10, "jitter is not constant");
    }
}
