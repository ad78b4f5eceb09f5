//! What the chart ships to be looked at: the dashboard and the alert rules hold only names that exist.

use std::{collections::BTreeSet, fs, path::Path};

use prometheus::IntGauge;
use serde_json::Value;

use super::Metrics;

fn read(file: &str) -> String {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let path = Path::new(&folder).join("charts/glance-operator").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn dashboard() -> Value {
    serde_json::from_str(&read("dashboards/glance-operator.json")).unwrap()
}

/// Titles and queries of all panels.
fn panels() -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let panels = dashboard()["panels"].as_array().unwrap().clone();
    panels
        .iter()
        .map(|panel| {
            let targets = panel["targets"].as_array().unwrap();
            let queries = targets.iter().map(|target| text(&target["expr"]));
            (text(&panel["title"]), queries.collect())
        })
        .collect()
}

fn rules() -> Value {
    serde_saphyr::from_str(&read("rules/glance-operator.yaml")).unwrap()
}

fn alerts() -> Vec<Value> {
    let groups = rules()["groups"].as_array().unwrap().clone();
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap().clone());
    rules.collect()
}

/// Everything in `query` that looks like a metric of ours, without what a histogram appends.
fn names(query: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let ours = [
        "glance_operator_",
        "controller_runtime_",
        "workqueue_",
        "leader_election_",
        "process_",
    ];
    query
        .split(|c| !word(c))
        .filter(|name| ours.iter().any(|prefix| name.starts_with(prefix)))
        .map(|name| {
            let bare = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix));
            bare.unwrap_or(name).to_owned()
        })
        .collect()
}

/// Whether a family of this name is registered: another one of that name is refused.
fn is_registered(metrics: &Metrics, name: &str) -> bool {
    let probe = IntGauge::new(name, "a probe").unwrap();
    metrics.registry().register(Box::new(probe)).is_err()
}

#[test]
fn every_name_in_the_dashboard_and_the_rules_is_registered() {
    let metrics = Metrics::new().unwrap();
    target_registry::Metrics::register(metrics.registry(), "glance_operator").unwrap();
    let queries = panels().into_iter().flat_map(|(_, queries)| queries);
    let rules = alerts()
        .into_iter()
        .map(|rule| rule["expr"].as_str().unwrap().to_owned());
    let names: BTreeSet<String> = queries
        .chain(rules)
        .flat_map(|query| names(&query))
        .collect();
    assert!(names.len() > 15, "{names:?}");
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !is_registered(&metrics, name))
        .collect();
    assert!(missing.is_empty(), "nobody counts {missing:?}");
    assert!(!is_registered(&metrics, "glance_operator_of_no_kind"));
}

#[test]
fn the_dashboard_keeps_what_people_have_linked_to() {
    let dashboard = dashboard();
    assert_eq!(dashboard["uid"], "glance-operator");
    assert_eq!(dashboard["title"], "Glance Operator");
    assert_eq!(
        dashboard["tags"],
        serde_json::json!(["glance", "operator", "c5c3"])
    );
    assert_eq!(dashboard["schemaVersion"], 38);
    assert_eq!(dashboard["refresh"], "30s");
    assert_eq!(dashboard["time"]["from"], "now-6h");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert_eq!(variables.len(), 1);
    assert_eq!(variables[0]["name"], "DS_PROMETHEUS");
    assert_eq!(variables[0]["type"], "datasource");
    for panel in dashboard["panels"].as_array().unwrap() {
        assert_eq!(
            panel["datasource"]["uid"], "${DS_PROMETHEUS}",
            "{}",
            panel["title"]
        );
    }

    let panels = panels();
    let titles: Vec<&str> = panels.iter().map(|(title, _)| title.as_str()).collect();
    assert_eq!(
        titles[..4],
        [
            "Reconcile duration p50/p95/p99 per sub_reconciler",
            "Reconcile error rate per condition_type",
            "db_sync duration p95 and failure rate",
            "End-to-end reconcile duration (controller-runtime)",
        ]
    );
    for (title, queries) in &panels {
        assert!(
            !queries.is_empty() && queries.iter().all(|query| !query.is_empty()),
            "{title}"
        );
    }
    let numbers: Vec<usize> = panels[..4]
        .iter()
        .map(|(_, queries)| queries.len())
        .collect();
    assert_eq!(numbers, [3, 1, 2, 3]);
    for (place, panel) in dashboard["panels"].as_array().unwrap()[..4]
        .iter()
        .enumerate()
    {
        let grid = &panel["gridPos"];
        assert_eq!([&grid["w"], &grid["h"]], [12, 8]);
        assert_eq!(
            [&grid["x"], &grid["y"]],
            [12 * (place % 2), 8 * (place / 2)]
        );
    }
}

#[test]
fn the_alerts_people_route_by_name_are_there() {
    let found: Vec<(String, String)> = alerts()
        .iter()
        .map(|rule| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            assert!(rule["annotations"]["summary"].is_string(), "{rule}");
            assert!(rule["annotations"]["description"].is_string(), "{rule}");
            (text(&rule["alert"]), text(&rule["labels"]["severity"]))
        })
        .collect();
    for (name, severity) in [
        ("GlanceDBSyncFailed", "critical"),
        ("GlanceDBPurgeFailed", "warning"),
        ("GlanceUpgradePhaseFailed", "critical"),
    ] {
        assert!(
            found.contains(&(name.to_owned(), severity.to_owned())),
            "{found:?}"
        );
    }
}
