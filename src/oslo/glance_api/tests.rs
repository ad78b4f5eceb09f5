use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::oslo::fixture::{projection, spec};

fn operator(changes: &Value) -> Ini {
    operator_lines(&spec(changes), &projection("s")).unwrap()
}

fn filtering(block: &Value) -> Vec<String> {
    let ini = operator(&json!({ "importFiltering": block }));
    [
        "allowed_schemes",
        "disallowed_schemes",
        "allowed_hosts",
        "disallowed_hosts",
        "allowed_ports",
        "disallowed_ports",
    ]
    .into_iter()
    .map(|key| ini.get("import_filtering_opts", key).unwrap().to_owned())
    .collect()
}

const BASE: &str = "localhost,127.0.0.1,0.0.0.0,::1,169.254.169.254,kubernetes,kubernetes.default,kubernetes.default.svc,kubernetes.default.svc.cluster.local";

#[rstest]
// Absent, empty and unset are the same.
#[case(json!(null), ["[https]", "[]", "[]", "[BASE]", "[443]", "[]"])]
#[case(json!({}), ["[https]", "[]", "[]", "[BASE]", "[443]", "[]"])]
// An explicit empty list is a value, for each of the six.
#[case(json!({ "allowedSchemes": [] }), ["[]", "[]", "[]", "[BASE]", "[443]", "[]"])]
#[case(json!({ "disallowedSchemes": [] }), ["[https]", "[]", "[]", "[BASE]", "[443]", "[]"])]
#[case(json!({ "allowedHosts": [] }), ["[https]", "[]", "[]", "[BASE]", "[443]", "[]"])]
#[case(json!({ "disallowedHosts": [] }), ["[https]", "[]", "[]", "[]", "[443]", "[]"])]
#[case(json!({ "allowedPorts": [] }), ["[https]", "[]", "[]", "[BASE]", "[]", "[]"])]
#[case(json!({ "disallowedPorts": [] }), ["[https]", "[]", "[]", "[BASE]", "[443]", "[]"])]
// Set values are verbatim and never widen a sibling.
#[case(json!({ "allowedSchemes": ["http", "https"], "allowedPorts": [8080, 80] }), ["[http,https]", "[]", "[]", "[BASE]", "[8080,80]", "[]"])]
#[case(json!({ "disallowedSchemes": ["http"], "disallowedPorts": [22] }), ["[https]", "[http]", "[]", "[BASE]", "[443]", "[22]"])]
#[case(json!({ "disallowedHosts": ["b.example", "localhost", "a.example", "b.example"] }), ["[https]", "[]", "[]", "[BASE,b.example,a.example]", "[443]", "[]"])]
#[case(json!({ "allowedHosts": ["a.example"] }), ["[https]", "[]", "[a.example]", "[]", "[443]", "[]"])]
#[case(json!({ "allowedHosts": ["a.example"], "disallowedHosts": ["b.example"] }), ["[https]", "[]", "[a.example]", "[b.example]", "[443]", "[]"])]
fn import_filtering_is_closed_unless_told_otherwise(
    #[case] block: Value,
    #[case] expected: [&str; 6],
) {
    let expected: Vec<String> = expected
        .iter()
        .map(|text| text.replace("BASE", BASE))
        .collect();
    assert_eq!(filtering(&block), expected);
}

#[rstest]
#[case(json!(null), "[]")]
#[case(json!({}), "[]")]
#[case(json!({ "decompression": {} }), "[image_decompression]")]
#[case(json!({ "conversion": {} }), "[image_conversion]")]
#[case(json!({ "injectMetadata": { "properties": { "a": "b" } } }), "[inject_image_metadata]")]
#[case(json!({ "conversion": {}, "decompression": {} }), "[image_decompression,image_conversion]")]
fn import_plugins_are_in_the_fixed_order(#[case] block: Value, #[case] expected: &str) {
    let ini = operator(&json!({ "importPlugins": block }));
    assert_eq!(
        ini.get("image_import_opts", "image_import_plugins"),
        Some(expected)
    );
}

