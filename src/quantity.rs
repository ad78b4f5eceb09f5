//! Kubernetes quantities as whole bytes.
//!
//! Written here because sizes are compared with what the API server makes of
//! the same text, and a crate that computes in floating point or drops
//! fractions gives another image cache limit than the kubelet enforces.

use std::cmp::Ordering;

/// The largest value the API server keeps; larger texts are read as this one.
const MAX: u128 = i64::MAX as u128;

/// A text that is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a Kubernetes quantity")]
pub struct QuantityError {
    /// The text that was read.
    pub text: String,
}

/// The bytes that a quantity such as `10Gi`, `1.5G`, `100m` or `1e3` stands
/// for.
///
/// A fraction of a byte is rounded away from zero, values beyond 64 bits are
/// clamped, surrounding blanks are ignored; all as the API server does. What it
/// reads as zero without saying so (`.`, `+`, a suffix alone) is refused.
pub fn bytes(text: &str) -> Result<i64, QuantityError> {
    let magnitude = parse(text.trim()).ok_or_else(|| QuantityError {
        text: text.to_owned(),
    })?;
    let value = i64::try_from(magnitude.absolute.min(MAX)).unwrap_or(i64::MAX);
    Ok(if magnitude.negative { -value } else { value })
}

/// Which of two quantities is the larger, fractions included, as far as 64 bits
/// of billionths hold them.
pub fn compare(a: &str, b: &str) -> Result<Ordering, QuantityError> {
    let billionths = |text: &str| {
        parse_scaled(text.trim(), 9).map(|magnitude| {
            let absolute = i128::try_from(magnitude.absolute).unwrap_or(i128::MAX);
            if magnitude.negative {
                -absolute
            } else {
                absolute
            }
        })
    };
    let whole = bytes(a)?.cmp(&bytes(b)?);
    Ok(whole.then_with(|| billionths(a).cmp(&billionths(b))))
}

/// `image_cache_max_size` in bytes for a cache volume of `limit` bytes: eight
/// tenths of it, divided first, so that nothing overflows.
///
/// The rest is room for what the API writes between two runs of the pruner.
pub const fn cache_max_bytes(limit: i64) -> i64 {
    (limit / 10) * 8
}

struct Magnitude {
    negative: bool,
    absolute: u128,
}

fn parse(text: &str) -> Option<Magnitude> {
    parse_scaled(text, 0)
}

/// The quantity times ten to the power of `places`.
fn parse_scaled(text: &str, places: i64) -> Option<Magnitude> {
    let (negative, text) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let digits_end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (decimal_exponent, binary_exponent) = exponents(suffix)?;
    Some(Magnitude {
        negative,
        absolute: scale(
            whole,
            fraction,
            decimal_exponent.saturating_add(places),
            binary_exponent,
        ),
    })
}

