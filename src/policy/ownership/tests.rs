use std::collections::BTreeSet;

use rstest::rstest;
use serde_json::json;

use super::*;
use crate::oslo::fixture::{full_spec, projection, spec};
use crate::oslo::glance_api::{helpful_lines, operator_lines};

/// What the operator can render, all conditional options on, and the policy
/// file, which is set after everything else.
fn producible() -> BTreeSet<(String, String)> {
    let lines = operator_lines(&full_spec(), &projection("s")).unwrap();
    lines
        .options()
        .chain([("oslo_policy", "policy_file")])
        .map(|(section, key)| (section.to_owned(), key.to_owned()))
        .collect()
}

#[test]
fn every_rendered_option_is_owned_and_every_owned_one_is_rendered() {
    let mut listed: BTreeSet<(String, String)> = OWNED_KEYS
        .iter()
        .map(|owned| (owned.section.to_owned(), owned.key.to_owned()))
        .collect();
    assert_eq!(listed.len(), OWNED_KEYS.len(), "an option is listed twice");
    // The one that is owned in order to be kept out of the file.
    assert!(listed.remove(&("keystone_authtoken".to_owned(), "password".to_owned())));
    assert_eq!(producible(), listed);
}

#[test]
fn helpful_lines_are_not_reported_when_a_user_sets_them() {
    let lines = helpful_lines(&full_spec());
    assert_eq!(lines.options().count(), 4);
    for (section, key) in lines.options() {
        assert_eq!(owned(section, key), None, "[{section}] {key}");
    }
}

#[test]
fn other_names_lead_to_owned_options() {
    for (section, other, rendered) in ALIASES {
        assert_eq!(owned(section, other).unwrap().key, *rendered);
    }
}

#[rstest]
#[case(
    "keystone_authtoken",
    "password",
    "spec.serviceUser.secretRef",
    "OS_KEYSTONE_AUTHTOKEN__PASSWORD"
)]
#[case(
    "import_filtering_opts",
    "allowed_hosts",
    "spec.importFiltering",
    "the web-download URI filter is platform security policy"
)]
#[case(
    "import_filtering_opts",
    "allowed_ports",
    "spec.importFiltering",
    "the web-download URI filter is platform security policy"
)]
#[case(
    "import_filtering_opts",
    "allowed_schemes",
    "spec.importFiltering",
    "the web-download URI filter is platform security policy"
)]
#[case(
    "import_filtering_opts",
    "disallowed_hosts",
    "spec.importFiltering",
    "the web-download URI filter is platform security policy"
)]
#[case(
    "import_filtering_opts",
    "disallowed_ports",
    "spec.importFiltering",
    "the web-download URI filter is platform security policy"
)]
#[case(
    "import_filtering_opts",
    "disallowed_schemes",
    "spec.importFiltering",
    "the web-download URI filter is platform security policy"
)]
#[case(
    "DEFAULT",
    "image_cache_dir",
    "spec.imageCache",
    "another volume's bound"
)]
#[case(
    "DEFAULT",
    "image_cache_driver",
    "spec.imageCache",
    "no db-purge pass reclaims them"
)]
#[case(
    "DEFAULT",
    "image_cache_max_size",
    "spec.imageCache",
    "the volume grows until the kubelet evicts the pod"
)]
#[case(
    "image_import_opts",
    "image_import_plugins",
    "spec.importPlugins",
    "bypasses the fixed decompression-before-conversion order"
)]
#[case(
    "image_conversion",
    "output_format",
    "spec.importPlugins",
    "bypasses the fixed decompression-before-conversion order"
)]
#[case(
    "inject_metadata_properties",
    "inject",
    "spec.importPlugins",
    "bypasses the fixed decompression-before-conversion order"
)]
#[case(
    "inject_metadata_properties",
    "ignore_user_roles",
    "spec.importPlugins",
    "bypasses the fixed decompression-before-conversion order"
)]
fn a_rejected_option_says_who_owns_it_and_why(
    #[case] section: &str,
    #[case] key: &str,
    #[case] owner: &str,
    #[case] impact: &str,
) {
    let owned = owned(section, key).unwrap();
    assert_eq!(owned.policy, Policy::Rejected);
    let text = owned.refusal(key, "extraConfig");
    assert!(
        text.starts_with(&format!(
            "{key} is managed via {owner} and must not be set in extraConfig ("
        )),
        "{text}"
    );
    assert!(text.contains(impact), "{text}");
}

#[test]
fn fourteen_options_are_rejected_and_the_rest_belong_to_the_operator() {
    let (rejected, reported): (Vec<&OwnedKey>, Vec<&OwnedKey>) = OWNED_KEYS
        .iter()
        .partition(|owned| owned.policy == Policy::Rejected);
    assert_eq!(rejected.len(), 14);
    assert!(
        reported
            .iter()
            .all(|owned| owned.owned_by == "operator-computed")
    );
}

#[rstest]
#[case("Keystone_AuthToken", "password")]
#[case("keystone_authtoken", "password ")]
#[case("keystone_authtoken", "\tpassword")]
fn spelling_does_not_hide_an_owned_option(#[case] section: &str, #[case] key: &str) {
    assert_eq!(owned(section, key).unwrap().key, "password");
}

#[rstest]
#[case("default", "debug")]
#[case("DEFAULT", "Debug")]
#[case("keystone_authtoken", "passwords")]
#[case("paste", "flavor")]
fn another_option_is_not_owned(#[case] section: &str, #[case] key: &str) {
    assert_eq!(owned(section, key), None);
}