#[rstest]
#[case(json!({}), "raw")]
#[case(json!({ "outputFormat": "qcow2" }), "qcow2")]
#[case(json!({ "outputFormat": "vmdk" }), "vmdk")]
fn conversion_has_an_output_format(#[case] block: Value, #[case] expected: &str) {
    let ini = operator(&json!({ "importPlugins": { "conversion": block } }));
    assert_eq!(ini.get("image_conversion", "output_format"), Some(expected));
}

#[rstest]
#[case(json!(null), "admin")]
#[case(json!([]), "")]
#[case(json!(["b", "a"]), "b,a")]
fn roles_left_alone_have_no_brackets(#[case] roles: Value, #[case] expected: &str) {
    let ini = operator(&json!({ "importPlugins": { "injectMetadata": {
        "properties": { "tier": "gold", "cost-center": "images" }, "ignoreUserRoles": roles,
    } } }));
    assert_eq!(
        ini.get("inject_metadata_properties", "ignore_user_roles"),
        Some(expected)
    );
    assert_eq!(
        ini.get("inject_metadata_properties", "inject"),
        Some("cost-center:images,tier:gold")
    );
}

#[test]
fn a_removed_plugin_leaves_no_section() {
    let text = operator(&json!({})).render().unwrap();
    assert!(!text.contains("[image_conversion]") && !text.contains("[inject_metadata_properties]"));
}

#[rstest]
#[case("2025.2", json!(null), Some("2"))]
#[case("2025.2", json!(5), Some("5"))]
#[case("2026.1", json!(null), None)]
#[case("2026.1", json!(5), Some("5"))]
#[case("latest", json!(null), Some("2"))]
fn workers_are_set_where_the_server_would_count_cpus(
    #[case] release: &str,
    #[case] workers: Value,
    #[case] expected: Option<&str>,
) {
    let ini =
        operator(&json!({ "openStackRelease": release, "apiServer": { "workers": workers } }));
    assert_eq!(ini.get("DEFAULT", "workers"), expected);
}

#[test]
fn nothing_else_differs_between_launch_modes() {
    let mut old = operator(&json!({}));
    let new = operator(&json!({ "openStackRelease": "2026.1" }));
    old.set_multi("DEFAULT", "workers", vec![]);
    assert_eq!(old, new);
}

#[rstest]
#[case(json!({}), Some("8589934592"))]
#[case(json!({ "sizeLimit": "20Gi" }), Some("17179869184"))]
#[case(json!({ "sizeLimit": "256Mi" }), Some("214748360"))]
#[case(json!(null), None)]
fn the_cache_has_its_keys_only_when_it_is_on(#[case] cache: Value, #[case] max_size: Option<&str>) {
    let ini = operator(&json!({ "imageCache": cache }));
    assert_eq!(ini.get("DEFAULT", "image_cache_max_size"), max_size);
    let on = max_size.is_some();
    assert_eq!(
        ini.get("DEFAULT", "image_cache_driver"),
        on.then_some("sqlite")
    );
    assert_eq!(
        ini.get("DEFAULT", "image_cache_dir"),
        on.then_some("/var/lib/glance/image-cache")
    );
}

#[rstest]
#[case(json!({}), Some("openstack-memcached:11211"))]
#[case(json!({ "cache": { "clusterRef": null, "servers": ["b:1", "a:2"] } }), Some("b:1,a:2"))]
#[case(json!({ "cache": { "servers": ["b:1"] } }), Some("b:1"))]
#[case(json!({ "cache": { "clusterRef": null } }), None)]
fn the_token_cache_is_optional(#[case] changes: Value, #[case] servers: Option<&str>) {
    let ini = operator(&changes);
    assert_eq!(ini.get("keystone_authtoken", "memcached_servers"), servers);
    let lines = helpful_lines(&spec(&changes));
    let on = servers.is_some();
    assert_eq!(
        lines.get("keystone_authtoken", "memcache_pool_dead_retry"),
        on.then_some("10")
    );
    assert_eq!(
        lines.get("keystone_authtoken", "memcache_pool_conn_get_timeout"),
        on.then_some("2")
    );
    assert_eq!(
        lines.get("keystone_authtoken", "service_type"),
        Some("image")
    );
}

