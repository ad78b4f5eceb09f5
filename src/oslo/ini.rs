//! The one INI document model and writer, with the injection guard inside.
//!
//! The format has no escaping: a line break in any text starts a new line of
//! the file, whoever typed it. So the writer itself refuses every text that
//! would not come out as the one entry it is meant to be, and no caller can
//! forget to check (contract: configuration, INI format).

use std::collections::BTreeMap;
use std::fmt;

/// A document: sections and keys in byte order, so that equal content is equal
/// text. Object names are made from that text, and a pod restarts when its
/// object gets another name.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Ini {
    sections: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// A text that would not survive being written. Names the place, never the
/// value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IniError {
    /// A section without a name.
    #[error("a section name is empty")]
    EmptySection,
    /// A section name with a line break, a NUL or a closing bracket.
    #[error("section name {section:?} contains {}", .fault.as_str())]
    Section {
        /// The name, to be shown quoted.
        section: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A key without a name.
    #[error("an option name in section [{section}] is empty")]
    EmptyKey {
        /// The section that holds it.
        section: String,
    },
    /// A key that would be read as something else.
    #[error("option name {key:?} in section [{section}] contains {}", .fault.as_str())]
    Key {
        /// The section that holds it.
        section: String,
        /// The name, to be shown quoted.
        key: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A value with a line break or a NUL.
    #[error("the value of [{section}] {key} contains {}", .fault.as_str())]
    Value {
        /// The section that holds it.
        section: String,
        /// The option.
        key: String,
        /// What is wrong with it.
        fault: Fault,
    },
}

/// What makes a text unfit for the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// CR or LF.
    LineBreak,
    /// U+0000.
    Nul,
    /// Another control character in a name. Readers in Python take four of them for blanks, strip them, and read
    /// another name than the one that was judged.
    Control,
    /// `]` in a section name.
    Bracket,
    /// `=` or `:` in a key.
    Separator,
    /// A blank, `#`, `;` or `[` at the start of a key.
    Start,
}

