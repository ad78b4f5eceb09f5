mod rights;
mod values;

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::json;

use super::*;

/// A release name as long as Helm takes it.
const LONGEST: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// One installation of a chart.
#[derive(Clone)]
struct Release {
    chart: &'static str,
    name: &'static str,
    namespace: &'static str,
    values: Value,
}

impl Release {
    fn folder(&self) -> PathBuf {
        checkout().join("charts").join(self.chart)
    }

    fn render(&self) -> Result<Vec<Value>> {
        self.render_with(&[])
    }

    fn render_with(&self, more: &[&str]) -> Result<Vec<Value>> {
        template(
            &self.folder(),
            self.name,
            self.namespace,
            &self.values,
            more,
        )
    }
}

fn hub(values: Value) -> Release {
    Release {
        chart: "glance-operator",
        name: "glance-operator",
        namespace: "glance-system",
        values,
    }
}

fn target(values: Value) -> Release {
    Release {
        chart: "target-cluster-access",
        name: "edge",
        namespace: "c5c3-access",
        values,
    }
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found: Vec<_> = objects
        .iter()
        .filter(|o| o["kind"] == kind && o["metadata"]["name"] == name)
        .collect();
    assert_eq!(found.len(), 1, "{kind} {name}: {found:#?}");
    found[0]
}

/// `Kind namespace/name`, sorted.
fn inventory(objects: &[Value]) -> BTreeSet<String> {
    let text = |v: &Value| v.as_str().unwrap_or("-").to_owned();
    objects
        .iter()
        .map(|o| {
            let (namespace, name) = (&o["metadata"]["namespace"], &o["metadata"]["name"]);
            format!("{} {}/{}", text(&o["kind"]), text(namespace), text(name))
        })
        .collect()
}

fn names<const N: usize>(expected: [&str; N]) -> BTreeSet<String> {
    expected.into_iter().map(str::to_owned).collect()
}

#[test]
fn a_default_installation_brings_these_objects_and_no_others() {
    let objects = hub(json!({})).render().unwrap();
    let expected = names([
        "Certificate glance-system/glance-operator-webhook",
        "ClusterRole -/glance-operator",
        "ClusterRole -/glance-operator-fleet",
        "ClusterRoleBinding -/glance-operator",
        "ClusterRoleBinding -/glance-operator-fleet",
        "Deployment glance-system/glance-operator",
        "Issuer glance-system/glance-operator-selfsigned",
        "MutatingWebhookConfiguration -/glance-operator-mutating",
        "PodDisruptionBudget glance-system/glance-operator",
        "Service glance-system/glance-operator",
        "ServiceAccount glance-system/glance-operator",
        "ValidatingWebhookConfiguration -/glance-operator-validating",
    ]);
    assert_eq!(inventory(&objects), expected);
}

/// Many namespaces may each have an operator of their own, all of one release name.
#[test]
fn installations_for_one_namespace_each_share_no_object() {
    let values = json!({
        "rbac": { "namespaceScoped": true }, "webhook": { "enabled": false }, "secureMetrics": { "enabled": true },
        "scoped": { "clusterSecretStores": true, "webhooks": true }, "apiProbe": { "mode": "api-proxy" },
        "monitoring": { "serviceMonitor": { "enabled": true } }, "hardenedRBAC": true,
    });
    let of = |name, namespace| {
        let release = Release {
            name,
            namespace,
            ..hub(values.clone())
        };
        inventory(&release.render().unwrap())
    };
    // The last two would be one with a dash between the words.
    let all = [
        of("glance-operator", "blue"),
        of("glance-operator", "green"),
        of("glance-operator", "a-b"),
        of("b-glance-operator", "a"),
    ];
    for (index, one) in all.iter().enumerate() {
        for other in &all[index + 1..] {
            let shared: Vec<_> = one.intersection(other).collect();
            assert!(shared.is_empty(), "{shared:?}");
        }
    }
    let role = "ClusterRole -/blue.glance-operator-metrics";
    assert!(all[0].contains(role), "{:?}", all[0]);
}

#[test]
fn the_charts_pass_their_own_unit_tests() {
    for release in [hub(json!({})), target(json!({}))] {
        unittest::run(&release.folder()).unwrap();
    }
}

