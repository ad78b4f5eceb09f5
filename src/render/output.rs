//! Objects as text.

use clap::ValueEnum;
use serde_json::{Value, json};

/// How objects are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One document per object
    #[default]
    Yaml,
    /// One list of all objects
    Json,
}

/// The text of all objects.
pub(super) fn print(objects: &[Value], format: Format) -> anyhow::Result<String> {
    match format {
        Format::Json => {
            let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
            Ok(serde_json::to_string_pretty(&list)? + "\n")
        }
        Format::Yaml => {
            let documents: Result<Vec<String>, _> = objects.iter().map(yaml).collect();
            Ok(documents?.join("---\n"))
        }
    }
}

/// One object as YAML, ending with a line break.
pub(super) fn yaml(object: &Value) -> anyhow::Result<String> {
    let mut text = serde_saphyr::to_string(object)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}