/// Writes sections in the given order: one header line each, one `key = value`
/// line per entry, one empty line between sections, nothing for no sections.
pub fn write<'a, S, E>(sections: S) -> Result<String, IniError>
where
    S: IntoIterator<Item = (&'a str, E)>,
    E: IntoIterator<Item = (&'a str, &'a str)>,
{
    let mut out = String::new();
    for (section, entries) in sections {
        check_section(section)?;
        if !out.is_empty() {
            out.push('\n');
        }
        out.push('[');
        out.push_str(section);
        out.push_str("]\n");
        for (key, value) in entries {
            check_entry(section, key, value)?;
            out.push_str(key);
            out.push_str(" = ");
            out.push_str(value);
            out.push('\n');
        }
    }
    Ok(out)
}

/// Adds a written document to another, one empty line between them.
pub fn append(document: &mut String, written: &str) {
    if !document.is_empty() && !written.is_empty() {
        document.push('\n');
    }
    document.push_str(written);
}

/// What makes a text unfit to be the name of a section; an empty one is not
/// judged here.
pub fn section_fault(section: &str) -> Option<Fault> {
    broken(section)
        .or_else(|| section.contains(']').then_some(Fault::Bracket))
        .or_else(|| section.contains(char::is_control).then_some(Fault::Control))
}

/// What makes a text unfit to be the name of an option; an empty one is not
/// judged here.
pub fn key_fault(key: &str) -> Option<Fault> {
    broken(key)
        .or_else(|| key.contains(['=', ':']).then_some(Fault::Separator))
        .or_else(|| {
            key.starts_with(|c: char| c.is_whitespace() || "#;[".contains(c))
                .then_some(Fault::Start)
        })
        .or_else(|| key.contains(char::is_control).then_some(Fault::Control))
}

/// What makes a text unfit to be a value.
pub fn value_fault(value: &str) -> Option<Fault> {
    broken(value)
}

fn check_section(section: &str) -> Result<(), IniError> {
    if section.is_empty() {
        return Err(IniError::EmptySection);
    }
    match section_fault(section) {
        Some(fault) => Err(IniError::Section {
            section: section.to_owned(),
            fault,
        }),
        None => Ok(()),
    }
}

fn check_entry(section: &str, key: &str, value: &str) -> Result<(), IniError> {
    if key.is_empty() {
        return Err(IniError::EmptyKey {
            section: section.to_owned(),
        });
    }
    if let Some(fault) = key_fault(key) {
        return Err(IniError::Key {
            section: section.to_owned(),
            key: key.to_owned(),
            fault,
        });
    }
    match value_fault(value) {
        Some(fault) => Err(IniError::Value {
            section: section.to_owned(),
            key: key.to_owned(),
            fault,
        }),
        None => Ok(()),
    }
}

fn broken(text: &str) -> Option<Fault> {
    text.chars().find_map(|c| match c {
        '\r' | '\n' => Some(Fault::LineBreak),
        '\0' => Some(Fault::Nul),
        _ => None,
    })
}

// === impl Ini ===

impl Ini {
    /// A document without sections.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes sure that a section exists, even without keys.
    pub fn section(&mut self, section: &str) {
        self.sections.entry(section.to_owned()).or_default();
    }

    /// Sets an option, replacing what it was.
    pub fn set(&mut self, section: &str, key: &str, value: impl Into<String>) {
        self.set_multi(section, key, vec![value.into()]);
    }

    /// Sets a multi-valued option: one line per value, in the given order. No
    /// values drop the option.
    pub fn set_multi(&mut self, section: &str, key: &str, values: Vec<String>) {
        let entries = self.sections.entry(section.to_owned()).or_default();
        if values.is_empty() {
            entries.remove(key);
        } else {
            entries.insert(key.to_owned(), values);
        }
    }

    /// The value of an option; the first one of a multi-valued option.
    pub fn get(&self, section: &str, key: &str) -> Option<&str> {
        self.sections
            .get(section)?
            .get(key)?
            .first()
            .map(String::as_str)
    }

    /// Lays another document on top, key by key.
    pub fn overlay(&mut self, top: Self) {
        for (section, entries) in top.sections {
            self.sections.entry(section).or_default().extend(entries);
        }
    }

    /// Section and key of each option, in order.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sections
            .iter()
            .flat_map(|(section, entries)| entries.keys().map(|key| (section.as_str(), &**key)))
    }

    /// Section and length in bytes of the longest section, for messages about
    /// documents that are too large.
    pub fn longest_section(&self) -> Option<(&str, usize)> {
        self.sections
            .iter()
            .map(|(section, entries)| {
                let length = entries
                    .iter()
                    .flat_map(|(key, values)| values.iter().map(|v| key.len() + v.len() + 4))
                    .sum();
                (section.as_str(), length)
            })
            .max_by_key(|(_, length)| *length)
    }

    /// The text of the document.
    pub fn render(&self) -> Result<String, IniError> {
        write(self.sections.iter().map(|(section, entries)| {
            let lines = entries.iter().flat_map(|(key, values)| {
                values
                    .iter()
                    .map(move |value| (key.as_str(), value.as_str()))
            });
            (section.as_str(), lines)
        }))
    }
}

/// From the maps of a custom resource; a section without keys stays.
impl From<&BTreeMap<String, BTreeMap<String, String>>> for Ini {
    fn from(sections: &BTreeMap<String, BTreeMap<String, String>>) -> Self {
        let mut ini = Self::new();
        for (section, entries) in sections {
            ini.section(section);
            for (key, value) in entries {
                ini.set(section, key, value);
            }
        }
        ini
    }
}

/// Names only: a value may be a secret.
impl fmt::Debug for Ini {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                self.sections
                    .iter()
                    .map(|(section, entries)| (section, entries.keys().collect::<Vec<_>>())),
            )
            .finish()
    }
}

// === impl Fault ===

