//! The bounds of what is scraped: how much a Glance adds, and that all of it goes with it.

use std::collections::BTreeSet;

use anyhow::ensure;
use e2e::{bed::run, expect::eventually, fleet::Fleet, patience::seconds, site::Site};

/// The series of a page, without their values.
fn series(page: &str) -> BTreeSet<String> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()))
        .collect()
}

/// Families that have series of their own for each Glance or backend.
const PER_RESOURCE: [&str; 5] = [
    "glance_operator_condition{",
    "glance_operator_backend_condition{",
    "glance_operator_upgrade_phase{",
    "glance_operator_db_sync_",
    "glance_operator_db_purge_",
];

/// What a Glance and its backend may add to a page: 12 conditions and 3, and two kinds of Jobs with their buckets.
const MOST_PER_GLANCE: usize = 12 + 3 + 1 + 2 * (2 + 11);

#[test]
fn a_scrape_grows_by_a_bounded_number_per_glance_and_shrinks_when_they_go() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "bounded").await?;
        site.register("edge-1").await?;
        let running = site.operator().await?.start().await?;
        let glances = |names: &[&str]| -> Vec<_> {
            let both = names.iter().flat_map(|name| {
                let here = format!("{name}-here");
                let there = format!("{name}-there");
                let stores = [format!("{here}-s3"), format!("{there}-s3")];
                [
                    site.scenario(&here).backend(&stores[0], true),
                    site.scenario(&there).on("edge-1").backend(&stores[1], true),
                ]
            });
            both.collect()
        };
        let (first, more) = (glances(&["a"]), glances(&["b", "c"]));
        for scenario in &first {
            site.apply(scenario).await?;
        }
        for scenario in &first {
            site.glance(scenario.name()).is_ready(seconds(60)).await?;
        }
        let before = series(&running.metrics().await?);
        for scenario in &more {
            site.apply(scenario).await?;
        }
        for scenario in &more {
            site.glance(scenario.name()).is_ready(seconds(60)).await?;
        }
        let after = series(&running.metrics().await?);
        let (own, shared): (Vec<_>, Vec<_>) = after
            .iter()
            .partition(|series| PER_RESOURCE.iter().any(|family| series.starts_with(family)));
        let most = (first.len() + more.len()) * MOST_PER_GLANCE;
        assert!(
            own.len() <= most,
            "{} series of {most}: {own:#?}",
            own.len()
        );
        for series in &shared {
            assert!(!series.contains(site.namespace()), "{series}");
        }
        // Codes and kinds that had not been seen may still come; steps, buckets and controllers are all there.
        let closed = [
            "glance_operator_reconcile_duration",
            "workqueue_",
            "controller_runtime_reconcile_time",
        ];
        let is_closed = |series: &&String| closed.iter().any(|family| series.starts_with(family));
        let count = |all: &BTreeSet<String>| all.iter().filter(is_closed).count();
        assert_eq!(count(&before), count(&after));

        for scenario in first.iter().chain(&more) {
            for backend in scenario.backends() {
                site.hub().delete(&backend).await?;
            }
            site.hub().delete(&scenario.glance()).await?;
        }
        for scenario in first.iter().chain(&more) {
            site.glance(scenario.name()).is_gone(seconds(60)).await?;
        }
        site.deregister("edge-1").await?;
        eventually(seconds(20), "the series to be gone", async || {
            let left: Vec<_> = series(&running.metrics().await?)
                .into_iter()
                .filter(|series| series.contains(site.namespace()) || series.contains("edge-1"))
                .collect();
            ensure!(left.is_empty(), "{left:#?}");
            Ok(())
        })
        .await
    });
}
