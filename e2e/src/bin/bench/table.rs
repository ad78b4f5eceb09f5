//! One line per promise: what is allowed, what was seen, and what the Go operator took.

use std::{fmt::Display, time::Duration};

/// What is promised and what was seen.
struct Promise {
    what: &'static str,
    go: &'static str,
    limit: f64,
    seen: f64,
    unit: &'static str,
    is_timed: bool,
}

/// The promises so far, in the order they were looked at.
#[derive(Default)]
pub struct Table(Vec<Promise>);

// === impl Table ===

impl Table {
    /// Adds a count, a size or a processor time, which is held to its limit.
    pub fn counted(
        &mut self,
        what: &'static str,
        go: &'static str,
        (limit, seen): (f64, f64),
        unit: &'static str,
    ) {
        let is_timed = false;
        self.0.push(Promise {
            what,
            go,
            limit,
            seen,
            unit,
            is_timed,
        });
    }

    /// Adds a time, in seconds, which says as much of the machine.
    pub fn timed(&mut self, what: &'static str, go: &'static str, limit: f64, seen: Duration) {
        self.0.push(Promise {
            what,
            go,
            limit,
            seen: seen.as_secs_f64(),
            unit: "s",
            is_timed: true,
        });
    }

    /// Whether all that is not timed was kept.
    pub fn is_kept(&self) -> bool {
        self.0.iter().all(|p| p.is_timed || p.seen <= p.limit)
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{:62} {:>14} {:>12} {:>12}",
            "", "Go operator", "at most", "seen"
        )?;
        for p in &self.0 {
            let verdict = match (p.seen <= p.limit, p.is_timed) {
                (true, _) => "",
                (false, true) => "  (slower: a timed figure)",
                (false, false) => "  BROKEN",
            };
            let limit = format!("{} {}", p.limit, p.unit);
            let seen = format!("{:.1} {}", p.seen, p.unit);
            writeln!(
                f,
                "{:62} {:>14} {limit:>12} {seen:>12}{verdict}",
                p.what, p.go
            )?;
        }
        Ok(())
    }
}
