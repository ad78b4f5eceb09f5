//! The process as those see it who run it: how it starts, what it says, how it stops.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    assets::Component,
    bed::run,
    control_plane::ControlPlane,
    expect::eventually,
    fleet::{Fleet, Member},
    kinds,
    operator::{Operator, Running, binary},
    patience::seconds,
    site::Site,
};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

fn lines(operator: &Operator) -> Vec<Value> {
    let output = operator.output();
    let lines = output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")));
    lines.collect()
}

#[test]
fn a_wrong_flag_is_explained_in_one_line_and_a_missing_configuration_too() {
    let binary = binary().unwrap();
    for (args, word) in [
        (&["--nonsense"][..], "--nonsense"),
        (&["--leader-elect=perhaps"], "expected true or false"),
        (&["--leader-elect-lease-duration=1s"], "renew-deadline"),
    ] {
        let output = Command::new(&binary).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.lines().next().unwrap().contains(word), "{said}");
        assert!(said.contains("Usage: glance-operator"), "{said}");
        assert!(
            said.lines().count() == 2 && output.stdout.is_empty(),
            "{said}"
        );
    }
    let nowhere = Command::new(&binary)
        .arg("--enable-webhooks=false")
        .env("KUBECONFIG", "/nonexistent/kubeconfig")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert_eq!(nowhere.status.code(), Some(1), "{said}");
    assert!(
        said.contains("set KUBECONFIG") && said.lines().count() == 1,
        "{said}"
    );
}

/// The hub that a process names in its first line, in these surroundings.
fn hub_of(home: &Path, kubeconfig: Option<&Path>) -> String {
    let mut command = Command::new(binary().unwrap());
    command
        .args([
            "--enable-webhooks=false",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
        ])
        .env("HOME", home)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .stderr(Stdio::piped());
    if let Some(file) = kubeconfig {
        command.env("KUBECONFIG", file);
    }
    let mut child = command.spawn().unwrap();
    let mut first = String::new();
    let read = BufReader::new(child.stderr.take().unwrap()).read_line(&mut first);
    child.kill().unwrap();
    child.wait().unwrap();
    read.unwrap();
    let line: Value =
        serde_json::from_str(&first).unwrap_or_else(|error| panic!("{error}: {first}"));
    line["hub"].as_str().unwrap().to_owned()
}

#[test]
fn the_hub_is_the_one_of_kubeconfig_and_else_of_the_users_own_file() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, server: &str| {
        let file = home.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
            "clusters": [{ "name": "a", "cluster": { "server": server } }],
            "users": [{ "name": "a", "user": { "token": "t" } }],
        });
        std::fs::write(&file, content.to_string()).unwrap();
        file
    };
    write(".kube/config", "https://127.0.0.1:1");
    let named = write("named", "https://127.0.0.1:2");
    assert_eq!(hub_of(home.path(), None), "127.0.0.1:1");
    assert_eq!(hub_of(home.path(), Some(&named)), "127.0.0.1:2");
}

