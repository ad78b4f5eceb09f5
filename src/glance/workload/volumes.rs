//! Volumes and where they are mounted; the same few for all our pods.
//!
//! The names `config` and `backends` are a contract: recovery of the last good config and the
//! backend controller read the live Deployment by them.

use glance_api::common::Quantity;
use glance_api::defaults;
use glance_api::glance::GlanceSpec;
use serde_json::{Value, json};

use crate::dsn::TLS_DIR;

/// Where the rendered config lies. The slash is part of the `--config-dir` argument.
pub const CONFIG_DIR: &str = "/etc/glance/glance-api.conf.d/";
/// Where the rendered stores lie.
pub const BACKENDS_DIR: &str = "/etc/glance/backends.conf.d/";
/// Where uploads and imports are staged.
pub const STAGING_DIR: &str = "/var/lib/glance/staging";
/// Where tasks work.
pub const TASKS_DIR: &str = "/var/lib/glance/tasks-work";
/// Where the image cache lies.
pub const CACHE_DIR: &str = "/var/lib/glance/image-cache";

/// Name of the volume with the rendered config.
pub const CONFIG: &str = "config";
/// Name of the volume with the rendered stores.
pub const BACKENDS: &str = "backends";
const STAGING: &str = "staging";
const TASKS: &str = "tasks-work";
const DB_TLS: &str = "db-tls";
const CACHE: &str = "image-cache";

/// The volumes of the API pod.
pub fn api(spec: &GlanceSpec, config_map: &str, backends_secret: &str) -> Vec<Value> {
    let scratch = defaults::staging_size_limit(spec);
    let mut volumes = vec![
        config(config_map),
        json!({ "name": BACKENDS, "secret": { "secretName": backends_secret } }),
        empty(STAGING, scratch.as_ref()),
        empty(TASKS, scratch.as_ref()),
    ];
    volumes.extend(db_tls(spec));
    if let Some(cache) = &spec.image_cache {
        let limit = defaults::image_cache_size_limit(cache);
        volumes.push(empty(CACHE, Some(&limit)));
    }
    volumes
}

/// The mounts of the API container, in the order of its volumes.
pub fn api_mounts(spec: &GlanceSpec) -> Vec<Value> {
    let mut mounts = vec![
        config_mount(),
        read_only(BACKENDS, BACKENDS_DIR),
        json!({ "name": STAGING, "mountPath": STAGING_DIR }),
        json!({ "name": TASKS, "mountPath": TASKS_DIR }),
    ];
    mounts.extend(db_tls_mount(spec));
    if spec.image_cache.is_some() {
        mounts.push(cache_mount());
    }
    mounts
}

/// The volumes of a pod that runs `glance-manage`: no stores, since it opens none.
pub fn manage(spec: &GlanceSpec, config_map: &str) -> Vec<Value> {
    let mut volumes = vec![config(config_map)];
    volumes.extend(db_tls(spec));
    volumes
}

/// The mounts of a container that runs `glance-manage`.
pub fn manage_mounts(spec: &GlanceSpec) -> Vec<Value> {
    let mut mounts = vec![config_mount()];
    mounts.extend(db_tls_mount(spec));
    mounts
}

/// The config, read-only.
pub fn config_mount() -> Value {
    read_only(CONFIG, CONFIG_DIR)
}

/// The image cache, read-write.
pub fn cache_mount() -> Value {
    json!({ "name": CACHE, "mountPath": CACHE_DIR })
}

/// The `ConfigMap` and the Secret that a live Deployment mounts, by the names of the volumes.
pub fn mounted(deployment: &Value) -> (Option<&str>, Option<&str>) {
    let volumes = deployment.pointer("/spec/template/spec/volumes");
    let find = |name: &str, source: &str| {
        volumes?
            .as_array()?
            .iter()
            .find(|volume| volume["name"] == name)?
            .pointer(source)?
            .as_str()
            .filter(|name| !name.is_empty())
    };
    (
        find(CONFIG, "/configMap/name"),
        find(BACKENDS, "/secret/secretName"),
    )
}

fn config(config_map: &str) -> Value {
    json!({ "name": CONFIG, "configMap": { "name": config_map } })
}

/// The TLS files of the database by the Secret that holds them; none without TLS.
///
/// Both references may name one Secret; their `key` is not used.
pub fn db_tls_files(spec: &GlanceSpec) -> Vec<(&str, &'static [&'static str])> {
    let Some((tls, _)) = defaults::database_tls(&spec.database) else {
        return Vec::new();
    };
    let mut files: Vec<(&str, &'static [&'static str])> =
        vec![(&tls.ca_bundle_secret_ref.name, &["ca.crt"])];
    if let Some(certificate) = &tls.client_cert_secret_ref {
        files.push((&certificate.name, &["tls.crt", "tls.key"]));
    }
    files
}

/// The TLS files as the DSN names them, readable for the group only: the pod's `fsGroup` has to be
/// set.
fn db_tls(spec: &GlanceSpec) -> Option<Value> {
    let sources: Vec<Value> = db_tls_files(spec)
        .into_iter()
        .map(|(secret, files)| {
            let items: Vec<Value> = files
                .iter()
                .map(|file| json!({ "key": file, "path": file }))
                .collect();
            json!({ "secret": { "name": secret, "items": items } })
        })
        .collect();
    (!sources.is_empty()).then(
        || json!({ "name": DB_TLS, "projected": { "defaultMode": 0o400, "sources": sources } }),
    )
}

