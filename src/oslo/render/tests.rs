use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::hash::sha256_hex;
use crate::names::Family;
use crate::oslo::fixture::{glance, projection};

fn data(changes: &Value) -> BTreeMap<String, String> {
    render(&glance("g", changes), &projection("s"), None)
        .unwrap()
        .data
}

fn config(changes: &Value) -> String {
    data(changes).remove("glance-api.conf").unwrap()
}

fn error(changes: &Value, document: Option<&str>) -> RenderError {
    render(&glance("g", changes), &projection("s"), document).unwrap_err()
}

fn assert_text(data: &BTreeMap<String, String>, key: &str, length: usize, sha256: &str) {
    let text = &data[key];
    assert_eq!(
        (text.len(), &*sha256_hex(text)),
        (length, sha256),
        "{key}:\n{text}"
    );
}

const PLAIN_POLICY: (usize, &str) = (
    22,
    "ce11df0577cd6ecc9e7d44794c465ade372218ab1b31ad28dce5e730318e03ed",
);

#[test]
fn vector_1_a_plain_glance() {
    let config = render(
        &glance("glance-basic", &json!({})),
        &projection("glance-basic-s3"),
        None,
    )
    .unwrap();
    assert_eq!(
        config.data.keys().collect::<Vec<_>>(),
        ["glance-api-paste.ini", "glance-api.conf", "policy.yaml"]
    );
    assert_text(
        &config.data,
        "glance-api.conf",
        1372,
        "80faf6acf007dec3c8824e3aa1fbb13627735eb101164b86b4a83ac626ffb467",
    );
    assert_text(
        &config.data,
        "glance-api-paste.ini",
        1195,
        "3abc8008eac3833c46d02ef5c121cad5461f5be6fc34219d2cc60ab188b5cc76",
    );
    assert_text(&config.data, "policy.yaml", PLAIN_POLICY.0, PLAIN_POLICY.1);
    assert_eq!(
        Family::config("glance-basic").revision(&config.hash()),
        "glance-basic-config-40a668e9"
    );
}

#[test]
fn vector_2_all_import_plugins() {
    let config = render(
        &glance(
            "glance-import-plugins",
            &json!({ "importPlugins": {
                "decompression": {},
                "conversion": { "outputFormat": "qcow2" },
                "injectMetadata": {
                    "properties": { "tier": "gold", "cost-center": "images" },
                    "ignoreUserRoles": ["admin", "service"],
                },
            } }),
        ),
        &projection("glance-import-plugins-s3"),
        None,
    )
    .unwrap();
    assert_text(
        &config.data,
        "glance-api.conf",
        1592,
        "3e334af1fe575b13b35b82650917f8e3c24fc5cfb480f16b5728130f860072fd",
    );
    assert_text(&config.data, "policy.yaml", PLAIN_POLICY.0, PLAIN_POLICY.1);
    assert_eq!(
        Family::config("glance-import-plugins").revision(&config.hash()),
        "glance-import-plugins-config-c2080277"
    );
    // What suites outside look for, as whole lines.
    let text = &config.data["glance-api.conf"];
    for line in [
        "allowed_schemes = [https]",
        "allowed_ports = [443]",
        "image_import_plugins = [image_decompression,image_conversion,inject_image_metadata]",
        "output_format = qcow2",
        "inject = cost-center:images,tier:gold",
        "ignore_user_roles = admin,service",
        "default_backend = glance-import-plugins-s3",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}");
    }
    assert!(
        text.lines()
            .any(|l| l.starts_with("disallowed_hosts = [") && l.contains("169.254.169.254"))
    );
}

fn vector_3_glance() -> Glance {
    let rules: BTreeMap<&str, &str> = [
        "add_image",
        "get_image",
        "get_images",
        "upload_image",
        "download_image",
        "delete_image",
        "modify_image",
    ]
    .map(|rule| (rule, "@"))
    .into();
    glance(
        "glance-cache",
        &json!({
            "openStackRelease": "2026.1",
            "imageCache": { "sizeLimit": "256Mi" },
            "extraConfig": { "DEFAULT": { "allow_anonymous_access": "true" } },
            "middleware": [{
                "name": "unauthenticated-context",
                "filterFactory": "glance.api.middleware.context:UnauthenticatedContextMiddleware.factory",
                "position": "after",
            }],
            "policyOverrides": { "rules": rules },
        }),
    )
}