/// Changes the Glance `images`.
async fn scale(site: &Site<'_>, replicas: u32) -> Result<()> {
    let api = site
        .hub()
        .any(kinds::GLANCE.0, kinds::GLANCE.1, Some(site.namespace()));
    let patch = json!({ "spec": { "deployment": { "replicas": replicas } } });
    api.patch("images", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// Waits until a pass over a Glance is under way.
async fn is_busy(running: &Running) -> Result<()> {
    let busy = (
        "controller_runtime_active_workers",
        &[("controller", "glance")][..],
    );
    running
        .metric_becomes(seconds(10), busy, |now| now > 0.5)
        .await?;
    Ok(())
}

#[test]
fn every_line_about_a_pass_says_which_cluster_which_resource_which_step_and_which_pass() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "lines").await?;
        site.register("edge-1").await?;
        let operator = site.operator().await?;
        let running = operator.start().await?;
        let images = site
            .scenario("images")
            .backend("images-s3", true)
            .on("edge-1");
        site.apply(&images).await?;
        site.glance("images").is_ready(seconds(60)).await?;
        let first = lines(&operator).remove(0);
        assert_eq!(first["msg"], "starting the glance-operator", "{first}");
        assert_eq!(first["namespace"], site.namespace());
        assert!(
            first["version"].is_string() && first["hub"].is_string(),
            "{first}"
        );
        // The level changes while it runs, and back.
        let talk = running.set_log_level("debug").await?;
        assert_eq!(talk, "debug");
        scale(&site, 1).await?;
        let passes = eventually(seconds(20), "passes in the log", async || {
            let all = lines(&operator);
            let passes: Vec<_> = all
                .into_iter()
                .filter(|line| line["msg"] == "the pass ended")
                .collect();
            ensure!(passes.len() > 1, "{passes:?}");
            Ok(passes)
        })
        .await?;
        let about = passes
            .iter()
            .find(|line| line["controller"] == "glance")
            .context("no pass of the Glance")?;
        assert_eq!(about["name"], "images", "{about}");
        assert_eq!(about["namespace"], site.namespace());
        assert_eq!(about["cluster"], "edge-1");
        assert_eq!(
            about["reconcileID"].as_str().map(str::len),
            Some(36),
            "{about}"
        );
        running.set_log_level("info").await?;
        // What fails says its step as well, at any level.
        let resources = json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "1" } });
        let greedy = json!({ "replicas": 1, "resources": resources });
        site.hub()
            .apply(&images.clone().with("deployment", greedy).glance())
            .await?;
        let failed = eventually(seconds(20), "the step to fail", async || {
            let mut all = lines(&operator).into_iter();
            all.find(|line| line["msg"] == "the step failed")
                .context("not yet")
        })
        .await?;
        assert_eq!(failed["sub_reconciler"], "Deployment", "{failed}");
        for field in [
            "controller",
            "cluster",
            "namespace",
            "name",
            "reconcileID",
            "error",
        ] {
            assert!(failed[field].is_string(), "{field}: {failed}");
        }
        Ok(())
    });
}

/// Stops it and says how long that took.
fn stop(running: Running) -> Result<Duration> {
    let begun = Instant::now();
    let status = running.stop()?;
    ensure!(status.success(), "{status}");
    Ok(begun.elapsed())
}

#[test]
fn a_replica_is_ready_when_it_can_work_and_stops_within_seconds_whatever_hangs() {
    run(async |fleet: &Fleet| {
        let cold = fleet.another("cold", false).await?;
        stops_in_time(fleet, &cold).await?;
        is_ready_when_it_can_work(fleet, &cold).await
    });
}

async fn stops_in_time(fleet: &Fleet, cold: &Member) -> Result<()> {
    let site = Site::open(fleet, "stop").await?;
    site.register_as("cold", cold.cluster()).await?;
    let operator = site.operator().await?;
    let running = operator.start().await?;
    let images = site
        .scenario("images")
        .on("cold")
        .backend("images-s3", true);
    images.apply(site.hub(), cold.cluster()).await?;
    site.glance("images").is_ready(seconds(90)).await?;
    let idle = stop(running)?;

    let running = operator.start().await?;
    let passes = (
        "controller_runtime_reconcile_total",
        &[("result", "requeue_after")][..],
    );
    running
        .metric_becomes(seconds(30), passes, |n| n > 1.5)
        .await?;
    let plane = cold.plane().context("not one of ours")?;
    plane.freeze(Component::ApiServer);
    scale(&site, 3).await?;
    is_busy(&running).await?;
    let hanging = stop(running);
    plane.thaw(Component::ApiServer);
    let hanging = hanging?;
    ends_at_once_when_told_twice(&site, &operator, plane).await?;
    eprintln!("stopped in {idle:?} when idle, in {hanging:?} with a call that hangs");
    assert!(idle < seconds(10), "{idle:?}");
    assert!(hanging < seconds(30), "{hanging:?}");
    Ok(())
}

