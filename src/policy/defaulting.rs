//! What the defaulting webhooks write into an object.
//!
//! Only what the contract lists (custom-resource API, defaulting webhooks): most defaults are resolved when a value is
//! used, so that an unset field follows the operator. Nothing is removed and nothing that is there is touched, an
//! explicitly empty list least of all, since such a list means something else than none.
//!
//! This works on the raw object, for the schema has not seen it yet: a text where a number belongs is left alone, and
//! the API server then says which field it is. A block that must be there and is not stays away as well, or the user
//! would read of an empty leaf instead of the missing block.

use glance_api::defaults;
use json_patch::{AddOperation, PatchOperation, jsonptr::PointerBuf};
use serde_json::{Value, json};

/// What is filled in.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Defaults {
    /// Additions and nothing else; empty when nothing is missing.
    pub patch: Vec<PatchOperation>,
    /// Where what was written is not what it looks like.
    pub warnings: Vec<String>,
}

/// Writes into one object.
struct Writer<'a> {
    object: &'a Value,
    defaults: Defaults,
}

/// What a Glance leaves out. `object` needs no more than its `spec`.
pub fn default_glance(object: &Value) -> Defaults {
    let mut writer = Writer::new(object);
    if !writer.has_block(&["spec"]) {
        return writer.defaults;
    }
    deployment(&mut writer);
    let (format, level) = (defaults::LOG_FORMAT, defaults::LOG_LEVEL);
    let logging = ["spec", "logging"];
    if writer.is_unset(&logging) {
        let whole = json!({ "format": format, "level": level, "debug": false });
        writer.add(&logging, whole);
    } else {
        writer.text(&["spec", "logging", "format"], format.as_str());
        writer.text(&["spec", "logging", "level"], level.as_str());
        writer.flag(&["spec", "logging", "debug"], false);
    }
    writer.text(&["spec", "cache", "backend"], defaults::CACHE_BACKEND);
    let user = |leaf| ["spec", "serviceUser", leaf];
    writer.text(&user("username"), defaults::USERNAME);
    writer.text(&user("projectName"), defaults::PROJECT_NAME);
    writer.text(&user("userDomainName"), defaults::DOMAIN_NAME);
    writer.text(&user("projectDomainName"), defaults::DOMAIN_NAME);
    writer.text(
        &["spec", "serviceUser", "secretRef", "key"],
        defaults::PASSWORD_KEY,
    );
    let uwsgi = |leaf| ["spec", "apiServer", "uwsgi", leaf];
    writer.number(&uwsgi("processes"), defaults::UWSGI_PROCESSES);
    writer.number(&uwsgi("threads"), defaults::UWSGI_THREADS);
    writer.flag(&uwsgi("httpKeepAlive"), defaults::UWSGI_HTTP_KEEP_ALIVE);
    tls(&mut writer);
    writer.defaults
}

/// What a `GlanceBackend` leaves out.
pub fn default_backend(object: &Value) -> Defaults {
    let mut writer = Writer::new(object);
    writer.text(
        &["spec", "s3", "bucketURLFormat"],
        defaults::BUCKET_URL_FORMAT.as_str(),
    );
    writer.defaults
}

