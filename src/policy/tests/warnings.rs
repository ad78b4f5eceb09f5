//! What is admitted and still worth saying, word by word.

use rstest::rstest;
use serde_json::{Value, json};

use crate::oslo::fixture::glance;
use crate::policy::{glance_create, glance_update};

fn warnings(changes: &Value) -> Vec<String> {
    let review = glance_create(&glance("images", changes));
    assert!(review.is_allowed(), "{:?}", review.causes);
    review.warnings
}

#[test]
fn a_plain_glance_gets_no_warning() {
    assert_eq!(warnings(&json!({})), [""; 0]);
    assert_eq!(
        warnings(
            &json!({ "importFiltering": { "allowedSchemes": ["https"], "allowedPorts": [443] } })
        ),
        [""; 0]
    );
}

#[rstest]
#[case(
    json!({ "apiServer": { "uwsgi": {} } }),
    "spec.apiServer.uwsgi is set but release \"2025.2\" runs the eventlet glance-api server (below 2026.1), so the uWSGI knobs are inert; configure spec.apiServer.workers instead."
)]
#[case(
    json!({ "apiServer": { "workers": 2 }, "openStackRelease": "2026.1", "image": { "tag": "2026.1" } }),
    "spec.apiServer.workers is set but release \"2026.1\" runs under uWSGI (2026.1 or later), so the eventlet worker count is inert; configure spec.apiServer.uwsgi instead."
)]
#[case(
    json!({ "extraConfig": { "x": { "y": "1" } }, "openStackRelease": "latest" }),
    "spec.extraConfig was not validated against an option catalog: spec.openStackRelease does not name an OpenStack release"
)]
#[case(
    json!({ "extraConfig": { "x": { "y": "1" } }, "openStackRelease": "2027.1", "image": { "tag": "2027.1" } }),
    "spec.extraConfig was not validated against an option catalog: no catalog for release \"2027.1\" is embedded in this operator build"
)]
#[case(
    json!({ "extraConfig": { "DEFAULT": { "logfile": "/x" } } }),
    "spec.extraConfig [DEFAULT] logfile: deprecated option in glance 2025.2, replaced by [DEFAULT] log_file"
)]
#[case(
    json!({ "extraConfig": { "oslo_policy": { "enforce_scope": "true" } } }),
    "spec.extraConfig [oslo_policy] enforce_scope: deprecated option in glance 2025.2 with no replacement"
)]
#[case(
    json!({ "extraConfig": { "DEFAULT": { "delayed_delete": "maybe" } } }),
    "spec.extraConfig [DEFAULT] delayed_delete: the value is not a boolean (glance 2025.2)"
)]
#[case(
    json!({ "extraConfig": { "DEFAULT": { "enabled_import_methods": "web-download" } } }),
    "spec.extraConfig [DEFAULT] enabled_import_methods: the list must stand in brackets, as in [a,b] (glance 2025.2)"
)]
#[case(
    json!({ "importFiltering": { "disallowedSchemes": ["http"] } }),
    "spec.importFiltering.disallowedSchemes is set while spec.importFiltering.allowedSchemes is unset: the operator default [https] applies and this list is inert; set allowedSchemes to [] to make it count"
)]
#[case(
    json!({ "importFiltering": { "allowedSchemes": ["http", "https"] } }),
    "spec.importFiltering.allowedSchemes is set to [http https], widening the operator default [https]; with spec.networkPolicy the way out is opened in spec.networkPolicy.additionalEgress"
)]
#[case(
    json!({ "importFiltering": { "allowedPorts": [], "disallowedPorts": [22] } }),
    "spec.importFiltering.allowedPorts is set to [], widening the operator default [443]; with spec.networkPolicy the way out is opened in spec.networkPolicy.additionalEgress"
)]
#[case(
    json!({ "dbPurge": { "schedule": "@every 30s" } }),
    "spec.dbPurge.schedule: a CronJob runs at most once a minute"
)]
#[case(
    json!({ "image": { "tag": "2026.1" } }),
    "spec.image.tag \"2026.1\" names another release than spec.openStackRelease \"2025.2\": no migration starts until they agree"
)]
#[case(
    json!({ "keystoneEndpoint": "http://admin:s3cr3t@keystone:5000/v3" }),
    "spec.keystoneEndpoint holds a user name or password, which anyone who may read the rendered ConfigMap can read"
)]
#[case(
    json!({ "database": { "tls": { "mode": "disabled", "caBundleSecretRef": { "name": "ca" } } } }),
    "spec.database.tls.mode is disabled: the connection to the database is not encrypted although a tls block is set"
)]
#[case(
    json!({ "cache": { "replicas": 5 } }),
    "spec.cache.replicas is not used by this operator: the referenced cluster has its own size"
)]
#[case(
    json!({ "middleware": [{ "name": "cors", "filterFactory": "a:b", "position": "after" }] }),
    "spec.middleware[0].name: cors is a filter of the built-in pipeline; its own definition stays, and filterFactory is not used"
)]
fn what_is_admitted_with_a_warning(#[case] changes: Value, #[case] text: &str) {
    assert_eq!(warnings(&changes), [text]);
    assert!(
        text.chars().count() <= 256,
        "clients may not see the end of it"
    );
}

