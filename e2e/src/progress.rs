//! What the bed tells the person who waits for it: one line per step, with the
//! time since the start.

use std::{fmt::Display, time::Instant};

/// Prints steps with the time that has passed since it was made.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    start: Instant,
    quiet: bool,
}

// === impl Progress ===

impl Progress {
    /// Starts the clock; lines go to standard error.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            quiet: false,
        }
    }

    /// Starts the clock and prints nothing.
    pub fn silent() -> Self {
        Self {
            start: Instant::now(),
            quiet: true,
        }
    }

    /// Prints one line.
    pub fn say(&self, line: impl Display) {
        if !self.quiet {
            eprintln!("[{:6.1} s] {line}", self.start.elapsed().as_secs_f64());
        }
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }
}