/// The powers of ten and of two that a suffix stands for.
fn exponents(suffix: &str) -> Option<(i64, u32)> {
    Some(match suffix {
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "" => (0, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => (suffix.strip_prefix(['e', 'E'])?.parse().ok()?, 0),
    })
}

/// `whole.fraction × 10^decimal × 2^binary`, rounded up, at least [`MAX`] when
/// it is beyond it. Exact for any number of digits.
fn scale(whole: &str, fraction: &str, decimal: i64, binary: u32) -> u128 {
    let digits: Vec<u8> = whole
        .bytes()
        .chain(fraction.bytes())
        .map(|digit| digit - b'0')
        .collect();
    let Some(first) = digits.iter().position(|digit| *digit != 0) else {
        return 0;
    };
    let length = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    // Where the decimal point stands, counted from the first non-zero digit.
    let point = (length(whole.len()) - length(first)).saturating_add(decimal);
    let significant = &digits[first..];
    if point > 20 {
        return MAX;
    }
    if point < -20 {
        // Even times 2^60 it is a fraction of a byte.
        return 1;
    }

    let mut integer: u128 = 0;
    let mut places: Vec<u128> = vec![0; usize::try_from(-point).unwrap_or(0)];
    for (index, digit) in significant.iter().enumerate() {
        if length(index) < point {
            integer = integer * 10 + u128::from(*digit);
        } else {
            places.push(u128::from(*digit));
        }
    }
    for _ in length(significant.len())..point {
        integer *= 10;
    }

    // At most 10^20 × 2^60, which fits.
    let mut carry: u128 = 0;
    let mut rest = false;
    for place in places.iter().rev() {
        let product = (place << binary) + carry;
        rest |= !product.is_multiple_of(10);
        carry = product / 10;
    }
    (integer << binary) + carry + u128::from(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0", 0)]
    #[case("0.0", 0)]
    #[case("10", 10)]
    #[case("+10", 10)]
    #[case("-10", -10)]
    #[case(" 10Gi ", 10_737_418_240)]
    #[case("10Gi", 10_737_418_240)]
    #[case("1.5Gi", 1_610_612_736)]
    #[case(".5Gi", 536_870_912)]
    #[case("5.Gi", 5_368_709_120)]
    #[case("0.5", 1)]
    #[case("100m", 1)]
    #[case("1500m", 2)]
    #[case("-1500m", -2)]
    #[case("1u", 1)]
    #[case("1n", 1)]
    #[case("1e-9", 1)]
    #[case("1k", 1000)]
    #[case("1E", 1_000_000_000_000_000_000)]
    #[case("1Ei", 1_152_921_504_606_846_976)]
    #[case("1e3", 1000)]
    #[case("1E3", 1000)]
    #[case("1e+3", 1000)]
    #[case("12345e-2", 124)]
    #[case("0.000001Ei", 1_152_921_504_607)]
    #[case("123456789012345678", 123_456_789_012_345_678)]
    #[case("9223372036854775807", i64::MAX)]
    #[case("9223372036854775808", i64::MAX)]
    #[case("8Ei", i64::MAX)]
    #[case("9Ei", i64::MAX)]
    #[case("1e19", i64::MAX)]
    #[case("1e400", i64::MAX)]
    #[case("-1e400", -i64::MAX)]
    #[case("1e-400", 1)]
    #[case("0e400", 0)]
    #[case(
        "0.00000000000000000000000000000000000000000000000000000000000000001Ei",
        1
    )]
    fn reads_what_the_api_server_reads(#[case] text: &str, #[case] expected: i64) {
        assert_eq!(bytes(text), Ok(expected));
    }

    #[rstest]
    #[case("100m", "500m", Ordering::Less)]
    #[case("500m", "0.5", Ordering::Equal)]
    #[case("600m", "500m", Ordering::Greater)]
    #[case("1", "999m", Ordering::Greater)]
    #[case("1Gi", "1024Mi", Ordering::Equal)]
    #[case("2Gi", "1G", Ordering::Greater)]
    #[case("-1", "-500m", Ordering::Less)]
    fn fractions_count_where_quantities_are_compared(
        #[case] a: &str,
        #[case] b: &str,
        #[case] ordering: Ordering,
    ) {
        assert_eq!(compare(a, b), Ok(ordering));
    }

    #[rstest]
    #[case("")]
    #[case(" ")]
    #[case(".")]
    #[case("+")]
    #[case("-")]
    #[case("Gi")]
    #[case(".Gi")]
    #[case("1.2.3")]
    #[case("1 Gi")]
    #[case("10gi")]
    #[case("10GB")]
    #[case("1e")]
    #[case("1e1.5")]
    #[case("1e3Ki")]
    #[case("--1")]
    #[case("0x10")]
    #[case("١")]
    #[case("10é")]
    fn refuses_what_is_no_quantity(#[case] text: &str) {
        let error = bytes(text).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{text:?} is not a Kubernetes quantity")
        );
    }

    #[rstest]
    #[case("10Gi", 8_589_934_592)]
    #[case("20Gi", 17_179_869_184)]
    #[case("256Mi", 214_748_360)]
    #[case("1Mi", 838_856)]
    #[case("4Ei", 3_689_348_814_741_910_320)]
    #[case("100m", 0)]
    fn the_cache_keeps_a_fifth_of_its_volume_free(#[case] limit: &str, #[case] expected: i64) {
        assert_eq!(cache_max_bytes(bytes(limit).unwrap()), expected);
    }

    /// `numerator / denominator` rounded up, in plain big-integer steps.
    fn ceil_ratio(numerator: u128, denominator: u128) -> u128 {
        numerator / denominator + u128::from(!numerator.is_multiple_of(denominator))
    }

    proptest! {
        #[test]
        fn agrees_with_integer_arithmetic(
            whole in 0u64..1_000_000_000,
            fraction in "[0-9]{0,9}",
            suffix in prop::sample::select(vec![
                ("", 1u128), ("k", 1000), ("M", 1_000_000), ("G", 1_000_000_000),
                ("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("Ti", 1 << 40), ("Ei", 1 << 60),
            ]),
        ) {
            let text = format!("{whole}.{fraction}{}", suffix.0);
            let denominator = 10u128.pow(u32::try_from(fraction.len()).unwrap());
            let digits: u128 = format!("{whole}{fraction}").parse().unwrap();
            let expected = ceil_ratio(digits * suffix.1, denominator).min(MAX);
            prop_assert_eq!(u128::try_from(bytes(&text).unwrap()).unwrap(), expected, "{}", text);
        }

        #[test]
        fn an_exponent_is_a_shift_of_the_point(digits in 1u64..1_000_000, exponent in -6i32..=6) {
            let text = format!("{digits}e{exponent}");
            let expected = if exponent < 0 {
                ceil_ratio(u128::from(digits), 10u128.pow(exponent.unsigned_abs()))
            } else {
                u128::from(digits) * 10u128.pow(exponent.unsigned_abs())
            };
            prop_assert_eq!(u128::try_from(bytes(&text).unwrap()).unwrap(), expected);
        }

        #[test]
        fn never_panics(text in "\\PC{0,24}") {
            let _ = bytes(&text);
        }

        #[test]
        fn the_cache_limit_never_overflows(limit in any::<i64>()) {
            prop_assert!(cache_max_bytes(limit).unsigned_abs() <= limit.unsigned_abs());
        }
    }
}
