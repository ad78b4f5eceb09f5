//! Image, database, token cache, secret store, Keystone: what a Glance is made
//! from and logs in to.

use glance_api::Glance;
use glance_api::conditions::DATABASE_READY;
use glance_api::conditions::reasons::{CLUSTER_NOT_READY, RECONCILE_ERROR};
use glance_api::defaults;
use glance_api::glance::{CredentialsMode, GlanceSpec, TlsMode};
use url::Url;

use super::block;
use crate::policy::path::Path;
use crate::policy::review::Findings;
use crate::policy::text;

pub(super) fn judge(spec: &GlanceSpec, at: &Path, f: &mut Findings) {
    image(spec, at, f);
    database(spec, &at.child("database"), f);
    cache(spec, &at.child("cache"), f);
    if let Some(store) = &spec.secret_store_ref
        && store.name.is_empty()
    {
        f.required(&at.child("secretStoreRef.name"), "store name must be set");
    }
}

fn image(spec: &GlanceSpec, at: &Path, f: &mut Findings) {
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if is_set(&spec.image.tag) == is_set(&spec.image.digest) {
        f.invalid(
            &at.child("image"),
            block(&spec.image),
            "exactly one of image.tag or image.digest must be set",
        );
    }
}

fn database(spec: &GlanceSpec, at: &Path, f: &mut Findings) {
    let database = &spec.database;
    let host = database.host.as_ref().is_some_and(|host| !host.is_empty());
    if database.cluster_ref.is_some() == host {
        f.invalid(
            at,
            block(database),
            "exactly one of clusterRef or host must be set",
        );
    }
    let dynamic = defaults::credentials_mode(database) == CredentialsMode::Dynamic;
    if dynamic && database.cluster_ref.is_none() {
        f.invalid(
            &at.child("credentialsMode"),
            CredentialsMode::Dynamic.as_str(),
            "credentialsMode Dynamic requires clusterRef (managed mode)",
        );
    }
    if let Some(cluster) = &database.cluster_ref
        && cluster.name.is_empty()
    {
        f.required(
            &at.child("clusterRef.name"),
            "the name of the MariaDB must be set",
        );
    }
}

/// A managed database stays where it was made: the objects of the `MariaDB` operator can neither be renamed nor move.
pub(super) fn moved(old: &Glance, new: &Glance, f: &mut Findings) {
    let (before, after) = (&old.spec.database, &new.spec.database);
    let (Some(from), Some(to)) = (&before.cluster_ref, &after.cluster_ref) else {
        return;
    };
    if !is_made(old) {
        return;
    }
    let at = &Path::new("spec.database");
    if from.name != to.name {
        f.invalid(
            &at.child("clusterRef.name"),
            to.name.as_str(),
            "clusterRef.name is immutable once the database has been made: the MariaDB operator moves none",
        );
    }
    if before.database != after.database {
        f.invalid(
            &at.child("database"),
            after.database.as_str(),
            "database is immutable once the database has been made: the MariaDB operator renames none",
        );
    }
}

/// Whether a managed database may have been asked for, by what the status says. A typing error can be corrected before,
/// and an edit that got past this rule can be taken back: pods stay with the database that there is.
fn is_made(glance: &Glance) -> bool {
    let Some(status) = &glance.status else {
        return false;
    };
    let said = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == DATABASE_READY);
    said.is_some_and(|said| ![CLUSTER_NOT_READY, RECONCILE_ERROR].contains(&said.reason.as_str()))
}

fn cache(spec: &GlanceSpec, at: &Path, f: &mut Findings) {
    const LINE_BREAK: &str = "must not contain a newline or carriage return: it is rendered as it is, and a further line could send every token to another Keystone";
    let cache = &spec.cache;
    if cache.cluster_ref.is_some() != cache.servers.is_empty() {
        f.invalid(
            at,
            block(cache),
            "exactly one of clusterRef or servers must be set",
        );
    }
    if let Some(cluster) = &cache.cluster_ref {
        let at = at.child("clusterRef.name");
        if cluster.name.is_empty() {
            f.required(&at, "the name of the memcached Service must be set");
        } else if cluster.name.contains(['\n', '\r']) {
            f.invalid(&at, cluster.name.as_str(), LINE_BREAK);
        } else {
            text::name(&cluster.name, &at, f);
        }
    }
    for (index, server) in cache.servers.iter().enumerate() {
        let at = at.child("servers").index(index);
        if server.contains(['\n', '\r']) {
            f.invalid(&at, server.as_str(), LINE_BREAK);
        } else {
            text::name(server, &at, f);
        }
    }
}

pub(super) fn keystone(spec: &GlanceSpec, at: &Path, f: &mut Findings) {
    let endpoint_at = at.child("keystoneEndpoint");
    if spec.keystone_endpoint.is_empty() {
        f.required(&endpoint_at, "keystoneEndpoint must be set");
    } else {
        url(&spec.keystone_endpoint, &endpoint_at, f);
    }
    if let Some(public) = spec
        .keystone_public_endpoint
        .as_deref()
        .filter(|public| !public.is_empty())
    {
        url(public, &at.child("keystonePublicEndpoint"), f);
    }
    let user = &spec.service_user;
    for (field, name) in [
        ("serviceUser.username", &user.username),
        ("serviceUser.projectName", &user.project_name),
        ("serviceUser.userDomainName", &user.user_domain_name),
        ("serviceUser.projectDomainName", &user.project_domain_name),
        ("region", &spec.region),
    ] {
        if let Some(name) = name {
            text::name(name, &at.child(field), f);
        }
    }
}

