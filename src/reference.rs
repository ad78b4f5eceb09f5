//! The reference pages of `docs/`, written from the code: a page that is not in step fails the test below, and
//! `make generate` writes it anew.

use std::{fs, path::Path};

use kube::CustomResourceExt as _;
use target_registry::TargetCluster;

mod command_line;
mod metrics;
mod schema;
mod tables;

const HEADER: &str = "<!-- Generated from the code by `make generate`. Do not edit. -->\n\n";

/// Every page as (file, text).
fn pages() -> Vec<(&'static str, String)> {
    vec![
        (
            "glance.md",
            schema::page(&glance_api::schema::glance().unwrap()),
        ),
        (
            "glancebackend.md",
            schema::page(&glance_api::schema::glance_backend().unwrap()),
        ),
        (
            "targetcluster.md",
            schema::page(&glance_api::schema::shipped(&TargetCluster::crd()).unwrap()),
        ),
        ("conditions.md", tables::conditions()),
        ("events.md", tables::events()),
        ("metrics.md", metrics::page()),
        ("command-line.md", command_line::page()),
    ]
}

#[test]
fn the_reference_is_in_step_with_the_code() {
    let folder = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("docs/reference");
    let write = std::env::var_os("UPDATE_REFERENCE").is_some();
    let mut stale = Vec::new();
    for (name, text) in pages() {
        let text = format!("{HEADER}{}\n", text.trim_end());
        let file = folder.join(name);
        if write {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, text).unwrap();
        } else if fs::read_to_string(&file).unwrap_or_default() != text {
            stale.push(name);
        }
    }
    assert!(
        stale.is_empty(),
        "docs/reference is not in step ({stale:?}): run `make generate`"
    );
}

/// A cell of a table: one line, no bars that would end it.
fn cell(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace('|', "\\|")
}
