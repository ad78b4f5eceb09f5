//! Metrics, as they describe themselves to Prometheus.

use std::fmt::Write as _;

use super::cell;
use crate::metrics::described::{self, Described};

/// Every family.
pub fn page() -> String {
    let mut page = "# Metrics\n\nServed as [Watch the operator](../monitoring.md) says. A series appears with its first \
                    sample; one that names a Glance goes with it, one that names a cluster with its registration, but for\n                     `glance_operator_children_abandoned_total`, which begins when the registration has gone.\n"
        .to_owned();
    let all = described::all();
    let (ours, others): (Vec<_>, Vec<_>) = all
        .iter()
        .partition(|family| family.name.starts_with("glance_operator_"));
    let (process, library): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|family| family.name.starts_with("process_"));
    section(&mut page, "The operator's own", &ours);
    section(&mut page, "Under the names of the Go libraries", &library);
    section(&mut page, "The process", &process);
    page
}

fn section(page: &mut String, title: &str, families: &[&Described]) {
    let _ = write!(
        page,
        "\n## {title}\n\n| Name | Type | Labels | Meaning |\n| --- | --- | --- | --- |\n"
    );
    for family in families {
        let labels: Vec<_> = family.labels.iter().map(|l| format!("`{l}`")).collect();
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} |",
            family.name,
            family.kind,
            labels.join(", "),
            cell(&family.help)
        );
    }
}
