//! What a target grants to the hub: the same objects as the chart `target-cluster-access` renders
//! (a test compares them), for people who register clusters by command.

use std::collections::BTreeSet;

use glance_api::keys::annotations::HUB_UID;
use serde_json::{Value, json};

/// Namespace of the hub's account, by convention.
pub const NAMESPACE: &str = "c5c3-access";
/// The hub's account, as the chart names it.
pub const ACCOUNT: &str = "target-cluster-access";
/// Value of the label that tells objects of this program from those of Helm.
pub const MANAGER: &str = "glance-operator";

/// Longest name of a release object.
const LONGEST_NAME: usize = 63;

const ALL: &[&str] = &[
    "get", "list", "watch", "create", "update", "patch", "delete",
];
const READ: &[&str] = &["get", "list", "watch"];

/// A right: one API group, some of its resources, what may be done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The API group.
    pub group: &'static str,
    /// Its resources.
    pub resources: &'static [&'static str],
    /// The verbs.
    pub verbs: &'static [&'static str],
}

const fn rule(
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Rule {
    Rule {
        group,
        resources,
        verbs,
    }
}

/// What a Glance needs in the namespace it is placed in.
pub const IN_NAMESPACES: &[Rule] = &[
    rule("", &["services", "configmaps", "secrets"], ALL),
    rule("", &["services/proxy"], &["get"]),
    rule("apps", &["deployments"], ALL),
    rule("batch", &["jobs", "cronjobs"], ALL),
    rule("k8s.mariadb.com", &["databases", "users", "grants"], ALL),
    rule("k8s.mariadb.com", &["mariadbs"], READ),
    rule(
        "external-secrets.io",
        &["externalsecrets", "secretstores"],
        READ,
    ),
    rule("policy", &["poddisruptionbudgets"], ALL),
    rule("autoscaling", &["horizontalpodautoscalers"], ALL),
    rule("networking.k8s.io", &["networkpolicies"], ALL),
    rule("gateway.networking.k8s.io", &["httproutes"], ALL),
    rule(
        "gateway.networking.k8s.io",
        &["httproutes/status"],
        &["get"],
    ),
];

/// What is granted beside that, since it tells clusters and missing namespaces apart. Nothing fails
/// without it.
const TO_SEE: &[Rule] = &[rule("", &["namespaces"], READ)];

/// What it needs that no namespace holds.
pub const IN_CLUSTER: &[Rule] = &[rule("external-secrets.io", &["clustersecretstores"], READ)];

/// One grant of access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Namespace of the account.
    pub namespace: String,
    /// Name of the account.
    pub account: String,
    /// Namespaces to work in; `None`: all of the cluster.
    pub scope: Option<BTreeSet<String>>,
    /// Whether these namespaces are created as well.
    pub create_namespaces: bool,
    /// UID of the hub that it is for, where that is known.
    pub hub: Option<String>,
}

// === impl Rule ===

impl Rule {
    /// As it stands in a role.
    pub fn manifest(&self) -> Value {
        json!({ "apiGroups": [self.group], "resources": self.resources, "verbs": self.verbs })
    }
}

// === impl Access ===

impl Access {
    /// Name of the roles and bindings.
    pub fn name(&self) -> String {
        role_name(&self.namespace, &self.account)
    }

    /// The Secret that holds the account's token.
    pub fn token_secret(&self) -> String {
        format!("{}-token", self.account)
    }

    /// The namespaces that hold everything else, in the order of need.
    pub fn namespaces(&self) -> Vec<Value> {
        let own = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": self.namespace, "labels": self.labels() },
        });
        let scope = self.scope.iter().flatten();
        let scope = scope.filter(|_| self.create_namespaces).map(|name| {
            json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {
                    "name": name,
                    "labels": self.labels(),
                    // Whoever takes the access back must not take the workloads with it.
                    "annotations": { "helm.sh/resource-policy": "keep" },
                },
            })
        });
        std::iter::once(own).chain(scope).collect()
    }

    /// The account and its rights.
    pub fn rights(&self) -> Vec<Value> {
        let mut objects = vec![json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": self.metadata(&self.account, Some(&self.namespace)),
        })];
        let cluster = TO_SEE.iter().chain(IN_CLUSTER);
        let wide = IN_NAMESPACES.iter().filter(|_| self.scope.is_none());
        let rules: Vec<_> = cluster.chain(wide).map(Rule::manifest).collect();
        objects.extend(self.role("ClusterRole", None, &rules));
        for namespace in self.scope.iter().flatten() {
            let rules: Vec<_> = IN_NAMESPACES.iter().map(Rule::manifest).collect();
            objects.extend(self.role("Role", Some(namespace), &rules));
        }
        objects
    }

    /// A Secret that the cluster fills with a token of the account.
    pub fn token(&self, name: &str) -> Value {
        let mut metadata = self.metadata(name, Some(&self.namespace));
        metadata["annotations"]["kubernetes.io/service-account.name"] = json!(self.account);
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "type": "kubernetes.io/service-account-token",
            "metadata": metadata,
        })
    }

    /// Everything, as `register` writes it.
    pub fn objects(&self) -> Vec<Value> {
        let token = self.token(&self.token_secret());
        let mut objects = self.namespaces();
        objects.extend(self.rights());
        objects.push(token);
        objects
    }

    /// A role and its binding to the account.
    fn role(&self, kind: &str, namespace: Option<&str>, rules: &[Value]) -> [Value; 2] {
        role(
            kind,
            &self.metadata(&self.name(), namespace),
            rules,
            (&self.namespace, &self.account),
        )
    }

    fn metadata(&self, name: &str, namespace: Option<&str>) -> Value {
        let mut metadata = json!({ "name": name, "labels": self.labels() });
        if let Some(namespace) = namespace {
            metadata["namespace"] = json!(namespace);
        }
        if let Some(hub) = &self.hub {
            metadata["annotations"][HUB_UID] = json!(hub);
        }
        metadata
    }

    fn labels(&self) -> Value {
        json!({
            "app.kubernetes.io/name": ACCOUNT,
            "app.kubernetes.io/instance": self.name(),
            "app.kubernetes.io/managed-by": MANAGER,
        })
    }
}

