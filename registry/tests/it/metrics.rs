//! Numbers per cluster, for as long as there is one.

use target_registry::Metrics;

use crate::{
    eventually,
    fake::Fake,
    rig::{Rig, SHORT, quick, synced, version_of},
};

/// What a scrape would show.
fn text(numbers: &prometheus::Registry) -> String {
    prometheus::TextEncoder::new()
        .encode_to_string(&numbers.gather())
        .unwrap()
}

#[tokio::test]
async fn metrics_come_and_go_with_the_registration() {
    let blue = Fake::start();
    let numbers = prometheus::Registry::new();
    let metrics = Metrics::register(&numbers, "t").unwrap();
    let rig = Rig::with(Fake::start(), |options| {
        options.client.metrics = Some(metrics);
    });
    rig.register(&[("kubeconfig", &blue.kubeconfig("good"))]);
    let cluster = rig.engaged().await;
    let _watch = synced(&cluster).await;
    for line in [
        "t_target_cluster_up{cluster=\"blue\"} 1",
        "t_target_cluster_state{cluster=\"blue\",state=\"Connected\"} 1",
        "t_target_cluster_state{cluster=\"blue\",state=\"Lost\"} 0",
        "t_target_cluster_engagements_total{cluster=\"blue\",result=\"connected\"} 1",
        "t_target_cluster_probe_duration_seconds_count{cluster=\"local\"} 1",
        "t_target_requests_total{cluster=\"blue\",code=\"200\",verb=\"list\"} 1",
    ] {
        assert!(
            text(&numbers).contains(line),
            "{line} in {}",
            text(&numbers)
        );
    }
    rig.hub.delete("v1/secrets", "clusters", "blue");
    eventually("its series go", SHORT, || {
        (!text(&numbers).contains("cluster=\"blue\"")).then_some(())
    })
    .await;
    let _ = version_of(&cluster).await;
    assert!(
        !text(&numbers).contains("cluster=\"blue\""),
        "and do not come back"
    );
    assert!(text(&numbers).contains("cluster=\"local\""));
}

#[tokio::test]
async fn a_hundred_names_that_came_and_went_leave_nothing_in_a_scrape() {
    let blue = Fake::start();
    let numbers = prometheus::Registry::new();
    let metrics = Metrics::register(&numbers, "t").unwrap();
    let rig = Rig::with(Fake::start(), |options| {
        options.client.metrics = Some(metrics);
        options.probe = quick();
    });
    let names: Vec<_> = (0..100).map(|index| format!("edge-{index}")).collect();
    let config = blue.kubeconfig("good");
    let refused = config.replace("\"token\"", "\"tokenFile\":\"/a\",\"token\"");
    for (index, name) in names.iter().enumerate() {
        let config = if index % 10 == 9 { &refused } else { &config };
        rig.hub.register(name, "true", &[("kubeconfig", config)]);
    }
    let mut watches = Vec::new();
    for name in names.iter().step_by(10) {
        let cluster = eventually(name, SHORT, || rig.registry.resolve(name).ok()).await;
        watches.push(synced(&cluster).await);
    }
    eventually("all are told of", SHORT, || {
        let text = text(&numbers);
        let has = |name: &String| text.contains(&format!("{{cluster=\"{name}\""));
        names.iter().all(has).then_some(())
    })
    .await;
    let families = |text: &str| {
        text.lines()
            .filter(|line| line.contains("\"edge-0\""))
            .count()
    };
    assert!(families(&text(&numbers)) > 10, "{}", text(&numbers));
    for name in &names {
        rig.hub.delete("v1/secrets", "clusters", name);
    }
    eventually("none is", SHORT, || {
        (!text(&numbers).contains("\"edge-")).then_some(())
    })
    .await;
    // What still runs for them must not bring a series back.
    drop(watches);
    tokio::time::sleep(rig_pause()).await;
    assert!(!text(&numbers).contains("\"edge-"), "{}", text(&numbers));
    assert!(text(&numbers).contains("cluster=\"local\""));
}

/// Some probes long.
fn rig_pause() -> std::time::Duration {
    quick().interval * 5
}
