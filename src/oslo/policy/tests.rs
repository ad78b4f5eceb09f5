use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::oslo::fixture::spec;

fn build(changes: &Value, document: Option<&str>) -> Result<String, PolicyError> {
    rules(&spec(changes), "openstack", document, false).map(|rules| render(&rules))
}

/// Without the operator's own rule, which a new release does not get.
fn from_config_map(document: Option<&str>) -> Result<String, PolicyError> {
    build(
        &json!({
            "openStackRelease": "2026.2",
            "policyOverrides": { "configMapRef": { "name": "glance-policy" } },
        }),
        document,
    )
}

#[rstest]
#[case("role:admin", "role:admin")]
#[case(
    "role:admin and project_id:%(project_id)s",
    "role:admin and project_id:%(project_id)s"
)]
#[case("(role:a or role:b)", "(role:a or role:b)")]
#[case("not role:x", "not role:x")]
#[case("it's", "it's")]
#[case("a#b", "a#b")]
#[case("-x", "-x")]
#[case(":x", ":x")]
#[case("é", "é")]
#[case("@", "'@'")]
#[case("!", "'!'")]
#[case("*", "'*'")]
#[case("%(x)s", "'%(x)s'")]
#[case("'x'", "'''x'''")]
#[case("\"x\"", "'\"x\"'")]
#[case("[x]", "'[x]'")]
#[case("{}", "'{}'")]
#[case("- x", "'- x'")]
#[case("-", "'-'")]
#[case("? x", "'? x'")]
#[case("a: b", "'a: b'")]
#[case("a:", "'a:'")]
#[case("a #b", "'a #b'")]
#[case(" x", "' x'")]
#[case("x ", "'x '")]
#[case("---", "'---'")]
#[case("... x", "'... x'")]
#[case("", "\"\"")]
#[case("true", "\"true\"")]
#[case("False", "\"False\"")]
#[case("yes", "\"yes\"")]
#[case("n", "\"n\"")]
#[case("null", "\"null\"")]
#[case("~", "\"~\"")]
#[case("1", "\"1\"")]
#[case("-1.5", "\"-1.5\"")]
#[case("1e3", "\"1e3\"")]
#[case("0x1F", "\"0x1F\"")]
#[case("1:20", "\"1:20\"")]
#[case("2026-11-29", "\"2026-11-29\"")]
#[case(".inf", "\".inf\"")]
#[case("<<", "\"<<\"")]
#[case("a\nb", "\"a\\nb\"")]
#[case("a\t\"b\"\\", "\"a\\t\\\"b\\\"\\\\\"")]
#[case("\u{85}", "\"\\u0085\"")]
fn a_scalar_has_the_least_quotes_that_keep_it(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(scalar(text), expected);
}

#[test]
fn rules_are_lines_in_the_order_of_names() {
    assert_eq!(
        build(
            &json!({
                "openStackRelease": "2026.2",
                "policyOverrides": { "rules": {
                    "get_image": "@", "add_image": "role:admin", "delete_image": "!", "Z": "true",
                } },
            }),
            None
        )
        .unwrap(),
        "Z: \"true\"\nadd_image: role:admin\ndelete_image: '!'\nget_image: '@'\n"
    );
}

#[test]
fn an_inline_rule_wins_over_the_config_map() {
    let text = build(
        &json!({
            "openStackRelease": "2026.2",
            "policyOverrides": { "rules": { "a": "inline" }, "configMapRef": { "name": "p" } },
        }),
        Some("a: map\nb: map\n"),
    );
    assert_eq!(text.unwrap(), "a: inline\nb: map\n");
}

#[rstest]
#[case(
    "a: 1\nb: 1.50\nc: true\nd: 'x'\n",
    "a: \"1\"\nb: \"1.50\"\nc: \"true\"\nd: x\n"
)]
#[case("{}", "")]
#[case("---\na: b\n", "a: b\n")]
#[case("# note\na: b\n", "a: b\n")]
#[case("{\"a\": \"role:x\"}", "a: role:x\n")]
fn numbers_and_booleans_of_the_config_map_become_text(
    #[case] document: &str,
    #[case] expected: &str,
) {
    assert_eq!(from_config_map(Some(document)).unwrap(), expected);
}

#[rstest]
#[case("")]
#[case("# only a note\n")]
#[case("null")]
#[case("~")]
#[case("---\n")]
fn an_empty_document_is_an_error(#[case] document: &str) {
    assert_eq!(
        from_config_map(Some(document)).unwrap_err().to_string(),
        "loading policy from ConfigMap: ConfigMap openstack/glance-policy key \"policy.yaml\" is empty or parsed to nil"
    );
}

#[rstest]
#[case("a: [b]")]
#[case("a:\n  b: c")]
#[case("- a")]
#[case("text")]
#[case("a: b\na: c")]
#[case("a: 'b")]
fn what_is_no_mapping_of_texts_is_an_error(#[case] document: &str) {
    let text = from_config_map(Some(document)).unwrap_err().to_string();
    let prefix = "loading policy from ConfigMap: parsing policy.yaml from ConfigMap openstack/glance-policy: ";
    assert!(
        text.starts_with(prefix) && text.len() > prefix.len(),
        "{text}"
    );
    assert!(!text.contains('\n'), "{text}");
}

#[test]
fn a_config_map_without_the_key_is_an_error() {
    assert_eq!(
        from_config_map(None).unwrap_err().to_string(),
        "loading policy from ConfigMap: ConfigMap openstack/glance-policy does not contain key \"policy.yaml\""
    );
}

#[test]
fn a_config_map_that_cannot_be_read_is_named() {
    let error = PolicyError::Unreadable {
        namespace: "openstack".into(),
        name: "p".into(),
        cause: "configmaps \"p\" not found".into(),
    };
    assert_eq!(
        error.to_string(),
        "loading policy from ConfigMap: getting ConfigMap openstack/p: configmaps \"p\" not found"
    );
}

#[rstest]
#[case("2025.2", "tasks_api_access: '!'\n")]
#[case("2026.1-p1", "tasks_api_access: '!'\n")]
#[case("2026.2", "")]
#[case("2027.1", "")]
#[case("latest", "tasks_api_access: '!'\n")]
fn the_tasks_api_is_closed_where_it_bypasses_the_import_filter(
    #[case] release: &str,
    #[case] expected: &str,
) {
    let text = build(&json!({ "openStackRelease": release }), None).unwrap();
    assert_eq!(text, expected);
}

#[test]
fn the_tasks_rule_yields_to_both_sources_and_to_an_own_policy_file() {
    let inline = json!({ "policyOverrides": { "rules": { "tasks_api_access": "role:x" } } });
    assert_eq!(build(&inline, None).unwrap(), "tasks_api_access: role:x\n");
    let map = json!({ "policyOverrides": { "configMapRef": { "name": "p" } } });
    assert_eq!(
        build(&map, Some("tasks_api_access: role:y")).unwrap(),
        "tasks_api_access: role:y\n"
    );
    assert_eq!(
        rules(&spec(&json!({})), "openstack", None, true),
        Ok(Rules::new())
    );
}

proptest! {
    #[test]
    fn what_is_written_reads_back(
        rules in prop::collection::btree_map("\\PC{0,6}|[ -~]{0,8}|[0-9.:+eExo_-]{1,6}", "(?s).{0,8}|[ -~]{0,12}|[0-9.:+eExo_-]{1,6}", 1..6),
    ) {
        let text = render(&rules);
        prop_assert_eq!(text.lines().count(), rules.len(), "{}", text);
        let back: Rules = serde_saphyr::from_str(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(back, rules, "{}", text);
    }
}
