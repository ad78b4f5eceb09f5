//! OpenStack releases: reading `YYYY.N`, comparing, and what follows from them.
//!
//! Everything that depends on the age of a release is asked through this
//! module, so that an unreadable release text means the same thing everywhere:
//! it counts as older than any boundary (contract: configuration, launch mode;
//! database, release grammar).

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// The first release whose Glance has no stand-alone server worth running.
const UWSGI: Release = Release {
    year: 2026,
    minor: 1,
};

/// A release of OpenStack, such as `2026.1`.
///
/// The order is the order in time. A suffix such as `-p1` names a build of the
/// same release and is not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    year: u32,
    minor: u32,
}

/// Which server runs the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaunchMode {
    /// `glance-api`, the server of Glance itself, below 2026.1.
    Eventlet,
    /// uWSGI, from 2026.1.
    Uwsgi,
}

/// A text that names no release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// No text at all.
    #[error("empty release tag")]
    Empty,
    /// Not two parts joined by a dot.
    #[error("invalid release format {text:?}: expected YYYY.N")]
    Format {
        /// The whole text.
        text: String,
    },
    /// The first part is no number.
    #[error("invalid release year in {text:?}: {source}")]
    YearNotANumber {
        /// The whole text.
        text: String,
        /// Why it is none.
        source: ParseIntError,
    },
    /// The second part is no number.
    #[error("invalid release minor version in {text:?}: {source}")]
    MinorNotANumber {
        /// The whole text.
        text: String,
        /// Why it is none.
        source: ParseIntError,
    },
    /// Before OpenStack.
    #[error("invalid release year {year} in {text:?}: must be >= 2010")]
    Year {
        /// The year that was read.
        year: i64,
        /// The whole text.
        text: String,
    },
    /// There are two releases a year.
    #[error("invalid release minor version {minor} in {text:?}: must be 1 or 2")]
    Minor {
        /// The number that was read.
        minor: i64,
        /// The whole text.
        text: String,
    },
}

/// The launch mode of the release that `text` names.
///
/// The boundary is 2026.1; a text that names no release runs eventlet, as the
/// oldest release would. This is the only place that knows the boundary.
pub fn launch_mode(text: &str) -> LaunchMode {
    if is_below(text, UWSGI) {
        LaunchMode::Eventlet
    } else {
        LaunchMode::Uwsgi
    }
}

/// Whether `text` names a release older than `boundary`. An unreadable text
/// does: what only old releases need is harmless on a new one, and not the
/// other way round.
pub fn is_below(text: &str, boundary: Release) -> bool {
    !text
        .parse::<Release>()
        .is_ok_and(|release| release >= boundary)
}

// === impl Release ===

impl Release {
    /// A release by its numbers. For constants; nothing is checked.
    pub const fn new(year: u32, minor: u32) -> Self {
        Self { year, minor }
    }

    /// The year of the release.
    pub const fn year(self) -> u32 {
        self.year
    }

    /// 1 for the spring release, 2 for the autumn one.
    pub const fn minor(self) -> u32 {
        self.minor
    }

    /// Whether `next` is the release right after this one.
    pub const fn is_followed_by(self, next: Self) -> bool {
        (self.year == next.year && self.minor == 1 && next.minor == 2)
            || (self.year + 1 == next.year && self.minor == 2 && next.minor == 1)
    }
}

