//! Every row of the contract's table of values resolved when they are used.

use glance_api::backend::{BucketUrlFormat, GlanceBackendSpec};
use glance_api::common::Quantity;
use glance_api::defaults as d;
use glance_api::glance::{
    CredentialsMode, GlanceSpec, ImportFilteringSpec, ImportScheme, LogFormat, LogLevel,
    OutputFormat, SecretStoreKind, TlsMode,
};
use rstest::rstest;
use serde_json::{Value, json};

/// A minimal spec with some fields more.
fn spec(more: Value) -> GlanceSpec {
    let mut spec = json!({
        "openStackRelease": "2025.2",
        "image": { "repository": "glance", "tag": "1" },
        "database": {
            "clusterRef": { "name": "mariadb" },
            "database": "glance",
            "secretRef": { "name": "glance-db" },
        },
        "cache": { "backend": "", "clusterRef": { "name": "memcached" } },
        "keystoneEndpoint": "http://keystone:5000/v3",
        "serviceUser": { "secretRef": { "name": "glance-user" } },
    });
    json_patch_merge(&mut spec, more);
    serde_json::from_value(spec).unwrap()
}

fn json_patch_merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                json_patch_merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

fn filtering(block: Value) -> d::ImportFiltering {
    let block: ImportFilteringSpec = serde_json::from_value(block).unwrap();
    d::import_filtering(Some(&block))
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

const BASELINE: [&str; 9] = [
    "localhost",
    "127.0.0.1",
    "0.0.0.0",
    "::1",
    "169.254.169.254",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

#[test]
fn a_minimal_spec_runs_on_the_documented_values() {
    let spec = spec(json!({}));
    assert_eq!(d::replicas(&spec), 3);
    assert_eq!(d::replica_floor(&spec), 3);
    assert_eq!(
        serde_json::to_value(d::resources(&spec)).unwrap(),
        json!({
            "requests": { "cpu": "100m", "memory": "512Mi" },
            "limits": { "cpu": "500m", "memory": "1Gi" },
        })
    );
    assert_eq!(d::termination_grace_period_seconds(&spec), 30);
    assert_eq!(d::pre_stop_sleep_seconds(&spec), 5);
    assert_eq!(
        serde_json::to_value(d::strategy(&spec)).unwrap(),
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } })
    );
    assert_eq!(d::workers(&spec), 2);
    let uwsgi = d::uwsgi(&spec);
    assert_eq!(
        (uwsgi.processes, uwsgi.threads, uwsgi.http_keep_alive),
        (2, 1, true)
    );
    assert_eq!(
        (uwsgi.harakiri, uwsgi.http_keep_alive_timeout),
        (None, None)
    );
    assert_eq!(d::cache_backend(&spec), "dogpile.cache.pymemcache");
    assert_eq!(d::memcached_servers(&spec), ["memcached:11211"]);
    let user = d::service_user(&spec.service_user);
    assert_eq!(
        [
            &*user.username,
            &user.project_name,
            &user.user_domain_name,
            &user.project_domain_name
        ],
        ["glance", "service", "Default", "Default"]
    );
    assert_eq!(
        [&*user.secret_name, &user.secret_key],
        ["glance-user", "password"]
    );
    let logging = d::logging(&spec);
    assert_eq!(
        (logging.format, logging.level),
        (LogFormat::Text, LogLevel::Info)
    );
    assert!(!logging.debug && logging.per_logger_levels.is_empty());
    assert_eq!(
        d::keystone_public_endpoint(&spec),
        "http://keystone:5000/v3"
    );
    assert_eq!(
        d::secret_store(&spec),
        (SecretStoreKind::ClusterSecretStore, "openbao-cluster-store")
    );
    assert_eq!(d::database_port(&spec.database), 3306);
    assert_eq!(d::credentials_mode(&spec.database), CredentialsMode::Static);
    assert_eq!(d::database_tls(&spec.database), None);
    let purge = d::db_purge(&spec);
    assert_eq!((purge.retention_days, &*purge.schedule), (30, "1 0 * * *"));
    assert!(!purge.purge_images_table && !purge.suspend);
    assert_eq!(d::staging_size_limit(&spec), Some(Quantity::new("10Gi")));
    assert_eq!(d::output_format(&spec), None);
    assert_eq!(d::ignore_user_roles(&spec), None);
}

#[rstest]
#[case::absent(json!(null), 3)]
#[case::zero(json!({ "replicas": 0 }), 3)]
#[case::empty(json!({}), 3)]
#[case::set(json!({ "replicas": 1 }), 1)]
fn replicas(#[case] deployment: Value, #[case] expected: i32) {
    assert_eq!(
        d::replicas(&spec(json!({ "deployment": deployment }))),
        expected
    );
}

