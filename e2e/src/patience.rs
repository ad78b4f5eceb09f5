//! How long the bed waits. One factor for all limits, so that a slow machine needs one
//! variable and no edit.

use std::{env, sync::LazyLock, time::Duration};

static FACTOR: LazyLock<f64> = LazyLock::new(|| {
    env::var("E2E_PATIENCE")
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|factor: &f64| factor.is_finite() && *factor > 0.0)
        .unwrap_or(1.0)
});

/// `seconds`, times the factor in `E2E_PATIENCE`.
pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds).mul_f64(*FACTOR)
}