#[test]
fn vector_3_cache_middleware_and_policy_under_uwsgi() {
    let config = render(&vector_3_glance(), &projection("glance-cache-s3"), None).unwrap();
    assert_text(
        &config.data,
        "glance-api.conf",
        1497,
        "7f1189be0c1d5a8ac02a2cd537f68df1a8e029dc5044ecef49806805f264fbbf",
    );
    assert_text(
        &config.data,
        "glance-api-paste.ini",
        1440,
        "bd13ae19cda3c7c0f073e454816de79853a54d9511f1b97cbb5a4e19de3b2d58",
    );
    assert_text(
        &config.data,
        "policy.yaml",
        142,
        "cf6b4ae9b4f53673d04b761283b18b90e83d4ebc45e5583e010d6121cd5a942a",
    );
    assert_eq!(
        Family::config("glance-cache").revision(&config.hash()),
        "glance-cache-config-428f0743"
    );
}

#[test]
fn the_other_operator_s_text_differs_by_the_helpful_lines_only() {
    let strip = |glance: &Glance, store: &str| {
        let mut data = render(glance, &projection(store), None).unwrap().data;
        let text: String = data["glance-api.conf"]
            .split_inclusive('\n')
            .filter(|line| {
                !line.starts_with("service_type = ") && !line.starts_with("memcache_pool_")
            })
            .collect();
        data.insert("glance-api.conf".to_owned(), text);
        data
    };
    let without_policy = |text: &str| {
        text.replace(
            "[oslo_policy]\npolicy_file = /etc/glance/glance-api.conf.d/policy.yaml\n\n",
            "",
        )
    };
    let v1 = strip(&glance("glance-basic", &json!({})), "glance-basic-s3");
    assert_eq!(
        sha256_hex(without_policy(&v1["glance-api.conf"])),
        "12a032a12b8857be2b342d941f6d984d9957ca9acdcfc38b7802d92f78dc743a"
    );
    let v3 = strip(&vector_3_glance(), "glance-cache-s3");
    assert_eq!(
        sha256_hex(&v3["glance-api.conf"]),
        "8563bc5a18880f0867ba1e657e160891bae3fc3239a0ae4b79ae88881c48b10f"
    );
    assert_eq!(
        sha256_hex(v3["policy.yaml"].replace("tasks_api_access: '!'\n", "")),
        "0ac33782425eda07d7c282a4f577d1e307bd8d3758c3c2cafab8ff3bc54c7244"
    );
}

#[test]
fn the_plain_file_in_full() {
    insta::assert_snapshot!(config(&json!({})));
}

#[test]
fn everything_switched_on_in_full() {
    let mut full = glance("g", &json!({}));
    full.spec = crate::oslo::fixture::full_spec();
    let files = render(&full, &projection("s"), None).unwrap().data;
    let named: Vec<String> = files
        .iter()
        .map(|(name, text)| {
            format!(
                "--- {name}
{text}"
            )
        })
        .collect();
    insta::assert_snapshot!(named.concat());
}

#[test]
fn thirty_two_renders_are_one() {
    let glance = vector_3_glance();
    let first = render(&glance, &projection("s"), None).unwrap();
    for _ in 0..32 {
        assert_eq!(render(&glance, &projection("s"), None).unwrap(), first);
    }
}

#[rstest]
#[case(json!({}), &["glance-api-paste.ini", "glance-api.conf", "policy.yaml"])]
#[case(json!({ "openStackRelease": "2026.2" }), &["glance-api-paste.ini", "glance-api.conf"])]
#[case(json!({ "openStackRelease": "2026.2", "logging": { "format": "json" } }), &["glance-api-paste.ini", "glance-api.conf", "logging.conf"])]
#[case(json!({ "openStackRelease": "2026.2", "logging": { "level": "ERROR" } }), &["glance-api-paste.ini", "glance-api.conf", "logging.conf"])]
#[case(json!({ "openStackRelease": "2026.2", "policyOverrides": { "rules": { "a": "@" } } }), &["glance-api-paste.ini", "glance-api.conf", "policy.yaml"])]
fn files_come_and_go_with_their_features(#[case] changes: Value, #[case] files: &[&str]) {
    assert_eq!(data(&changes).keys().collect::<Vec<_>>(), files);
}

