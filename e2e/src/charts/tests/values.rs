//! Which values the charts take, and what they say about those that cannot work.

use std::path::Path;

use serde_json::json;

use super::*;

const NO_NAMESPACES: &str = "values.namespaces must name at least one namespace (the namespaces key of the registration Secret)";

/// The safety checks hold for those who skip the schema as well.
#[test]
fn an_installation_that_could_not_work_is_refused_with_the_key_to_change() {
    let cut_off =
        json!({"networkPolicy": {"enabled": true, "kubeApiServer": {"cidrs": ["10.0.0.1/32"]}}});
    let scoped = json!({"rbac": {"namespaceScoped": true}});
    for (values, key) in [
        (cut_off, "values.networkPolicy.kubeApiServer.ports"),
        (scoped, "values.webhook.enabled"),
    ] {
        let error = hub(values)
            .render_with(&["--skip-schema-validation"])
            .unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
}

/// What Helm prints behind an installation.
fn notes(values: Value) -> String {
    let release = hub(values);
    let command = ["install", release.name, "--dry-run=client"];
    helm(&release.folder(), &release.values, &command).unwrap()
}

/// Those who install with a strict policy, or who forgot a part of it, are told what will not work.
#[test]
fn the_notes_say_what_a_network_policy_cuts_off() {
    let mut values = json!({
        "networkPolicy": {"enabled": true, "kubeApiServer": {"cidrs": ["10.0.0.1/32"], "ports": [443]}},
    });
    let text = notes(values.clone());
    assert!(text.contains("reach no target cluster"), "{text}");
    assert!(text.contains("reach no Glance of this cluster"), "{text}");
    values["targetClusters"] = json!({"cidrs": ["192.0.2.0/24"], "ports": [6443]});
    values["apiProbe"] = json!({"mode": "api-proxy"});
    let text = notes(values);
    assert!(!text.contains("NOTE:"), "{text}");
}

/// Whoever stops the election and keeps the default of two replicas has two that write.
#[test]
fn the_notes_warn_of_replicas_that_all_reconcile() {
    let off = json!({ "enabled": false });
    let text = notes(json!({ "leaderElection": off }));
    assert!(text.contains("every one of them reconciles"), "{text}");
    for works in [json!({}), json!({ "leaderElection": off, "replicas": 1 })] {
        let text = notes(works);
        assert!(!text.contains("NOTE:"), "{text}");
    }
}

/// The paths of all values of a chart, groups included.
fn paths(values: &Value, above: &str, found: &mut Vec<String>) {
    for (key, value) in values.as_object().into_iter().flatten() {
        let path = format!("{above}/{key}");
        paths(value, &path, found);
        // Keys of labels are not values of the chart.
        if !key.contains(['.', '-']) {
            found.push(path);
        }
    }
}

/// A value that is set to null is gone for the templates.
#[test]
fn a_value_that_is_set_to_null_works_or_is_named() {
    let shared = json!({ "namespaces": ["openstack"], "profile": "shared" });
    for release in [hub(everything()), target(shared)] {
        let defaults = fs::read_to_string(release.folder().join("values.yaml")).unwrap();
        let defaults: Value = serde_saphyr::from_str(&defaults).unwrap();
        let mut all = Vec::new();
        paths(&defaults, "", &mut all);
        assert!(all.len() > 5, "{all:?}");
        for path in all {
            let mut values = release.values.clone();
            let mut place = &mut values;
            for key in path.split('/').skip(1) {
                if !place.is_object() {
                    *place = json!({});
                }
                place = &mut place[key];
            }
            *place = Value::Null;
            let outcome = Release {
                values,
                ..release.clone()
            }
            .render();
            let Err(error) = outcome else { continue };
            let error = error.to_string();
            let top = path.split('/').nth(1).unwrap_or_default();
            let is_told =
                error.contains(&format!("values.{top}")) || error.contains("missing property");
            assert!(is_told, "{path}: {error}");
        }
    }
}

/// `helm upgrade --reuse-values` takes the values of the old chart for those of the new one.
#[test]
fn who_reuses_the_values_of_the_go_operators_charts_is_told_how_to_upgrade() {
    let operator = json!({
        "image": { "repository": "go", "tag": "", "digest": "", "pullPolicy": "IfNotPresent" },
        "replicas": 2,
        "resources": { "limits": { "cpu": "500m", "memory": "128Mi" }, "requests": { "cpu": "10m", "memory": "64Mi" } },
        "rbac": { "namespaceScoped": false },
        "leaderElection": { "enabled": true },
        "controller": { "maxConcurrentReconciles": 2 },
        "webhook": { "enabled": true },
        "metrics": { "port": 8080 },
        "logging": { "development": false, "level": "", "encoder": "" },
        "monitoring": { "serviceMonitor": { "enabled": false, "interval": "30s" } },
        "serviceAccount": { "create": true, "name": "" },
        "networkPolicy": {
            "enabled": false,
            "kubeApiServer": { "cidrs": [], "ports": [] },
            "dns": {
                "enabled": true,
                "namespaceSelector": { "kubernetes.io/metadata.name": "kube-system" },
                "podSelector": { "k8s-app": "kube-dns" },
            },
            "allowMetricsFrom": [], "webhookClients": { "cidrs": [] },
        },
        "nameOverride": "", "fullnameOverride": "",
    });
    let access = json!({
        "namespaces": ["openstack"], "createNamespaces": true, "authDelegatorBinding": false,
        "serviceAccount": { "name": "target-cluster-access" },
    });
    for (release, values) in [(hub(json!({})), operator), (target(json!({})), access)] {
        let scratch = tempfile::tempdir().unwrap();
        let chart = scratch.path().join(release.chart);
        copy(&release.folder(), &chart);
        fs::write(chart.join("values.yaml"), values.to_string()).unwrap();
        // Whichever template comes first.
        for entry in fs::read_dir(chart.join("templates")).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            if file.starts_with('_') || file == "NOTES.txt" {
                continue;
            }
            let only = format!("templates/{file}");
            let error = template(
                &chart,
                release.name,
                release.namespace,
                &json!({}),
                &["--show-only", &only],
            )
            .unwrap_err();
            assert!(
                error.to_string().contains("--reset-then-reuse-values"),
                "{file}: {error}"
            );
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &place);
        } else {
            fs::copy(entry.path(), place).unwrap();
        }
    }
}

