//! Registrations as users live with them: named before they exist, taken away, put back, rotated,
//! narrowed.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use e2e::{
    audit::Request,
    bed::run,
    children::{self, Children},
    cluster::Cluster,
    expect::{Object, Wanted, condition, eventually},
    fleet::Fleet,
    kinds,
    operator::{Operator, Running},
    patience::seconds,
    registration::{self, ACCOUNT},
    site::Site,
    witness::Witness,
};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

const UNAVAILABLE: &str = "TargetClusterUnavailable";

/// The poll of a Glance whose cluster does not resolve. What heals sooner was woken.
const POLL: Duration = Duration::from_secs(15);

/// What a namespace holds that nobody uses.
const NOTHING: [&str; 1] = ["ConfigMap/kube-root-ca.crt"];

fn message(object: &DynamicObject, type_: &str) -> String {
    let found = condition(object, type_).unwrap_or_default();
    found["message"].as_str().unwrap_or_default().to_owned()
}

fn observed_generation(object: &DynamicObject) -> Option<i64> {
    object.data["status"]["observedGeneration"].as_i64()
}

fn unavailable(type_: &str) -> Wanted<'_> {
    Wanted::of(type_).status("False").reason(UNAVAILABLE)
}

fn uids(children: &Children) -> Vec<(String, Option<String>)> {
    children
        .iter()
        .map(|(key, child)| (key.clone(), child.metadata.uid.clone()))
        .collect()
}

async fn annotate(cluster: &Cluster, kind: (&str, &str), ns: &str, name: &str, value: &str) {
    let patch = json!({ "metadata": { "annotations": { "poke": value } } });
    let api = cluster.any(kind.0, kind.1, Some(ns));
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
}

/// How many passes over Glances have ended.
async fn passes(running: &Running) -> Result<f64> {
    let name = "controller_runtime_reconcile_total";
    let found = running.metric(name, &[("controller", "glance")]).await?;
    Ok(found.unwrap_or(0.0))
}

/// Has a pass run over the Glance, so that its next poll is a whole period away.
async fn restart_poll(site: &Site<'_>, running: &Running, name: &str) -> Result<Instant> {
    let before = passes(running).await?;
    let now = Instant::now();
    annotate(site.hub(), kinds::GLANCE, site.namespace(), name, "poll").await;
    eventually(seconds(10), "the pass", async || {
        let now = passes(running).await?;
        ensure!(now > before, "{now} passes");
        Ok(())
    })
    .await?;
    Ok(now)
}

async fn set_label(site: &Site<'_>, name: &str, value: Option<&str>) -> Result<()> {
    registration::label(site.hub(), &site.clusters_namespace(), name, value).await
}

