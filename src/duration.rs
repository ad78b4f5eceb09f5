//! Durations as Go writes them: `90s`, `1h30m`, `5m0s`.
//!
//! The client library's type computes in floating point and panics on a number
//! too large for it, which a field of a custom resource must not be able to
//! cause.

use std::time::Duration;

/// A text that is no Go duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration such as \"90s\", \"5m\" or \"1h30m\"")]
pub struct DurationError {
    /// The text that was read.
    pub text: String,
}

/// The whole seconds of a duration such as `1.5h` or `1m30s500ms`; what is
/// left over is dropped. Negative texts give negative seconds.
///
/// Accepts what Go's `time.ParseDuration` accepts, up to its limit of about
/// 292 years.
pub fn seconds(text: &str) -> Result<i64, DurationError> {
    let fault = || DurationError {
        text: text.to_owned(),
    };
    let nanoseconds = parse(text).ok_or_else(fault)?;
    Ok(nanoseconds / NANOSECONDS)
}

/// A duration that is not negative, to the nanosecond.
pub fn unsigned(text: &str) -> Result<Duration, DurationError> {
    parse(text)
        .and_then(|nanoseconds| u64::try_from(nanoseconds).ok())
        .map(Duration::from_nanos)
        .ok_or_else(|| DurationError {
            text: text.to_owned(),
        })
}

/// A duration in the form Go prints: `5m0s`, `1h0m0s`, `1.5s`, `100ms`, `0s`.
pub fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let nanoseconds = duration.subsec_nanos();
    if seconds == 0 {
        return match nanoseconds {
            0 => "0s".to_owned(),
            n if n < 1_000 => format!("{n}ns"),
            n if n < 1_000_000 => format!("{}µs", decimal(u64::from(n / 1_000), n % 1_000, 3)),
            n => format!("{}ms", decimal(u64::from(n / 1_000_000), n % 1_000_000, 6)),
        };
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = decimal(seconds % 60, nanoseconds, 9);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, minutes) => format!("{minutes}m{rest}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}s"),
    }
}

const NANOSECONDS: i64 = 1_000_000_000;

/// `whole` and a fraction of `places` digits, trailing zeros left out.
fn decimal(whole: u64, fraction: u32, places: usize) -> String {
    if fraction == 0 {
        return whole.to_string();
    }
    let digits = format!("{fraction:0places$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i64 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        total = total.checked_add(term(number, unit)?)?;
        rest = tail;
    }
    Some(if negative { -total } else { total })
}

/// One `<number><unit>` in nanoseconds.
fn term(number: &str, unit: &str) -> Option<i64> {
    let scale: i64 = match unit {
        "ns" => 1,
        // The micro sign and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => NANOSECONDS,
        "m" => 60 * NANOSECONDS,
        "h" => 3600 * NANOSECONDS,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: i64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    // Digits beyond the fifteenth are far below a nanosecond of an hour.
    let digits = &fraction[..fraction.len().min(15)];
    let part = if digits.is_empty() {
        0
    } else {
        let power = 10_i128.pow(u32::try_from(digits.len()).ok()?);
        digits.parse::<i128>().ok()? * i128::from(scale) / power
    };
    whole
        .checked_mul(scale)?
        .checked_add(i64::try_from(part).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("90s", 90)]
    #[case("5m", 300)]
    #[case("5m0s", 300)]
    #[case("1h30m", 5400)]
    #[case("1.5h", 5400)]
    #[case(".5m", 30)]
    #[case("1.s", 1)]
    #[case("1m30s500ms", 90)]
    #[case("999ms", 0)]
    #[case("1999ms", 1)]
    #[case("1000000us", 1)]
    #[case("1000000µs", 1)]
    #[case("1000000μs", 1)]
    #[case("3000000000ns", 3)]
    #[case("0", 0)]
    #[case("-0", 0)]
    #[case("+5s", 5)]
    #[case("-1.5s", -1)]
    #[case("0.99999999999999999999999999h", 3599)]
    #[case("2562047h47m16s", 9_223_372_036)]
    fn reads_what_go_reads(#[case] text: &str, #[case] expected: i64) {
        assert_eq!(seconds(text), Ok(expected));
    }

    #[rstest]
    #[case("")]
    #[case("-")]
    #[case("5")]
    #[case("m")]
    #[case(".s")]
    #[case("fast")]
    #[case("5 m")]
    #[case("5d")]
    #[case("1.2.3s")]
    #[case("--5s")]
    #[case("1e3s")]
    #[case("99999999999h")]
    #[case("2562047h48m")]
    fn refuses_what_is_no_duration(#[case] text: &str) {
        assert_eq!(
            seconds(text).unwrap_err().to_string(),
            format!("{text:?} is not a duration such as \"90s\", \"5m\" or \"1h30m\"")
        );
    }

    #[test]
    fn unsigned_durations_keep_their_fraction_and_are_never_negative() {
        assert_eq!(unsigned("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(unsigned("0"), Ok(Duration::ZERO));
        assert!(unsigned("-1ns").is_err());
        assert!(unsigned("1").is_err());
    }

    #[rstest]
    #[case(Duration::from_mins(5), "5m0s")]
    #[case(Duration::from_hours(1), "1h0m0s")]
    #[case(Duration::from_mins(90), "1h30m0s")]
    #[case(Duration::from_secs(30), "30s")]
    #[case(Duration::from_millis(1500), "1.5s")]
    #[case(Duration::from_millis(61_001), "1m1.001s")]
    #[case(Duration::from_millis(100), "100ms")]
    #[case(Duration::from_micros(1500), "1.5ms")]
    #[case(Duration::from_nanos(1500), "1.5µs")]
    #[case(Duration::from_nanos(7), "7ns")]
    #[case(Duration::ZERO, "0s")]
    fn writes_what_go_writes(#[case] duration: Duration, #[case] expected: &str) {
        assert_eq!(go_duration(duration), expected);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(milliseconds in 0u64..1_000_000_000_000) {
            let text = go_duration(Duration::from_millis(milliseconds));
            prop_assert_eq!(seconds(&text), Ok(i64::try_from(milliseconds / 1000).unwrap()));
        }

        #[test]
        fn never_panics(text in "\\PC{0,24}") {
            let _ = seconds(&text);
        }
    }
}
