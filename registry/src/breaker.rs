//! Whether a connected cluster is to be used, judged by what its probe hears.

use std::time::Duration;

use crate::{
    Cause,
    backoff::{Backoff, jittered},
};

/// How connected clusters are probed, and what is made of the answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeOptions {
    /// From one probe of a cluster in use to the next, shortened at random by up to a quarter.
    /// Default 10 s.
    pub interval: Duration,
    /// For the answer to one. Default 5 s.
    pub timeout: Duration,
    /// Failures in a row after which the cluster is given up for now. A credential that is not
    /// accepted (401) needs one. Default 3.
    pub failures: u32,
    /// Answers in a row that bring it back. Default 2.
    pub successes: u32,
    /// From the first failed try to reach a cluster that is not in use to the next. Default 5 s.
    pub first_retry: Duration,
    /// The longest such pause; they double up to it. Default 60 s.
    pub longest_retry: Duration,
}

/// What a probe heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The server works.
    Good,
    /// The server asked to be left alone; in its words. It is there.
    Throttled(String),
    /// Nothing, or nothing good.
    Bad(Cause, String),
}

/// What is to be thought of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Good,
    /// Not as it should be, and to be used all the same.
    Shaky(Cause, String),
    /// Not to be used.
    Down(Cause, String),
}

/// Opens after some failures in a row and closes after some successes, so that neither a single
/// lost answer nor a single lucky one flips it.
#[derive(Debug)]
pub(crate) struct Breaker {
    options: ProbeOptions,
    failures: u32,
    /// Present while it is open: the reason, and how often an answer was good since.
    open: Option<((Cause, String), u32)>,
    tries: Backoff,
}

// === impl ProbeOptions ===

impl Default for ProbeOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(5),
            failures: 3,
            successes: 2,
            first_retry: Duration::from_secs(5),
            longest_retry: Duration::from_mins(1),
        }
    }
}

impl ProbeOptions {
    /// The pauses between tries to reach a cluster that is not in use.
    pub(crate) fn retries(&self) -> Backoff {
        Backoff::new(self.first_retry, self.longest_retry)
    }
}

// === impl Breaker ===

impl Breaker {
    pub(crate) fn new(options: ProbeOptions) -> Self {
        Self {
            tries: options.retries(),
            options,
            failures: 0,
            open: None,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Takes an answer into account.
    pub(crate) fn hear(&mut self, answer: Answer) -> Health {
        match answer {
            Answer::Good => self.answered(Health::Good),
            Answer::Throttled(text) => self.answered(Health::Shaky(Cause::Throttled, text)),
            Answer::Bad(cause, text) => self.failed(cause, text),
        }
    }

    fn answered(&mut self, health: Health) -> Health {
        self.failures = 0;
        self.tries.reset();
        let Some(((cause, text), successes)) = &mut self.open else {
            return health;
        };
        *successes += 1;
        if *successes < self.options.successes {
            return Health::Down(*cause, text.clone());
        }
        self.open = None;
        health
    }

    fn failed(&mut self, cause: Cause, text: String) -> Health {
        self.failures = self.failures.saturating_add(1);
        let enough = self.failures >= self.options.failures || cause == Cause::Unauthorized;
        if !self.is_open() && !enough {
            return Health::Shaky(cause, text);
        }
        self.open = Some(((cause, text.clone()), 0));
        Health::Down(cause, text)
    }

    /// How long to wait until the next probe.
    pub(crate) fn pause(&mut self) -> Duration {
        match &self.open {
            None => jittered(self.options.interval),
            // It may be back: no reason to wait as long as one does for the dead.
            Some((_, successes)) if *successes > 0 => jittered(self.options.first_retry),
            Some(_) => self.tries.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const HEARD: &str = "why";

    fn breaker() -> Breaker {
        Breaker::new(ProbeOptions::default())
    }

    fn bad(cause: Cause) -> Answer {
        Answer::Bad(cause, HEARD.to_owned())
    }

    /// What a sequence of answers comes to: `.` good, `t` throttled, `x` timeout, `u` 401.
    fn told(answers: &str) -> String {
        let mut breaker = breaker();
        let hear = |letter| {
            let answer = match letter {
                '.' => Answer::Good,
                't' => Answer::Throttled(HEARD.to_owned()),
                'u' => bad(Cause::Unauthorized),
                _ => bad(Cause::Timeout),
            };
            match breaker.hear(answer) {
                Health::Good => '.',
                Health::Shaky(..) => 's',
                Health::Down(..) => 'D',
            }
        };
        answers.chars().map(hear).collect()
    }

    #[rstest]
    #[case::a_lost_answer_takes_nothing_away("..x.xx.x", "..s.ss.s")]
    #[case::three_in_a_row_do("..xxx", "..ssD")]
    #[case::one_lucky_answer_brings_nothing_back("xxx.x.x..", "ssDDDDDD.")]
    #[case::a_refused_credential_does_at_once(".u..", ".DD.")]
    #[case::busy_is_not_down("tttttttt", "ssssssss")]
    #[case::busy_is_an_answer("xxtxx", "sssss")]
    #[case::who_answers_busy_is_there("xxxtt", "ssDDs")]
    fn nothing_flaps(#[case] answers: &str, #[case] expected: &str) {
        assert_eq!(told(answers), expected);
    }

    #[test]
    fn the_dead_are_asked_ever_less_and_the_returning_soon() {
        let mut breaker = breaker();
        let near = |pause: Duration, seconds: u64| {
            let full = Duration::from_secs(seconds);
            assert!(pause <= full && pause >= full.mul_f64(0.74), "{pause:?}");
        };
        for _ in 0..3 {
            near(breaker.pause(), 10);
            breaker.hear(bad(Cause::Timeout));
        }
        for expected in [5, 10, 20, 40, 60, 60] {
            near(breaker.pause(), expected);
            breaker.hear(bad(Cause::Timeout));
        }
        breaker.hear(Answer::Good);
        near(breaker.pause(), 5);
        breaker.hear(bad(Cause::Timeout));
        near(breaker.pause(), 5);
        breaker.hear(Answer::Good);
        assert_eq!(breaker.hear(Answer::Good), Health::Good);
        near(breaker.pause(), 10);
    }

    #[test]
    fn the_last_reason_is_the_one_that_is_told() {
        let mut breaker = breaker();
        breaker.hear(bad(Cause::Unauthorized));
        let cause = Cause::ConnectionRefused;
        let down = Health::Down(cause, HEARD.to_owned());
        assert_eq!(breaker.hear(bad(cause)), down);
        assert_eq!(breaker.hear(Answer::Good), down, "still");
    }
}