#[test]
fn a_target_is_usable_exactly_while_it_is_registered() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "names").await?;
        let operator = site.operator().await?;
        let running = operator.start().await?;
        let edge = fleet.cluster("edge-2")?;
        let scenario = site.scenario("images").on("edge-2").backend("fast", true);
        site.apply(&scenario).await?;

        // Not registered: said on both kinds, and nothing is begun.
        let glance = site.glance("images");
        let backend = site.backend("fast");
        let seen = glance
            .condition(seconds(20), unavailable("SecretsReady"))
            .await?;
        assert_eq!(message(&seen, "SecretsReady"), "cluster not found");
        let ready = condition(&seen, "Ready").unwrap_or_default();
        assert_eq!(
            (&ready["status"], &ready["reason"]),
            (&json!("False"), &json!("NotAllReady"))
        );
        assert_eq!(observed_generation(&seen), seen.metadata.generation);
        assert_eq!(seen.metadata.finalizers, None);
        let seen = backend
            .condition(seconds(20), unavailable("CredentialsReady"))
            .await?;
        assert_eq!(message(&seen, "CredentialsReady"), "cluster not found");
        assert_eq!(observed_generation(&seen), seen.metadata.generation);
        assert_eq!(
            condition(&seen, "Ready").unwrap_or_default()["status"],
            "False"
        );
        for cluster in [fleet.hub(), fleet.cluster("edge-1")?] {
            let there = children::all(cluster, site.namespace()).await?;
            assert_eq!(children::names(&there), NOTHING, "{cluster:?}");
        }
        let there = children::by_labels(edge, site.namespace(), "images").await?;
        assert!(there.is_empty(), "{:?}", there.keys());

        // Registered: healed by that, not by the poll.
        let kubeconfig = site.kubeconfig(edge).await?;
        let polled = restart_poll(&site, &running, "images").await?;
        let (ns, scope) = (site.clusters_namespace(), Some(site.namespace()));
        registration::register(site.hub(), &ns, "edge-2", &kubeconfig, scope).await?;
        let healed = Wanted::of("SecretsReady").status("True");
        glance.condition(POLL, healed).await?;
        let healed_backend = Wanted::of("CredentialsReady").status("True");
        backend.condition(POLL, healed_backend).await?;
        assert!(
            polled.elapsed() < POLL,
            "healed after {:?}",
            polled.elapsed()
        );
        glance.is_ready(seconds(60)).await?;
        backend.is_ready(seconds(30)).await?;
        let before = uids(&children::by_labels(edge, site.namespace(), "images").await?);
        assert!(before.len() >= 10, "{before:?}");

        // The label says whether it is a registration, at any time.
        for value in [Some("yes"), None] {
            set_label(&site, "edge-2", value).await?;
            let flipped = Instant::now();
            glance
                .condition(seconds(5), unavailable("SecretsReady"))
                .await?;
            backend
                .condition(seconds(5), unavailable("CredentialsReady"))
                .await?;
            set_label(&site, "edge-2", Some("true")).await?;
            glance.condition(POLL, healed).await?;
            backend.condition(POLL, healed_backend).await?;
            assert!(flipped.elapsed() < POLL, "{:?}", flipped.elapsed());
        }
        glance.is_ready(seconds(20)).await?;
        let after = uids(&children::by_labels(edge, site.namespace(), "images").await?);
        assert_eq!(after, before, "what runs there was left alone");

        // A new process looks at its registrations before it judges a name.
        assert!(running.stop()?.success());
        let glances = Witness::of(site.hub(), kinds::GLANCE, site.namespace()).await?;
        let backends = Witness::of(site.hub(), kinds::BACKEND, site.namespace()).await?;
        let running = operator.start().await?;
        for controller in ["glance", "glancebackend"] {
            let of = [("controller", controller)];
            let metric = ("controller_runtime_reconcile_total", &of[..]);
            running
                .metric_becomes(seconds(20), metric, |n| n > 0.0)
                .await?;
        }
        glance.is_ready(seconds(10)).await?;
        let reasons = glances.reasons(None, "SecretsReady")?;
        assert!(!reasons.contains(UNAVAILABLE), "{reasons:?}");
        let reasons = backends.reasons(None, "CredentialsReady")?;
        assert!(!reasons.contains(UNAVAILABLE), "{reasons:?}");
        Ok(())
    });
}

#[test]
fn an_installation_without_targets_says_that_it_has_none() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "none").await?;
        let _running = Operator::install(site.hub(), site.namespace(), fleet.folder().path())
            .await?
            .arg(&format!("--namespace={}", site.namespace()))
            .arg("--clusters-namespace=")
            .start()
            .await?;
        // A registration that the operator may not even see.
        site.register("edge-2").await?;
        let scenario = site.scenario("images").on("edge-2").backend("fast", true);
        scenario.apply_resources(site.hub()).await?;
        let text = "no multicluster provider set, but cluster \"edge-2\" passed";
        let seen = site
            .glance("images")
            .condition(seconds(20), unavailable("SecretsReady"))
            .await?;
        assert_eq!(message(&seen, "SecretsReady"), text);
        assert_eq!(seen.metadata.finalizers, None);
        let seen = site
            .backend("fast")
            .condition(seconds(20), unavailable("CredentialsReady"))
            .await?;
        assert_eq!(message(&seen, "CredentialsReady"), text);
        Ok(())
    });
}