fn deployment(writer: &mut Writer<'_>) {
    let block = ["spec", "deployment"];
    let resources = ["spec", "deployment", "resources"];
    let pairs = |pairs: [(&str, &str); 2]| -> Value {
        pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let requests = pairs(defaults::RESOURCE_REQUESTS);
    let limits = pairs(defaults::RESOURCE_LIMITS);
    let whole = json!({ "requests": requests, "limits": limits });
    if writer.is_unset(&block) {
        writer.add(
            &block,
            json!({ "replicas": defaults::REPLICAS, "resources": whole }),
        );
        return;
    }
    writer.number(&["spec", "deployment", "replicas"], defaults::REPLICAS);
    if !writer.has_block(&block) {
        return;
    }
    if writer.is_unset(&resources) {
        writer.add(&resources, whole);
        return;
    }
    // One entry of either makes the block the user's own: no part of it is filled in.
    let is_empty = |leaf| {
        let value = writer.get(&["spec", "deployment", "resources", leaf]);
        value.is_none_or(|value| value.is_null() || value == &json!({}))
    };
    if writer.has_block(&resources) && is_empty("requests") && is_empty("limits") {
        writer.add(&["spec", "deployment", "resources", "requests"], requests);
        writer.add(&["spec", "deployment", "resources", "limits"], limits);
    }
}

/// Elsewhere a block without a mode means plaintext, which nobody who writes one wants.
fn tls(writer: &mut Writer<'_>) {
    let mode = ["spec", "database", "tls", "mode"];
    let before = writer.defaults.patch.len();
    writer.text(&mode, defaults::TLS_MODE.as_str());
    if writer.defaults.patch.len() > before {
        writer.defaults.warnings.push(format!(
            "spec.database.tls.mode is not set and becomes \"{}\"; set \"disabled\" to connect without TLS",
            defaults::TLS_MODE
        ));
    }
}

// === impl Writer ===

impl<'a> Writer<'a> {
    fn new(object: &'a Value) -> Self {
        Self {
            object,
            defaults: Defaults::default(),
        }
    }

    fn get(&self, path: &[&str]) -> Option<&'a Value> {
        path.iter()
            .try_fold(self.object, |value, step| value.as_object()?.get(*step))
    }

    fn is_unset(&self, path: &[&str]) -> bool {
        self.get(path).is_none_or(Value::is_null)
    }

    fn has_block(&self, path: &[&str]) -> bool {
        self.get(path).is_some_and(Value::is_object)
    }

    /// A text that is missing or empty.
    fn text(&mut self, path: &[&str], value: &str) {
        if self.is_unset(path) || self.get(path) == Some(&json!("")) {
            self.leaf(path, json!(value));
        }
    }

    /// A switch that is missing.
    fn flag(&mut self, path: &[&str], value: bool) {
        if self.is_unset(path) {
            self.leaf(path, json!(value));
        }
    }

    /// A number that is missing or zero, which is what clients that cannot leave it out send.
    fn number(&mut self, path: &[&str], value: i32) {
        let is_zero = self
            .get(path)
            .is_some_and(|set| set.as_f64().is_some_and(|number| number == 0.0));
        if is_zero {
            let field = path.join(".");
            self.defaults.warnings.push(format!(
                "{field} is 0, which is read as unset and becomes {value}"
            ));
        }
        if is_zero || self.is_unset(path) {
            self.leaf(path, json!(value));
        }
    }

    /// Into a block that is there: no block is made for a leaf.
    fn leaf(&mut self, path: &[&str], value: Value) {
        let parent = path.split_last().map_or(path, |(_, parent)| parent);
        if self.has_block(parent) {
            self.add(path, value);
        }
    }

    fn add(&mut self, path: &[&str], value: Value) {
        let path = PointerBuf::from_tokens(path.iter().copied());
        let add = AddOperation { path, value };
        self.defaults.patch.push(PatchOperation::Add(add));
    }
}

#[cfg(test)]
mod tests {
    use json_patch::Patch;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::testing::minimal_glance;

    fn patched(mut object: Value, with: impl Fn(&Value) -> Defaults) -> Value {
        let patch = Patch(with(&object).patch);
        json_patch::patch(&mut object, &patch).unwrap();
        object
    }

    fn glance(spec: &Value) -> Value {
        patched(json!({ "spec": spec }), default_glance)["spec"].take()
    }

    #[test]
    fn a_minimal_glance_gets_what_the_contract_lists_and_nothing_else() {
        let mut before = minimal_glance("images");
        before["spec"]["cache"]["backend"] = json!("");
        let after = patched(before.clone(), default_glance);
        let mut expected = before;
        let spec = &mut expected["spec"];
        spec["cache"]["backend"] = json!("dogpile.cache.pymemcache");
        spec["deployment"] = json!({
            "replicas": 3,
            "resources": {
                "requests": { "cpu": "100m", "memory": "512Mi" },
                "limits": { "cpu": "500m", "memory": "1Gi" },
            },
        });
        spec["logging"] = json!({ "format": "text", "level": "INFO", "debug": false });
        spec["serviceUser"] = json!({
            "username": "glance", "projectName": "service",
            "userDomainName": "Default", "projectDomainName": "Default",
            "secretRef": { "name": "glance-service-user", "key": "password" },
        });
        assert_eq!(after, expected);
        assert!(default_glance(&after).patch.is_empty(), "once is enough");
    }

    /// Presence switches these on, and an empty list means another thing than none.
    #[test]
    fn optional_blocks_and_empty_lists_stay_as_they_are() {
        let spec = json!({
            "importFiltering": { "allowedSchemes": [], "disallowedHosts": [] },
            "importPlugins": { "injectMetadata": { "properties": {}, "ignoreUserRoles": [] }, "conversion": {} },
            "dbPurge": {}, "staging": {}, "imageCache": { "maintenanceInterval": "5m" },
            "apiServer": {}, "gateway": {}, "networkPolicy": {}, "autoscaling": {}, "policyOverrides": {},
            "deployment": { "replicas": 1, "topologySpreadConstraints": [], "resources": { "limits": { "cpu": 1 } } },
            "logging": { "format": "json", "level": "DEBUG", "debug": true },
        });
        assert_eq!(glance(&spec), spec);
    }