#[test]
fn the_floor_of_pods_is_the_autoscalers_while_there_is_one() {
    let scaled = |scaling| spec(json!({ "deployment": { "replicas": 4 }, "autoscaling": scaling }));
    assert_eq!(
        d::replica_floor(&scaled(json!({ "minReplicas": 1, "maxReplicas": 9 }))),
        1
    );
    assert_eq!(d::replica_floor(&scaled(json!({ "maxReplicas": 9 }))), 4);
}

#[rstest]
#[case::empty(json!({}), json!({ "requests": { "cpu": "100m", "memory": "512Mi" }, "limits": { "cpu": "500m", "memory": "1Gi" } }))]
#[case::empty_maps(json!({ "requests": {}, "limits": {} }), json!({ "requests": { "cpu": "100m", "memory": "512Mi" }, "limits": { "cpu": "500m", "memory": "1Gi" } }))]
#[case::one_entry(json!({ "limits": { "memory": "2Gi" } }), json!({ "limits": { "memory": "2Gi" } }))]
#[case::integers(json!({ "requests": { "cpu": 1 } }), json!({ "requests": { "cpu": 1 } }))]
fn resources_are_filled_in_whole_or_not_at_all(#[case] block: Value, #[case] expected: Value) {
    let spec = spec(json!({ "deployment": { "resources": block } }));
    assert_eq!(serde_json::to_value(d::resources(&spec)).unwrap(), expected);
}

#[test]
fn pods_spread_over_zones_and_nodes_unless_told_not_to() {
    let constraints = d::topology_spread_constraints(&spec(json!({})), "images");
    let expected = |key: &str| {
        json!({
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": {
                "app.kubernetes.io/name": "glance",
                "app.kubernetes.io/instance": "images",
            } },
        })
    };
    assert_eq!(
        serde_json::to_value(constraints).unwrap(),
        json!([
            expected("topology.kubernetes.io/zone"),
            expected("kubernetes.io/hostname")
        ])
    );
    let none = spec(json!({ "deployment": { "topologySpreadConstraints": [] } }));
    assert_eq!(d::topology_spread_constraints(&none, "images"), []);
}

#[test]
fn an_explicit_false_for_keep_alive_survives_and_zeros_do_not() {
    let spec = spec(json!({ "apiServer": { "workers": 0, "uwsgi": {
        "processes": 0, "threads": 0, "httpKeepAlive": false, "harakiri": 20,
    } } }));
    let uwsgi = d::uwsgi(&spec);
    assert_eq!(
        (uwsgi.processes, uwsgi.threads, uwsgi.http_keep_alive),
        (2, 1, false)
    );
    assert_eq!(uwsgi.harakiri, Some(20));
    assert_eq!(d::workers(&spec), 2);
}

#[rstest]
#[case(json!(null), "/")]
#[case(json!(""), "/")]
#[case(json!("image"), "/image")]
#[case(json!("/image"), "/image")]
fn the_route_has_a_leading_slash(#[case] path: Value, #[case] expected: &str) {
    let spec = spec(json!({ "gateway": {
        "parentRef": { "name": "gw" }, "hostname": "h", "path": path,
    } }));
    assert_eq!(d::gateway_path(spec.gateway.as_ref().unwrap()), expected);
}

#[test]
fn empty_texts_count_as_unset() {
    let spec = spec(json!({
        "keystonePublicEndpoint": "",
        "serviceUser": {
            "username": "", "projectName": "", "userDomainName": "", "projectDomainName": "",
            "secretRef": { "key": "" },
        },
        "dbPurge": { "schedule": "", "retentionDays": 0 },
        "imageCache": { "maintenanceInterval": "" },
    }));
    assert_eq!(
        d::keystone_public_endpoint(&spec),
        "http://keystone:5000/v3"
    );
    let user = d::service_user(&spec.service_user);
    assert_eq!((&*user.username, &*user.secret_key), ("glance", "password"));
    assert_eq!(d::db_purge(&spec).schedule, "1 0 * * *");
    assert_eq!(d::db_purge(&spec).retention_days, 30);
    let cache = spec.image_cache.as_ref().unwrap();
    assert_eq!(d::maintenance_interval(cache), "5m");
    assert_eq!(d::image_cache_size_limit(cache).as_str(), "10Gi");
}

#[rstest]
#[case::block_without_a_mode(json!({}), Some(TlsMode::Require))]
#[case::off(json!({ "mode": "disabled" }), None)]
#[case::prefer(json!({ "mode": "prefer" }), Some(TlsMode::Prefer))]
#[case::full(json!({ "mode": "verify-full" }), Some(TlsMode::VerifyFull))]
fn a_tls_block_never_means_plaintext_by_omission(
    #[case] more: Value,
    #[case] expected: Option<TlsMode>,
) {
    let mut tls = json!({ "caBundleSecretRef": { "name": "ca" } });
    json_patch_merge(&mut tls, more);
    let spec = spec(json!({ "database": { "tls": tls } }));
    assert_eq!(
        d::database_tls(&spec.database).map(|(_, mode)| mode),
        expected
    );
}