#[test]
fn a_wrong_value_is_never_repeated_in_a_warning() {
    let all = warnings(&json!({
        "extraConfig": { "DEFAULT": { "delayed_delete": "s3cr3t", "api_limit_max": "s3cr3t" } },
        "keystoneEndpoint": "http://admin:s3cr3t@keystone:5000/v3",
    }));
    assert_eq!(all.len(), 3);
    assert!(
        all.iter().all(|warning| !warning.contains("s3cr3t")),
        "{all:?}"
    );
}

fn updated(old: &Value, new: &Value) -> Vec<String> {
    glance_update(&glance("images", old), &glance("images", new)).warnings
}

#[test]
fn a_shorter_retention_says_what_it_deletes() {
    let days = |days: i32| json!({ "dbPurge": { "retentionDays": days } });
    assert_eq!(
        updated(&json!({}), &days(7)),
        [
            "spec.dbPurge.retentionDays reduced 30 → 7: the next purge run hard-deletes the rows soft-deleted between 7 and 30 days ago, which cannot be undone"
        ]
    );
    assert_eq!(updated(&days(7), &json!({})), [""; 0]);
    assert_eq!(updated(&days(7), &days(7)), [""; 0]);
}

#[rstest]
#[case(
    "2025.1",
    "",
    "",
    "spec.openStackRelease: 2025.1 is older than the installed 2025.2, and a downgrade is not supported"
)]
#[case(
    "2026.2",
    "",
    "",
    "spec.openStackRelease: 2026.2 is not the release after the installed 2025.2; only sequential upgrades are supported"
)]
#[case(
    "2026.2",
    "2026.1",
    "Expanding",
    "spec.openStackRelease: an upgrade from 2025.2 to 2026.1 is in flight; 2026.2 has to wait until it is over"
)]
fn an_upgrade_that_will_be_refused_is_told_while_it_is_asked_for(
    #[case] wanted: &str,
    #[case] target: &str,
    #[case] phase: &str,
    #[case] text: &str,
) {
    let mut old = glance("images", &json!({}));
    let mut status = json!({ "installedRelease": "2025.2" });
    if !phase.is_empty() {
        status["targetRelease"] = target.into();
        status["upgradePhase"] = phase.into();
    }
    old.status = Some(serde_json::from_value(status).unwrap());
    let mut new = old.clone();
    wanted.clone_into(&mut new.spec.open_stack_release);
    new.spec.image.tag = Some(wanted.to_owned());
    assert_eq!(glance_update(&old, &new).warnings, [text]);
    "2026.1".clone_into(&mut new.spec.open_stack_release);
    new.spec.image.tag = Some("2026.1".to_owned());
    assert_eq!(glance_update(&old, &new).warnings, [""; 0]);
}

#[test]
fn a_huge_text_is_cut_before_it_is_repeated() {
    let huge = "x,".repeat(40_000);
    let refused = glance_create(&glance(
        "images",
        &json!({
            "importPlugins": { "injectMetadata": { "properties": { (huge.clone()): huge.clone() } } },
            "extraConfig": { (huge.clone()): { (huge.clone()): "x" } },
        }),
    ));
    assert!(refused.causes.len() >= 3);
    for cause in &refused.causes {
        assert!(cause.to_string().chars().count() < 2_000, "{}", cause.field);
    }
}