/// One more token of the hub's account on a target, beside those there are; its kubeconfig.
async fn token(site: &Site<'_>, target: &Cluster, number: usize) -> Result<String> {
    let name = format!("token-{number}");
    target
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "namespace": site.access_namespace(), "name": name,
                "annotations": { "kubernetes.io/service-account.name": ACCOUNT },
            },
            "type": "kubernetes.io/service-account-token",
        }))
        .await?;
    target
        .kubeconfig_from(&site.access_namespace(), &name)
        .await
}

async fn revoke(site: &Site<'_>, target: &Cluster, name: &str) -> Result<()> {
    target
        .delete(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "namespace": site.access_namespace(), "name": name },
        }))
        .await
}

/// Registers and waits until the operator has taken it in.
async fn register(site: &Site<'_>, operator: &Operator, kubeconfig: &str) -> Result<()> {
    let engaged = || operator.output().matches("cluster engaged").count();
    let before = engaged();
    let (ns, scope) = (site.clusters_namespace(), Some(site.namespace()));
    registration::register(site.hub(), &ns, "edge-1", kubeconfig, scope).await?;
    eventually(seconds(15), "the registration to be taken in", async || {
        ensure!(engaged() > before, "it was not yet");
        Ok(())
    })
    .await
}

/// What is asked about one Glance and what belongs to it; its health apart.
fn about<'a>(requests: &'a [Request], glance: &str) -> Vec<&'a Request> {
    requests
        .iter()
        .filter(|r| r.name.starts_with(glance) && r.resource != "services/proxy")
        .collect()
}

#[test]
fn a_registration_can_be_rotated_while_it_is_worked_with() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "rotate").await?;
        let operator = site.operator().await?;
        let running = operator.start().await?;
        let edge = fleet.cluster("edge-1")?;
        // Grants the rights; its token is the first to be replaced.
        site.kubeconfig(edge).await?;
        register(&site, &operator, &token(&site, edge, 0).await?).await?;
        for (name, store) in [("busy", "busy-store"), ("still", "still-store")] {
            let scenario = site.scenario(name).on("edge-1").backend(store, true);
            site.apply(&scenario).await?;
        }
        for (name, store) in [("busy", "busy-store"), ("still", "still-store")] {
            site.glance(name).is_ready(seconds(60)).await?;
            site.backend(store).is_ready(seconds(30)).await?;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;

        let glances = Witness::of(site.hub(), kinds::GLANCE, site.namespace()).await?;
        let backends = Witness::of(site.hub(), kinds::BACKEND, site.namespace()).await?;
        let over = AtomicBool::new(false);
        let edits = AtomicU32::new(0);
        let editing = async {
            let api = site
                .hub()
                .any(kinds::GLANCE.0, kinds::GLANCE.1, Some(site.namespace()));
            while !over.load(Ordering::Relaxed) {
                let count = edits.fetch_add(1, Ordering::Relaxed) + 1;
                let patch = json!({ "spec": { "deployment": { "replicas": 1 + count % 2 } } });
                api.patch("busy", &PatchParams::default(), &Patch::Merge(&patch))
                    .await?;
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            Ok::<_, anyhow::Error>(())
        };
        let rotating = async {
            let outcome = rotations(&site, &operator, &running, edge).await;
            over.store(true, Ordering::Relaxed);
            outcome
        };
        let (edited, rotated) = tokio::join!(editing, rotating);
        edited?;
        rotated?;

        let replicas = 1 + i64::from(edits.load(Ordering::Relaxed) % 2);
        Object::new(edge, kinds::DEPLOYMENT, site.namespace(), "busy")
            .satisfies(seconds(10), "to be as the last edit says", |found| {
                let now = found.data.pointer("/spec/replicas").cloned();
                if now == Some(json!(replicas)) {
                    Ok(())
                } else {
                    Err(format!("{now:?}"))
                }
            })
            .await?;
        site.glance("busy").is_ready(seconds(60)).await?;
        for (seen, type_) in [(&glances, "SecretsReady"), (&backends, "CredentialsReady")] {
            let reasons = seen.reasons(None, type_)?;
            let good = ["SecretsAvailable", "CredentialsAvailable"];
            assert!(
                reasons.iter().all(|r| good.contains(&r.as_str())),
                "{reasons:?}"
            );
        }
        assert_eq!(glances.writes("still")?, 0, "its status was not rewritten");
        assert_eq!(backends.writes("still-store")?, 0);
        let errors = running
            .metric("controller_runtime_reconcile_errors_total", &[])
            .await?;
        assert!(errors.unwrap_or(0.0) < 1.0, "{}", running.tail(10));
        Ok(())
    });
}