#[test]
fn names_follow_the_release_and_its_overrides() {
    let long = "a".repeat(70);
    let cut_release = &format!("{LONGEST}-glance-op");
    let cases = [
        ("glance-operator", json!({}), "glance-operator"),
        ("my-glance-operator", json!({}), "my-glance-operator"),
        ("images", json!({}), "images-glance-operator"),
        ("images", json!({"nameOverride": "image"}), "images"),
        ("images", json!({"fullnameOverride": "other"}), "other"),
        ("images", json!({"fullnameOverride": long}), &long[..63]),
        // A name may not end with a dash, wherever it is cut.
        (
            "images",
            json!({"fullnameOverride": format!("{}-b", &long[..62])}),
            &long[..62],
        ),
        (LONGEST, json!({}), cut_release),
    ];
    for (name, values, expected) in cases {
        let release = Release {
            name,
            ..hub(values)
        };
        let objects = release.render().unwrap();
        named(&objects, "ClusterRole", expected);
        named(&objects, "ServiceAccount", expected);
    }

    let foreign = json!({"serviceAccount": {"create": false}});
    let objects = hub(foreign).render().unwrap();
    assert!(!objects.iter().any(|o| o["kind"] == "ServiceAccount"));
    let binding = named(&objects, "ClusterRoleBinding", "glance-operator");
    assert_eq!(binding["subjects"][0]["name"], "default");
}

#[test]
fn every_object_says_which_release_it_belongs_to() {
    for release in [hub(json!({})), target(json!({"namespaces": ["openstack"]}))] {
        for object in release.render().unwrap() {
            let labels = &object["metadata"]["labels"];
            let chart = release.chart;
            assert_eq!(labels["app.kubernetes.io/name"], chart, "{object}");
            assert_eq!(
                labels["app.kubernetes.io/instance"], release.name,
                "{object}"
            );
            assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm", "{object}");
            assert_eq!(labels["app.kubernetes.io/version"], "0.1.0", "{object}");
            let versioned = labels["helm.sh/chart"].as_str().unwrap_or_default();
            assert!(versioned.starts_with(&format!("{chart}-")), "{object}");
        }
    }
}

#[test]
fn helm_finds_nothing_to_complain_about() {
    for release in [hub(json!({})), target(json!({"namespaces": ["openstack"]}))] {
        helm(&release.folder(), &release.values, &["lint", "--strict"]).unwrap();
    }
}

/// Everything that a value can switch on.
fn everything() -> Value {
    let on = json!({ "enabled": true });
    json!({
        "networkPolicy": {
            "enabled": true, "kubeApiServer": { "cidrs": ["10.0.0.1/32"], "ports": [443] },
        },
        "monitoring": { "serviceMonitor": on }, "dashboard": on, "alerts": on, "secureMetrics": on,
        "webhookCertificate": { "mode": "ca" }, "hardenedRBAC": true,
        "apiProbe": { "mode": "api-proxy" }, "targetClusters": { "authorizeUse": true },
    })
}

#[test]
fn every_object_with_a_namespace_names_it_for_those_who_apply_what_is_rendered() {
    let scoped = json!({
        "rbac": { "namespaceScoped": true }, "webhook": { "enabled": false },
        "scoped": { "clusterSecretStores": true, "webhooks": true }, "apiProbe": { "mode": "api-proxy" },
    });
    let renewing = json!({ "namespaces": ["openstack"], "renewCredentials": true });
    let mut kinds = BTreeSet::new();
    for release in [hub(everything()), hub(scoped), target(renewing)] {
        for object in release.render().unwrap() {
            let kind = object["kind"].as_str().unwrap().to_owned();
            let of_cluster = kind.starts_with("Cluster")
                || kind.ends_with("WebhookConfiguration")
                || kind == "Namespace";
            let namespace = object["metadata"]["namespace"].as_str();
            // A target's Roles are where the work is.
            let expected = [release.namespace, "openstack"];
            let is_right = match namespace {
                None => of_cluster,
                Some(namespace) => !of_cluster && expected.contains(&namespace),
            };
            assert!(is_right, "{object}");
            kinds.insert(kind);
        }
    }
    assert!(kinds.len() >= 17, "{kinds:?}");
}

#[test]
fn the_chart_is_the_one_that_installations_of_the_go_operator_name() {
    let text = fs::read_to_string(hub(json!({})).folder().join("Chart.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(chart["name"], "glance-operator");
    assert_eq!(chart["type"], "application");
    assert_eq!(chart["appVersion"], "0.1.0");
    // From a plain folder, without anything to fetch first.
    assert!(chart.get("dependencies").is_none());
}
