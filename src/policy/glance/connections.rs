//! Image, database, token cache, secret store, Keystone: what a Glance is made
//! from and logs in to.

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