/// The rules of one URL. The host is looked for before the rest is read, so
/// that each fault has its own words.
fn url(text: &str, at: &Path, f: &mut Findings) {
    if text.chars().any(|c| c.is_ascii_control()) {
        f.invalid(
            at,
            text,
            "must be a valid URL: it contains control characters",
        );
        return;
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    if !(scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")) {
        f.invalid(at, text, "scheme must be http or https");
        return;
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if host.is_empty() || host.starts_with(':') {
        f.invalid(at, text, "URL must include a host");
        return;
    }
    if let Err(error) = Url::parse(text) {
        f.invalid(at, text, format!("must be a valid URL: {error}"));
        return;
    }
    if user.is_some() {
        f.warn(format!(
            "{at} holds a user name or password, which anyone who may read the rendered ConfigMap can read"
        ));
    }
}

/// Input that has no effect.
pub(super) fn ignored(spec: &GlanceSpec, f: &mut Findings) {
    let database = &spec.database;
    // Clients with defaults of their own send `password`, which is one of the two.
    let fixed = ["", "username", "password"];
    if database
        .secret_ref
        .key
        .as_deref()
        .is_some_and(|key| !fixed.contains(&key))
    {
        f.warn("spec.database.secretRef.key is ignored: the login is read from the keys username and password");
    }
    if let Some(tls) = &database.tls {
        let is_other = |key: &Option<String>, fixed: &[&str]| {
            key.as_deref()
                .is_some_and(|key| !key.is_empty() && !fixed.contains(&key))
        };
        if is_other(&tls.ca_bundle_secret_ref.key, &["ca.crt"]) {
            f.warn("spec.database.tls.caBundleSecretRef.key is ignored: the CA is read from the key ca.crt");
        }
        let client = tls.client_cert_secret_ref.as_ref();
        if client.is_some_and(|client| is_other(&client.key, &["tls.crt", "tls.key"])) {
            f.warn("spec.database.tls.clientCertSecretRef.key is ignored: certificate and key are read from the keys tls.crt and tls.key");
        }
        if tls.mode == Some(TlsMode::Disabled) {
            f.warn("spec.database.tls.mode is disabled: the connection to the database is not encrypted although a tls block is set");
        }
    }
    let unused = [
        (
            "database.replicas",
            database.replicas.is_some_and(|n| n != 3),
        ),
        (
            "database.storageSize",
            database
                .storage_size
                .as_deref()
                .is_some_and(|size| size != "100Gi"),
        ),
        (
            "cache.replicas",
            spec.cache.replicas.is_some_and(|n| n != 3),
        ),
    ];
    for (field, set) in unused {
        if set {
            f.warn(format!(
                "spec.{field} is not used by this operator: the referenced cluster has its own size"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use glance_api::Glance;

    use crate::oslo::fixture::glance;
    use crate::policy::glance_update;

    fn managed(cluster: &str, database: &str) -> Glance {
        let spec = json!({ "database": {
            "host": null, "clusterRef": { "name": cluster }, "database": database,
        } });
        glance("g", &spec)
    }

    fn stored(reason: &str, installed: &Value) -> Glance {
        let mut old = managed("db", "glance");
        old.status = serde_json::from_value(json!({
            "installedRelease": installed,
            "conditions": [{
                "type": "DatabaseReady", "status": "False", "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }))
        .unwrap();
        old
    }

    fn refused(old: &Glance, new: &Glance) -> Vec<String> {
        let causes = glance_update(old, new).causes;
        causes.into_iter().map(|cause| cause.field).collect()
    }

    #[test]
    fn a_managed_database_that_was_made_can_neither_be_renamed_nor_move() {
        let old = stored("DatabaseSynced", &json!("2025.2"));
        let both = managed("other", "images");
        let fields = ["spec.database.clusterRef.name", "spec.database.database"];
        assert_eq!(refused(&old, &both), fields);
        assert_eq!(refused(&old, &managed("db", "images")), fields[1..]);
        assert_eq!(refused(&old, &managed("db", "glance")), [""; 0]);
        // To a database that somebody else looks after there is a way.
        let mut own = managed("db", "images");
        own.spec.database.cluster_ref = None;
        own.spec.database.host = Some("db.example.org".into());
        assert_eq!(refused(&old, &own), [""; 0]);
        let mut gone = both;
        gone.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(refused(&old, &gone), [""; 0]);
    }

    #[rstest]
    #[case::waits_for_its_server("ClusterNotReady", Value::Null, true)]
    #[case::names_a_server_that_is_not_there("ClusterNotReady", json!("2025.2"), true)]
    #[case::is_being_made("WaitingForDatabase", Value::Null, false)]
    #[case::an_edit_that_got_past("ReconcileError", json!("2025.2"), true)]
    fn what_was_not_made_can_be_corrected(
        #[case] reason: &str,
        #[case] installed: Value,
        #[case] allowed: bool,
    ) {
        let found = refused(&stored(reason, &installed), &managed("db", "images"));
        assert_eq!(found.is_empty(), allowed, "{found:?}");
        assert_eq!(
            refused(&managed("db", "glance"), &managed("db", "images")),
            [""; 0]
        );
    }
}
