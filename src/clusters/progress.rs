//! What is going on, on standard error: one line that counts the time on a terminal, a line per
//! step elsewhere.

use std::{
    io::{IsTerminal as _, Write as _},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How often a terminal sees the time go on.
const TICK: Duration = Duration::from_millis(100);

/// The progress of one command.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    terminal: bool,
    step: Mutex<String>,
}

// === impl Progress ===

impl Progress {
    /// Begins now.
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
            terminal: std::io::stderr().is_terminal(),
            step: Mutex::default(),
        }
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Says what is going on now. The same words again only move the clock.
    pub fn say(&self, step: &str) {
        let mut last = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        let news = *last != step;
        if news {
            step.clone_into(&mut last);
        }
        let line = format!("[{:5.1} s] {step}", self.seconds());
        // Nobody can be told that nobody can be told anything.
        let mut err = std::io::stderr().lock();
        let _ = match (self.terminal, news) {
            (true, _) => write!(err, "\r\x1b[K{line}").and_then(|()| err.flush()),
            (false, true) => writeln!(err, "{line}"),
            (false, false) => Ok(()),
        };
    }

    /// Does something, with the clock running.
    pub async fn during<T>(&self, step: &str, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            self.say(step);
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(TICK), if self.terminal => {}
            }
        }
    }

    /// Says something that stays, beside the steps.
    pub fn note(&self, text: &str) {
        self.clear();
        eprintln!("{text}");
    }

    /// Takes the line away; what is printed next begins on a clean one.
    pub fn clear(&self) {
        if self.terminal {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[K").and_then(|()| err.flush());
        }
        self.step
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}
