//! Schedules, as the `CronJob` API takes them.

use crate::duration;

/// Why a text is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// It names a time zone, which the `CronJob` API refuses.
    #[error("a time zone prefix (TZ= or CRON_TZ=) is not accepted")]
    TimeZone,
    /// `@` and a word that means nothing.
    #[error("unrecognized descriptor {0:?}")]
    Descriptor(String),
    /// `@every` without a duration.
    #[error("@every takes a duration such as 12h or 90m: {0}")]
    Every(String),
    /// Not five fields.
    #[error("expected exactly 5 fields, found {0}")]
    Fields(usize),
    /// One field is wrong.
    #[error("{field} {text:?}: {fault}")]
    Field {
        /// Which one.
        field: &'static str,
        /// Its text.
        text: String,
        /// What is wrong.
        fault: Fault,
    },
}

/// What is wrong with one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Neither a number nor a known name.
    #[error("not a number")]
    NotANumber,
    /// Outside the range of the field.
    #[error("not within {0}-{1}")]
    OutOfRange(u32, u32),
    /// A range that ends before it begins.
    #[error("the range ends before it begins")]
    Backwards,
    /// A step of zero.
    #[error("the step must be at least 1")]
    Step,
}

struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    words: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field::numbers("minute", 0, 59),
    Field::numbers("hour", 0, 23),
    Field::numbers("day of month", 1, 31),
    Field {
        name: "month",
        first: 1,
        last: 12,
        words: &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    },
    Field {
        name: "day of week",
        first: 0,
        last: 6,
        words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    },
];

const DESCRIPTORS: [&str; 7] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];

/// Whether the text is a schedule: five fields, or a descriptor.
pub fn check(text: &str) -> Result<(), CronError> {
    if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
        return Err(CronError::TimeZone);
    }
    if text.starts_with('@') {
        return descriptor(text);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(CronError::Fields(fields.len()));
    }
    for (field, text) in FIELDS.iter().zip(fields) {
        text.split(',')
            .try_for_each(|part| field.check(part))
            .map_err(|fault| CronError::Field {
                field: field.name,
                text: text.to_owned(),
                fault,
            })?;
    }
    Ok(())
}

/// The seconds between two runs, of an `@every` schedule.
pub fn every_seconds(text: &str) -> Option<i64> {
    duration::seconds(text.strip_prefix("@every ")?).ok()
}

fn descriptor(text: &str) -> Result<(), CronError> {
    if let Some(every) = text.strip_prefix("@every ") {
        return match duration::seconds(every) {
            Ok(_) => Ok(()),
            Err(error) => Err(CronError::Every(error.to_string())),
        };
    }
    if DESCRIPTORS.contains(&text) {
        Ok(())
    } else {
        Err(CronError::Descriptor(text.to_owned()))
    }
}

// === impl Field ===

impl Field {
    const fn numbers(name: &'static str, first: u32, last: u32) -> Self {
        Self {
            name,
            first,
            last,
            words: &[],
        }
    }

    /// One part of the comma list: `*`, `?`, `n` or `a-b`, with or without `/step`.
    fn check(&self, part: &str) -> Result<(), Fault> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        if !matches!(range, "*" | "?") {
            match range.split_once('-') {
                Some((a, b)) if self.number(a)? > self.number(b)? => return Err(Fault::Backwards),
                Some(_) => {}
                None => {
                    self.number(range)?;
                }
            }
        }
        match step.map(number) {
            Some(Some(0)) => Err(Fault::Step),
            None | Some(Some(_)) => Ok(()),
            Some(None) => Err(Fault::NotANumber),
        }
    }

    fn number(&self, text: &str) -> Result<u32, Fault> {
        let word = self
            .words
            .iter()
            .zip(self.first..)
            .find(|(word, _)| text.eq_ignore_ascii_case(word));
        let value = match word {
            Some((_, value)) => value,
            None => number(text).ok_or(Fault::NotANumber)?,
        };
        if (self.first..=self.last).contains(&value) {
            Ok(value)
        } else {
            Err(Fault::OutOfRange(self.first, self.last))
        }
    }
}

/// Digits only: `parse` would take a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("1 0 * * *")]
    #[case("*/5 0-23/2 1,15 JAN-mar sun")]
    #[case("0 0 ? * Mon-Fri")]
    #[case("3/10 * * * *")]
    #[case("  0   0 1 1 0 ")]
    #[case("@daily")]
    #[case("@every 1h30m")]
    fn what_a_cron_job_takes_is_a_schedule(#[case] text: &str) {
        assert_eq!(check(text), Ok(()));
    }

    #[rstest]
    #[case("totally-not-cron", "expected exactly 5 fields, found 1")]
    #[case("", "expected exactly 5 fields, found 0")]
    #[case("0 0 1 1 0 0", "expected exactly 5 fields, found 6")]
    #[case("60 0 1 1 0", "minute \"60\": not within 0-59")]
    #[case("0 24 1 1 0", "hour \"24\": not within 0-23")]
    #[case("0 0 0 1 0", "day of month \"0\": not within 1-31")]
    #[case("0 0 1 13 0", "month \"13\": not within 1-12")]
    #[case("0 0 1 1 7", "day of week \"7\": not within 0-6")]
    #[case("0 0 1 foo 0", "month \"foo\": not a number")]
    #[case("5-1 0 1 1 0", "minute \"5-1\": the range ends before it begins")]
    #[case("*/0 0 1 1 0", "minute \"*/0\": the step must be at least 1")]
    #[case("*/x 0 1 1 0", "minute \"*/x\": not a number")]
    #[case("+1 0 1 1 0", "minute \"+1\": not a number")]
    #[case("1, 0 1 1 0", "minute \"1,\": not a number")]
    #[case("@reboot", "unrecognized descriptor \"@reboot\"")]
    #[case("@Daily", "unrecognized descriptor \"@Daily\"")]
    #[case("TZ=UTC", "a time zone prefix (TZ= or CRON_TZ=) is not accepted")]
    #[case(
        "CRON_TZ=Europe/Berlin 1 0 * * *",
        "a time zone prefix (TZ= or CRON_TZ=) is not accepted"
    )]
    fn what_no_cron_job_takes_is_refused_with_its_reason(#[case] text: &str, #[case] reason: &str) {
        assert_eq!(check(text).unwrap_err().to_string(), reason);
    }

    #[test]
    fn every_is_read_and_its_fault_named() {
        assert_eq!(every_seconds("@every 30s"), Some(30));
        assert_eq!(every_seconds("@daily"), None);
        assert!(
            check("@every often")
                .unwrap_err()
                .to_string()
                .contains("\"often\"")
        );
    }

    proptest! {
        #[test]
        fn never_panics(text in "(TZ=|@every )?[ -~]{0,24}") {
            let _ = check(&text);
        }
    }
}
