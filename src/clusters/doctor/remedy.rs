//! Commands that cure, complete enough to be pasted.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::{Value, json};
use target_registry::REGISTRATION_LABEL;

use crate::clusters::{
    Caller, Session,
    access::{IN_NAMESPACES, MANAGER, Rule, role, role_name},
    args::TargetArgs,
    output::yaml,
    quoted,
    target::joined,
};

/// What stands in a command where nothing tells which context leads to the target.
const UNKNOWN_CONTEXT: &str = "TARGET_CONTEXT";

/// The same for namespaces; no namespace can have this name.
const UNKNOWN_NAMESPACES: &str = "NAMESPACES";

/// The words that all remedies of one cluster share.
pub struct Remedies {
    caller: Caller,
    name: String,
    target_context: String,
    target_kubeconfig: Option<String>,
}

// === impl Remedies ===

impl Remedies {
    /// For a cluster whose server is at `host`, as far as that is known.
    pub fn new(session: &Session, name: &str, target: &TargetArgs, host: Option<&str>) -> Self {
        let found = || host.and_then(|host| session.contexts.of_server(host));
        let context = target.target_context.clone().or_else(found);
        let file = target.target_kubeconfig.as_ref();
        Self {
            caller: session.caller(),
            name: name.to_owned(),
            target_context: context.unwrap_or_else(|| UNKNOWN_CONTEXT.to_owned()),
            target_kubeconfig: file.map(|file| file.display().to_string()),
        }
    }

    /// Installs the kinds of this operator on the hub.
    pub fn install_kinds(&self) -> String {
        format!(
            "{} crds | {} apply --server-side -f -",
            self.caller.program,
            self.on_hub()
        )
    }

    /// Registers the cluster anew for these namespaces; everything that is granted is granted again.
    /// Nothing is ever widened for want of a name: then somebody has to fill it in.
    pub fn register(&self, namespaces: &BTreeSet<String>) -> String {
        let namespaces = if namespaces.is_empty() {
            UNKNOWN_NAMESPACES.to_owned()
        } else {
            joined(namespaces)
        };
        format!(
            "{}{} --namespaces {namespaces}",
            self.verb("register"),
            self.to_target()
        )
    }

    /// Writes the kubeconfig anew.
    pub fn rotate(&self) -> String {
        format!("{}{}", self.verb("rotate"), self.to_target())
    }

    /// Lets writes go on.
    pub fn resume(&self) -> String {
        self.verb("resume")
    }

    /// Removes another registration.
    pub fn unregister(&self, other: &str) -> String {
        self.command(&format!("unregister {other}"))
    }

    /// Puts the label right.
    pub fn label(&self) -> String {
        format!(
            "{} label secret {} {REGISTRATION_LABEL}=true --overwrite",
            self.in_clusters_namespace(),
            self.name
        )
    }

    /// Declares exactly these namespaces.
    pub fn declare(&self, namespaces: &BTreeSet<String>) -> String {
        let patch = json!({ "stringData": { "namespaces": joined(namespaces) } });
        self.patch("secret", &patch)
    }

    /// Changes the policy.
    pub fn policy(&self, spec: &Value) -> String {
        self.patch(
            "targetcluster.clusters.openstack.c5c3.io",
            &json!({ "spec": spec }),
        )
    }

    /// Applies objects on the target.
    pub fn apply_on_target(&self, manifests: Vec<Value>) -> (String, Vec<Value>) {
        let documents: Vec<_> = manifests.iter().filter_map(|m| yaml(m).ok()).collect();
        let command = format!(
            "{} apply --server-side -f - <<'EOF'\n{}\nEOF",
            self.on_target_kubectl(),
            documents.join("---\n").trim_end()
        );
        (command, manifests)
    }

    /// Applies a manifest from the web, or whatever else is said to `kubectl` of the target.
    pub fn on_target(&self, words: &str) -> String {
        format!("{} {words}", self.on_target_kubectl())
    }

    fn verb(&self, verb: &str) -> String {
        self.command(&format!("{verb} {}", self.name))
    }

    /// A command of this program with the user's own options.
    fn command(&self, verb: &str) -> String {
        let caller = &self.caller;
        let mut command = format!("{} clusters {verb}", caller.program);
        for (option, value) in [
            ("--kubeconfig", &caller.kubeconfig),
            ("--context", &caller.context),
            ("-n", &Some(caller.namespace.clone())),
        ] {
            if let Some(value) = value {
                let _ = write!(command, " {option} {}", quoted(value));
            }
        }
        command
    }