impl Fault {
    /// The fault as what the text contains.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LineBreak => "a newline or carriage return",
            Self::Nul => "a NUL character",
            Self::Control => "a control character",
            Self::Bracket => "a closing bracket",
            Self::Separator => "'=' or ':'",
            Self::Start => "a blank, '#', ';' or '[' at its start",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[test]
    fn sections_and_keys_are_in_byte_order_with_one_line_between_sections() {
        let mut ini = Ini::new();
        ini.set("b", "z", "1");
        ini.set("b", "a", "");
        ini.set("DEFAULT", "x_y", "v w");
        ini.section("a");
        assert_eq!(
            ini.render().unwrap(),
            "[DEFAULT]\nx_y = v w\n\n[a]\n\n[b]\na = \nz = 1\n"
        );
    }

    #[test]
    fn no_sections_are_no_bytes() {
        assert_eq!(Ini::new().render().unwrap(), "");
    }

    #[test]
    fn joined_documents_are_as_if_written_at_once() {
        let mut parts = String::new();
        let mut whole = Ini::new();
        for section in ["a", "b", "c"] {
            let mut part = Ini::new();
            part.set(section, "k", "v");
            append(&mut parts, &part.render().unwrap());
            whole.set(section, "k", "v");
        }
        append(&mut parts, "");
        assert_eq!(parts, whole.render().unwrap());
    }

    #[test]
    fn a_multi_valued_option_repeats_its_key() {
        let mut ini = Ini::new();
        ini.set_multi("s", "k", vec!["2".into(), "1".into()]);
        assert_eq!(ini.render().unwrap(), "[s]\nk = 2\nk = 1\n");
        ini.set_multi("s", "k", vec![]);
        assert_eq!(ini.render().unwrap(), "[s]\n");
    }

    #[test]
    fn the_top_document_wins_key_by_key() {
        let mut ini = Ini::new();
        ini.set("s", "a", "1");
        ini.set("s", "b", "1");
        let mut top = Ini::new();
        top.set("s", "b", "2");
        top.section("t");
        ini.overlay(top);
        assert_eq!(ini.render().unwrap(), "[s]\na = 1\nb = 2\n\n[t]\n");
        assert_eq!(ini.get("s", "b"), Some("2"));
        assert_eq!(ini.get("t", "b"), None);
        assert_eq!(ini.options().collect::<Vec<_>>(), [("s", "a"), ("s", "b")]);
    }

