//! Values that must arrive in Glance as they are.
//!
//! oslo.config expands `$name` in files and in environment values, and its
//! file parser strips blanks and one pair of quotes from a value. Only values
//! that come from Secrets are protected from it: what a user types into a
//! custom resource may use that syntax on purpose.

use std::borrow::Cow;

/// The form of `value` that oslo.config reads back unchanged from a file.
pub fn file_value(value: &str) -> Cow<'_, str> {
    let stripped = value.starts_with(char::is_whitespace) || value.ends_with(char::is_whitespace);
    // A lone quote is its own pair.
    let quoted = ['"', '\'']
        .into_iter()
        .any(|quote| value.starts_with(quote) && value.ends_with(quote));
    let doubled = environment_value(value);
    if stripped || quoted {
        Cow::Owned(format!("\"{doubled}\""))
    } else {
        doubled
    }
}

/// The form of `value` that oslo.config reads back unchanged from an
/// environment variable.
///
/// A dollar sign is doubled. Behind a backslash that would not do: oslo.config
/// takes the two of them for a dollar sign of its own, so there it gets another
/// backslash.
pub fn environment_value(value: &str) -> Cow<'_, str> {
    if !value.contains('$') {
        return Cow::Borrowed(value);
    }
    let mut escaped = String::with_capacity(value.len() + 4);
    let mut previous = None;
    for c in value.chars() {
        if c == '$' {
            escaped.push(if previous == Some('\\') { '\\' } else { '$' });
        }
        escaped.push(c);
        previous = Some(c);
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("plain", "plain")]
    #[case("ab$cd", "ab$$cd")]
    #[case("$$", "$$$$")]
    #[case("\\$x", "\\\\$x")]
    #[case("\\$$", "\\\\$$$")]
    #[case("\\\\$", "\\\\\\$")]
    #[case(" lead", "\" lead\"")]
    #[case("trail ", "\"trail \"")]
    #[case("nbsp\u{a0}", "\"nbsp\u{a0}\"")]
    #[case("\"quoted\"", "\"\"quoted\"\"")]
    #[case("'quoted'", "\"'quoted'\"")]
    #[case("'$x'", "\"'$$x'\"")]
    #[case("\"", "\"\"\"")]
    #[case("\"half", "\"half")]
    #[case("a b", "a b")]
    #[case("", "")]
    fn a_value_is_protected_only_where_it_needs_it(#[case] value: &str, #[case] expected: &str) {
        assert_eq!(file_value(value), expected);
    }

    /// What oslo.config makes of a value in a file.
    fn read(value: &str) -> String {
        let value = value.trim();
        let bytes = value.as_bytes();
        let quoted = matches!(bytes.first(), Some(b'"' | b'\'')) && bytes.first() == bytes.last();
        let inner = match (quoted, value.len()) {
            (true, 1) => "",
            (true, length) => &value[1..length - 1],
            (false, _) => value,
        };
        inner.replace("\\$", "$$").replace("$$", "$")
    }

    proptest! {
        #[test]
        fn a_secret_arrives_unchanged(value in "[ -~é\u{a0}]{0,16}|[ \"'$\\\\]{0,6}") {
            prop_assert_eq!(read(&file_value(&value)), value);
        }
    }
}
