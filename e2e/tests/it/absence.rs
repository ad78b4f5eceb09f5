//! Targets that are away, flicker and come back, and the Glances on them and beside them.

use std::time::{Duration, Instant};

use anyhow::ensure;
use e2e::{
    audit::Audit,
    bed::run,
    children,
    cluster::Cluster,
    expect::{Object, Wanted, always, condition, eventually},
    fleet::Fleet,
    kinds,
    line::{Fault, Line},
    patience::seconds,
    registration,
    site::Site,
    witness::Witness,
};
use kube::api::{Patch, PatchParams};
use serde_json::json;

const UNAVAILABLE: &str = "TargetClusterUnavailable";

#[test]
fn a_target_that_is_away_harms_nothing_and_gives_nothing_up() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "absence").await?;
        let far = fleet.cluster("edge-2")?;
        let line = Line::to(far).await?;
        line.fail(Fault::BlackHole);
        let through = line.kubeconfig(&site.kubeconfig(far).await?);
        let (ns, scope) = (site.clusters_namespace(), Some(site.namespace()));
        registration::register(site.hub(), &ns, "far", &through, scope).await?;
        site.register("edge-1").await?;
        let there = site.scenario("there").on("far").backend("far-s3", true);
        there.apply(site.hub(), far).await?;
        let near = site.scenario("near").on("edge-1").backend("near-s3", true);
        site.apply(&near).await?;

        // Away when the operator starts: nobody else waits for it, and it is said.
        let operator = site
            .operator()
            .await?
            .arg("--abandon-after=2s")
            .arg("--target-probe-interval=1s")
            .arg("--target-first-retry=300ms");
        let running = operator.start().await?;
        site.glance("near").is_ready(seconds(60)).await?;
        let glance = site.glance("there");
        let unavailable = Wanted::of("SecretsReady")
            .status("False")
            .reason(UNAVAILABLE);
        glance.condition(seconds(40), unavailable).await?;
        line.heal();
        glance.is_ready(seconds(60)).await?;
        site.backend("far-s3").is_ready(seconds(30)).await?;

        // It flickers. Between any two failures one probe finds it well.
        let before = children::by_labels(far, site.namespace(), "there").await?;
        let mark = far.audit().map(Audit::mark).transpose()?;
        let seen = Witness::of(site.hub(), kinds::GLANCE, site.namespace()).await?;
        let shown = Witness::of(site.hub(), kinds::TARGET_CLUSTER, &ns).await?;
        for _ in 0..6 {
            line.fail(Fault::Reset);
            tokio::time::sleep(Duration::from_millis(300)).await;
            line.heal();
            tokio::time::sleep(Duration::from_millis(1600)).await;
        }
        let reasons = seen.reasons(Some("there"), "SecretsReady")?;
        assert!(!reasons.contains(UNAVAILABLE), "{reasons:?}");
        for version in shown.versions()? {
            let reachable = condition(&version, "Reachable").unwrap_or_default();
            let other = version.metadata.name.as_deref() != Some("far");
            assert!(
                other || reachable["status"] == "True",
                "it flaps: {reachable}"
            );
        }
        let after = children::by_labels(far, site.namespace(), "there").await?;
        for (key, child) in &before {
            let now = after.get(key).and_then(|child| child.metadata.uid.clone());
            assert_eq!(now, child.metadata.uid, "{key}");
        }
        if let (Some(audit), Some(mark)) = (far.audit(), mark) {
            let mut asked = audit.requests_by(&site.user_on_targets(), mark)?;
            asked.retain(|r| !matches!(r.verb.as_str(), "get" | "list" | "watch"));
            assert!(asked.is_empty(), "nothing was written anew: {asked:#?}");
        }

        // A Glance that is deleted while it is away is held, however long that lasts.
        line.fail(Fault::BlackHole);
        let up = (
            "glance_operator_target_cluster_up",
            &[("cluster", "far")][..],
        );
        running
            .metric_becomes(seconds(30), up, |value| value < 0.5)
            .await?;
        site.hub().delete(&there.glance()).await?;
        always(seconds(5), "the Glance to be held", async || {
            let found = glance.get().await?;
            ensure!(found.is_some(), "it is gone");
            Ok(())
        })
        .await?;
        let held = glance.condition(seconds(20), unavailable).await?;
        let said = condition(&held, "SecretsReady").unwrap_or_default();
        let said = said["message"].as_str().unwrap_or_default().to_owned();
        assert!(said.contains("\"far\" is not usable since"), "{said}");
        assert!(said.contains("(Timeout)"), "{said}");
        is_kept_informed(&site, &line).await?;
        line.heal();
        glance.is_gone(seconds(60)).await?;
        eventually(seconds(30), "it to be swept", async || {
            let left = children::by_labels(far, site.namespace(), "there").await?;
            ensure!(left.is_empty(), "{:?}", children::names(&left));
            Ok(())
        })
        .await?;
        let events = glance.events().await?;
        let abandoned = |reason: &str| reason == "RemoteChildrenAbandoned";
        assert!(
            !events
                .iter()
                .any(|e| e.reason.as_deref().is_some_and(abandoned)),
            "{events:#?}"
        );
        Ok(())
    });
}

