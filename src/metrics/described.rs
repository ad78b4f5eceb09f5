//! What is registered, as it describes itself: the page of metrics is written from it. A [`Registry`](prometheus::Registry)
//! tells of families with samples only, and never of their labels.

use std::cell::RefCell;

use prometheus::{Registry, core::Collector, proto::MetricType};

use super::{Metrics, rest_client};

/// One family.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// Counter, gauge or histogram.
    pub kind: &'static str,
    /// The labels that every series has.
    pub labels: Vec<String>,
    /// Its help text.
    pub help: String,
}

thread_local! {
    static SEEN: RefCell<Vec<Described>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the description of what is about to be registered.
pub(super) fn remember(collector: &dyn Collector) {
    SEEN.with_borrow_mut(|seen| seen.extend(describe(collector)));
}

/// Every family that the process serves, by name.
pub fn all() -> Vec<Described> {
    SEEN.with_borrow_mut(Vec::clear);
    let registry = Registry::new();
    let metrics = Metrics::register(registry.clone()).unwrap();
    let fleet = target_registry::Metrics::register(metrics.registry(), "glance_operator").unwrap();
    let mut all = SEEN.take();
    all.extend(describe(&fleet));
    all.extend(describe(&rest_client::family().unwrap()));
    all.sort();
    // Nothing served is missing here, however it was registered.
    for served in registry.gather() {
        assert!(
            all.iter().any(|family| family.name == served.name()),
            "{} was registered past `registered`",
            served.name()
        );
    }
    all
}

fn describe(collector: &dyn Collector) -> Vec<Described> {
    let families = collector.collect();
    let of = |name: &str| {
        let family = families.iter().find(|family| family.name() == name);
        match family.map(prometheus::proto::MetricFamily::get_field_type) {
            Some(MetricType::COUNTER) => "counter",
            Some(MetricType::GAUGE) => "gauge",
            Some(MetricType::HISTOGRAM) => "histogram",
            other => panic!("{name} is a {other:?}"),
        }
    };
    let describe = |desc: &prometheus::core::Desc| Described {
        kind: of(&desc.fq_name),
        name: desc.fq_name.clone(),
        labels: desc.variable_labels.clone(),
        help: desc.help.clone(),
    };
    collector.desc().into_iter().map(describe).collect()
}
