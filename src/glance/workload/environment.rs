//! The environment of our containers: credentials by reference, and the settings of uWSGI and of
//! the S3 library that the argument list has no place for.

use glance_api::defaults;
use glance_api::glance::GlanceSpec;
use serde_json::{Value, json};

use crate::release::{LaunchMode, Release, is_below, launch_mode};

/// The first release whose S3 driver switches the new checksums off by itself.
const CHECKSUMS_TAMED: Release = Release::new(2026, 1);

/// One key of a Secret in the namespace of the pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretKeyRef {
    /// Name of the Secret.
    pub name: String,
    /// Key in its data.
    pub key: String,
}

/// An environment variable with a plain value.
pub fn plain(name: &str, value: impl Into<String>) -> Value {
    json!({ "name": name, "value": value.into() })
}

/// An environment variable whose value the kubelet reads from a Secret.
pub fn from_secret(name: &str, secret: &SecretKeyRef) -> Value {
    json!({ "name": name, "valueFrom": { "secretKeyRef": { "name": secret.name, "key": secret.key } } })
}

/// The DSN, from the Secret that the operator derives. oslo.config prefers it to the file's
/// placeholder.
pub fn database_connection(name: &str) -> Value {
    from_secret(
        "OS_DATABASE__CONNECTION",
        &SecretKeyRef {
            name: crate::names::db_connection(name),
            key: "connection".into(),
        },
    )
}

/// The environment of the API container, in a fixed order.
///
/// `password` is where the service user's password stands. The rest depends on the launch mode and the
/// release; a variable is set only where it is needed.
pub fn api(name: &str, spec: &GlanceSpec, password: &SecretKeyRef) -> Vec<Value> {
    let mut env = vec![
        database_connection(name),
        from_secret("OS_KEYSTONE_AUTHTOKEN__PASSWORD", password),
    ];
    if launch_mode(&spec.open_stack_release) == LaunchMode::Uwsgi {
        env.extend(uwsgi(spec));
    }
    if is_below(&spec.open_stack_release, CHECKSUMS_TAMED) {
        // The S3 library adds checksums that older gateways and other S3 services refuse.
        env.push(plain("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required"));
        env.push(plain("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required"));
    }
    env
}

/// The environment of a migration Job.
///
/// One attempt to connect instead of endless ones: a Job that cannot reach its database has to
/// fail, or nobody ever learns of it. Its back-off makes the further attempts.
pub fn migration(name: &str) -> Vec<Value> {
    vec![
        database_connection(name),
        plain("OS_DATABASE__MAX_RETRIES", "1"),
    ]
}

/// The settings of uWSGI that real Glance needs, each seen to matter with uWSGI 2.0.
fn uwsgi(spec: &GlanceSpec) -> Vec<Value> {
    vec![
        // SIGTERM reloads uWSGI by default: the pod would drop its requests, come back and be
        // killed.
        plain(
            "UWSGI_HOOK_MASTER_START",
            "unix_signal:15 gracefully_kill_them_all",
        ),
        // How long a request in flight may take to end, which is 60 s whatever the grace period is.
        plain("UWSGI_WORKER_RELOAD_MERCY", mercy(spec).to_string()),
        // Image conversion runs `sys.executable -m …`, which is uWSGI itself unless told otherwise.
        plain("UWSGI_BINARY_PATH", "/var/lib/openstack/bin/python3"),
        // Chunks of 1 MiB and more reset an upload.
        plain("UWSGI_CHUNKED_INPUT_LIMIT", "67108864"),
        // Headers over 4 KiB, a user token and a service token for instance, get an empty reply.
        plain("UWSGI_BUFFER_SIZE", "65535"),
        // A request that is silent for 60 s is dropped; as long as the route's limit instead.
        plain("UWSGI_HTTP_TIMEOUT", "14400"),
    ]
}