#[test]
fn links_are_those_of_the_gateway_when_there_is_one() {
    let key = ("oslo_middleware", "enable_proxy_headers_parsing");
    assert_eq!(helpful_lines(&spec(&json!({}))).get(key.0, key.1), None);
    let changes = json!({ "gateway": { "parentRef": { "name": "gw" }, "hostname": "h" } });
    assert_eq!(
        helpful_lines(&spec(&changes)).get(key.0, key.1),
        Some("true")
    );
}

#[rstest]
#[case(json!({}), "http://keystone.openstack.svc.cluster.local:5000/v3", None)]
#[case(json!({ "keystonePublicEndpoint": "https://k.example/v3", "region": "R" }), "https://k.example/v3", Some("R"))]
#[case(json!({ "region": "" }), "http://keystone.openstack.svc.cluster.local:5000/v3", None)]
fn keystone_is_named_as_pods_and_as_clients_see_it(
    #[case] changes: Value,
    #[case] public: &str,
    #[case] region: Option<&str>,
) {
    let ini = operator(&changes);
    assert_eq!(
        ini.get("keystone_authtoken", "www_authenticate_uri"),
        Some(public)
    );
    assert_eq!(
        ini.get("keystone_authtoken", "auth_url"),
        Some("http://keystone.openstack.svc.cluster.local:5000/v3")
    );
    assert_eq!(ini.get("keystone_authtoken", "region_name"), region);
    assert_eq!(ini.get("keystone_authtoken", "password"), None);
}

#[rstest]
#[case(json!(null), "false", None, None)]
#[case(json!({ "debug": true }), "true", None, None)]
#[case(json!({ "format": "json" }), "false", None, Some("/etc/glance/glance-api.conf.d/logging.conf"))]
#[case(json!({ "level": "ERROR" }), "false", None, Some("/etc/glance/glance-api.conf.d/logging.conf"))]
#[case(json!({ "format": "json", "perLoggerLevels": { "a": "INFO" } }), "false", Some("a=INFO"), Some("/etc/glance/glance-api.conf.d/logging.conf"))]
fn logging_options(
    #[case] block: Value,
    #[case] debug: &str,
    #[case] levels: Option<&str>,
    #[case] append: Option<&str>,
) {
    let ini = operator(&json!({ "logging": block }));
    assert_eq!(ini.get("DEFAULT", "debug"), Some(debug));
    assert_eq!(ini.get("DEFAULT", "use_stderr"), Some("true"));
    assert_eq!(ini.get("DEFAULT", "default_log_levels"), levels);
    assert_eq!(ini.get("DEFAULT", "log_config_append"), append);
}

#[test]
fn staging_has_no_part_in_the_configuration() {
    assert_eq!(
        operator(&json!({ "staging": { "sizeLimit": "1Gi" } })),
        operator(&json!({ "staging": { "unbounded": true } }))
    );
}

#[rstest]
#[case(json!([{ "name": "a", "configSection": "s" }, { "name": "", "configSection": "t" }]), "plugin at index 1 has an empty Name")]
#[case(json!([{ "name": "a", "configSection": "" }]), "plugin \"a\" has an empty ConfigSection")]
#[case(json!([{ "name": "a", "configSection": "s" }, { "name": "b", "configSection": "s" }]), "duplicate ConfigSection \"s\": plugin \"b\" would overwrite existing config")]
fn a_bad_plugin_is_refused_by_name(#[case] plugins: Value, #[case] message: &str) {
    let error = plugin_sections(&spec(&json!({ "plugins": plugins }))).unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[test]
fn a_plugin_cannot_carry_what_only_the_operator_may_set() {
    let ini = plugin_sections(&spec(&json!({ "plugins": [
        { "name": "a", "configSection": "keystone_authtoken", "config": { "password": "hunter2", "x": "1" } },
        { "name": "b", "configSection": "DEFAULT", "config": { "image_cache_dir": "/x", "debug": "true" } },
        { "name": "c", "configSection": "Image_Conversion", "config": { "output_format": "raw" } },
    ] })))
    .unwrap();
    assert_eq!(
        ini.render().unwrap(),
        "[DEFAULT]\ndebug = true\n\n[Image_Conversion]\n\n[keystone_authtoken]\nx = 1\n"
    );
}
