//! What the chart ships to be looked at: the dashboard and the alert rules hold only names that exist.

use std::{collections::BTreeSet, fs, path::Path};

use prometheus::IntGauge;
use serde_json::Value;

use super::Metrics;

fn read(file: &str) -> String {
    read_in_checkout(&format!("charts/glance-operator/{file}"))
}

fn read_in_checkout(file: &str) -> String {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let path = Path::new(&folder).join(file);
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

/// The three quantiles of a histogram by these labels, as a query and its legend each.
fn quantiles(labels: &str, family: &str, legend: &str) -> Vec<(String, String)> {
    let of = |(q, name): (&str, &str)| {
        let query = format!("histogram_quantile({q}, sum by ({labels}) (rate({family}[5m])))");
        (query, format!("{name}{legend}"))
    };
    [("0.50", "p50"), ("0.95", "p95"), ("0.99", "p99")]
        .map(of)
        .to_vec()
}

#[test]
fn the_four_panels_of_the_go_operator_ask_what_they_asked() {
    let steps = "glance_operator_reconcile_duration_seconds_bucket";
    let passes = "controller_runtime_reconcile_time_seconds_bucket{controller=\"glance\"}";
    let syncs = "glance_operator_db_sync_duration_seconds_bucket";
    let failures =
        "sum by (namespace, glance) (rate(glance_operator_db_sync_total{result=\"failed\"}[5m]))";
    let of_glance = " {{namespace}}/{{glance}}";
    let mut of_jobs = quantiles("le, namespace, glance", syncs, of_glance);
    of_jobs.retain(|(_, legend)| legend.starts_with("p95"));
    of_jobs.push((failures.to_owned(), format!("failures{of_glance}")));
    let errors = "sum by (condition_type) (rate(glance_operator_reconcile_errors_total[5m]))";
    let expected = [
        (
            "s",
            quantiles("le, sub_reconciler", steps, " {{sub_reconciler}}"),
        ),
        (
            "ops",
            vec![(errors.to_owned(), "{{condition_type}}".to_owned())],
        ),
        ("s", of_jobs),
        ("s", quantiles("le", passes, "")),
    ];
    let dashboard = dashboard();
    let panels = &dashboard["panels"].as_array().unwrap()[..4];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for (panel, (unit, queries)) in panels.iter().zip(expected) {
        let found = panel["targets"].as_array().unwrap().iter();
        let found: Vec<_> = found
            .map(|target| (text(&target["expr"]), text(&target["legendFormat"])))
            .collect();
        assert_eq!(found, queries, "{}", panel["title"]);
        assert_eq!(panel["fieldConfig"]["defaults"]["unit"], unit);
    }
    let exception = &panels[2]["fieldConfig"]["overrides"][0];
    assert_eq!(exception["matcher"]["options"], "^failures .*");
    assert_eq!(exception["properties"][0]["value"], "ops");
}

#[test]
fn every_panel_can_be_drawn_beside_the_others() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = &panel["title"];
        assert_eq!(panel["type"], "timeseries", "{title}");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let at = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{title}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{title} lies on another panel");
            }
        }
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        let mut names = BTreeSet::new();
        for target in targets {
            assert!(!target["expr"].as_str().unwrap().is_empty(), "{title}");
            assert!(
                !target["legendFormat"].as_str().unwrap().is_empty(),
                "{title}"
            );
            assert!(names.insert(target["refId"].as_str().unwrap()), "{title}");
            let source = &target["datasource"]["uid"];
            assert!(source.is_null() || source == "${DS_PROMETHEUS}", "{title}");
        }
    }
}

/// A rule whose test is forgotten could be one that never fires, or always.
#[test]
fn every_alert_is_tried_when_it_fires_and_when_it_does_not_and_is_documented_with_its_severity() {
    let cases: Value =
        serde_saphyr::from_str(&read_in_checkout("e2e/prometheus/rules_test.yaml")).unwrap();
    let cases = cases["tests"].as_array().unwrap().iter();
    let cases: Vec<&Value> = cases
        .flat_map(|test| test["alert_rule_test"].as_array().unwrap())
        .collect();
    let page = read_in_checkout("docs/monitoring.md");
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        let of: Vec<_> = cases
            .iter()
            .filter(|case| case["alertname"] == name)
            .collect();
        for fires in [true, false] {
            let is = |case: &Value| !case["exp_alerts"].as_array().unwrap().is_empty();
            assert!(
                of.iter().any(|case| is(case) == fires),
                "{name}: no case where it fires: {fires}"
            );
        }
        let severity = alert["labels"]["severity"].as_str().unwrap();
        let mut rows = page.lines().filter(|line| line.starts_with('|'));
        let is_told = rows.any(|row| {
            row.contains(&format!("`{name}`")) && row.contains(&format!("| {severity} |"))
        });
        assert!(
            is_told,
            "docs/monitoring.md has no row of {name} as {severity}"
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
