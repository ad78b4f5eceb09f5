//! `clusters list`, and the row that other verbs show of a cluster.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::Serialize;
use target_registry::{
    Registration, TargetCluster,
    target_cluster::{Condition, ConditionStatus},
};

use super::{
    Session,
    error::Error,
    fleet::{Entry, Fleet},
    output::{Show, distance, table},
};

/// Reason shown where nobody has judged the cluster yet.
const UNJUDGED: &str = "NotReported";

/// One cluster as a line of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    name: String,
    /// True, False or Unknown.
    ready: &'static str,
    /// The first thing that is not as it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    registered: bool,
    paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    /// Declared namespaces; absent: the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespaces: Option<Vec<String>>,
    /// Glances that name it; absent when they may not be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    glances: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    /// Deleted Glances that left something behind there.
    abandoned: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    /// Whether there is a `TargetCluster`, for names in pipes.
    #[serde(skip)]
    has_target: bool,
}

/// Several clusters.
#[derive(Clone, Debug, Serialize)]
pub struct Rows {
    items: Vec<Row>,
    #[serde(skip)]
    now: Timestamp,
}

/// What a verb did to one cluster, and the cluster now.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// What was done: registered, paused, …
    pub action: &'static str,
    /// What else a person wants to know.
    #[serde(skip)]
    pub remark: String,
    /// The cluster.
    #[serde(flatten)]
    pub cluster: Row,
}

/// `clusters list`.
pub async fn list(session: &Session, names: &[String]) -> Result<(), Error> {
    let fleet = session.hub.fleet(names).await?;
    if fleet.entries.is_empty() {
        let namespace = &session.hub.namespace;
        session.progress.note(&format!(
            "No cluster is registered in the namespace {namespace}."
        ));
    }
    session.show(&Rows::of(&fleet, Timestamp::now()))
}

// === impl Rows ===

impl Rows {
    /// Of a fleet, by name.
    pub fn of(fleet: &Fleet, now: Timestamp) -> Self {
        Self {
            items: fleet.entries.iter().map(Row::of).collect(),
            now,
        }
    }
}

impl Show for Rows {
    fn human(&self, wide: bool) -> String {
        if self.items.is_empty() {
            return String::new();
        }
        let mut head = vec![
            "NAME",
            "READY",
            "VERSION",
            "NAMESPACES",
            "GLANCES",
            "EXPIRES",
            "REASON",
            "AGE",
        ];
        if wide {
            head.extend(["SERVER", "UID", "MESSAGE"]);
        }
        let rows: Vec<_> = self
            .items
            .iter()
            .map(|row| row.cells(self.now, wide))
            .collect();
        table(&head, &rows)
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(Row::resource).collect()
    }
}

// === impl Row ===

impl Row {
    /// Of everything that is known about a name.
    pub fn of(entry: &Entry) -> Self {
        let mut row = Self {
            name: entry.name.clone(),
            ready: "Unknown",
            registered: entry.registration().is_some(),
            glances: entry.glances.as_ref().map(Vec::len),
            has_target: entry.target.is_some(),
            ..Self::default()
        };
        let metadata = entry.secret.as_ref().map(|secret| &secret.metadata);
        let metadata = metadata.or(entry.target.as_ref().map(|target| &target.metadata));
        row.created_at = metadata.and_then(|data| data.creation_timestamp.as_ref().map(|t| t.0));
        if let Some(secret) = entry.registration() {
            // What the operator was allowed by its flags is not known here; it has the last word.
            match Registration::from_secret(secret, true) {
                Ok(registration) => {
                    row.server = Some(registration.server());
                    row.namespaces = registration
                        .namespaces()
                        .map(|namespaces| namespaces.iter().cloned().collect());
                    let expires = registration.credential().expires_at.as_ref();
                    row.expires_at = expires.map(|time| time.0);
                    row.reason = Some(UNJUDGED.to_owned());
                }
                Err(error) => {
                    row.ready = "False";
                    row.reason = Some(error.cause().to_string());
                    row.message = Some(error.to_string());
                }
            }
        }
        if !row.registered {
            row.ready = "False";
            row.reason = Some("NotRegistered".to_owned());
        }
        if let Some(target) = &entry.target {
            row.judge(target);
        }
        row
    }

    fn judge(&mut self, target: &TargetCluster) {
        self.paused = target.spec.is_paused();
        let Some(status) = &target.status else {
            return;
        };
        self.abandoned = status.abandoned.len();
        // Who may not read Secrets takes the operator's word.
        let registered = status.condition("Registered");
        self.registered |= registered.is_some_and(Condition::is_true);
        if self.namespaces.is_none() && !status.namespaces.is_empty() {
            self.namespaces = Some(status.namespaces.clone());
        }
        self.version.clone_from(&status.version);
        self.uid.clone_from(&status.cluster_uid);
        if status.server.is_some() {
            self.server.clone_from(&status.server);
        }
        let expires = status
            .credential
            .as_ref()
            .and_then(|c| c.expires_at.as_ref());
        self.expires_at = expires.map(|time| time.0).or(self.expires_at);
        if self.glances.is_none() {
            self.glances = status.dependents.and_then(|n| usize::try_from(n).ok());
        }
        let Some(ready) = status.condition("Ready") else {
            return;
        };
        self.ready = match ready.status {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        };
        // A part that nobody can judge does not keep a cluster from being ready.
        let parts = status.conditions.iter().filter(|c| c.type_ != "Ready");
        let first = parts
            .chain([ready])
            .find(|c| !c.is_true() && !ready.is_true());
        self.reason = first.map(|condition| condition.reason.clone());
        self.message = first.map(|condition| condition.message.clone());
        if first.is_none() && self.paused {
            self.reason = Some("Paused".to_owned());
        }
    }

