//! `rest_client_requests_total`, the Go client's view of the requests the registry counts.
//!
//! The registry counts per cluster and verb; dashboards ask for host and method. Nothing
//! is counted twice: the family is derived from the other one when it is scraped.

use std::collections::BTreeMap;

use prometheus::{
    CounterVec, Opts,
    core::Collector,
    proto::{Metric, MetricFamily},
};

/// The family that is derived from.
const COUNTED: &str = "glance_operator_target_requests_total";

/// The code of a request that got no answer.
const NO_ANSWER: &str = "<error>";

/// The derived family, or nothing while no request was counted. `host` names the API
/// server of a cluster.
pub fn requests(
    families: &[MetricFamily],
    host: impl Fn(&str) -> String,
) -> prometheus::Result<Vec<MetricFamily>> {
    let by_host = family()?;
    let counted = families.iter().filter(|family| family.name() == COUNTED);
    for metric in counted.flat_map(MetricFamily::get_metric) {
        let labels = labels(metric);
        let label = |name| labels.get(name).copied().unwrap_or_default();
        let code = match label("code") {
            // Held back by ourselves: no request was sent.
            "throttled" | "fenced" => continue,
            code if code.bytes().all(|byte| byte.is_ascii_digit()) => code,
            _ => NO_ANSWER,
        };
        by_host
            .with_label_values(&[code, method(label("verb")), &host(label("cluster"))])
            .inc_by(metric.get_counter().get_value());
    }
    Ok(by_host
        .collect()
        .into_iter()
        .filter(|family| !family.get_metric().is_empty())
        .collect())
}

/// The family without a sample.
pub fn family() -> prometheus::Result<CounterVec> {
    let opts = Opts::new(
        "rest_client_requests_total",
        "Requests to API servers, by status code, method and host.",
    );
    CounterVec::new(opts, &["code", "method", "host"])
}

fn labels(metric: &Metric) -> BTreeMap<&str, &str> {
    metric
        .get_label()
        .iter()
        .map(|pair| (pair.name(), pair.value()))
        .collect()
}

fn method(verb: &str) -> &str {
    match verb {
        "get" | "list" | "watch" => "GET",
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        other => other,
    }
}
