//! What an installation costs and waits for; what it is made of is in `objects`.

use std::time::Duration;

use e2e::{bed::run, children, expect::Wanted, fleet::Fleet, patience::seconds, site::Site};
use kube::api::{Patch, PatchParams};
use serde_json::json;

#[test]
fn a_pass_over_a_converged_glance_asks_no_api_server_anything() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "quiet").await?;
        let operator = site.operator().await?;
        let running = operator.start().await?;
        site.register("edge-1").await?;
        let scenarios = [
            site.scenario("local").backend("local-store", true),
            site.scenario("placed")
                .on("edge-1")
                .backend("placed-store", true),
        ];
        for scenario in &scenarios {
            site.apply(scenario).await?;
        }
        for scenario in &scenarios {
            site.glance(scenario.name()).is_ready(seconds(60)).await?;
            site.backend(&format!("{}-store", scenario.name()))
                .is_ready(seconds(30))
                .await?;
        }
        let edge = fleet.cluster("edge-1")?;
        let (Some(hub_log), Some(edge_log)) = (site.hub().audit(), edge.audit()) else {
            eprintln!("these clusters have no audit log that a test can read");
            return Ok(());
        };
        // What the last events set off has to end first.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let marks = (hub_log.mark()?, edge_log.mark()?);
        let name = "glance_operator_reconcile_duration_seconds_count";
        let passes =
            async || Ok::<_, anyhow::Error>(running.metric(name, &[]).await?.unwrap_or(0.0));
        let before = passes().await?;
        let versions = async || {
            let mut all = Vec::new();
            for scenario in &scenarios {
                let found = site.glance(scenario.name()).get().await?;
                all.push(found.and_then(|g| g.metadata.resource_version));
            }
            Ok::<_, anyhow::Error>(all)
        };
        let api = site.hub().any(
            e2e::kinds::GLANCE.0,
            e2e::kinds::GLANCE.1,
            Some(site.namespace()),
        );
        for round in 0..3 {
            for scenario in &scenarios {
                let patch = json!({ "metadata": { "annotations": { "poke": round.to_string() } } });
                api.patch(
                    scenario.name(),
                    &PatchParams::default(),
                    &Patch::Merge(&patch),
                )
                .await?;
            }
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        let written = versions().await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(
            versions().await?,
            written,
            "nobody but this test writes to the resources"
        );
        assert!(passes().await? >= before + 6.0, "each poke is a pass");

        let mut asked = hub_log.requests_by(&operator.user(), marks.0)?;
        asked.extend(edge_log.requests_by(&site.user_on_targets(), marks.1)?);
        // Watches begin anew now and then, and the health check is due every half minute.
        asked.retain(|r| r.verb != "watch" && r.resource != "services/proxy");
        assert!(asked.is_empty(), "{asked:#?}");
        Ok(())
    });
}

#[test]
fn an_unregistered_target_is_named_and_healed_by_its_registration() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "unknown").await?;
        let _operator = site.operator().await?.start().await?;
        let scenario = site.scenario("images").on("edge-2").backend("fast", true);
        site.apply(&scenario).await?;
        let wanted = Wanted::of("SecretsReady")
            .status("False")
            .reason("TargetClusterUnavailable")
            .message("cluster not found");
        let glance = site.glance("images").condition(seconds(20), wanted).await?;
        assert_eq!(glance.metadata.finalizers, None);
        let there = children::by_labels(fleet.cluster("edge-2")?, site.namespace(), "images");
        assert!(there.await?.is_empty());

        site.register("edge-2").await?;
        // Sooner than the poll of 15 s could.
        let healed = Wanted::of("SecretsReady").status("True");
        site.glance("images").condition(seconds(5), healed).await?;
        site.glance("images").is_ready(seconds(60)).await?;
        Ok(())
    });
}