async fn rotations(
    site: &Site<'_>,
    operator: &Operator,
    running: &Running,
    edge: &Cluster,
) -> Result<()> {
    const TOKENS: usize = 5;
    let Some(audit) = edge.audit() else {
        // Without a log only what users see can be judged.
        for number in 1..=TOKENS {
            register(site, operator, &token(site, edge, number).await?).await?;
            revoke(site, edge, &format!("token-{}", number - 1)).await?;
        }
        return Ok(());
    };
    let mark = audit.mark()?;
    let mut kubeconfig = String::new();
    for number in 1..=TOKENS {
        kubeconfig = token(site, edge, number).await?;
        register(site, operator, &kubeconfig).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        revoke(site, edge, &format!("token-{}", number - 1)).await?;
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    let asked = audit.requests_by(&site.user_on_targets(), mark)?;
    let lists: Vec<_> = asked.iter().filter(|r| r.verb == "list").collect();
    assert!(
        lists.is_empty(),
        "a token is swapped without a list: {lists:#?}"
    );
    let still = about(&asked, "still");
    assert!(still.len() <= TOKENS, "{still:#?}");
    let ours = format!("/namespaces/{}/", site.namespace());
    let refused: Vec<_> = audit
        .requests(mark)?
        .into_iter()
        .filter(|r| r.code == 401 && r.uri.contains(&ours))
        .collect();
    assert!(refused.is_empty(), "an old token was used: {refused:#?}");

    // Another address and another bundle of authorities: a new connection, so each kind is listed once.
    let mark = audit.mark()?;
    let authority = edge.authority();
    let bundle = BASE64_STANDARD.encode(format!("{authority}{authority}"));
    let moved = kubeconfig.replace("https://127.0.0.1:", "https://localhost:");
    ensure!(moved != kubeconfig, "the API server is not on loopback");
    let new = moved.replace(&BASE64_STANDARD.encode(authority), &bundle);
    ensure!(new != moved, "the authority is not in the kubeconfig");
    let generation = async || {
        let clusters: Value = serde_json::from_str(&running.health("/debug/clusters").await?)?;
        let found = clusters.as_array().and_then(|all| all.first().cloned());
        found
            .and_then(|c| c["generation"].as_i64())
            .ok_or_else(|| anyhow!("{clusters}"))
    };
    let before = generation().await?;
    for content in [&new, &kubeconfig] {
        register(site, operator, content).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(generation().await?, before + 2);
    let asked = audit.requests_by(&site.user_on_targets(), mark)?;
    let mut lists = std::collections::BTreeMap::new();
    // A leg pages through what it lists; the others are look-ups of a pass that was under way.
    let of_a_leg = |r: &&Request| r.verb == "list" && r.uri.contains("limit=");
    for request in asked.iter().filter(of_a_leg) {
        *lists.entry(request.uri.as_str()).or_insert(0) += 1;
    }
    assert!(lists.len() >= 10, "{lists:?}");
    assert!(
        lists.values().all(|n| *n <= 2),
        "one list per leg and generation: {lists:#?}"
    );
    let still = about(&asked, "still");
    assert!(still.len() <= 2, "{still:#?}");
    Ok(())
}

#[test]
fn a_scope_holds_what_it_declares_and_nothing_else() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "scope").await?;
        let operator = site.operator().await?;
        let _running = operator.start().await?;
        let edge = fleet.cluster("edge-1")?;
        let (ns, other) = (site.namespace(), format!("{}-other", site.namespace()));
        edge.namespace(&other).await?;
        let kubeconfig =
            registration::grant(edge, &site.access_namespace(), &[ns, &other], &Value::Null)
                .await?;
        let clusters = site.clusters_namespace();
        let declare = async |scope: &str| {
            registration::register(site.hub(), &clusters, "edge-1", &kubeconfig, Some(scope)).await
        };
        declare(&format!("{ns}, {other}")).await?;
        let scenario = site.scenario("images").on("edge-1").backend("fast", true);
        site.apply(&scenario).await?;
        let (glance, backend) = (site.glance("images"), site.backend("fast"));
        glance.is_ready(seconds(60)).await?;
        backend.is_ready(seconds(30)).await?;
        let there = async || children::by_labels(edge, ns, "images").await;
        let before = uids(&there().await?);

        // Narrowed to what is in use.
        let engaged = || operator.output().matches("cluster engaged").count();
        let count = engaged();
        declare(ns).await?;
        eventually(seconds(10), "the narrowed scope", async || {
            ensure!(engaged() > count, "it was not engaged anew");
            Ok(())
        })
        .await?;
        glance.is_ready(seconds(15)).await?;
        assert_eq!(uids(&there().await?), before);

        // Narrowed to something else: said on both kinds, on a new Glance too, nothing is touched.
        declare(&other).await?;
        let unknown = "because of unknown namespace for the cache";
        let wanted = Wanted::of("SecretsReady")
            .status("False")
            .reason("WaitingForDBCredentials")
            .message(unknown);
        glance.condition(seconds(10), wanted).await?;
        let of_backend = Wanted::of("CredentialsReady")
            .status("False")
            .reason("WaitingForCredentials")
            .message(unknown);
        backend.condition(seconds(10), of_backend).await?;
        let late = site
            .scenario("late")
            .on("edge-1")
            .backend("late-store", true);
        site.apply(&late).await?;
        site.glance("late").condition(seconds(10), wanted).await?;
        assert!(children::by_labels(edge, ns, "late").await?.is_empty());
        assert_eq!(uids(&there().await?), before);

        // What cannot be read as a list is no scope at all.
        for (scope, text) in [
            ("  ", "namespaces key present but empty".to_owned()),
            (
                &*format!("{ns},"),
                "namespaces entry \"\" is not a valid namespace name".to_owned(),
            ),
            (
                &*format!("{ns},Not_A_Name"),
                "namespaces entry \"Not_A_Name\" is not a valid namespace name".to_owned(),
            ),
        ] {
            declare(scope).await?;
            let wanted = unavailable("SecretsReady").message(&text);
            let seen = glance.condition(seconds(10), wanted).await?;
            let words = message(&seen, "SecretsReady");
            assert!(words.starts_with("cluster not found: "), "{words}");
            assert!(words.contains("\"edge-1\""), "{words}");
            let log = operator.output();
            let plain = log.replace("\\\"", "\"");
            assert!(plain.contains(&text), "{text}: not in the log");
        }

        // Back in scope: the same children.
        declare(&format!("{ns},{other}")).await?;
        glance.is_ready(seconds(20)).await?;
        backend.is_ready(seconds(20)).await?;
        site.glance("late").is_ready(seconds(60)).await?;
        assert_eq!(uids(&there().await?), before);
        Ok(())
    });
}
