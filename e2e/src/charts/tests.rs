use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::*;

const CRUD: &[&str] = &[
    "get", "list", "watch", "create", "update", "patch", "delete",
];
const READ: &[&str] = &["get", "list", "watch"];

/// Group, resources, verbs.
type Rule = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// The contract's rules on the hub, in its order. Audits compare them one by one.
const HUB: [Rule; 20] = [
    ("glance.openstack.c5c3.io", &["glances"], CRUD),
    (
        "glance.openstack.c5c3.io",
        &["glances/status"],
        &["get", "update", "patch"],
    ),
    (
        "glance.openstack.c5c3.io",
        &["glances/finalizers"],
        &["update"],
    ),
    ("glance.openstack.c5c3.io", &["glancebackends"], READ),
    (
        "glance.openstack.c5c3.io",
        &["glancebackends/status"],
        &["get", "update", "patch"],
    ),
    ("apps", &["deployments"], CRUD),
    ("", &["services", "configmaps", "secrets"], CRUD),
    ("", &["events"], &["create", "patch"]),
    ("batch", &["jobs", "cronjobs"], CRUD),
    ("k8s.mariadb.com", &["databases", "users", "grants"], CRUD),
    ("k8s.mariadb.com", &["mariadbs"], READ),
    ("external-secrets.io", &["externalsecrets"], READ),
    (
        "external-secrets.io",
        &["clustersecretstores", "secretstores"],
        READ,
    ),
    ("policy", &["poddisruptionbudgets"], CRUD),
    ("autoscaling", &["horizontalpodautoscalers"], CRUD),
    ("networking.k8s.io", &["networkpolicies"], CRUD),
    ("gateway.networking.k8s.io", &["httproutes"], CRUD),
    (
        "gateway.networking.k8s.io",
        &["httproutes/status"],
        &["get"],
    ),
    ("scheduling.k8s.io", &["priorityclasses"], READ),
    ("coordination.k8s.io", &["leases"], CRUD),
];

/// What Glance alone needs in a namespace of a target.
const TARGET: [Rule; 12] = [
    ("", &["services", "configmaps", "secrets"], CRUD),
    ("", &["services/proxy"], &["get"]),
    ("apps", &["deployments"], CRUD),
    ("batch", &["jobs", "cronjobs"], CRUD),
    ("k8s.mariadb.com", &["databases", "users", "grants"], CRUD),
    ("k8s.mariadb.com", &["mariadbs"], READ),
    (
        "external-secrets.io",
        &["externalsecrets", "secretstores"],
        READ,
    ),
    ("policy", &["poddisruptionbudgets"], CRUD),
    ("autoscaling", &["horizontalpodautoscalers"], CRUD),
    ("networking.k8s.io", &["networkpolicies"], CRUD),
    ("gateway.networking.k8s.io", &["httproutes"], CRUD),
    (
        "gateway.networking.k8s.io",
        &["httproutes/status"],
        &["get"],
    ),
];

/// What a target grants in a namespace for all services of the family.
const SHARED: [Rule; 20] = [
    (
        "",
        &["services", "configmaps", "secrets", "serviceaccounts"],
        CRUD,
    ),
    ("", &["pods"], &["get", "list"]),
    ("", &["pods/portforward"], &["create"]),
    ("", &["serviceaccounts/token"], &["create"]),
    ("", &["services/proxy"], &["get", "create", "delete"]),
    ("apps", &["deployments"], CRUD),
    ("batch", &["jobs", "cronjobs"], CRUD),
    (
        "k8s.mariadb.com",
        &["databases", "users", "grants", "mariadbs"],
        CRUD,
    ),
    ("memcached.c5c3.io", &["memcacheds"], CRUD),
    ("cert-manager.io", &["certificates"], CRUD),
    (
        "external-secrets.io",
        &["externalsecrets", "pushsecrets", "secretstores"],
        CRUD,
    ),
    (
        "generators.external-secrets.io",
        &["vaultdynamicsecrets"],
        CRUD,
    ),
    ("openbao.org", &["openbaoclusters", "openbaotenants"], CRUD),
    (
        "rbac.authorization.k8s.io",
        &["roles", "rolebindings"],
        CRUD,
    ),
    ("policy", &["poddisruptionbudgets"], CRUD),
    ("autoscaling", &["horizontalpodautoscalers"], CRUD),
    ("networking.k8s.io", &["networkpolicies"], CRUD),
    ("gateway.networking.k8s.io", &["httproutes"], CRUD),
    (
        "gateway.networking.k8s.io",
        &["httproutes/status"],
        &["get"],
    ),
    ("discovery.k8s.io", &["endpointslices"], &["get", "list"]),
];

/// What no namespace of a target holds: its identity, and the default store.
const CLUSTER: [Rule; 2] = [
    ("", &["namespaces"], READ),
    ("external-secrets.io", &["clustersecretstores"], READ),
];