/// What is left of the grace period for requests in flight: after the pause before SIGTERM, and
/// five seconds before the kubelet kills. At least one second, so that uWSGI does not take it for
/// "for ever".
fn mercy(spec: &GlanceSpec) -> i64 {
    let grace = defaults::termination_grace_period_seconds(spec);
    let pause = defaults::pre_stop_sleep_seconds(spec);
    (grace - pause - 5).max(1)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::glance::specimen;

    fn names(patch: &Value) -> Vec<String> {
        env(patch)
            .iter()
            .map(|variable| variable["name"].as_str().unwrap().to_owned())
            .collect()
    }

    fn env(patch: &Value) -> Vec<Value> {
        let password = SecretKeyRef {
            name: "keystone-user".into(),
            key: "password".into(),
        };
        api("pictures", &specimen::with(patch).spec, &password)
    }

    fn value(patch: &Value, name: &str) -> Option<String> {
        let env = env(patch);
        let variable = env.iter().find(|variable| variable["name"] == name)?;
        Some(variable["value"].as_str().unwrap().to_owned())
    }

    #[test]
    fn credentials_come_first_and_by_reference() {
        assert_eq!(
            env(&json!({}))[..2],
            [
                json!({ "name": "OS_DATABASE__CONNECTION", "valueFrom": {
                    "secretKeyRef": { "name": "pictures-db-connection", "key": "connection" } } }),
                json!({ "name": "OS_KEYSTONE_AUTHTOKEN__PASSWORD", "valueFrom": {
                    "secretKeyRef": { "name": "keystone-user", "key": "password" } } }),
            ]
        );
    }

    #[rstest]
    #[case::old("2025.2", 0, 2)]
    #[case::boundary("2026.1", 6, 0)]
    #[case::new("2026.2", 6, 0)]
    #[case::unreadable("queens", 0, 2)]
    fn a_variable_is_set_only_where_it_is_needed(
        #[case] release: &str,
        #[case] uwsgi: usize,
        #[case] aws: usize,
    ) {
        let names = names(&json!({ "openStackRelease": release }));
        let count = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).count();
        assert_eq!(
            (count("OS_"), count("UWSGI_"), count("AWS_")),
            (2, uwsgi, aws),
            "{names:?}"
        );
        // Resets chunked uploads at random.
        assert!(!names.iter().any(|name| name == "UWSGI_HTTP_BUFFER_SIZE"));
    }

    #[rstest]
    #[case::default(json!({}), "20")]
    #[case::long(json!({ "terminationGracePeriodSeconds": 600, "preStopSleepSeconds": 15 }), "580")]
    #[case::no_pause(json!({ "terminationGracePeriodSeconds": 60, "preStopSleepSeconds": 0 }), "55")]
    #[case::nothing_left(json!({ "terminationGracePeriodSeconds": 10, "preStopSleepSeconds": 9 }), "1")]
    fn a_transfer_in_flight_gets_what_the_grace_period_leaves(
        #[case] deployment: Value,
        #[case] mercy: &str,
    ) {
        let patch = json!({ "openStackRelease": "2026.1", "deployment": deployment });
        assert_eq!(
            value(&patch, "UWSGI_WORKER_RELOAD_MERCY").as_deref(),
            Some(mercy)
        );
    }

    #[test]
    fn sigterm_drains_and_stops_uwsgi() {
        assert_eq!(
            value(
                &json!({ "openStackRelease": "2026.1" }),
                "UWSGI_HOOK_MASTER_START"
            )
            .as_deref(),
            Some("unix_signal:15 gracefully_kill_them_all")
        );
    }

    #[test]
    fn a_migration_that_cannot_connect_fails() {
        let env = migration("pictures");
        assert_eq!(env[0], database_connection("pictures"));
        assert_eq!(
            env[1],
            json!({ "name": "OS_DATABASE__MAX_RETRIES", "value": "1" })
        );
        assert_eq!(env.len(), 2);
    }
}
