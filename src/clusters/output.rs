//! How results are printed: tables for people, JSON and YAML for machines, names for pipes.

use std::io::{ErrorKind, Write as _};

use clap::ValueEnum;
use jiff::Timestamp;
use serde::Serialize;

use super::error::Error;

/// The forms of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people
    #[default]
    Table,
    /// A table with more columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Kinds and names alone, one a line
    Name,
}

/// A result.
pub trait Show: Serialize {
    /// For people; ends without a line feed.
    fn human(&self, wide: bool) -> String;
    /// `kind/name` of what it is about.
    fn names(&self) -> Vec<String>;
}

/// Prints a result to standard output. Whoever closes the pipe has read enough.
pub fn show(format: Format, value: &impl Show) -> Result<(), Error> {
    let print = |error: &dyn std::fmt::Display| Error::Print(error.to_string());
    let text = match format {
        Format::Table | Format::Wide => value.human(format == Format::Wide),
        Format::Json => serde_json::to_string_pretty(value).map_err(|error| print(&error))?,
        Format::Yaml => yaml(value)?,
        Format::Name => value.names().join("\n"),
    };
    let text = text.trim_end();
    if text.is_empty() {
        return Ok(());
    }
    write(&format!("{text}\n")).map_err(|error| print(&error))
}

/// Writes to standard output, and takes a closed pipe for a reader who has seen enough.
pub fn write(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// A value as YAML.
pub fn yaml(value: &impl Serialize) -> Result<String, Error> {
    serde_saphyr::to_string(value).map_err(|error| Error::Print(error.to_string()))
}

/// Columns as wide as their widest cell, three blanks apart, as kubectl prints them.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &Vec<String>| {
        let padded = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    };
    lines.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

/// How long ago or ahead a time is, in the largest unit that says enough: `45s`, `12m`, `5h`, `90d`.
pub fn distance(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.as_second() - from.as_second();
    let (sign, seconds) = if seconds < 0 {
        ("-", -seconds)
    } else {
        ("", seconds)
    };
    let (value, unit) = match seconds {
        0..120 => (seconds, "s"),
        120..7200 => (seconds / 60, "m"),
        7200..172_800 => (seconds / 3600, "h"),
        _ => (seconds / 86400, "d"),
    };
    format!("{sign}{value}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_where_their_text_ends() {
        let rows = [
            vec!["a".to_owned(), String::new()],
            vec!["blue-ü".to_owned(), "x".to_owned()],
        ];
        assert_eq!(table(&["NAME", "R"], &rows), "NAME     R\na\nblue-ü   x");
    }

    #[test]
    fn times_are_told_in_one_unit() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7200, "2h"),
            (172_800, "2d"),
            (-300, "-5m"),
        ] {
            assert_eq!(distance(at(1_000_000), at(1_000_000 + seconds)), text);
        }
    }
}
