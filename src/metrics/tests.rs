use std::panic::{AssertUnwindSafe, catch_unwind};

use glance_api::glance::UpgradePhase;
use rstest::rstest;

use super::*;
use crate::names::PhaseJob;

fn metrics() -> Metrics {
    Metrics::new().unwrap()
}

/// The value of the sample whose name and labels are exactly `series`.
fn sample(metrics: &Metrics, series: &str) -> Option<f64> {
    metrics
        .encode()
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

fn mentions(metrics: &Metrics, text: &str) -> bool {
    metrics.encode().contains(text)
}

fn fails(metrics: &Metrics) -> Result<(), std::num::ParseIntError> {
    let _timer = metrics.step_started("Database", "local");
    "x".parse::<u8>().map(drop)
}

#[test]
fn a_step_is_timed_when_it_succeeds_fails_and_panics() {
    let metrics = metrics();
    drop(metrics.step_started("Database", "local"));
    assert!(fails(&metrics).is_err());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _timer = metrics.step_started("Database", "local");
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    let count = r#"glance_operator_reconcile_duration_seconds_count{cluster="local",sub_reconciler="Database"}"#;
    assert_eq!(sample(&metrics, count), Some(3.0));
}

#[tokio::test(start_paused = true)]
async fn a_steps_time_lands_in_the_contracts_buckets() {
    let metrics = metrics();
    let timer = metrics.step_started("Secrets", "edge-1");
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(timer);
    let bucket = |le| {
        sample(
            &metrics,
            &format!(
                r#"glance_operator_reconcile_duration_seconds_bucket{{cluster="edge-1",sub_reconciler="Secrets",le="{le}"}}"#
            ),
        )
    };
    assert_eq!(bucket("0.1"), Some(0.0));
    assert_eq!(bucket("0.25"), Some(1.0));
    let edges: Vec<String> = metrics
        .encode()
        .lines()
        .filter(|line| line.starts_with("glance_operator_reconcile_duration_seconds_bucket"))
        .map(|line| {
            line.split("le=\"")
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap()
                .to_owned()
        })
        .collect();
    let expected = [
        "0.01", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "30", "+Inf",
    ];
    assert_eq!(edges, expected);
}

#[test]
fn an_unattributed_error_says_unknown_instead_of_nothing() {
    let metrics = metrics();
    assert!(
        !mentions(&metrics, "reconcile_errors_total"),
        "nothing is pre-created"
    );
    metrics.step_error("HPA", "HPAReady", "local");
    metrics.step_error("Strange", "", "local");
    let series = |step, condition| {
        format!(
            r#"glance_operator_reconcile_errors_total{{cluster="local",condition_type="{condition}",sub_reconciler="{step}"}}"#
        )
    };
    assert_eq!(sample(&metrics, &series("HPA", "HPAReady")), Some(1.0));
    assert_eq!(sample(&metrics, &series("Strange", "UNKNOWN")), Some(1.0));
}

#[rstest]
#[case(JobMetric::DbSync, "db_sync")]
#[case(JobMetric::DbPurge, "db_purge")]
fn jobs_are_counted_per_glance_and_forgotten_with_it(#[case] kind: JobMetric, #[case] name: &str) {
    let metrics = metrics();
    metrics.job_finished(kind, "images", "openstack", true, 12.0);
    metrics.job_finished(kind, "images", "openstack", false, -3.0);
    metrics.job_finished(kind, "other", "openstack", true, 1.0);
    metrics.condition("images", "openstack", "Ready", true);
    metrics.condition("other", "openstack", "Ready", false);
    let total = |glance, result| {
        format!(
            r#"glance_operator_{name}_total{{glance="{glance}",namespace="openstack",result="{result}"}}"#
        )
    };
    assert_eq!(sample(&metrics, &total("images", "succeeded")), Some(1.0));
    assert_eq!(sample(&metrics, &total("images", "failed")), Some(1.0));
    let sum = format!(
        r#"glance_operator_{name}_duration_seconds_sum{{glance="images",namespace="openstack"}}"#
    );
    assert_eq!(
        sample(&metrics, &sum),
        Some(12.0),
        "a negative time counts as none"
    );

    let name = format!("glance_operator_{name}_duration_seconds_bucket");
    let buckets: Vec<_> = metrics
        .encode()
        .lines()
        .filter(|line| line.starts_with(&name) && line.contains(r#"glance="images""#))
        .filter_map(|line| Some(line.split_once("le=\"")?.1.split_once('"')?.0.to_owned()))
        .collect();
    assert_eq!(
        buckets,
        ["1", "5", "10", "30", "60", "120", "300", "600", "+Inf"]
    );

    metrics.forget("images", "openstack");
    assert!(
        !mentions(&metrics, r#"glance="images""#),
        "{}",
        metrics.encode()
    );
    assert_eq!(sample(&metrics, &total("other", "succeeded")), Some(1.0));
    assert!(mentions(
        &metrics,
        r#"glance_operator_condition{glance="other""#
    ));
}

#[test]
fn an_upgrade_shows_the_phase_it_is_in_and_nothing_afterwards() {
    let metrics = metrics();
    let series = |phase| {
        format!(
            r#"glance_operator_upgrade_phase{{glance="images",namespace="openstack",phase="{phase}"}}"#
        )
    };
    metrics.upgrade_phase("images", "openstack", Some(UpgradePhase::Expanding));
    metrics.upgrade_phase("images", "openstack", Some(UpgradePhase::Migrating));
    assert_eq!(sample(&metrics, &series("Expanding")), None);
    assert_eq!(sample(&metrics, &series("Migrating")), Some(1.0));
    metrics.upgrade_phase("images", "openstack", None);
    assert!(!mentions(&metrics, "glance_operator_upgrade_phase{"));
    metrics.upgrade_phase("images", "openstack", Some(UpgradePhase::Migrating));
    metrics.forget("images", "openstack");
    assert!(!mentions(&metrics, "images"));
}

#[test]
fn phases_and_purges_are_shown_one_by_one_and_forgotten_with_their_glance() {
    let metrics = metrics();
    metrics.phase_finished("images", "openstack", PhaseJob::Expand, true);
    metrics.phase_finished("images", "openstack", PhaseJob::Contract, false);
    metrics.purged(
        "images",
        "openstack",
        "2026-03-01T12:00:00Z".parse().unwrap(),
    );
    let job = |phase, result| {
        format!(
            r#"glance_operator_upgrade_jobs_total{{glance="images",namespace="openstack",phase="{phase}",result="{result}"}}"#
        )
    };
    assert_eq!(sample(&metrics, &job("expand", "succeeded")), Some(1.0));
    assert_eq!(sample(&metrics, &job("contract", "failed")), Some(1.0));
    let purged = r#"glance_operator_db_purge_last_success_timestamp_seconds{glance="images",namespace="openstack"}"#;
    assert_eq!(sample(&metrics, purged), Some(1_772_366_400.0));
    metrics.forget("images", "openstack");
    assert!(!mentions(&metrics, "images"), "{}", metrics.encode());
}

#[test]
fn a_cluster_takes_its_series_along() {
    let metrics = metrics();
    for cluster in ["edge-1", "edge-2"] {
        drop(metrics.step_started("Secrets", cluster));
        metrics.step_error("Secrets", "SecretsReady", cluster);
    }
    metrics.forget_cluster("edge-1");
    assert!(!mentions(&metrics, "edge-1"), "{}", metrics.encode());
    assert!(mentions(&metrics, "edge-2"));
}

#[test]
fn what_was_left_behind_on_a_cluster_is_told_however_often_its_registration_is_looked_at() {
    let metrics = metrics();
    let told = |cluster: &str| {
        let series = format!(r#"glance_operator_children_abandoned_total{{cluster="{cluster}"}}"#);
        sample(&metrics, &series)
    };
    metrics.children_abandoned("edge-1");
    metrics.forget_cluster("edge-1");
    metrics.retain_clusters(|name| name == "local");
    metrics.children_abandoned("edge-1");
    assert_eq!(told("edge-1"), Some(2.0));
    // Not without bounds, for names come and go: the ones heard of last are told.
    for number in 2..=100 {
        metrics.children_abandoned(&format!("edge-{number}"));
    }
    metrics.children_abandoned("edge-1");
    metrics.children_abandoned("edge-101");
    assert_eq!([told("edge-1"), told("edge-2")], [Some(3.0), None]);
    assert_eq!([told("edge-3"), told("edge-101")], [Some(1.0); 2]);
}

#[test]
fn a_late_pass_brings_no_series_back_for_good() {
    let metrics = metrics();
    let late = metrics.step_started("Secrets", "edge-1");
    metrics.forget_cluster("edge-1");
    drop(late);
    drop(metrics.step_started("Config", "edge-1"));
    metrics.step_error("Config", "SecretsReady", "edge-1");
    drop(metrics.step_started("Config", "local"));
    metrics.retain_clusters(|name| name == "local");
    assert!(!mentions(&metrics, "edge-1"), "{}", metrics.encode());
    assert!(mentions(&metrics, r#"cluster="local""#));
}

#[test]
fn a_backend_takes_its_series_along() {
    let metrics = metrics();
    metrics.backend_condition("ceph", "openstack", "Ready", true);
    let series =
        r#"glance_operator_backend_condition{backend="ceph",namespace="openstack",type="Ready"}"#;
    assert_eq!(sample(&metrics, series), Some(1.0));
    metrics.forget_backend("ceph", "openstack", &["Ready", "CredentialsReady"]);
    assert!(!mentions(&metrics, "ceph"));
}

#[rstest]
#[case(PassResult::Success, "success", None)]
#[case(PassResult::Error, "error", Some(1.0))]
#[case(PassResult::Requeue, "requeue", None)]
#[case(PassResult::RequeueAfter, "requeue_after", None)]
fn passes_carry_the_names_dashboards_query(
    #[case] result: PassResult,
    #[case] name: &str,
    #[case] errors: Option<f64>,
) {
    let metrics = metrics();
    metrics.reconciled("glance", result, Duration::from_secs(55));
    let series =
        format!(r#"controller_runtime_reconcile_total{{controller="glance",result="{name}"}}"#);
    assert_eq!(sample(&metrics, &series), Some(1.0));
    let bucket = |le| {
        format!(
            r#"controller_runtime_reconcile_time_seconds_bucket{{controller="glance",le="{le}"}}"#
        )
    };
    assert_eq!(sample(&metrics, &bucket("50")), Some(0.0));
    assert_eq!(sample(&metrics, &bucket("60")), Some(1.0));
    let series = r#"controller_runtime_reconcile_errors_total{controller="glance"}"#;
    assert_eq!(sample(&metrics, series), errors);
}

#[test]
fn workers_queue_leader_and_process_are_shown() {
    let metrics = metrics();
    let first = metrics.pass_started("glance");
    let second = metrics.pass_started("glance");
    drop(first);
    metrics.max_concurrent("glance", 2);
    let mut waiting = vec![(); 3]
        .into_iter()
        .map(|()| metrics.waiting("glance"))
        .collect::<Vec<_>>();
    waiting.truncate(1);
    metrics.panicked("glance");
    metrics.leader("glance.openstack.c5c3.io", true);
    let expected = [
        (
            r#"controller_runtime_active_workers{controller="glance"}"#,
            1.0,
        ),
        (
            r#"controller_runtime_max_concurrent_reconciles{controller="glance"}"#,
            2.0,
        ),
        (
            r#"controller_runtime_reconcile_panics_total{controller="glance"}"#,
            1.0,
        ),
        (
            r#"workqueue_depth{controller="glance",name="glance",priority=""}"#,
            1.0,
        ),
        (
            r#"workqueue_adds_total{controller="glance",name="glance"}"#,
            3.0,
        ),
        (
            r#"leader_election_master_status{name="glance.openstack.c5c3.io"}"#,
            1.0,
        ),
    ];
    for (series, value) in expected {
        assert_eq!(sample(&metrics, series), Some(value), "{series}");
    }
    drop((second, waiting));
    assert!(sample(&metrics, "process_resident_memory_bytes").unwrap() > 0.0);
    assert!(mentions(&metrics, "glance_operator_build_info{"));
}

#[test]
fn registering_twice_is_an_error_and_not_a_panic() {
    let metrics = metrics();
    let error = Metrics::register(metrics.registry().clone()).unwrap_err();
    assert!(matches!(error, prometheus::Error::AlreadyReg), "{error}");
}

#[test]
fn requests_are_also_shown_under_the_names_of_the_go_client() {
    let metrics = metrics();
    assert!(!mentions(&metrics, "rest_client_requests_total"));
    let opts = prometheus::Opts::new("glance_operator_target_requests_total", "counted elsewhere");
    let counted = prometheus::IntCounterVec::new(opts, &["cluster", "verb", "code"]).unwrap();
    metrics
        .registry()
        .register(Box::new(counted.clone()))
        .unwrap();
    for (cluster, verb, code, n) in [
        ("local", "list", "200", 2),
        ("local", "watch", "200", 3),
        ("edge-1", "patch", "409", 1),
        ("edge-1", "get", "timeout", 1),
        ("edge-1", "get", "error", 1),
        ("edge-1", "get", "throttled", 9),
    ] {
        counted.with_label_values(&[cluster, verb, code]).inc_by(n);
    }
    metrics.name_hosts(|cluster| (cluster == "edge-1").then(|| "10.0.0.1:6443".to_owned()));
    let series = |code, method, host| {
        let labels = format!(r#"code="{code}",host="{host}",method="{method}""#);
        sample(&metrics, &format!("rest_client_requests_total{{{labels}}}"))
    };
    assert_eq!(series("200", "GET", "local"), Some(5.0));
    assert_eq!(series("409", "PATCH", "10.0.0.1:6443"), Some(1.0));
    assert_eq!(series("<error>", "GET", "10.0.0.1:6443"), Some(2.0));
    assert!(!mentions(&metrics, "code=\"throttled\",host"));
}