#[test]
fn every_value_is_documented_in_the_readme_of_its_chart() {
    for release in [hub(json!({})), target(json!({}))] {
        let stored = fs::read_to_string(release.folder().join("README.md")).unwrap();
        let expected = table::readme(&release.folder()).unwrap();
        assert!(stored == expected, "run `make generate`: {}", release.chart);
    }
}

#[test]
fn a_target_without_namespaces_is_refused_before_anything_is_granted() {
    let values = [
        json!({}),
        json!({"namespaces": []}),
        json!({"namespaces": null}),
    ];
    for values in values {
        let error = target(values.clone()).render().unwrap_err();
        assert!(
            error.to_string().contains(NO_NAMESPACES),
            "{values}: {error}"
        );
    }
    // Whoever renders one file of it gets the same answer.
    for entry in fs::read_dir(target(json!({})).folder().join("templates")).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        if !file.starts_with('_') && file != "NOTES.txt" {
            let only = format!("templates/{file}");
            let release = target(json!({}));
            let error = release.render_with(&["--show-only", &only]).unwrap_err();
            assert!(error.to_string().contains(NO_NAMESPACES), "{file}: {error}");
        }
    }
    let error = target(json!({"namespaces": ["a"], "profile": "all"}))
        .render()
        .unwrap_err();
    assert!(error.to_string().contains("profile"), "{error}");
}

fn schema(release: &Release) -> Value {
    let text = fs::read_to_string(release.folder().join("values.schema.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Objects that take keys which nobody has described.
fn open_objects(schema: &Value, path: &str, found: &mut Vec<String>) {
    let properties = schema["properties"].as_object();
    let extra = &schema["additionalProperties"];
    if schema["type"] == "object" && extra != false && !extra.is_object() {
        found.push(path.to_owned());
    }
    for (name, schema) in properties.into_iter().flatten() {
        open_objects(schema, &format!("{path}.{name}"), found);
    }
}

#[test]
fn a_misspelt_value_is_refused_wherever_it_stands() {
    for (release, open) in [
        // Helm gives `global` to every chart of an umbrella; an affinity is the API's.
        (hub(json!({})), vec![".global", ".pod.affinity"]),
        (target(json!({})), vec![".global"]),
    ] {
        let schema = schema(&release);
        let mut found = Vec::new();
        open_objects(&schema, "", &mut found);
        assert_eq!(found, open, "{}", release.chart);
        for (name, definition) in schema["definitions"].as_object().into_iter().flatten() {
            let mut found = Vec::new();
            open_objects(definition, name, &mut found);
            assert!(found.is_empty(), "{found:?}");
        }
    }
}

/// Values files that the Go operator's chart takes or refuses meet the same patterns here.
#[test]
fn values_meet_the_patterns_of_the_contract() {
    let schema = schema(&hub(json!({})));
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
    let octet = "(25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)";
    let cidr = format!(
        "^(({octet}\\.){{3}}{octet}/([0-9]|[12][0-9]|3[0-2])|[0-9a-fA-F:]+/([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8]))$"
    );
    for (place, pattern) in [
        (
            "/definitions/quantity/anyOf/0",
            "^(\\.[0-9]+|[0-9]+(\\.[0-9]*)?)((e[0-9]+)|(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?$",
        ),
        ("/definitions/cidr", cidr.as_str()),
        (
            "/properties/logging/properties/level",
            "^(|debug|info|error|panic|[1-9][0-9]*)$",
        ),
        (
            "/properties/monitoring/properties/serviceMonitor/properties/interval",
            "^(0|([0-9]+(ns|us|µs|ms|s|m|h))+)$",
        ),
        (
            "/properties/image/properties/digest",
            "^(sha256:[a-f0-9]{64})?$",
        ),
    ] {
        let found = schema.pointer(place).map(|at| &at["pattern"]);
        assert_eq!(found, Some(&json!(pattern)), "{place}");
    }
    for place in ["replicas", "controller/properties/maxConcurrentReconciles"] {
        let at = &schema.pointer(&format!("/properties/{place}")).unwrap();
        assert!(
            at["type"] == "integer" || at["type"] == json!(["integer", "null"]),
            "{place}"
        );
        assert_eq!(at["minimum"], 1, "{place}");
    }
    let port = &schema["definitions"]["port"];
    assert_eq!(
        *port,
        json!({ "type": "integer", "minimum": 1, "maximum": 65535 })
    );
}
