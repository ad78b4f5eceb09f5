//! `make demo`: a hub and two targets on this machine, the operator under exactly the rights of
//! its charts, one Glance for the hub itself and one placed on a target.
//!
//! It stays until Ctrl-C, so that people can play with the clusters; with `DEMO_ONCE=1` it ends
//! when everything is ready. Either way nothing is left running.

use std::{fmt::Write as _, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, bail};
use e2e::{
    cluster::Cluster,
    commands::Commands,
    expect::{Object, conditions},
    fleet::{Fleet, Shape},
    kinds,
    operator::{Operator, Running},
    patience,
    progress::Progress,
    registration,
    scenario::Scenario,
};
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

/// Where the operator's account lives, as in the README.
const OPERATOR_NAMESPACE: &str = "glance-system";
/// The operator's default for registrations.
const CLUSTERS_NAMESPACE: &str = "c5c3-clusters";
/// Where the hub's account lives on a target.
const ACCESS_NAMESPACE: &str = "c5c3-access";
/// Where the Glances live.
const NAMESPACE: &str = "openstack";

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = tokio::select! {
        outcome = demo() => outcome,
        () = interrupted() => {
            eprintln!("\ninterrupted, everything is taken down");
            return ExitCode::from(130);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        // Without handlers the default holds: the process ends and its children with it.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

async fn demo() -> Result<()> {
    let once = std::env::var("DEMO_ONCE").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    let progress = Progress::start();
    let fleet = Fleet::start(Shape {
        progress,
        ..Shape::targets(2)
    })
    .await?;
    let hub = fleet.hub();

    progress.say("granting the operator what its chart grants, and starting it");
    let operator = Operator::install(hub, OPERATOR_NAMESPACE, fleet.folder().path()).await?;
    hub.namespace(CLUSTERS_NAMESPACE).await?;
    let mut running = operator.start().await?;

    for target in fleet.targets() {
        progress.say(format_args!("registering {}", target.name()));
        target.namespace(NAMESPACE).await?;
        let kubeconfig =
            registration::grant(target, ACCESS_NAMESPACE, &[NAMESPACE], &Value::Null).await?;
        let scope = Some(NAMESPACE);
        registration::register(hub, CLUSTERS_NAMESPACE, target.name(), &kubeconfig, scope).await?;
    }

    let scenarios = [
        Scenario::new(NAMESPACE, "images")
            .backend("garage", true)
            .backend("archive", false),
        Scenario::new(NAMESPACE, "images-edge")
            .release("2026.1")
            .on("edge-1")
            .backend("edge-fast", true)
            .backend("edge-cold", false),
    ];
    for scenario in &scenarios {
        let place = scenario.target().unwrap_or("hub");
        progress.say(format_args!(
            "applying the Glance {} for {place}",
            scenario.name()
        ));
        scenario.apply(hub, fleet.cluster(place)?).await?;
    }
    let ready = tokio::try_join!(
        follow(hub, &scenarios[0], progress),
        follow(hub, &scenarios[1], progress),
    );
    if let Err(error) = ready {
        fleet.folder().keep();
        eprintln!("{}", running.tail(20));
        return Err(error.context(format!("logs are in {}", fleet.folder().path().display())));
    }
    progress.say("both Glances are ready");

    println!("\n{}", fleet_table(&fleet).await?);
    let user = Commands::with(&fleet, CLUSTERS_NAMESPACE).await?;
    println!(
        "$ glance-operator clusters list\n{}",
        user.clusters_ok(&["list"]).await?.stdout
    );
    println!("{}", glance_table(&fleet, &scenarios).await?);
    if !once {
        println!("{}", instructions(&fleet, &user));
        stay(&mut running).await?;
    }
    progress.say("taking everything down");
    tokio::task::spawn_blocking(move || running.stop()).await??;
    drop(fleet);
    progress.say("done, nothing is left running");
    Ok(())
}

/// Waits for a Glance and its backends, and tells of every condition that changes on the way.
async fn follow(hub: &Cluster, scenario: &Scenario, progress: Progress) -> Result<()> {
    let object = Object::glance(hub, scenario.namespace(), scenario.name());
    let mut told: Vec<(String, String)> = Vec::new();
    let deadline = tokio::time::Instant::now() + patience::seconds(180);
    loop {
        if let Some(found) = object.get().await? {
            for condition in conditions(&found) {
                let get = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
                let news = (
                    get("type"),
                    format!("{} ({})", get("status"), get("reason")),
                );
                if !told.contains(&news) {
                    progress.say(format_args!(
                        "  {}: {} is {}",
                        scenario.name(),
                        news.0,
                        news.1
                    ));
                    told.push(news);
                }
            }
            if is_ready(&found) {
                break;
            }
        }
        if tokio::time::Instant::now() >= deadline {
            bail!(
                "{} is not ready after three minutes\n{}",
                scenario.name(),
                object.account().await
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for backend in scenario.backends() {
        let name = backend["metadata"]["name"].as_str().unwrap_or_default();
        let backend = Object::backend(hub, scenario.namespace(), name);
        backend.is_ready(patience::seconds(60)).await?;
    }
    Ok(())
}

fn is_ready(object: &DynamicObject) -> bool {
    conditions(object)
        .iter()
        .any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// The clusters of the fleet and how many Glance pods run on each.
async fn fleet_table(fleet: &Fleet) -> Result<String> {
    let mut rows =
        vec![["CLUSTER", "ROLE", "KUBERNETES", "SERVER", "GLANCE PODS"].map(str::to_owned)];
    for member in fleet.members() {
        let cluster = member.cluster();
        let version = cluster.client().apiserver_version().await?.git_version;
        let pods = pods(cluster, None).await?.len().to_string();
        let role = if cluster.name() == "hub" {
            "hub"
        } else {
            "target"
        };
        rows.push([
            cluster.name().to_owned(),
            role.to_owned(),
            version,
            cluster.server(),
            pods,
        ]);
    }
    Ok(table(&rows))
}

/// Both Glances: what the hub says and where the pods are.
async fn glance_table(fleet: &Fleet, scenarios: &[Scenario]) -> Result<String> {
    let head = [
        "GLANCE",
        "PLACED ON",
        "READY",
        "RELEASE",
        "BACKENDS",
        "PODS",
        "ENDPOINT",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for scenario in scenarios {
        let place = scenario.target().unwrap_or("hub");
        let object = Object::glance(fleet.hub(), scenario.namespace(), scenario.name());
        let found = object.get().await?.context("the Glance is gone")?;
        let text = |pointer: &str| {
            found
                .data
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or("-")
                .to_owned()
        };
        let mut ready = 0;
        for backend in scenario.backends() {
            let name = backend["metadata"]["name"].as_str().unwrap_or_default();
            let backend = Object::backend(fleet.hub(), scenario.namespace(), name)
                .get()
                .await?;
            ready += usize::from(backend.is_some_and(|b| is_ready(&b)));
        }
        let pods = pods(fleet.cluster(place)?, Some(scenario.name())).await?;
        rows.push([
            format!("{}/{}", scenario.namespace(), scenario.name()),
            place.to_owned(),
            if is_ready(&found) { "True" } else { "False" }.to_owned(),
            text("/status/installedRelease"),
            format!("{ready}/{} ready", scenario.backends().len()),
            pods.len().to_string(),
            text("/status/endpoint"),
        ]);
    }
    Ok(table(&rows))
}

/// The running pods of Glances in the demo's namespace, or of one.
async fn pods(cluster: &Cluster, name: Option<&str>) -> Result<Vec<String>> {
    let all = cluster
        .any(kinds::POD.0, kinds::POD.1, Some(NAMESPACE))
        .list(&ListParams::default().fields("status.phase=Running"))
        .await?;
    Ok(all
        .items
        .into_iter()
        .filter(|pod| {
            let labels = pod.metadata.labels.clone().unwrap_or_default();
            let instance = labels.get("app.kubernetes.io/instance");
            name.is_none_or(|name| instance.is_some_and(|i| i == name))
        })
        .filter_map(|pod| pod.metadata.name)
        .collect())
}

/// Columns as wide as their widest cell.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut text = String::new();
    let widths: Vec<_> = (0..N)
        .map(|i| rows.iter().map(|row| row[i].len()).max().unwrap_or(0))
        .collect();
    for row in rows {
        let cells: Vec<_> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        let _ = writeln!(text, "{}", cells.join("   ").trim_end());
    }
    text
}

/// How to look around, ready to paste.
fn instructions(fleet: &Fleet, user: &Commands) -> String {
    format!(
        "Look around in another terminal:

  export PATH={}:$PATH
  export KUBECONFIG={}

  kubectl --context hub -n {NAMESPACE} get glances,glancebackends
  kubectl --context edge-1 -n {NAMESPACE} get deployments,pods,configmaps,secrets
  kubectl --context hub explain glance.spec.imageCache
  kubectl glance clusters doctor --context hub

Break something and watch it heal:

  kubectl --context edge-1 -n {NAMESPACE} delete deployment images-edge
  kubectl --context hub -n {CLUSTERS_NAMESPACE} label secret edge-1 {}-
  kubectl --context hub -n {NAMESPACE} delete glance images-edge

The operator's log is {}/operator-{OPERATOR_NAMESPACE}.log. Ctrl-C takes everything down.",
        user.tools().display(),
        user.kubeconfig(),
        registration::LABEL,
        fleet.folder().path().display(),
    )
}

/// Stays until Ctrl-C or until the operator ends by itself, which nobody asked it to.
async fn stay(running: &mut Running) -> Result<()> {
    let interrupted = interrupted();
    tokio::pin!(interrupted);
    loop {
        tokio::select! {
            () = &mut interrupted => return Ok(()),
            () = tokio::time::sleep(Duration::from_secs(1)) => {
                if running.exited().is_some() {
                    bail!("the operator ended by itself; its last words:\n{}", running.tail(20));
                }
            }
        }
    }
}
