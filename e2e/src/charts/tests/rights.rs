//! What the charts grant, rule by rule.

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

fn rules(table: &[Rule]) -> Value {
    table
        .iter()
        .map(|(group, resources, verbs)| {
            json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
        })
        .collect()
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
