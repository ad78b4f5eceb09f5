//! How much of what a server says is held in memory: a hostile one must not take that of the process, and with it the
//! work on every other cluster.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

const MIB: usize = 1024 * 1024;

/// An answer is larger than this client is willing to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerTooLong {
    /// One answer, or one line of a watch, has more than this many bytes.
    #[error("the answer of the API server is longer than {0} bytes")]
    Bytes(usize),
    /// It has more than this many JSON values, which take many times the memory of their text.
    #[error("the answer of the API server holds more than {0} values")]
    Values(usize),
    /// All answers that have not ended have more than this many bytes together.
    #[error("the unfinished answers of the API server are longer than {0} bytes together")]
    Together(usize),
}

/// How much one server may make this process hold, over all connections to it.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    answer: usize,
    values: usize,
    together: usize,
    held: Arc<AtomicUsize>,
}

/// What is held of one answer.
pub(super) struct Tally {
    limits: Limits,
    /// Whether each line counts by itself.
    lines: bool,
    bytes: usize,
    values: usize,
    in_text: bool,
    escaped: bool,
}

// === impl Limits ===

impl Limits {
    /// For the cluster of the process itself, which is trusted with more than memory.
    pub(crate) fn hub() -> Self {
        Self {
            answer: 64 * MIB,
            values: usize::MAX,
            together: usize::MAX,
            held: Arc::default(),
        }
    }

    /// For any other. An object has 1.5 MiB at most where it is stored, and lists are asked for in smaller pages when a page
    /// is too large.
    pub(crate) fn target() -> Self {
        Self {
            answer: 4 * MIB,
            values: 100_000,
            together: 12 * MIB,
            held: Arc::default(),
        }
    }

    /// For one answer; for a watch, whose lines are answers, with `lines`.
    pub(super) fn tally(&self, lines: bool) -> Tally {
        Tally {
            limits: self.clone(),
            lines,
            bytes: 0,
            values: 0,
            in_text: false,
            escaped: false,
        }
    }
}

// === impl Tally ===

impl Tally {
    /// A further piece of the answer.
    pub(super) fn take(&mut self, data: &[u8]) -> Result<(), AnswerTooLong> {
        let ended = data.iter().rposition(|byte| self.lines && *byte == b'\n');
        let open = match ended {
            Some(end) => data.len() - end - 1,
            None => self.bytes + data.len(),
        };
        self.hold(open)?;
        if open > self.limits.answer {
            return Err(AnswerTooLong::Bytes(self.limits.answer));
        }
        if self.limits.values < usize::MAX {
            self.count(data)?;
        }
        Ok(())
    }

    /// Counts values by what comes before each: the beginning of what it is in, or a comma.
    fn count(&mut self, data: &[u8]) -> Result<(), AnswerTooLong> {
        for byte in data {
            match byte {
                // Not within a text, where it would be escaped.
                b'\n' if self.lines => {
                    self.values = 0;
                    self.in_text = false;
                    self.escaped = false;
                }
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_text => self.escaped = true,
                b'"' => self.in_text = !self.in_text,
                b',' | b'[' | b'{' if !self.in_text => {
                    self.values += 1;
                    if self.values > self.limits.values {
                        return Err(AnswerTooLong::Values(self.limits.values));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn hold(&mut self, bytes: usize) -> Result<(), AnswerTooLong> {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let held = &self.limits.held;
        let others = held
            .fetch_sub(before, Ordering::Relaxed)
            .saturating_sub(before);
        held.fetch_add(bytes, Ordering::Relaxed);
        if bytes > before && others.saturating_add(bytes) > self.limits.together {
            return Err(AnswerTooLong::Together(self.limits.together));
        }
        Ok(())
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.limits.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(answer: usize, values: usize, together: usize) -> Limits {
        Limits {
            answer,
            values,
            together,
            held: Arc::default(),
        }
    }

    #[test]
    fn an_answer_counts_as_a_whole_and_a_watch_by_its_lines() {
        let limits = limits(10, 100, 100);
        let mut call = limits.tally(false);
        assert_eq!(call.take(b"12345\n"), Ok(()));
        assert_eq!(call.take(b"12345\n"), Err(AnswerTooLong::Bytes(10)));
        let mut watch = limits.tally(true);
        for _ in 0..100 {
            assert_eq!(watch.take(b"123\n4567"), Ok(()));
        }
        assert_eq!(watch.take(b"1234567"), Err(AnswerTooLong::Bytes(10)));
    }

    #[test]
    fn values_are_counted_and_the_same_signs_in_texts_are_not() {
        let limits = limits(1000, 4, 1000);
        let take = |text: &str| limits.tally(false).take(text.as_bytes());
        assert_eq!(take(r#"{"a":[1,2]}"#), Ok(()));
        assert_eq!(take(r#"{"a":[1,2,3]}"#), Ok(()));
        assert_eq!(take(r#"{"a":[1,2,3,4]}"#), Err(AnswerTooLong::Values(4)));
        assert_eq!(take("[{},{},{}]"), Err(AnswerTooLong::Values(4)));
        assert_eq!(take(r#"{"a,{[,,,":",,\",,[[[{{{\\"}"#), Ok(()));
        let mut watch = limits.tally(true);
        let mut pieces = limits.tally(true);
        for _ in 0..10 {
            assert_eq!(watch.take(b"{\"a\":[1,2,3]}\n"), Ok(()));
            for piece in ["{\"a\\", "\",,,,,\":[1,", "2,3]}\n"] {
                assert_eq!(pieces.take(piece.as_bytes()), Ok(()), "{piece}");
            }
        }
    }

    #[test]
    fn what_has_not_ended_counts_together_and_what_has_does_not() {
        let limits = limits(10, 100, 25);
        let mut watches = [limits.tally(true), limits.tally(true), limits.tally(true)];
        let [one, two, three] = &mut watches;
        assert_eq!(one.take(b"1234567890"), Ok(()));
        assert_eq!(two.take(b"1234567890"), Ok(()));
        assert_eq!(three.take(b"1234567890"), Err(AnswerTooLong::Together(25)));
        assert_eq!(one.take(b"\n"), Ok(()));
        drop(watches);
        assert_eq!(limits.held.load(Ordering::Relaxed), 0);
        assert_eq!(limits.tally(false).take(b"1234567890"), Ok(()));
    }
}