fn report(changes: &serde_json::Value) -> String {
    message(&overridden_keys(&spec(changes), None))
}

#[test]
fn nothing_overridden_is_said_so() {
    let text = "spec.extraConfig overrides no operator-owned keys";
    assert_eq!(report(&json!({})), text);
    assert_eq!(
        report(
            &json!({ "extraConfig": { "DEFAULT": { "allow_anonymous_access": "true" }, "x": {} } })
        ),
        text
    );
}

#[test]
fn overrides_are_listed_by_section_and_key_with_what_they_do() {
    assert_eq!(
        report(&json!({ "extraConfig": {
            "database": { "max_retries": "1", "connection": "sqlite://" },
            "DEFAULT": { "workers": "9", "enabled_backends": "x:s3", "other": "1" },
            "import_filtering_opts": { "allowed_hosts": "[]" },
        } })),
        "spec.extraConfig overrides operator-owned keys: \
         [DEFAULT] enabled_backends (must agree with the projected backends Secret); \
         [DEFAULT] workers; \
         [database] connection (the runtime value comes from the OS_DATABASE__CONNECTION env override, so the file override is ignored); \
         [database] max_retries; \
         [import_filtering_opts] allowed_hosts (the web-download URI filter is platform security policy)"
    );
}

#[test]
fn stores_that_agree_with_the_projection_are_no_override() {
    let projected = Projection {
        enabled_backends: "fast:s3,slow:s3".to_owned(),
        default_backend: "fast".to_owned(),
    };
    let report = |enabled: &str, default: &str| {
        let spec = spec(&json!({ "extraConfig": {
            "DEFAULT": { "enabled_backends": enabled },
            "glance_store": { "default_backend": default },
        } }));
        message(&overridden_keys(&spec, Some(&projected)))
    };
    assert_eq!(
        report(" slow:s3, fast:s3 ", "fast"),
        "spec.extraConfig overrides no operator-owned keys"
    );
    assert_eq!(
        report("fast:s3,rogue:file", "slow"),
        "spec.extraConfig overrides operator-owned keys: \
         [DEFAULT] enabled_backends (must agree with the projected backends Secret): missing slow:s3; surplus rogue:file; \
         [glance_store] default_backend"
    );
    assert!(
        report("fast:s3,slow:s3", "gone")
            .contains("default_backend: \"gone\" is no projected store")
    );
}

#[test]
fn every_other_name_that_a_release_knows_for_an_owned_option_is_listed() {
    for catalog in crate::policy::catalog::all().unwrap() {
        for (section, old, successor) in catalog.renamed() {
            let (new_section, new) = successor.trim_start_matches('[').split_once("] ").unwrap();
            if is_registered(new_section, new) {
                assert_eq!(
                    owned(section, old).map(|owned| owned.key),
                    Some(new),
                    "[{section}] {old}"
                );
            }
        }
    }
}

#[test]
fn an_override_under_an_old_name_is_reported() {
    assert_eq!(
        report(&json!({ "extraConfig": {
            "DEFAULT": { "log_config": "/x" },
            "keystone_authtoken": { "memcache_servers": "m:1", "auth_plugin": "v3" },
        } })),
        "spec.extraConfig overrides operator-owned keys: \
         [DEFAULT] log_config (another name of log_config_append); \
         [keystone_authtoken] auth_plugin (another name of auth_type); \
         [keystone_authtoken] memcache_servers (another name of memcached_servers)"
    );
}

#[test]
fn a_policy_file_beside_policy_overrides_is_said_to_be_ignored() {
    let file = json!({ "oslo_policy": { "policy_file": "/x" } });
    assert_eq!(
        report(&json!({ "extraConfig": file })),
        "spec.extraConfig overrides operator-owned keys: [oslo_policy] policy_file"
    );
    assert_eq!(
        report(&json!({ "extraConfig": file, "policyOverrides": { "rules": { "a": "@" } } })),
        "spec.extraConfig overrides operator-owned keys: \
         [oslo_policy] policy_file (ignored while spec.policyOverrides yields rules)"
    );
}

#[test]
fn a_plugin_with_owned_options_is_reported() {
    let plugins = json!([
        { "name": "p", "configSection": "keystone_authtoken", "config": { "password": "x", "region_name": "r" } },
        { "name": "q", "configSection": "DEFAULT", "config": { "image_cache_dir": "/x", "mine": "1" } },
        { "name": "r", "configSection": "mine", "config": { "password": "x" } },
    ]);
    let listed = "spec.plugins sets operator-owned keys: \
         [DEFAULT] image_cache_dir (not rendered: managed via spec.imageCache); \
         [keystone_authtoken] password (not rendered: managed via spec.serviceUser.secretRef); \
         [keystone_authtoken] region_name";
    assert_eq!(report(&json!({ "plugins": plugins })), listed);
    assert_eq!(
        report(&json!({ "plugins": plugins, "extraConfig": { "DEFAULT": { "debug": "true" } } })),
        format!("spec.extraConfig overrides operator-owned keys: [DEFAULT] debug; {listed}")
    );
}

#[test]
fn the_message_never_shows_a_value() {
    let text = report(&json!({
        "extraConfig": { "keystone_authtoken": { "password": "hunter2" } },
        "plugins": [{ "name": "p", "configSection": "keystone_authtoken", "config": { "password": "hunter2" } }],
    }));
    assert!(
        text.contains("password") && !text.contains("hunter2"),
        "{text}"
    );
}
