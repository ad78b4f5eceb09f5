//! A kubeconfig as plain data: every entry is checked, then the current one is taken.

use kube::client::ConfigExt as _;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{
    Access, ContentHash, Fault, Refusal,
    entry::{Entry, is_set, shown, text, without_user_info, wrong_type},
};

/// Longest kubeconfig that is read, in bytes. Real ones have a few KiB.
const SIZE_LIMIT: usize = 64 * 1024;

const PLUGINS: [&str; 2] = ["exec", "auth-provider"];
const USER_FILES: [&str; 3] = ["tokenFile", "client-certificate", "client-key"];
const CLUSTER_FILE: &str = "certificate-authority";
pub(super) const UNVERIFIED: &str = "insecure-skip-tls-verify";
pub(super) const PROXY: &str = "proxy-url";
const PASSWORDS: [&str; 2] = ["username", "password"];
const IMPERSONATION: [&str; 4] = ["as", "as-uid", "as-groups", "as-user-extra"];

/// Keys that are understood, by place. What is neither here nor above is refused: it may be a
/// credential of a form that is not known here.
const ROOT_KEYS: [&str; 8] = [
    "apiVersion",
    "kind",
    "preferences",
    "clusters",
    "contexts",
    "current-context",
    "users",
    "extensions",
];
const CLUSTER_KEYS: [&str; 5] = [
    "server",
    "certificate-authority-data",
    "tls-server-name",
    "disable-compression",
    "extensions",
];
const USER_KEYS: [&str; 4] = [
    "token",
    "client-certificate-data",
    "client-key-data",
    "extensions",
];
const CONTEXT_KEYS: [&str; 4] = ["cluster", "user", "namespace", "extensions"];

/// Why a kubeconfig is not used.
pub(super) enum Reason {
    Refused(Refusal),
    Invalid(Fault),
}

/// The whole of it.
struct Document<'a> {
    root: &'a Map<String, Value>,
    clusters: Vec<Entry<'a>>,
    users: Vec<Entry<'a>>,
    contexts: Vec<Entry<'a>>,
}

/// Checks a kubeconfig and takes the current context out of it, with a hash of everything that
/// goes into a connection but its token.
pub(super) fn judge(raw: &[u8], allow_insecure: bool) -> Result<(Access, ContentHash), Reason> {
    if raw.len() > SIZE_LIMIT {
        return Err(Fault::TooLarge {
            size: raw.len(),
            limit: SIZE_LIMIT,
        }
        .into());
    }
    // As a plain value: anchors, merge keys and tags are resolved, duplicate keys and alias bombs
    // are refused, and a second document, which other readers would merge in, is too.
    let value: Value = serde_saphyr::from_slice_with_options(raw, limits()).map_err(|error| {
        // Never the text of the error: it may quote the document.
        let place = error.location();
        Fault::NotYaml {
            line: place.as_ref().map_or(0, serde_saphyr::Location::line),
            column: place.as_ref().map_or(0, serde_saphyr::Location::column),
        }
    })?;
    let root = match &value {
        Value::Null => return Err(Fault::Empty.into()),
        Value::Object(root) => root,
        _ => return Err(wrong_type("the kubeconfig", "a mapping").into()),
    };
    let document = Document {
        root,
        clusters: entries(root, "clusters", "cluster")?,
        users: entries(root, "users", "user")?,
        contexts: entries(root, "contexts", "context")?,
    };
    document.refuse(allow_insecure)?;
    document.access()
}

/// What 64 KiB of honest kubeconfig can need, many times over; the defaults are made for documents
/// of megabytes and let a bomb of aliases run for seconds.
fn limits() -> serde_saphyr::Options {
    let mut budget = serde_saphyr::Budget::default();
    budget.max_events = 20_000;
    budget.max_nodes = 10_000;
    budget.max_anchors = 100;
    budget.max_aliases = 1_000;
    budget.max_merge_keys = 100;
    budget.max_recorded_anchor_events = 20_000;
    budget.max_total_scalar_bytes = 1024 * 1024;
    let mut options = serde_saphyr::Options::default();
    options.budget = Some(budget);
    options.alias_limits.max_total_replayed_events = 20_000;
    options.with_snippet = false;
    options
}

/// The entries of a list. One without a body counts as empty.
fn entries<'a>(
    root: &'a Map<String, Value>,
    list: &'static str,
    body: &'static str,
) -> Result<Vec<Entry<'a>>, Reason> {
    static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    let items = match root.get(list) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(wrong_type(list, "a list").into()),
    };
    let mut entries: Vec<Entry<'a>> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let path = format!("{list}[{index}]");
        let Value::Object(item) = item else {
            return Err(wrong_type(&path, "a mapping").into());
        };
        if let Some(key) = item.keys().find(|key| *key != "name" && *key != body) {
            return Err(Refusal::UnknownKey {
                field: shown(&path, key),
            }
            .into());
        }
        let fields = match item.get(body) {
            None | Some(Value::Null) => &EMPTY,
            Some(Value::Object(fields)) => fields,
            Some(_) => return Err(wrong_type(&format!("{path}.{body}"), "a mapping").into()),
        };
        let name = text(item, &path, "name")?.unwrap_or_default();
        if entries.iter().any(|entry| entry.name == name) {
            return Err(Fault::Duplicate { list }.into());
        }
        entries.push(Entry {
            path: format!("{path}.{body}"),
            name,
            fields,
        });
    }
    Ok(entries)
}

// === impl Document ===