#[rstest]
#[case(json!({ "imageCache": {} }))]
#[case(json!({ "importPlugins": { "decompression": {}, "conversion": {} } }))]
#[case(json!({ "importFiltering": { "allowedSchemes": ["http"] } }))]
#[case(json!({ "logging": { "format": "json" } }))]
#[case(json!({ "policyOverrides": { "rules": { "a": "@" } } }))]
#[case(json!({ "gateway": { "parentRef": { "name": "gw" }, "hostname": "h" } }))]
#[case(json!({ "plugins": [{ "name": "p", "configSection": "s", "config": { "k": "v" } }] }))]
#[case(json!({ "extraConfig": { "s": { "k": "v" } } }))]
#[case(json!({ "region": "R" }))]
fn a_feature_changes_the_name_of_the_object_and_leaves_no_trace_when_it_goes(
    #[case] changes: Value,
) {
    let plain = glance("g", &json!({}));
    let on = glance("g", &changes);
    let hash = |glance: &Glance| render(glance, &projection("s"), None).unwrap().hash();
    assert_ne!(hash(&on), hash(&plain));
    let mut off = on;
    off.spec = plain.spec.clone();
    assert_eq!(hash(&off), hash(&plain));
}

#[test]
fn plugins_yield_to_the_operator_and_both_to_extra_config() {
    let text = config(&json!({
        "plugins": [
            { "name": "a", "configSection": "database", "config": { "max_retries": "1", "plugin_only": "p" } },
            { "name": "b", "configSection": "mine", "config": { "k": "plugin", "l": "plugin" } },
        ],
        "extraConfig": {
            "database": { "connection_recycle_time": "1" },
            "mine": { "k": "extra" },
            "empty": {},
        },
    }));
    assert!(
        text.contains(
            "[database]\nconnection = mysql+pymysql://placeholder\nconnection_recycle_time = 1\nmax_retries = -1\nplugin_only = p\n"
        ),
        "{text}"
    );
    assert!(text.contains("[mine]\nk = extra\nl = plugin\n"), "{text}");
    assert!(text.contains("\n[empty]\n\n"), "{text}");
}

#[test]
fn a_helpful_line_yields_to_plugins_and_to_extra_config() {
    let gateway = json!({ "parentRef": { "name": "gw" }, "hostname": "h" });
    let line = "enable_proxy_headers_parsing = ";
    let by_extra = config(&json!({
        "gateway": gateway, "extraConfig": { "oslo_middleware": { "enable_proxy_headers_parsing": "false" } },
    }));
    assert!(by_extra.contains(&format!("{line}false\n")));
    let by_plugin = config(&json!({
        "gateway": gateway,
        "plugins": [{ "name": "p", "configSection": "keystone_authtoken", "config": { "service_type": "x" } }],
    }));
    assert!(by_plugin.contains("service_type = x\n"));
    assert!(by_plugin.contains(&format!("{line}true\n")));
}

#[test]
fn a_rejected_option_that_passed_admission_is_honoured() {
    let text =
        config(&json!({ "extraConfig": { "import_filtering_opts": { "allowed_hosts": "[x]" } } }));
    assert!(text.contains("\nallowed_hosts = [x]\n"));
}

#[test]
fn policy_rules_beat_an_own_policy_file_but_the_tasks_rule_does_not() {
    let own = json!({ "oslo_policy": { "policy_file": "/own.yaml" } });
    let alone = data(&json!({ "extraConfig": own }));
    assert!(alone["glance-api.conf"].contains("[oslo_policy]\npolicy_file = /own.yaml\n"));
    assert!(!alone.contains_key("policy.yaml"));
    let plugin = data(&json!({
        "plugins": [{ "name": "p", "configSection": "oslo_policy", "config": { "policy_file": "/own.yaml" } }],
    }));
    assert!(plugin["glance-api.conf"].contains("policy_file = /own.yaml\n"));
    assert!(!plugin.contains_key("policy.yaml"));
    let both = data(&json!({ "extraConfig": own, "policyOverrides": { "rules": { "a": "@" } } }));
    assert!(
        both["glance-api.conf"]
            .contains("policy_file = /etc/glance/glance-api.conf.d/policy.yaml\n")
    );
    assert_eq!(both["policy.yaml"], "a: '@'\n");
}

