//! The API server's audit log: what it was asked, by whom. Tests count requests here, at
//! the only place where none can be forgotten.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::PathBuf,
};

use serde::Deserialize;

/// The policy: every request once it is answered, without bodies; what Kubernetes asks of itself is left out.
pub const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [system:apiserver, system:kube-controller-manager, system:kube-scheduler]
- level: None
  userGroups: [system:serviceaccounts:kube-system]
- level: Metadata
";

/// An audit log.
#[derive(Debug, Clone)]
pub struct Audit {
    path: PathBuf,
}

/// A place in the log. What is asked for later counts from here.
#[derive(Debug, Clone, Copy)]
pub struct Mark(u64);

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    /// The user's full name, `system:serviceaccount:NAMESPACE:NAME` for accounts.
    pub user: String,
    /// The verb of Kubernetes: `get`, `list`, `watch`, `patch`, …
    pub verb: String,
    /// The resource's group, empty for the core group.
    pub group: String,
    /// The resource with its subresource, `glances/status`; empty for other paths.
    pub resource: String,
    /// The namespace, empty outside of one.
    pub namespace: String,
    /// The object's name, empty for collections.
    pub name: String,
    /// The HTTP code of the answer.
    pub code: u16,
    /// The request's path and query.
    pub uri: String,
    /// The client's user agent.
    pub agent: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "auditID")]
    audit_id: String,
    verb: String,
    user: User,
    #[serde(default)]
    object_ref: Option<ObjectRef>,
    #[serde(default)]
    response_status: Option<ResponseStatus>,
    #[serde(rename = "requestURI", default)]
    request_uri: String,
    #[serde(default)]
    user_agent: String,
}

#[derive(Debug, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Debug, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

// === impl Audit ===

impl Audit {
    /// The log at this path; it need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The end of the log as it is now.
    pub fn mark(&self) -> io::Result<Mark> {
        Ok(Mark(std::fs::metadata(&self.path)?.len()))
    }

    /// All requests since the mark, each once, in the order of their first answer. A watch
    /// counts when it begins.
    pub fn requests(&self, since: Mark) -> io::Result<Vec<Request>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(since.0))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(parse(text.lines()))
    }

    /// All requests of service accounts in the whole log.
    pub fn of_accounts(&self) -> io::Result<Vec<Request>> {
        let text = std::fs::read_to_string(&self.path)?;
        let asked = |line: &&str| line.contains("\"username\":\"system:serviceaccount:");
        Ok(parse(text.lines().filter(asked)))
    }

    /// The requests of one user since the mark.
    pub fn requests_by(&self, user: &str, since: Mark) -> io::Result<Vec<Request>> {
        let mut all = self.requests(since)?;
        all.retain(|request| request.user == user);
        Ok(all)
    }
}

/// The user name of a service account.
pub fn account(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Request> {
    let mut seen = HashSet::new();
    // The last line may still be in the making; it does not parse and is not counted yet.
    lines
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .filter(|line| seen.insert(line.audit_id.clone()))
        .map(|line| {
            let object = line.object_ref.unwrap_or_default();
            let resource = match object.subresource.as_str() {
                "" => object.resource,
                sub => format!("{}/{sub}", object.resource),
            };
            Request {
                user: line.user.username,
                verb: line.verb,
                group: object.api_group,
                resource,
                namespace: object.namespace,
                name: object.name,
                code: line.response_status.map_or(0, |status| status.code),
                uri: line.request_uri,
                agent: line.user_agent,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_counts_once_and_half_a_line_not_at_all() {
        let watch = r#"{"auditID":"1","stage":"ResponseStarted","verb":"watch","user":{"username":"u"},"objectRef":{"resource":"glances","apiGroup":"g"},"responseStatus":{"code":200},"requestURI":"/x"}"#;
        let end = watch.replace("ResponseStarted", "ResponseComplete");
        let status = r#"{"auditID":"2","verb":"patch","user":{"username":"u"},"objectRef":{"resource":"glances","subresource":"status","namespace":"n","name":"a"},"responseStatus":{"code":409}}"#;
        let text = format!("{watch}\n{status}\n{end}\n{}", &status[..40]);
        let requests = parse(text.lines());
        let brief: Vec<_> = requests
            .iter()
            .map(|r| (r.verb.as_str(), r.resource.as_str(), r.code))
            .collect();
        assert_eq!(
            brief,
            [("watch", "glances", 200), ("patch", "glances/status", 409)]
        );
    }
}