impl FromStr for Release {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<Self, ReleaseError> {
        if text.is_empty() {
            return Err(ReleaseError::Empty);
        }
        let quoted = || text.to_owned();
        let base = text.split_once('-').map_or(text, |(base, _)| base);
        let (year, minor) = base
            .split_once('.')
            .filter(|(_, minor)| !minor.contains('.'))
            .ok_or_else(|| ReleaseError::Format { text: quoted() })?;
        let year: i64 = year
            .parse()
            .map_err(|source| ReleaseError::YearNotANumber {
                text: quoted(),
                source,
            })?;
        let minor: i64 = minor
            .parse()
            .map_err(|source| ReleaseError::MinorNotANumber {
                text: quoted(),
                source,
            })?;
        // A year beyond 32 bits is as wrong as one before 2010.
        let known = u32::try_from(year).ok().filter(|year| *year >= 2010);
        let Some(known_year) = known else {
            return Err(ReleaseError::Year {
                year,
                text: quoted(),
            });
        };
        match minor {
            1 => Ok(Self::new(known_year, 1)),
            2 => Ok(Self::new(known_year, 2)),
            minor => Err(ReleaseError::Minor {
                minor,
                text: quoted(),
            }),
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.year, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn release(text: &str) -> Release {
        text.parse().unwrap()
    }

    #[rstest]
    #[case("2025.2", 2025, 2)]
    #[case("2026.1-p1", 2026, 1)]
    #[case("2026.1-ubuntu-noble", 2026, 1)]
    #[case("2010.1", 2010, 1)]
    fn reads_a_release_and_ignores_its_suffix(
        #[case] text: &str,
        #[case] year: u32,
        #[case] minor: u32,
    ) {
        assert_eq!(release(text), Release::new(year, minor));
        assert_eq!(release(text).to_string(), format!("{year}.{minor}"));
    }

    #[rstest]
    #[case("", "empty release tag")]
    #[case("latest", r#"invalid release format "latest": expected YYYY.N"#)]
    #[case("-p1", r#"invalid release format "-p1": expected YYYY.N"#)]
    #[case("2025.2.1", r#"invalid release format "2025.2.1": expected YYYY.N"#)]
    #[case("2009.2", r#"invalid release year 2009 in "2009.2": must be >= 2010"#)]
    #[case("-1.2", r#"invalid release format "-1.2": expected YYYY.N"#)]
    #[case(
        "2025.3",
        r#"invalid release minor version 3 in "2025.3": must be 1 or 2"#
    )]
    #[case(
        "2025.0-x",
        r#"invalid release minor version 0 in "2025.0-x": must be 1 or 2"#
    )]
    #[case(
        "yoga.1",
        r#"invalid release year in "yoga.1": invalid digit found in string"#
    )]
    #[case(
        "2025.x",
        r#"invalid release minor version in "2025.x": invalid digit found in string"#
    )]
    #[case(
        "99999999999.1",
        r#"invalid release year 99999999999 in "99999999999.1": must be >= 2010"#
    )]
    fn refuses_what_is_no_release(#[case] text: &str, #[case] message: &str) {
        assert_eq!(text.parse::<Release>().unwrap_err().to_string(), message);
    }

    #[rstest]
    #[case("2025.1", "2025.2", true)]
    #[case("2025.2", "2026.1", true)]
    #[case("2024.2", "2026.1", false)]
    #[case("2025.2", "2026.2", false)]
    #[case("2025.1", "2026.1", false)]
    #[case("2026.1", "2025.2", false)]
    #[case("2026.1", "2026.1", false)]
    fn only_the_next_release_follows(#[case] from: &str, #[case] to: &str, #[case] follows: bool) {
        assert_eq!(release(from).is_followed_by(release(to)), follows);
    }

    #[test]
    fn order_is_the_order_in_time() {
        assert!(release("2025.1") < release("2025.2"));
        assert!(release("2025.2") < release("2026.1"));
        assert!(release("2026.1-p1") <= release("2026.1-p2"));
    }

    #[rstest]
    #[case("2025.2", LaunchMode::Eventlet)]
    #[case("2025.2-p9", LaunchMode::Eventlet)]
    #[case("2026.1", LaunchMode::Uwsgi)]
    #[case("2027.2", LaunchMode::Uwsgi)]
    #[case("latest", LaunchMode::Eventlet)]
    #[case("", LaunchMode::Eventlet)]
    fn launch_mode_changes_at_2026_1(#[case] text: &str, #[case] mode: LaunchMode) {
        assert_eq!(launch_mode(text), mode);
    }
}