/// What is said of a Glance that is held is kept up to date, and how to let it go is told once.
async fn is_kept_informed(site: &Site<'_>, line: &Line) -> anyhow::Result<()> {
    line.fail(Fault::Refuse);
    let refused = Wanted::of("SecretsReady")
        .reason(UNAVAILABLE)
        .message("(ConnectionRefused)");
    let glance = site.glance("there");
    glance.condition(seconds(40), refused).await?;
    let told = glance.event(seconds(5), "TeardownHeld").await?;
    let told = (told.count, told.message.unwrap_or_default());
    let command = format!(
        "kubectl -n {} annotate glance there glance.openstack.c5c3.io/abandon-remote-children=true",
        site.namespace()
    );
    assert!(told.1.ends_with(&command), "{told:?}");
    assert!(told.0.unwrap_or(1) == 1, "{told:?}");
    Ok(())
}

#[test]
fn with_a_hundred_registrations_a_fifth_of_them_dead_a_new_process_works_at_once() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "hundred").await?;
        let edge = fleet.cluster("edge-1")?;
        let good = site.kubeconfig(edge).await?;
        let hole = Line::to(edge).await?;
        hole.fail(Fault::BlackHole);
        let closed = Line::to(edge).await?;
        closed.fail(Fault::Refuse);
        let (ns, scope) = (site.clusters_namespace(), Some(site.namespace()));
        let registrations = (0..100).map(|index| {
            let kubeconfig = match index % 10 {
                3 => hole.kubeconfig(&good),
                6 => closed.kubeconfig(&good),
                _ => good.clone(),
            };
            let (hub, ns) = (site.hub(), &ns);
            async move {
                let name = format!("edge-{index:02}");
                registration::register(hub, ns, &name, &kubeconfig, scope).await
            }
        });
        futures::future::try_join_all(registrations).await?;
        let scaled = |most: u32| json!({ "minReplicas": 2, "maxReplicas": most, "targetCPUUtilization": 80 });
        let scenario = site.scenario("near").on("edge-50").backend("near-s3", true);
        let scenario = scenario.with("autoscaling", scaled(4));
        scenario.apply(site.hub(), edge).await?;
        let operator = site.operator().await?;
        let running = operator.start().await?;
        let glance = site.glance("near");
        glance.is_ready(seconds(60)).await?;
        assert!(running.stop()?.success());

        let mut took = Vec::new();
        for (most, alive) in [(5_u32, 81.0), (6, 101.0)] {
            scenario
                .clone()
                .with("autoscaling", scaled(most))
                .apply_resources(site.hub())
                .await?;
            let started = Instant::now();
            let running = operator.start().await?;
            Object::new(edge, kinds::AUTOSCALER, site.namespace(), "near")
                .satisfies(seconds(30), "to be as asked for", |found| {
                    let now = &found.data["spec"]["maxReplicas"];
                    (*now == json!(most)).then_some(()).ok_or(now.to_string())
                })
                .await?;
            took.push(started.elapsed());
            eventually(seconds(60), "all that live to be up", async || {
                let up = "glance_operator_target_cluster_up";
                let sum = running.metric(up, &[]).await?.unwrap_or(0.0);
                ensure!((sum - alive).abs() < 0.5, "{sum} with the hub");
                Ok(())
            })
            .await?;
            assert!(running.stop()?.success());
            hole.heal();
            closed.heal();
        }
        eprintln!(
            "100 registrations: the first change is made {:?} after the start with 20 of them dead, {:?} with none",
            took[0], took[1]
        );
        // The promise is five seconds on a machine that does nothing else. A black hole takes five seconds, and whoever
        // waited for one would take as much longer.
        assert!(took[0] < took[1] * 2 + seconds(3), "{took:?}");
        Ok(())
    });
}