    /// Options of our own verbs that lead to the target.
    fn to_target(&self) -> String {
        let mut options = format!(" --target-context {}", quoted(&self.target_context));
        if let Some(file) = &self.target_kubeconfig {
            let _ = write!(options, " --target-kubeconfig {}", quoted(file));
        }
        options
    }

    fn on_hub(&self) -> String {
        kubectl(
            self.caller.kubeconfig.as_deref(),
            self.caller.context.as_deref(),
        )
    }

    fn in_clusters_namespace(&self) -> String {
        format!("{} -n {}", self.on_hub(), quoted(&self.caller.namespace))
    }

    fn on_target_kubectl(&self) -> String {
        let file = self.target_kubeconfig.as_ref();
        let file = file.or(self.caller.kubeconfig.as_ref());
        kubectl(file.map(String::as_str), Some(&self.target_context))
    }

    fn patch(&self, resource: &str, patch: &Value) -> String {
        format!(
            "{} patch {resource} {} --type merge -p {}",
            self.in_clusters_namespace(),
            self.name,
            quoted(&patch.to_string())
        )
    }
}

/// `kubectl` with the way to a cluster.
fn kubectl(file: Option<&str>, context: Option<&str>) -> String {
    let mut command = "kubectl".to_owned();
    for (option, value) in [("--kubeconfig", file), ("--context", context)] {
        if let Some(value) = value {
            let _ = write!(command, " {option} {}", quoted(value));
        }
    }
    command
}

/// A namespace and everything that is granted in it, for one that lacks all of it.
pub fn whole_namespace(namespace: &str, account: (&str, &str)) -> Vec<Value> {
    // As `register` would name it for this account: another one's roles are not replaced.
    let name = role_name(account.0, account.1);
    let rules: Vec<_> = IN_NAMESPACES.iter().map(Rule::manifest).collect();
    let metadata = json!({ "name": name, "namespace": namespace, "labels": labels(&name) });
    let mut manifests = vec![json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": namespace, "annotations": { "helm.sh/resource-policy": "keep" },
        },
    })];
    manifests.extend(role("Role", &metadata, &rules, account));
    manifests
}

/// Rights beside those that are granted already, under a name of their own content: another set
/// must not replace it.
pub fn more_rights(namespace: Option<&str>, rules: &[Value], account: (&str, &str)) -> Vec<Value> {
    let digest = crate::hash::hash8(&Value::from(rules).to_string());
    let name = format!("{}-{digest}", account.1);
    let mut metadata = json!({ "name": name, "labels": labels(account.1) });
    let kind = match namespace {
        Some(namespace) => {
            metadata["namespace"] = json!(namespace);
            "Role"
        }
        None => "ClusterRole",
    };
    role(kind, &metadata, rules, account).into()
}

fn labels(instance: &str) -> Value {
    json!({
        "app.kubernetes.io/name": crate::clusters::access::ACCOUNT,
        "app.kubernetes.io/instance": instance,
        "app.kubernetes.io/managed-by": MANAGER,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_lead_where_the_user_came_from() {
        let remedies = Remedies {
            caller: Caller {
                program: "kubectl glance".to_owned(),
                kubeconfig: Some("/home/me/my config".to_owned()),
                context: Some("hub".to_owned()),
                namespace: "fleet".to_owned(),
            },
            name: "edge-1".to_owned(),
            target_context: "edge".to_owned(),
            target_kubeconfig: None,
        };
        assert_eq!(
            remedies.rotate(),
            "kubectl glance clusters rotate edge-1 --kubeconfig '/home/me/my config' --context hub -n fleet --target-context edge"
        );
        assert_eq!(
            remedies.declare(&["b".to_owned(), "a".to_owned()].into()),
            "kubectl --kubeconfig '/home/me/my config' --context hub -n fleet patch secret edge-1 --type merge -p '{\"stringData\":{\"namespaces\":\"a,b\"}}'"
        );
        let nothing_known = remedies.register(&BTreeSet::new());
        assert!(nothing_known.ends_with("--namespaces NAMESPACES"));
    }
}