    #[rstest]
    #[case::absent(json!({}), true)]
    #[case::null(json!({ "resources": null }), true)]
    #[case::empty(json!({ "resources": {} }), true)]
    #[case::both_empty(json!({ "resources": { "requests": {}, "limits": null } }), true)]
    #[case::one_limit(json!({ "resources": { "limits": { "cpu": "1" } } }), false)]
    #[case::no_map(json!({ "resources": { "limits": "much" } }), false)]
    fn resources_are_filled_in_whole_or_not_at_all(
        #[case] deployment: Value,
        #[case] filled: bool,
    ) {
        let after = glance(&json!({ "deployment": deployment.clone() }));
        let set = after["deployment"]["resources"]["requests"]["memory"] == "512Mi";
        assert_eq!(set, filled, "{after}");
        if !filled {
            assert_eq!(after["deployment"]["resources"], deployment["resources"]);
        }
    }

    #[test]
    fn claims_survive_the_resources_beside_them() {
        let after =
            glance(&json!({ "deployment": { "resources": { "claims": [{ "name": "gpu" }] } } }));
        assert_eq!(
            after["deployment"]["resources"]["claims"],
            json!([{ "name": "gpu" }])
        );
        assert_eq!(after["deployment"]["resources"]["limits"]["memory"], "1Gi");
    }

    #[test]
    fn a_zero_is_filled_in_and_the_user_is_told() {
        let spec = json!({
            "deployment": { "replicas": 0 },
            "apiServer": { "uwsgi": { "processes": 0, "httpKeepAlive": false } },
        });
        let defaults = default_glance(&json!({ "spec": spec.clone() }));
        let expected = [
            "spec.deployment.replicas is 0, which is read as unset and becomes 3",
            "spec.apiServer.uwsgi.processes is 0, which is read as unset and becomes 2",
        ];
        assert_eq!(defaults.warnings, expected);
        let after = glance(&spec);
        assert_eq!(
            after["apiServer"]["uwsgi"],
            json!({ "processes": 2, "threads": 1, "httpKeepAlive": false })
        );
    }

    #[test]
    fn a_tls_block_without_a_mode_never_means_plaintext() {
        let spec = json!({ "database": { "tls": { "caBundleSecretRef": { "name": "ca" } } } });
        let defaults = default_glance(&json!({ "spec": spec.clone() }));
        assert_eq!(defaults.warnings.len(), 1, "{:?}", defaults.warnings);
        assert_eq!(glance(&spec)["database"]["tls"]["mode"], "require");
        let chosen = json!({ "database": { "tls": { "mode": "disabled" } } });
        assert_eq!(glance(&chosen)["database"]["tls"]["mode"], "disabled");
    }

    #[test]
    fn a_backend_gets_its_url_format() {
        let backend = json!({ "spec": { "s3": { "host": "https://s3" } } });
        let after = patched(backend, default_backend);
        assert_eq!(after["spec"]["s3"]["bucketURLFormat"], "path");
        let without = json!({ "spec": { "type": "S3" } });
        assert!(default_backend(&without).patch.is_empty());
    }

    /// Any JSON at all, with the names that matter among its keys.
    fn any_json() -> impl Strategy<Value = Value> {
        let key = prop_oneof![
            Just("deployment"),
            Just("resources"),
            Just("limits"),
            Just("replicas"),
            Just("logging"),
            Just("level"),
            Just("cache"),
            Just("backend"),
            Just("serviceUser"),
            Just("secretRef"),
            Just("apiServer"),
            Just("uwsgi"),
            Just("database"),
            Just("tls"),
            Just("s3"),
            Just("threads"),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-1..3i64).prop_map(Value::from),
            Just(json!(0.0)),
            "[a-z]{0,2}".prop_map(Value::from),
            Just(json!([])),
        ];
        leaf.prop_recursive(4, 40, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(key.clone(), inner, 0..6).prop_map(|map| {
                    map.into_iter()
                        .map(|(k, v)| (k.to_owned(), v))
                        .collect::<serde_json::Map<_, _>>()
                        .into()
                }),
            ]
        })
    }

    proptest! {
        /// Whatever it is, the schema gets to see it, with additions only, and a second pass adds nothing.
        #[test]
        fn no_object_is_too_broken_to_be_passed_on(spec in any_json()) {
            let object = json!({ "spec": spec });
            for with in [default_glance, default_backend] {
                let after = patched(object.clone(), with);
                prop_assert!(with(&after).patch.is_empty(), "{after}");
                let removed = lost(&object["spec"], &after["spec"]);
                prop_assert!(removed.is_empty(), "{removed:?}");
            }
        }
    }

    /// Values of `before` that are something else in `after`; what counts as unset may change.
    fn lost(before: &Value, after: &Value) -> Vec<Value> {
        match (before, after) {
            (Value::Object(before), Value::Object(after)) => before
                .iter()
                .flat_map(|(key, value)| lost(value, after.get(key).unwrap_or(&Value::Null)))
                .collect(),
            (before, after) if before == after => Vec::new(),
            (before, _) if before.is_null() || before == "" || before.as_f64() == Some(0.0) => {
                Vec::new()
            }
            (before, _) => vec![before.clone()],
        }
    }
}