#[test]
fn servers_of_the_token_cache_keep_their_order() {
    let spec = spec(json!({ "cache": { "clusterRef": null, "servers": ["b:11211", "a:11211"] } }));
    assert_eq!(d::memcached_servers(&spec), ["b:11211", "a:11211"]);
}

#[test]
fn an_absent_filter_equals_an_empty_one() {
    assert_eq!(d::import_filtering(None), filtering(json!({})));
    let filter = d::import_filtering(None);
    assert_eq!(filter.allowed_schemes, [ImportScheme::Https]);
    assert_eq!(filter.allowed_ports, [443]);
    assert_eq!(filter.disallowed_hosts, texts(&BASELINE));
    assert!(filter.disallowed_schemes.is_empty());
    assert!(filter.allowed_hosts.is_empty());
    assert!(filter.disallowed_ports.is_empty());
}

#[test]
fn an_added_host_does_not_lift_the_baseline() {
    let filter = filtering(json!({ "disallowedHosts": ["evil", "kubernetes", "worse", "evil"] }));
    let mut expected = texts(&BASELINE);
    expected.extend(texts(&["evil", "worse"]));
    assert_eq!(filter.disallowed_hosts, expected);
}

#[test]
fn an_empty_list_of_hosts_opts_out_of_the_baseline() {
    assert!(
        filtering(json!({ "disallowedHosts": [] }))
            .disallowed_hosts
            .is_empty()
    );
}

#[test]
fn named_hosts_leave_the_denied_ones_as_written() {
    let allowed = json!(["mirror"]);
    assert!(
        filtering(json!({ "allowedHosts": allowed }))
            .disallowed_hosts
            .is_empty()
    );
    let both = filtering(json!({ "allowedHosts": allowed, "disallowedHosts": ["evil"] }));
    assert_eq!(both.disallowed_hosts, ["evil"]);
    let none = filtering(json!({ "allowedHosts": [], "disallowedHosts": ["evil"] }));
    assert_eq!(none.disallowed_hosts.len(), 10);
}

#[test]
fn empty_allow_lists_stay_empty() {
    let filter = filtering(json!({ "allowedSchemes": [], "allowedPorts": [] }));
    assert!(filter.allowed_schemes.is_empty() && filter.allowed_ports.is_empty());
}

#[test]
fn import_plugins_have_defaults_only_where_they_are_on() {
    let on = spec(json!({ "importPlugins": {
        "conversion": {}, "injectMetadata": { "properties": { "k": "v" } },
    } }));
    assert_eq!(d::output_format(&on), Some(OutputFormat::Raw));
    assert_eq!(d::ignore_user_roles(&on), Some(texts(&["admin"])));
    let nobody = spec(json!({ "importPlugins": {
        "conversion": { "outputFormat": "qcow2" },
        "injectMetadata": { "properties": { "k": "v" }, "ignoreUserRoles": [] },
    } }));
    assert_eq!(d::output_format(&nobody), Some(OutputFormat::Qcow2));
    assert_eq!(d::ignore_user_roles(&nobody), Some(Vec::new()));
}

#[rstest]
#[case(json!({}), Some("10Gi"))]
#[case(json!({ "sizeLimit": "40Gi" }), Some("40Gi"))]
#[case(json!({ "unbounded": false }), Some("10Gi"))]
#[case(json!({ "unbounded": true }), None)]
#[case::both_past_the_schema(json!({ "unbounded": true, "sizeLimit": "1Gi" }), None)]
fn staging_is_bounded_unless_told_otherwise(#[case] block: Value, #[case] expected: Option<&str>) {
    let limit = d::staging_size_limit(&spec(json!({ "staging": block })));
    assert_eq!(limit.as_ref().map(Quantity::as_str), expected);
}

#[test]
fn a_store_is_addressed_by_path_and_not_the_default_one() {
    let store: GlanceBackendSpec = serde_json::from_value(json!({
        "glanceRef": { "name": "images" },
        "type": "S3",
        "s3": { "host": "http://s3", "bucket": "b", "credentialsSecretRef": { "name": "s" } },
    }))
    .unwrap();
    assert!(!d::is_default(&store));
    assert_eq!(
        d::bucket_url_format(store.s3.as_ref().unwrap()),
        BucketUrlFormat::Path
    );
}

/// The rule on the two timings has to know the defaults of both.
#[test]
fn the_timing_rule_uses_the_defaults_of_the_resolvers() {
    let definition = glance_api::schema::glance().unwrap().to_string();
    let rule = format!(
        "(has(self.preStopSleepSeconds) ? self.preStopSleepSeconds : {}) < (has(self.terminationGracePeriodSeconds) ? self.terminationGracePeriodSeconds : {})",
        d::PRE_STOP_SLEEP_SECONDS,
        d::TERMINATION_GRACE_PERIOD_SECONDS
    );
    assert!(definition.contains(&rule));
}