/// Makes a change and waits until it is done; how long that took.
async fn changed(
    site: &Site<'_>,
    edge: &Cluster,
    name: &str,
    most: u32,
) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let patch = json!({ "spec": { "autoscaling": {
        "minReplicas": 2, "maxReplicas": most, "targetCPUUtilization": 80,
    } } });
    site.hub()
        .any(kinds::GLANCE.0, kinds::GLANCE.1, Some(site.namespace()))
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Object::new(edge, kinds::AUTOSCALER, site.namespace(), name)
        .satisfies(seconds(60), "to be as asked for", |found| {
            let now = &found.data["spec"]["maxReplicas"];
            (*now == json!(most)).then_some(()).ok_or(now.to_string())
        })
        .await?;
    Ok(begun.elapsed())
}

#[test]
fn two_hundred_glances_on_a_dead_cluster_take_nothing_from_five_on_another() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "crowd").await?;
        let (edge, far) = (fleet.cluster("edge-1")?, fleet.cluster("edge-2")?);
        let hole = Line::to(far).await?;
        hole.fail(Fault::BlackHole);
        let through = hole.kubeconfig(&site.kubeconfig(far).await?);
        let (ns, scope) = (site.clusters_namespace(), Some(site.namespace()));
        registration::register(site.hub(), &ns, "dead", &through, scope).await?;
        site.register("edge-1").await?;
        let operator = site.operator().await?;
        let _running = operator.start().await?;
        let names: Vec<_> = (0..5).map(|index| format!("near-{index}")).collect();
        for name in &names {
            let store = format!("{name}-s3");
            let near = site.scenario(name).on("edge-1").backend(&store, true);
            let scaled = json!({ "minReplicas": 2, "maxReplicas": 4, "targetCPUUtilization": 80 });
            site.apply(&near.with("autoscaling", scaled)).await?;
        }
        for name in &names {
            site.glance(name).is_ready(seconds(90)).await?;
        }
        let mut without = Duration::ZERO;
        for name in &names {
            without = without.max(changed(&site, edge, name, 5).await?);
        }
        let crowd = (0..200).map(|index| {
            let glance = site
                .scenario(&format!("dead-{index:03}"))
                .on("dead")
                .glance();
            let hub = site.hub();
            async move { hub.apply(&glance).await }
        });
        futures::future::try_join_all(crowd).await?;
        let mut with = Duration::ZERO;
        for name in &names {
            with = with.max(changed(&site, edge, name, 6).await?);
        }
        let unavailable = Wanted::of("SecretsReady").reason(UNAVAILABLE);
        for index in 0..200 {
            let name = format!("dead-{index:03}");
            site.glance(&name)
                .condition(seconds(60), unavailable)
                .await?;
        }
        // Longer than the pause after which each of them is looked at once more.
        let mark = site.hub().audit().map(Audit::mark).transpose()?;
        tokio::time::sleep(Duration::from_secs(17)).await;
        if let (Some(audit), Some(mark)) = (site.hub().audit(), mark) {
            let mut asked = audit.requests_by(&operator.user(), mark)?;
            asked.retain(|request| request.name.starts_with("dead-"));
            assert!(asked.is_empty(), "they rest: {asked:#?}");
        }
        for name in &names {
            with = with.max(changed(&site, edge, name, 7).await?);
        }
        eprintln!(
            "slowest change on a healthy cluster: {without:?}, beside 200 Glances on a dead one {with:?}"
        );
        assert!(with < (without * 3).max(seconds(5)), "{with:?} {without:?}");
        Ok(())
    });
}
