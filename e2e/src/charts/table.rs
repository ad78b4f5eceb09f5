//! The values of a chart as a table for its README, out of the comments in `values.yaml`.

use std::{fmt::Write as _, path::Path};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

/// Stands before the table in the README.
const BEGIN: &str = "<!-- values: made by `make generate` -->\n";

/// Stands behind it.
const END: &str = "<!-- end of values -->\n";

/// The README of a chart with the table brought up to date.
pub fn readme(chart: &Path) -> Result<String> {
    let read = |name: &str| {
        let path = chart.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    let (text, values) = (read("README.md")?, read("values.yaml")?);
    let (before, rest) = text
        .split_once(BEGIN)
        .context("the README has no place for the values")?;
    let (_, after) = rest.split_once(END).context("the values do not end")?;
    Ok(format!(
        "{before}{BEGIN}\n{}\n{END}{after}",
        table(&values)?
    ))
}

/// One row per documented value: a comment that begins with `# --` belongs to the key below it, and that
/// key with all it holds is one value. A value without such a comment is an error.
pub fn table(values: &str) -> Result<String> {
    let defaults: Value =
        serde_saphyr::from_str(values).map_err(|e| anyhow!("the values are not YAML: {e}"))?;
    let mut rows = String::from("| Value | Default | Meaning |\n| --- | --- | --- |\n");
    let mut path: Vec<&str> = Vec::new();
    let mut words: Option<String> = None;
    // The depth of the documented value that we are inside of.
    let mut inside = None;
    for line in values.lines() {
        let text = line.trim_start();
        let depth = (line.len() - text.len()) / 2;
        if let Some(comment) = text.strip_prefix('#') {
            match (comment.strip_prefix(" -- "), words.as_mut()) {
                (Some(first), _) => words = Some(first.trim().to_owned()),
                (None, Some(words)) => {
                    let _ = write!(words, " {}", comment.trim());
                }
                (None, None) => {}
            }
            continue;
        }
        if text.is_empty() {
            continue;
        }
        if inside.is_some_and(|level| depth > level) {
            continue;
        }
        inside = None;
        let (key, rest) = text
            .split_once(':')
            .with_context(|| format!("not a key: {line}"))?;
        path.truncate(depth);
        path.push(key);
        let name = path.join(".");
        match words.take() {
            Some(words) => {
                let pointer = format!("/{}", path.join("/"));
                let default = defaults
                    .pointer(&pointer)
                    .with_context(|| format!("{name} has no default"))?;
                let _ = writeln!(
                    rows,
                    "| `{name}` | `{default}` | {} |",
                    words.replace('|', "\\|")
                );
                inside = Some(depth);
            }
            None if rest.trim().is_empty() => {}
            None => bail!("{name} is not documented: write `# -- …` above it"),
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_row_with_its_default_and_meaning() {
        let values = "# -- First\n# of two lines.\na: 1\nb:\n  # -- Inner.\n  c: \"x\"\n\n# -- Whole map.\nd:\n  k: v\n";
        let expected = "| Value | Default | Meaning |\n| --- | --- | --- |\n\
            | `a` | `1` | First of two lines. |\n\
            | `b.c` | `\"x\"` | Inner. |\n\
            | `d` | `{\"k\":\"v\"}` | Whole map. |\n";
        assert_eq!(table(values).unwrap(), expected);
        let error = table("# -- A.\na: 1\nb: 2\n").unwrap_err();
        assert!(error.to_string().contains("b is not documented"), "{error}");
    }
}