/// Name of the roles of an account. Those of two hubs, or of two accounts, must not share it.
pub fn role_name(namespace: &str, account: &str) -> String {
    let apart = [(namespace, NAMESPACE), (account, ACCOUNT)];
    let apart = apart.into_iter().filter(|(is, usual)| is != usual);
    let parts: Vec<_> = apart.map(|(is, _)| is).chain([ACCOUNT]).collect();
    let mut name = parts.join("-");
    name.truncate(LONGEST_NAME);
    name.trim_end_matches(['-', '.']).to_owned()
}

/// A role and its binding to an account, both under the same metadata.
pub fn role(
    kind: &str,
    metadata: &Value,
    rules: &[Value],
    (namespace, account): (&str, &str),
) -> [Value; 2] {
    const API: &str = "rbac.authorization.k8s.io";
    let version = format!("{API}/v1");
    [
        json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules }),
        json!({
            "apiVersion": version, "kind": format!("{kind}Binding"),
            "metadata": metadata,
            "roleRef": { "apiGroup": API, "kind": kind, "name": metadata["name"] },
            "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": namespace }],
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(namespace: &str) -> Access {
        Access {
            namespace: namespace.to_owned(),
            account: ACCOUNT.to_owned(),
            scope: Some(["b".to_owned(), "a".to_owned()].into()),
            create_namespaces: true,
            hub: None,
        }
    }

    fn names(objects: &[Value]) -> Vec<String> {
        let text = |object: &Value, pointer: &str| {
            let text = object.pointer(pointer).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let name = |object: &Value| {
            let namespace = text(object, "/metadata/namespace");
            format!(
                "{} {namespace}/{}",
                text(object, "/kind"),
                text(object, "/metadata/name")
            )
        };
        objects.iter().map(name).collect()
    }

    #[test]
    fn what_others_need_comes_before_them() {
        assert_eq!(
            names(&access(NAMESPACE).objects()),
            [
                "Namespace /c5c3-access",
                "Namespace /a",
                "Namespace /b",
                "ServiceAccount c5c3-access/target-cluster-access",
                "ClusterRole /target-cluster-access",
                "ClusterRoleBinding /target-cluster-access",
                "Role a/target-cluster-access",
                "RoleBinding a/target-cluster-access",
                "Role b/target-cluster-access",
                "RoleBinding b/target-cluster-access",
                "Secret c5c3-access/target-cluster-access-token",
            ]
        );
    }

    #[test]
    fn the_chart_and_the_command_grant_the_same() {
        const CHART: &str =
            include_str!("../../charts/target-cluster-access/templates/_helpers.tpl");
        let (_, block) = CHART.split_once("namespaceRules.glance\" -}}").unwrap();
        let (block, _) = block.split_once("{{- end }}").unwrap();
        let chart: Value = serde_saphyr::from_str(block).unwrap();
        let ours: Vec<_> = IN_NAMESPACES.iter().map(Rule::manifest).collect();
        assert_eq!(Value::from(ours), chart, "keep both in step");
    }

    #[test]
    fn two_hubs_on_one_target_do_not_share_cluster_wide_objects() {
        assert_eq!(access("blue").name(), "blue-target-cluster-access");
        let long = access(&"n".repeat(63)).name();
        assert_eq!(long.len(), 63);
        let another = Access {
            account: "another".to_owned(),
            ..access(NAMESPACE)
        };
        assert_eq!(
            another.name(),
            "another-target-cluster-access",
            "nor do two accounts of one"
        );
    }

    #[test]
    fn what_is_granted_names_the_hub_it_is_for() {
        let marked = Access {
            hub: Some("here".to_owned()),
            ..access(NAMESPACE)
        };
        let marks = |object: &&Value| object["metadata"]["annotations"][HUB_UID] == "here";
        let objects = marked.objects();
        assert_eq!(
            objects.iter().filter(marks).count(),
            objects.len() - 3,
            "all but the namespaces"
        );
        let token = marked.token("token");
        let account = &token["metadata"]["annotations"]["kubernetes.io/service-account.name"];
        assert_eq!(account, ACCOUNT);
    }

    #[test]
    fn without_namespaces_the_rights_hold_in_the_whole_cluster() {
        let wide = Access {
            scope: None,
            ..access(NAMESPACE)
        };
        let objects = wide.objects();
        assert!(objects.iter().all(|object| object["kind"] != "Role"));
        let role = objects
            .iter()
            .find(|object| object["kind"] == "ClusterRole");
        let rules = role.and_then(|role| role["rules"].as_array()).unwrap();
        let cluster = TO_SEE.len() + IN_CLUSTER.len();
        assert_eq!(rules.len(), cluster + IN_NAMESPACES.len());
    }
}