/// A release name as long as Helm takes it.
const LONGEST: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

const NO_NAMESPACES: &str = "values.namespaces must name at least one namespace (the namespaces key of the registration Secret)";

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

fn rules(table: &[Rule]) -> Value {
    table
        .iter()
        .map(|(group, resources, verbs)| {
            json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
        })
        .collect()
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
fn the_hub_grants_exactly_the_twenty_rules_of_the_contract() {
    let objects = hub(json!({})).render().unwrap();
    let role = named(&objects, "ClusterRole", "glance-operator");
    assert_eq!(role["rules"], rules(&HUB));
    let binding = named(&objects, "ClusterRoleBinding", "glance-operator");
    assert_eq!(binding["roleRef"]["name"], "glance-operator");
    let account = json!([{"kind": "ServiceAccount", "name": "glance-operator", "namespace": "glance-system"}]);
    assert_eq!(binding["subjects"], account);
}

#[test]
fn rights_beyond_the_twenty_rules_can_be_taken_away_as_one_object() {
    let fleet: &[Rule] = &[
        ("clusters.openstack.c5c3.io", &["targetclusters"], CRUD),
        (
            "clusters.openstack.c5c3.io",
            &["targetclusters/status"],
            &["get", "update", "patch"],
        ),
        ("", &["namespaces"], READ),
        ("", &["pods"], &["get", "list"]),
    ];
    let objects = hub(json!({})).render().unwrap();
    let role = named(&objects, "ClusterRole", "glance-operator-fleet");
    assert_eq!(role["rules"], rules(fleet));
    let binding = named(&objects, "ClusterRoleBinding", "glance-operator-fleet");
    assert_eq!(binding["roleRef"]["name"], "glance-operator-fleet");

    let proxied = hub(json!({"apiProbe": {"mode": "api-proxy"}}))
        .render()
        .unwrap();
    let role = named(&proxied, "ClusterRole", "glance-operator-fleet");
    let with_proxy: &[Rule] = &[("", &["services/proxy"], &["get"])];
    assert_eq!(role["rules"], rules(&[fleet, with_proxy].concat()));
    assert_eq!(
        named(&proxied, "ClusterRole", "glance-operator")["rules"],
        rules(&HUB)
    );
}

#[test]
fn a_namespaced_installation_grants_nothing_outside_its_namespace() {
    let values = json!({"rbac": {"namespaceScoped": true}, "webhook": {"enabled": false}});
    let objects = hub(values.clone()).render().unwrap();
    let expected = names([
        "Deployment glance-system/glance-operator",
        "PodDisruptionBudget glance-system/glance-operator",
        "Service glance-system/glance-operator",
        "ServiceAccount glance-system/glance-operator",
        "Role glance-system/glance-operator",
        "RoleBinding glance-system/glance-operator",
    ]);
    assert_eq!(inventory(&objects), expected);
    assert_eq!(
        named(&objects, "Role", "glance-operator")["rules"],
        rules(&HUB)
    );

    let mut values = values;
    values["apiProbe"] = json!({"mode": "api-proxy"});
    let objects = hub(values).render().unwrap();
    let probe: &[Rule] = &[("", &["services/proxy"], &["get"])];
    assert_eq!(
        named(&objects, "Role", "glance-operator-fleet")["rules"],
        rules(probe)
    );
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

/// Those who install with a strict policy, or who forgot a part of it, are told what will not work.
#[test]
fn the_notes_say_what_a_network_policy_cuts_off() {
    let mut values = json!({
        "networkPolicy": {"enabled": true, "kubeApiServer": {"cidrs": ["10.0.0.1/32"], "ports": [443]}},
    });
    let notes = |values: &Value| {
        let release = hub(values.clone());
        let command = ["install", release.name, "--dry-run=client"];
        helm(&release.folder(), &release.values, &command).unwrap()
    };
    let text = notes(&values);
    assert!(text.contains("reach no target cluster"), "{text}");
    assert!(text.contains("reach no Glance of this cluster"), "{text}");
    values["targetClusters"] = json!({"cidrs": ["192.0.2.0/24"], "ports": [6443]});
    values["apiProbe"] = json!({"mode": "api-proxy"});
    let text = notes(&values);
    assert!(!text.contains("NOTE:"), "{text}");
}

/// Whoever stops the election and keeps the default of two replicas has two that write.
#[test]
fn the_notes_warn_of_replicas_that_all_reconcile() {
    let notes = |values: Value| {
        let release = hub(values);
        let command = ["install", release.name, "--dry-run=client"];
        helm(&release.folder(), &release.values, &command).unwrap()
    };
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
fn every_value_is_documented_in_the_readme_of_its_chart() {
    for release in [hub(json!({})), target(json!({}))] {
        let stored = fs::read_to_string(release.folder().join("README.md")).unwrap();
        let expected = table::readme(&release.folder()).unwrap();
        assert!(stored == expected, "run `make generate`: {}", release.chart);
    }
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
fn a_target_grants_by_default_exactly_what_glance_needs() {
    let objects = target(json!({"namespaces": ["openstack", "tenants"]}))
        .render()
        .unwrap();
    let expected = names([
        "Namespace -/openstack",
        "Namespace -/tenants",
        "ServiceAccount c5c3-access/target-cluster-access",
        "Secret c5c3-access/target-cluster-access-token",
        "ClusterRole -/edge-target-cluster-access",
        "ClusterRoleBinding -/edge-target-cluster-access",
        "Role openstack/edge-target-cluster-access",
        "RoleBinding openstack/edge-target-cluster-access",
        "Role tenants/edge-target-cluster-access",
        "RoleBinding tenants/edge-target-cluster-access",
    ]);
    assert_eq!(inventory(&objects), expected);

    for object in objects.iter().filter(|o| o["kind"] == "Role") {
        assert_eq!(object["rules"], rules(&TARGET), "{object}");
    }
    let role = named(&objects, "ClusterRole", "edge-target-cluster-access");
    assert_eq!(role["rules"], rules(&CLUSTER));

    let token = named(&objects, "Secret", "target-cluster-access-token");
    assert_eq!(token["type"], "kubernetes.io/service-account-token");
    assert_eq!(
        token["metadata"]["annotations"]["kubernetes.io/service-account.name"],
        "target-cluster-access"
    );
    for object in objects.iter().filter(|o| o["kind"] == "Namespace") {
        assert_eq!(
            object["metadata"]["annotations"]["helm.sh/resource-policy"],
            "keep"
        );
    }
}

#[test]
fn a_shared_target_grants_what_the_other_services_need_too() {
    let role = |values: Value, kind: &str| {
        let objects = target(values).render().unwrap();
        let found = named(&objects, kind, "edge-target-cluster-access");
        found["rules"].as_array().cloned().unwrap_or_default()
    };
    let shared = json!({"namespaces": ["openstack"], "profile": "shared"});
    assert_eq!(json!(role(shared.clone(), "Role")), rules(&SHARED));
    let reading: &[Rule] = &[(
        "rbac.authorization.k8s.io",
        &["clusterrolebindings"],
        &["get"],
    )];
    let expected = rules(&[&CLUSTER[..], reading].concat());
    assert_eq!(json!(role(shared, "ClusterRole")), expected);

    let delegator =
        json!({"namespaces": ["openstack"], "profile": "shared", "authDelegatorBinding": true});
    let cluster = role(delegator, "ClusterRole");
    assert_eq!(cluster.len(), 4);
    assert_eq!(
        cluster[2]["verbs"],
        json!(["get", "create", "patch", "delete"])
    );
    assert_eq!(
        cluster[3]["resourceNames"],
        json!(["system:auth-delegator"])
    );
    assert_eq!(cluster[3]["verbs"], json!(["bind"]));
}

#[test]
fn no_target_hands_out_the_right_to_grant_more_than_it_has() {
    for profile in ["glance", "shared"] {
        let values = json!({"namespaces": ["openstack"], "profile": profile});
        for object in target(values).render().unwrap() {
            let text = object["rules"].to_string();
            for forbidden in ["\"*\"", "escalate", "bind\"", "impersonate"] {
                assert!(!text.contains(forbidden), "{profile}: {object}");
            }
        }
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

#[test]
fn a_target_grants_its_whole_cluster_only_when_asked_to() {
    let objects = target(json!({"clusterWide": true})).render().unwrap();
    assert!(!objects.iter().any(|o| o["kind"] == "Role"));
    let role = named(&objects, "ClusterRole", "edge-target-cluster-access");
    assert_eq!(role["rules"], rules(&[&CLUSTER[..], &TARGET[..]].concat()));

    let renewing = json!({"namespaces": ["openstack"], "renewCredentials": true});
    let objects = target(renewing).render().unwrap();
    let role = named(&objects, "Role", "edge-target-cluster-access-renewal");
    assert_eq!(role["metadata"]["namespace"], "c5c3-access");
    assert_eq!(
        role["rules"],
        json!([{
            "apiGroups": [""], "resources": ["serviceaccounts/token"],
            "resourceNames": ["target-cluster-access"], "verbs": ["create"],
        }])
    );

    let blind = json!({"namespaces": ["openstack"], "readNamespaces": false});
    let objects = target(blind).render().unwrap();
    let role = named(&objects, "ClusterRole", "edge-target-cluster-access");
    assert_eq!(role["rules"], rules(&CLUSTER[1..]));

    let listed = json!({"namespaces": ["openstack"], "createNamespaces": false});
    let objects = target(listed).render().unwrap();
    assert!(!objects.iter().any(|o| o["kind"] == "Namespace"));
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
