//! Conditions and events.

use std::fmt::Write as _;

use glance_api::{
    conditions::{ConditionReasons, Owner, TABLE, reasons},
    keys::events,
};

use super::cell;

/// Every condition with its reasons.
pub fn conditions() -> String {
    let mut page = "# Conditions\n\nTypes and reasons never change; messages are for people. `Ready` is the sum of the \
                    others, except `ExtraConfigHealthy`, which only informs. Every sub-condition may also be False with \
                    `ReconcileError`: a step failed three times in a row, or at once where trying again cannot help; the \
                    message says what and where.\n"
        .to_owned();
    for (owner, title) in [
        (Owner::Glance, "Glance"),
        (Owner::GlanceBackend, "GlanceBackend"),
    ] {
        let _ = write!(
            page,
            "\n## {title}\n\n| Type | Status | Reason | Meaning |\n| --- | --- | --- | --- |\n"
        );
        for row in TABLE.iter().filter(|row| row.owner == owner) {
            rows(&mut page, row);
        }
    }
    page
}

fn rows(page: &mut String, row: &ConditionReasons) {
    let all = row.when_true.iter().map(|reason| ("True", reason));
    let all = all.chain(row.when_false.iter().map(|reason| ("False", reason)));
    for (status, reason) in all {
        let _ = writeln!(
            page,
            "| `{}` | {status} | `{reason}` | {} |",
            row.type_,
            cell(meaning(reasons::MEANINGS, reason))
        );
    }
}

fn meaning(table: &[(&'static str, &'static str)], name: &str) -> &'static str {
    table
        .iter()
        .find(|(reason, _)| *reason == name)
        .map_or("", |(_, meaning)| meaning)
}

/// Every event.
pub fn events() -> String {
    let mut page = "# Events\n\nOn the `Glance`, once per transition, from the source `glance-controller`; a `GlanceBackend` \
                    never gets one. To find them: `kubectl get events -A --field-selector reason=DBSyncFailed`.\n\n\
                    | Reason | Type | Meaning |\n| --- | --- | --- |\n"
        .to_owned();
    for (type_, table) in [("Normal", events::NORMAL), ("Warning", events::WARNING)] {
        for (reason, meaning) in table {
            let _ = writeln!(page, "| `{reason}` | {type_} | {} |", cell(meaning));
        }
    }
    page
}
