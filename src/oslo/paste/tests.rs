use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::hash::sha256_hex;
use crate::oslo::fixture::spec;

fn paste(changes: &Value) -> Result<String, PasteError> {
    render(&spec(changes))
}

fn middleware(name: &str, position: &str) -> Value {
    json!({ "name": name, "filterFactory": format!("{name}:factory"), "position": position })
}

fn pipeline_of(changes: &Value) -> String {
    let text = paste(changes).unwrap();
    let line = text.lines().find(|line| line.starts_with("pipeline = "));
    line.unwrap()
        .strip_prefix("pipeline = ")
        .unwrap()
        .to_owned()
}

#[test]
fn the_plain_file_is_that_of_the_contract() {
    let text = paste(&json!({})).unwrap();
    assert_eq!(text.len(), 1195);
    assert_eq!(
        sha256_hex(&text),
        "3abc8008eac3833c46d02ef5c121cad5461f5be6fc34219d2cc60ab188b5cc76"
    );
    assert_eq!(
        pipeline_of(&json!({})),
        "cors http_proxy_to_wsgi versionnegotiation authtoken context rootapp"
    );
}

#[test]
fn the_file_is_the_same_for_all_releases() {
    assert_eq!(
        paste(&json!({ "openStackRelease": "2026.2" })),
        paste(&json!({}))
    );
}

#[test]
fn middleware_keeps_its_order_around_the_operator_s_filters_and_the_cache_is_last() {
    let list = json!([
        middleware("a2", "after"),
        middleware("b1", "before"),
        middleware("a1", "after"),
        middleware("b0", "before"),
    ]);
    assert_eq!(
        pipeline_of(&json!({ "middleware": list, "imageCache": {} })),
        "b1 b0 cors http_proxy_to_wsgi versionnegotiation authtoken context a2 a1 cache rootapp"
    );
}

#[test]
fn switching_the_cache_off_leaves_no_trace() {
    let on = paste(&json!({ "imageCache": {} })).unwrap();
    assert!(on.contains(
        "\n[filter:cache]\npaste.filter_factory = glance.api.middleware.cache:CacheFilter.factory\n"
    ));
    assert!(!paste(&json!({})).unwrap().contains("cache"));
}

#[test]
fn a_middleware_s_options_are_written_but_not_another_factory() {
    let mut entry = middleware("audit", "after");
    entry["config"] = json!({ "map_file": "/etc/%%x", "paste.filter_factory": "evil:factory" });
    let text = paste(&json!({ "middleware": [entry] })).unwrap();
    assert!(
        text.contains(
            "\n[filter:audit]\nmap_file = /etc/%%x\npaste.filter_factory = audit:factory\n"
        ),
        "{text}"
    );
    assert!(!text.contains("evil"));
}

#[test]
fn every_filter_of_the_pipeline_has_a_section() {
    let changes = json!({ "middleware": [middleware("m", "before")], "imageCache": {} });
    let text = paste(&changes).unwrap();
    for name in pipeline_of(&changes).split(' ').filter(|n| *n != "rootapp") {
        assert!(text.contains(&format!("[filter:{name}]\n")), "{name}");
    }
}

#[rstest]
#[case(json!([{ "name": "", "filterFactory": "f", "position": "after" }]), "pipeline \"api\" contains a MiddlewareSpec with an empty Name")]
#[case(json!([{ "name": "n", "filterFactory": "", "position": "after" }]), "middleware \"n\" in pipeline \"api\" has an empty FilterFactory")]
#[case(json!([middleware("n", "after"), middleware("n", "before")]), "duplicate middleware Name \"n\" in pipeline \"api\"")]
#[case(json!([middleware("a\nb", "after")]), "section name \"filter:a\\nb\" contains a newline or carriage return")]
#[case(json!([middleware("a]", "after")]), "section name \"filter:a]\" contains a closing bracket")]
#[case(json!([{ "name": "n", "filterFactory": "f\n[x]", "position": "after" }]), "the value of [filter:n] paste.filter_factory contains a newline or carriage return")]
#[case(json!([{ "name": "n", "filterFactory": "f", "position": "after", "config": { "k\n": "v" } }]), "option name \"k\\n\" in section [filter:n] contains a newline or carriage return")]
#[case(json!([{ "name": "n", "filterFactory": "f", "position": "after", "config": { "k": "v\r" } }]), "the value of [filter:n] k contains a newline or carriage return")]
fn a_bad_middleware_is_refused_by_name(#[case] list: Value, #[case] message: &str) {
    let error = paste(&json!({ "middleware": list })).unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[rstest]
#[case("rootapp")]
#[case("healthcheck")]
#[case("apiversions")]
#[case("apiv2app")]
#[case("api")]
#[case("glance-api-keystone")]
fn a_middleware_cannot_take_the_name_of_an_app(#[case] name: &str) {
    let error = paste(&json!({ "middleware": [middleware(name, "after")] })).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("middleware \"{name}\" in pipeline \"api\" has the name of an app of the operator")
    );
}

#[rstest]
#[case("cors")]
#[case("http_proxy_to_wsgi")]
#[case("versionnegotiation")]
#[case("authtoken")]
#[case("context")]
fn a_middleware_never_replaces_a_built_in_filter(#[case] name: &str) {
    let plain = paste(&json!({})).unwrap();
    let mut middleware = middleware(name, "after");
    middleware["config"] = json!({ "delay_auth_decision": "false", "mine": "1" });
    let text = paste(&json!({ "middleware": [middleware] })).unwrap();
    let without = |text: &str| -> Vec<String> {
        text.lines()
            .filter(|line| !line.starts_with("pipeline = "))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(without(&text), without(&plain));
    assert!(text.contains(&format!(" context {name} rootapp")));
}

#[test]
fn the_name_cache_is_free_only_without_the_image_cache() {
    let list = json!([middleware("cache", "after")]);
    assert!(
        paste(&json!({ "middleware": list }))
            .unwrap()
            .contains("paste.filter_factory = cache:factory")
    );
    assert_eq!(
        paste(&json!({ "middleware": list, "imageCache": {} }))
            .unwrap_err()
            .to_string(),
        "duplicate middleware Name \"cache\" in pipeline \"api\""
    );
}