fn db_tls_mount(spec: &GlanceSpec) -> Option<Value> {
    defaults::database_tls(&spec.database).map(|_| read_only(DB_TLS, TLS_DIR))
}

fn empty(name: &str, limit: Option<&Quantity>) -> Value {
    match limit {
        Some(limit) => json!({ "name": name, "emptyDir": { "sizeLimit": limit } }),
        // Present and empty: an absent source is no volume.
        None => json!({ "name": name, "emptyDir": {} }),
    }
}

fn read_only(name: &str, path: &str) -> Value {
    json!({ "name": name, "mountPath": path, "readOnly": true })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::glance::specimen;

    fn names(objects: &[Value]) -> Vec<&str> {
        objects
            .iter()
            .map(|object| object["name"].as_str().unwrap())
            .collect()
    }

    fn tls(tls: &Value) -> GlanceSpec {
        specimen::with(&json!({ "database": { "tls": tls } })).spec
    }

    #[test]
    fn mounts_follow_the_volumes_in_their_order() {
        let (least, most) = (specimen::eventlet().spec, specimen::everything().spec);
        assert_eq!(
            names(&api(&least, "c", "b")),
            ["config", "backends", "staging", "tasks-work"]
        );
        assert_eq!(names(&api_mounts(&least)), names(&api(&least, "c", "b")));
        assert_eq!(
            names(&api(&most, "c", "b")),
            [
                "config",
                "backends",
                "staging",
                "tasks-work",
                "db-tls",
                "image-cache"
            ]
        );
        assert_eq!(names(&api_mounts(&most)), names(&api(&most, "c", "b")));
        assert_eq!(names(&manage(&most, "c")), ["config", "db-tls"]);
        assert_eq!(names(&manage_mounts(&most)), ["config", "db-tls"]);
    }

    #[rstest]
    #[case::absent(json!(null), json!({ "sizeLimit": "10Gi" }))]
    #[case::empty(json!({}), json!({ "sizeLimit": "10Gi" }))]
    #[case::set(json!({ "sizeLimit": "1024Mi", "unbounded": false }), json!({ "sizeLimit": "1024Mi" }))]
    #[case::unbounded(json!({ "unbounded": true }), json!({}))]
    fn both_scratch_volumes_have_the_same_bound(#[case] staging: Value, #[case] expected: Value) {
        let spec = specimen::with(&json!({ "staging": staging })).spec;
        let volumes = api(&spec, "c", "b");
        assert_eq!(volumes[2]["emptyDir"], expected);
        assert_eq!(volumes[3]["emptyDir"], expected);
    }

    #[rstest]
    #[case::empty(json!({}), "10Gi")]
    #[case::set(json!({ "sizeLimit": "256Mi" }), "256Mi")]
    fn the_cache_is_bounded(#[case] cache: Value, #[case] limit: &str) {
        let spec = specimen::with(&json!({ "imageCache": cache })).spec;
        assert_eq!(
            api(&spec, "c", "b")[4],
            json!({ "name": "image-cache", "emptyDir": { "sizeLimit": limit } })
        );
    }

    #[test]
    fn one_secret_may_hold_ca_and_certificate() {
        let one = tls(&json!({ "mode": "require",
            "caBundleSecretRef": { "name": "db", "key": "ignored" }, "clientCertSecretRef": { "name": "db" } }));
        assert_eq!(
            manage(&one, "c")[1],
            json!({ "name": "db-tls", "projected": { "defaultMode": 256, "sources": [
                { "secret": { "name": "db", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                { "secret": { "name": "db", "items": [
                    { "key": "tls.crt", "path": "tls.crt" }, { "key": "tls.key", "path": "tls.key" }] } },
            ] } })
        );
    }

    #[rstest]
    #[case::disabled(json!({ "mode": "disabled" }), false)]
    #[case::no_mode_is_not_plaintext(json!({}), true)]
    #[case::prefer(json!({ "mode": "prefer" }), true)]
    fn tls_files_are_mounted_when_the_connection_is_encrypted(
        #[case] mode: Value,
        #[case] on: bool,
    ) {
        let mut block = json!({ "caBundleSecretRef": { "name": "ca" } });
        json_patch::merge(&mut block, &mode);
        let spec = tls(&block);
        assert_eq!(manage(&spec, "c").len() == 2, on);
        assert_eq!(manage_mounts(&spec).len() == 2, on);
    }

    #[test]
    fn the_last_good_names_are_found_in_a_live_deployment() {
        let volumes = api(
            &specimen::eventlet().spec,
            "pictures-config-0a",
            "pictures-backends-0b",
        );
        let live = json!({ "spec": { "template": { "spec": { "volumes": volumes } } } });
        assert_eq!(
            mounted(&live),
            (Some("pictures-config-0a"), Some("pictures-backends-0b"))
        );
        assert_eq!(mounted(&json!({})), (None, None));
    }
}