impl Document<'_> {
    /// Refusals, over every entry and not only the current one: which one is current is the
    /// author's choice too. The contract's two come first.
    fn refuse(&self, allow_insecure: bool) -> Result<(), Refusal> {
        for user in &self.users {
            if let Some(field) = user.first(&PLUGINS, |value| !value.is_null()) {
                return Err(Refusal::Plugin { field });
            }
        }
        for user in &self.users {
            if let Some(field) = user.first(&USER_FILES, is_set) {
                return Err(Refusal::File { field });
            }
        }
        for cluster in &self.clusters {
            if let Some(field) = cluster.first(&[CLUSTER_FILE], is_set) {
                return Err(Refusal::File { field });
            }
        }
        if !allow_insecure {
            self.refuse_insecure()?;
        }
        self.refuse_unknown()
    }

    fn refuse_insecure(&self) -> Result<(), Refusal> {
        for cluster in &self.clusters {
            if let Some(field) = cluster.first(&[UNVERIFIED], is_set) {
                return Err(Refusal::UnverifiedTls { field });
            }
            if let Some(field) = cluster.first(&[PROXY], is_set) {
                return Err(Refusal::Proxy { field });
            }
            let Some(server) = cluster.fields.get("server").and_then(Value::as_str) else {
                continue;
            };
            let field = format!("{}.server", cluster.path);
            // Judged as text: what a URL type makes of it may differ from type to type.
            let (scheme, rest) = server.trim().split_once("://").unwrap_or(("", server));
            if rest
                .split(['/', '?', '#'])
                .next()
                .is_some_and(|host| host.contains('@'))
            {
                return Err(Refusal::UserInfo { field });
            }
            if !scheme.eq_ignore_ascii_case("https") {
                return Err(Refusal::PlainHttp { field });
            }
        }
        for user in &self.users {
            if let Some(field) = user.first(&PASSWORDS, is_set) {
                return Err(Refusal::Password { field });
            }
            if let Some(field) = user.first(&IMPERSONATION, is_set) {
                return Err(Refusal::Impersonation { field });
            }
        }
        Ok(())
    }

    fn refuse_unknown(&self) -> Result<(), Refusal> {
        if let Some(key) = self
            .root
            .keys()
            .find(|key| !ROOT_KEYS.contains(&key.as_str()))
        {
            return Err(Refusal::UnknownKey {
                field: shown("", key),
            });
        }
        for cluster in &self.clusters {
            cluster.only(&[&CLUSTER_KEYS, &[CLUSTER_FILE, UNVERIFIED, PROXY]])?;
        }
        for user in &self.users {
            user.only(&[
                &USER_KEYS,
                &PLUGINS,
                &USER_FILES,
                &PASSWORDS,
                &IMPERSONATION,
            ])?;
        }
        for context in &self.contexts {
            context.only(&[&CONTEXT_KEYS])?;
        }
        Ok(())
    }

    /// The current context as something to connect with.
    fn access(&self) -> Result<(Access, ContentHash), Reason> {
        let name = text(self.root, "", "current-context")?.filter(|name| !name.is_empty());
        let name = name.ok_or(Fault::NoContext)?;
        let context = find(&self.contexts, name, "current-context", "contexts")?;
        let named = |key: &'static str| -> Result<&str, Fault> {
            let field = format!("{}.{key}", context.path);
            let name = text(context.fields, &context.path, key)?;
            name.filter(|name| !name.is_empty())
                .ok_or(Fault::Missing { field })
        };
        let cluster_field = format!("{}.cluster", context.path);
        let cluster = find(
            &self.clusters,
            named("cluster")?,
            &cluster_field,
            "clusters",
        )?;
        let user_field = format!("{}.user", context.path);
        let user = find(&self.users, named("user")?, &user_field, "users")?;

        let mut config = cluster.config()?;
        user.identify(&mut config)?;
        let credential = user.credential(&config.cluster_url)?;
        if credential.is_none() && config.auth_info.client_certificate_data.is_none() {
            return Err(Fault::NoCredential {
                field: user.path.clone(),
            }
            .into());
        }
        config.cluster_url = without_user_info(&config.cluster_url);
        let headers = user.impersonation()?;
        // Says now what would otherwise be said at the first attempt to connect. With an empty list
        // in place of a missing CA, so that the operating system's is not read for this.
        let mut probe = config.clone();
        probe.root_cert.get_or_insert_default();
        probe.rustls_client_config().map_err(|error| Fault::Tls {
            reason: error.to_string(),
        })?;
        let hash = connection_hash(cluster, user);
        Ok((
            Access {
                config,
                credential,
                headers,
            },
            hash,
        ))
    }
}

fn find<'a, 'b>(
    entries: &'a [Entry<'b>],
    name: &str,
    field: &str,
    list: &'static str,
) -> Result<&'a Entry<'b>, Fault> {
    entries
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| Fault::Dangling {
            field: field.to_owned(),
            list,
        })
}

fn connection_hash(cluster: &Entry<'_>, user: &Entry<'_>) -> ContentHash {
    let mut user = user.fields.clone();
    user.remove("token");
    // Maps are sorted, so equal content is equal text.
    let both = Value::Array(vec![
        Value::Object(cluster.fields.clone()),
        Value::Object(user),
    ]);
    ContentHash(Sha256::digest(both.to_string()).into())
}

// === impl Reason ===

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Fault> for Reason {
    fn from(fault: Fault) -> Self {
        Self::Invalid(fault)
    }
}