    #[test]
    fn values_are_never_in_the_debug_form() {
        let mut ini = Ini::new();
        ini.set("s", "k", "hunter2");
        assert_eq!(format!("{ini:?}"), r#"{"s": ["k"]}"#);
    }

    #[rstest]
    #[case("", "k", "v", "a section name is empty")]
    #[case(
        "a\nb",
        "k",
        "v",
        "section name \"a\\nb\" contains a newline or carriage return"
    )]
    #[case("a\0", "k", "v", "section name \"a\\0\" contains a NUL character")]
    #[case("a]", "k", "v", "section name \"a]\" contains a closing bracket")]
    #[case(
        "a\u{1c}",
        "k",
        "v",
        "section name \"a\\u{1c}\" contains a control character"
    )]
    #[case(
        "s",
        "k\u{1f}",
        "v",
        "option name \"k\\u{1f}\" in section [s] contains a control character"
    )]
    #[case("s", "", "v", "an option name in section [s] is empty")]
    #[case(
        "s",
        "k\rl",
        "v",
        "option name \"k\\rl\" in section [s] contains a newline or carriage return"
    )]
    #[case(
        "s",
        "k\0",
        "v",
        "option name \"k\\0\" in section [s] contains a NUL character"
    )]
    #[case(
        "s",
        "a=b",
        "v",
        "option name \"a=b\" in section [s] contains '=' or ':'"
    )]
    #[case(
        "s",
        "a:b",
        "v",
        "option name \"a:b\" in section [s] contains '=' or ':'"
    )]
    #[case(
        "s",
        " a",
        "v",
        "option name \" a\" in section [s] contains a blank, '#', ';' or '[' at its start"
    )]
    #[case(
        "s",
        "\ta",
        "v",
        "option name \"\\ta\" in section [s] contains a blank, '#', ';' or '[' at its start"
    )]
    #[case(
        "s",
        "#a",
        "v",
        "option name \"#a\" in section [s] contains a blank, '#', ';' or '[' at its start"
    )]
    #[case(
        "s",
        ";a",
        "v",
        "option name \";a\" in section [s] contains a blank, '#', ';' or '[' at its start"
    )]
    #[case(
        "s",
        "[a",
        "v",
        "option name \"[a\" in section [s] contains a blank, '#', ';' or '[' at its start"
    )]
    #[case(
        "s",
        "k",
        "secret\n[x]",
        "the value of [s] k contains a newline or carriage return"
    )]
    #[case(
        "s",
        "k",
        "secret\r",
        "the value of [s] k contains a newline or carriage return"
    )]
    #[case("s", "k", "secret\0", "the value of [s] k contains a NUL character")]
    fn what_would_be_read_otherwise_is_refused_by_place(
        #[case] section: &str,
        #[case] key: &str,
        #[case] value: &str,
        #[case] message: &str,
    ) {
        let mut ini = Ini::new();
        ini.set(section, key, value);
        assert_eq!(ini.render().unwrap_err().to_string(), message);
        assert!(!message.contains("secret"));
    }

    #[test]
    fn keys_of_the_paste_file_pass() {
        let mut ini = Ini::new();
        for key in ["/", "/healthcheck", "/v2", "paste.filter_factory"] {
            ini.set("composite:x", key, "y");
        }
        assert!(ini.render().is_ok());
    }

    #[test]
    fn a_section_without_keys_survives_the_way_from_a_resource() {
        let map = BTreeMap::from([
            ("empty".to_owned(), BTreeMap::new()),
            (
                "s".to_owned(),
                BTreeMap::from([("k".to_owned(), "v".to_owned())]),
            ),
        ]);
        assert_eq!(Ini::from(&map).render().unwrap(), "[empty]\n\n[s]\nk = v\n");
    }

    #[test]
    fn the_longest_section_is_found() {
        let mut ini = Ini::new();
        ini.set("a", "k", "x");
        ini.set("b", "k", "x".repeat(100));
        assert_eq!(ini.longest_section(), Some(("b", 105)));
        assert_eq!(Ini::new().longest_section(), None);
    }

    type Document = BTreeMap<String, BTreeMap<String, String>>;

    /// Reads the format back, as the consumers do, but without stripping.
    fn parse(text: &str) -> Document {
        let mut document = Document::new();
        let mut section = String::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(name) = line.strip_prefix('[') {
                section = name.strip_suffix(']').unwrap().to_owned();
                document.entry(section.clone()).or_default();
            } else {
                let (key, value) = line.split_once(" = ").unwrap();
                let entries = document.get_mut(&section).unwrap();
                entries.insert(key.to_owned(), value.to_owned());
            }
        }
        document
    }

    proptest! {
        #[test]
        fn thirty_two_renders_are_one_text_and_read_back(
            document in prop::collection::btree_map(
                "[A-Za-z_:-]{1,8}",
                prop::collection::btree_map("[a-z_./]{1,8}", "[ -~é]{0,12}", 0..5),
                0..5,
            ),
        ) {
            let text = Ini::from(&document).render().unwrap();
            for _ in 0..32 {
                prop_assert_eq!(&Ini::from(&document).render().unwrap(), &text);
            }
            prop_assert_eq!(parse(&text), document);
        }

        #[test]
        fn no_input_adds_a_line(section in "\\PC{0,6}|[\\x00-\\x20\\]\\[]{0,4}", key in "\\PC{0,6}|[\\x00-\\x20=:#;]{0,4}", value in "(?s).{0,8}") {
            let mut ini = Ini::new();
            ini.set(&section, &key, value.as_str());
            if let Ok(text) = ini.render() {
                prop_assert_eq!(text.split(['\n', '\r']).count(), 3);
                prop_assert_eq!(text, format!("[{section}]\n{key} = {value}\n"));
            }
        }
    }
}