/// Whoever is told twice does not wait for anything any more.
async fn ends_at_once_when_told_twice(
    site: &Site<'_>,
    operator: &Operator,
    plane: &ControlPlane,
) -> Result<()> {
    let mut running = operator.clone().log("twice").start().await?;
    plane.freeze(Component::ApiServer);
    let outcome = async {
        scale(site, 2).await?;
        is_busy(&running).await?;
        running.ask_to_stop();
        let log = operator.clone().log("twice");
        eventually(seconds(5), "it to have heard", async || {
            let heard = log.output().contains("stopping: running passes may finish");
            heard.then_some(()).context("not yet")
        })
        .await?;
        ensure!(running.exited().is_none(), "it waits for its pass");
        running.ask_to_stop();
        let status = eventually(seconds(3), "it to end", async || {
            running.exited().context("it still runs")
        })
        .await?;
        ensure!(status.code() == Some(1), "{status}");
        Ok(())
    }
    .await;
    plane.thaw(Component::ApiServer);
    outcome
}

async fn is_ready_when_it_can_work(fleet: &Fleet, cold: &Member) -> Result<()> {
    let folder = fleet.folder().path();
    let operator = Operator::install(cold.cluster(), "glance-system", folder).await?;
    let running = operator.clone().log("ready").start().await?;
    for (page, checks) in [
        ("/readyz", ["leader-or-standby", "caches"]),
        ("/healthz", ["runtime", "watches"]),
    ] {
        let said = running.health(&format!("{page}?verbose")).await?;
        for check in checks {
            assert!(said.contains(&format!("[+]{check} ok")), "{said}");
        }
    }
    // An API server that does not answer keeps a new replica from being ready, and is no reason to end an old one.
    let plane = cold.plane().context("not one of ours")?;
    plane.freeze(Component::ApiServer);
    let blind = operator.log("blind").launch()?;
    let said = eventually(seconds(20), "a replica that cannot work yet", async || {
        let refused = blind.health("/readyz").await.err().context("ready")?;
        let refused = refused.to_string();
        ensure!(refused.contains("[-]caches failed"), "{refused}");
        Ok(())
    })
    .await;
    let alive = running.health("/healthz").await;
    plane.thaw(Component::ApiServer);
    said?;
    assert_eq!(alive?, "ok");
    eventually(seconds(60), "it to be ready", async || {
        blind.health("/readyz").await
    })
    .await?;
    Ok(())
}

#[test]
fn an_operator_newer_than_its_definitions_says_which_fields_are_dropped_until_they_are_replaced() {
    run(async |fleet: &Fleet| {
        let old = fleet.another("old", false).await?;
        let hub = old.cluster();
        let name = "glances.glance.openstack.c5c3.io";
        let definitions = hub.any("apiextensions.k8s.io/v1", "CustomResourceDefinition", None);
        let shipped = definitions.get(name).await?.data;
        let with = async |spec: &Value| {
            let mut definition = definitions.get(name).await?;
            definition.data["spec"] = spec.clone();
            definitions
                .replace(name, &PostParams::default(), &definition)
                .await
        };
        let mut stale = shipped["spec"].clone();
        let field = stale
            .pointer_mut("/versions/0/schema/openAPIV3Schema/properties/spec/properties")
            .and_then(Value::as_object_mut)
            .and_then(|fields| fields.remove("keystonePublicEndpoint"));
        ensure!(field.is_some(), "the field is called otherwise now");
        with(&stale).await?;
        // It is published a moment later.
        let path = "/openapi/v3/apis/glance.openstack.c5c3.io/v1alpha1";
        eventually(seconds(20), "the stale one to be published", async || {
            let page = http::Request::get(path).body(Vec::new())?;
            let page = hub.client().request_text(page).await?;
            ensure!(!page.contains("keystonePublicEndpoint"), "not yet");
            Ok::<_, anyhow::Error>(())
        })
        .await?;

        let folder = fleet.folder().path();
        let operator = Operator::install(hub, "glance-system", folder)
            .await?
            .log("old");
        let running = operator.start().await?;
        let missing = (
            "glance_operator_definition_missing_fields",
            &[("kind", "Glance")][..],
        );
        running
            .metric_becomes(seconds(30), missing, |n| n > 0.5)
            .await?;
        let said = operator.output();
        for words in ["older than this operator", "spec.keystonePublicEndpoint"] {
            ensure!(said.contains(words), "{words}: {said}");
        }
        with(&shipped["spec"]).await?;
        running
            .metric_becomes(seconds(40), missing, |n| n < 0.5)
            .await?;
        running.stop()?;
        Ok(())
    });
}