#[test]
fn an_empty_policy_is_no_file_and_no_option() {
    let glance = glance(
        "g",
        &json!({ "openStackRelease": "2026.2", "policyOverrides": { "configMapRef": { "name": "p" } } }),
    );
    let data = render(&glance, &projection("s"), Some("{}")).unwrap().data;
    assert!(!data.contains_key("policy.yaml"));
    assert!(!data["glance-api.conf"].contains("oslo_policy"));
}

#[test]
fn a_default_switch_changes_the_configuration() {
    let glance = glance("g", &json!({}));
    let render_default = |default: &str| {
        let projection = Projection {
            enabled_backends: "a:s3,b:s3".to_owned(),
            default_backend: default.to_owned(),
        };
        render(&glance, &projection, None).unwrap()
    };
    assert_ne!(render_default("a").hash(), render_default("b").hash());
    let text = &render_default("b").data["glance-api.conf"];
    assert!(text.contains("\nenabled_backends = a:s3,b:s3\n"));
    assert!(text.contains("[glance_store]\ndefault_backend = b\n"));
}

#[rstest]
#[case(json!({ "plugins": [{ "name": "", "configSection": "s" }] }), "rendering plugin config: plugin at index 0 has an empty Name")]
#[case(json!({ "middleware": [{ "name": "", "filterFactory": "f", "position": "after" }] }), "rendering glance-api-paste.ini: pipeline \"api\" contains a MiddlewareSpec with an empty Name")]
#[case(json!({ "policyOverrides": { "configMapRef": { "name": "p" } } }), "building policy: loading policy from ConfigMap: ConfigMap openstack/p does not contain key \"policy.yaml\"")]
#[case(json!({ "imageCache": { "sizeLimit": "big" } }), "rendering glance-api.conf: spec.imageCache.sizeLimit: \"big\" is not a Kubernetes quantity")]
fn an_error_has_one_text_for_people_and_one_with_the_step_for_the_log(
    #[case] changes: Value,
    #[case] logged: &str,
) {
    let error = error(&changes, None);
    assert_eq!(error.logged(), logged);
    assert_eq!(error.to_string(), logged.split_once(": ").unwrap().1);
}

#[rstest]
#[case(json!({ "region": "x\n[keystone_authtoken]" }), "[keystone_authtoken] region_name")]
#[case(json!({ "serviceUser": { "username": "x\ny = z" } }), "[keystone_authtoken] username")]
#[case(json!({ "serviceUser": { "projectName": "x\r" } }), "[keystone_authtoken] project_name")]
#[case(json!({ "keystoneEndpoint": "http://x\0" }), "[keystone_authtoken] auth_url")]
#[case(json!({ "logging": { "perLoggerLevels": { "a\nb": "INFO" } } }), "[DEFAULT] default_log_levels")]
#[case(json!({ "plugins": [{ "name": "p", "configSection": "s", "config": { "k": "v\nsecret" } }] }), "[s] k")]
#[case(json!({ "plugins": [{ "name": "p", "configSection": "s]\n", "config": {} }] }), "section name \"s]\\n\"")]
#[case(json!({ "extraConfig": { "s": { "a=b": "secret" } } }), "option name \"a=b\" in section [s]")]
#[case(json!({ "extraConfig": { "s": { "": "secret" } } }), "an option name in section [s] is empty")]
#[case(json!({ "extraConfig": { "": {} } }), "a section name is empty")]
fn no_field_can_bring_a_line_of_its_own(#[case] changes: Value, #[case] place: &str) {
    let text = error(&changes, None).to_string();
    assert!(
        text.starts_with("glance-api.conf: ") && text.contains(place),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn a_configuration_that_no_config_map_can_hold_is_refused_with_its_biggest_part() {
    let big = "x".repeat(1_048_576);
    let text = error(&json!({ "extraConfig": { "huge": { "k": big } } }), None).to_string();
    assert!(
        text.starts_with("the rendered configuration has 10")
            && text.ends_with(
                "but a ConfigMap holds at most 1048576; the biggest part is section [huge] of glance-api.conf with 1048581 bytes"
            ),
        "{text}"
    );
    let text = error(
        &json!({ "policyOverrides": { "rules": { "a": big } } }),
        None,
    )
    .to_string();
    assert!(
        text.ends_with("the biggest part is policy.yaml with 1048602 bytes"),
        "{text}"
    );
}
