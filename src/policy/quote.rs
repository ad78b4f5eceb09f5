//! Values as Go prints them, since clients compare the texts of field errors.

use std::fmt::Write as _;

use serde_json::Value;

/// Most code points of a user's text that an answer repeats: answers end up in
/// logs and audit records.
pub const ECHO_LIMIT: usize = 255;

/// A text in double quotes with Go's escapes, as `%q` prints it.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        let escaped = match c {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{b}' => "\\v",
            c if is_printable(c) => {
                out.push(c);
                continue;
            }
            c => {
                // Writing to a String does not fail.
                let _ = match u32::from(c) {
                    code if code < 0x80 => write!(out, "\\x{code:02x}"),
                    code if code < 0x1_0000 => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
                continue;
            }
        };
        out.push_str(escaped);
    }
    out.push('"');
    out
}

/// A value as a field error shows it: texts quoted, numbers and booleans bare,
/// everything else as compact JSON. Texts are cut.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(&cut(text)),
        other => cut(&other.to_string()),
    }
}

/// The first [`ECHO_LIMIT`] code points of a text, with `…` when there are more.
pub fn cut(text: &str) -> String {
    match text.char_indices().nth(ECHO_LIMIT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// As Go's `unicode.IsPrint`, within the knowledge of Rust's tables.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    if c.is_whitespace() {
        return false;
    }
    // Behind another character a combining mark prints as itself.
    let mut buffer = String::from("x");
    buffer.push(c);
    buffer.escape_debug().nth(1) == Some(c)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("plain", r#""plain""#)]
    #[case("a\"b\\c", r#""a\"b\\c""#)]
    #[case("a\nb\r\tc", r#""a\nb\r\tc""#)]
    #[case("\0\u{1b}\u{7f}", r#""\x00\x1b\x7f""#)]
    #[case("\u{85}\u{a0}\u{2028}", r#""\u0085\u00a0\u2028""#)]
    #[case("\u{e0001}", r#""\U000e0001""#)]
    #[case("é世e\u{301}", "\"é世e\u{301}\"")]
    fn a_text_reads_as_go_prints_it(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(quoted(text), expected);
    }

    #[test]
    fn values_show_as_in_a_go_field_error() {
        assert_eq!(shown(&json!("x")), "\"x\"");
        assert_eq!(shown(&json!(0)), "0");
        assert_eq!(shown(&json!(true)), "true");
        assert_eq!(shown(&json!({"a": 1, "b": []})), r#"{"a":1,"b":[]}"#);
    }

    #[test]
    fn an_answer_never_repeats_a_huge_text() {
        let shown = shown(&json!("世".repeat(70_000)));
        assert_eq!(shown.chars().count(), ECHO_LIMIT + 3);
        assert!(shown.ends_with("…\""));
        assert_eq!(cut(&"x".repeat(ECHO_LIMIT)), "x".repeat(ECHO_LIMIT));
    }
}