    fn cells(&self, now: Timestamp, wide: bool) -> Vec<String> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let namespaces = match &self.namespaces {
            Some(namespaces) => namespaces.join(","),
            None if self.server.is_some() => "*".to_owned(),
            None => String::new(),
        };
        let mut cells = vec![
            self.name.clone(),
            self.ready.to_owned(),
            text(&self.version),
            namespaces,
            self.glances.map(|n| n.to_string()).unwrap_or_default(),
            self.expires_at
                .map(|at| distance(now, at))
                .unwrap_or_default(),
            text(&self.reason),
            self.created_at
                .map(|at| distance(at, now))
                .unwrap_or_default(),
        ];
        if wide {
            cells.extend([text(&self.server), text(&self.uid), text(&self.message)]);
        }
        cells
    }

    fn resource(&self) -> String {
        if self.has_target {
            format!(
                "targetcluster.{}/{}",
                target_registry::target_cluster::GROUP,
                self.name
            )
        } else {
            format!("secret/{}", self.name)
        }
    }
}

// === impl Done ===

impl Show for Done {
    fn human(&self, _: bool) -> String {
        let row = &self.cluster;
        let mut text = format!("{} {}", row.resource(), self.action);
        if !self.remark.is_empty() {
            let _ = write!(text, ": {}", self.remark);
        }
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.cluster.resource()]
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{ByteString, api::core::v1::Secret};
    use serde_json::json;
    use target_registry::REGISTRATION_LABEL;

    use super::*;

    fn secret(kubeconfig: &str) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.name = Some("edge-1".to_owned());
        secret.metadata.labels = Some([(REGISTRATION_LABEL.to_owned(), "true".to_owned())].into());
        let data = [("kubeconfig".to_owned(), ByteString(kubeconfig.into()))];
        secret.data = Some(data.into());
        secret
    }

    fn entry(secret: Option<Secret>, target: Option<TargetCluster>) -> Entry {
        Entry {
            name: "edge-1".to_owned(),
            secret,
            target,
            glances: None,
            renewals: [].into(),
        }
    }

    fn target(conditions: &serde_json::Value, paused: bool) -> TargetCluster {
        serde_json::from_value(json!({
            "apiVersion": "clusters.openstack.c5c3.io/v1alpha1", "kind": "TargetCluster",
            "metadata": { "name": "edge-1" },
            "spec": { "paused": paused },
            "status": { "conditions": conditions, "version": "v1.36.0", "glances": 3 },
        }))
        .unwrap()
    }

    fn condition(type_: &str, status: &str, reason: &str) -> serde_json::Value {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "why",
            "lastTransitionTime": "2026-11-30T00:00:00Z",
        })
    }

    #[test]
    fn without_a_status_the_secret_alone_is_judged() {
        let row = Row::of(&entry(
            Some(secret("users: [{name: x, user: {exec: {}}}]")),
            None,
        ));
        assert_eq!(
            (row.ready, row.reason.as_deref()),
            ("False", Some("CredentialsRefused"))
        );
        let row = Row::of(&entry(None, None));
        assert_eq!(row.reason.as_deref(), Some("NotRegistered"));
    }

    #[test]
    fn the_reason_is_the_first_condition_that_does_not_hold() {
        let conditions = json!([
            condition("Registered", "True", "Accepted"),
            condition("Reachable", "False", "Timeout"),
            condition("Ready", "False", "NotReachable"),
        ]);
        let row = Row::of(&entry(None, Some(target(&conditions, false))));
        assert_eq!(
            (row.ready, row.reason.as_deref()),
            ("False", Some("Timeout"))
        );
        assert_eq!(row.glances, Some(3));
        let ready = json!([condition("Ready", "True", "Ready")]);
        let row = Row::of(&entry(None, Some(target(&ready, true))));
        assert_eq!((row.ready, row.reason.as_deref()), ("True", Some("Paused")));
    }

    #[test]
    fn nothing_printed_holds_a_credential() {
        let kubeconfig = "
clusters: [{name: c, cluster: {server: 'https://edge.example'}}]
users: [{name: u, user: {token: PLANTED}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
";
        let rows = Rows {
            items: vec![Row::of(&entry(Some(secret(kubeconfig)), None))],
            now: Timestamp::UNIX_EPOCH,
        };
        let json = serde_json::to_string(&rows).unwrap();
        assert!(rows.human(true).contains("edge.example:443"));
        assert!(!json.contains("PLANTED") && !rows.human(true).contains("PLANTED"));
    }
}
