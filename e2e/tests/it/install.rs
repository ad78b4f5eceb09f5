//! From nothing to `Ready`, on the hub and on a target.

use std::time::Duration;

use e2e::{
    bed::run,
    children::{self, Children},
    expect::{Wanted, condition},
    fleet::Fleet,
    patience::seconds,
    site::Site,
};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

/// Every sub-condition that `Ready` stands for.
const SUB_CONDITIONS: [&str; 9] = [
    "SecretsReady",
    "BackendsReady",
    "DatabaseReady",
    "DeploymentReady",
    "HTTPRouteReady",
    "GlanceAPIReady",
    "HPAReady",
    "NetworkPolicyReady",
    "DBPurgeReady",
];

/// What a Glance in managed mode owns when no feature is switched on.
fn expected(name: &str) -> Vec<String> {
    [
        "ConfigMap/NAME-config-*",
        "CronJob/NAME-db-purge",
        "Database/NAME",
        "Deployment/NAME",
        "Grant/NAME",
        "Job/NAME-db-sync",
        "PodDisruptionBudget/NAME",
        "Secret/NAME-backends-*",
        "Secret/NAME-db-connection",
        "Service/NAME",
        "User/NAME",
    ]
    .map(|pattern| pattern.replace("NAME", name))
    .to_vec()
}

fn text<'a>(object: &'a DynamicObject, pointer: &str) -> Option<&'a str> {
    object.data.pointer(pointer).and_then(Value::as_str)
}

fn argv(children: &Children, name: &str) -> Vec<String> {
    let container = "/spec/template/spec/containers/0";
    let deployment = &children[&format!("Deployment/{name}")];
    ["command", "args"]
        .iter()
        .filter_map(|field| deployment.data.pointer(&format!("{container}/{field}")))
        .flat_map(|list| list.as_array().cloned().unwrap_or_default())
        .filter_map(|word| word.as_str().map(str::to_owned))
        .collect()
}

#[test]
fn a_local_glance_becomes_ready_and_owns_all_its_children() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "local").await?;
        let _operator = site.operator().await?.start().await?;
        let scenario = site
            .scenario("images")
            .backend("fast", true)
            .backend("cold", false);
        site.apply(&scenario).await?;

        let glance = site.glance("images").is_ready(seconds(60)).await?;
        for type_ in SUB_CONDITIONS {
            let found = condition(&glance, type_);
            assert_eq!(
                found.map(|c| c["status"].clone()),
                Some(json!("True")),
                "{type_}"
            );
        }
        for backend in ["fast", "cold"] {
            site.backend(backend).is_ready(seconds(30)).await?;
        }
        assert_eq!(text(&glance, "/status/installedRelease"), Some("2025.2"));

        let children = children::by_reference(site.hub(), site.namespace(), "images").await?;
        assert_eq!(children::names(&children), expected("images"));
        for target in fleet.targets() {
            let there = children::all(target, site.namespace()).await?;
            assert_eq!(
                children::names(&there),
                ["ConfigMap/kube-root-ca.crt"],
                "{target:?}"
            );
        }
        Ok(())
    });
}

#[test]
fn a_placed_glance_becomes_ready_on_its_target_and_leaves_no_trace_elsewhere() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "placed").await?;
        let _operator = site.operator().await?.start().await?;
        site.register("edge-1").await?;
        site.register("edge-2").await?;
        let scenario = site
            .scenario("images")
            .on("edge-1")
            .backend("fast", true)
            .backend("cold", false);
        site.apply(&scenario).await?;
        let glance = site.glance("images").is_ready(seconds(60)).await?;
        for backend in ["fast", "cold"] {
            site.backend(backend).is_ready(seconds(30)).await?;
        }
        assert_eq!(glance.metadata.finalizers.map(|f| f.len()), Some(2));

        let edge = fleet.cluster("edge-1")?;
        let children = children::by_labels(edge, site.namespace(), "images").await?;
        assert_eq!(children::names(&children), expected("images"));
        for (key, child) in &children {
            assert!(child.metadata.owner_references.is_none(), "{key}");
        }
        for cluster in [fleet.hub(), fleet.cluster("edge-2")?] {
            let there = children::all(cluster, site.namespace()).await?;
            assert_eq!(
                children::names(&there),
                ["ConfigMap/kube-root-ca.crt"],
                "{cluster:?}"
            );
        }
        Ok(())
    });
}

#[test]
fn glances_of_two_releases_run_on_three_clusters_at_once() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "releases").await?;
        let _operator = site.operator().await?.start().await?;
        site.register("edge-1").await?;
        site.register("edge-2").await?;
        let scenarios = [
            site.scenario("here")
                .release("2026.1")
                .backend("here-store", true),
            site.scenario("one")
                .on("edge-1")
                .release("2025.2")
                .backend("one-store", true),
            site.scenario("two")
                .on("edge-2")
                .release("2026.1")
                .backend("two-store", true),
        ];
        for scenario in &scenarios {
            site.apply(scenario).await?;
        }
        for scenario in &scenarios {
            let name = scenario.name();
            let glance = site.glance(name).is_ready(seconds(90)).await?;
            let release = scenario.glance()["spec"]["openStackRelease"].clone();
            assert_eq!(glance.data["status"]["installedRelease"], release);
            let cluster = site.children(scenario)?;
            let children = children::all(cluster, site.namespace()).await?;
            let words = argv(&children, name);
            let program = words.first().map(String::as_str);
            let wanted = if release == "2026.1" {
                "uwsgi"
            } else {
                "glance-api"
            };
            assert_eq!(program, Some(wanted), "{name}: {words:?}");
        }
        Ok(())
    });
}

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
