//! Tokens that end and are renewed in time, by a token request on the cluster they are for.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use e2e::{
    bed::run,
    commands::Commands,
    expect::{Object, Wanted, eventually},
    fleet::Fleet,
    kinds,
    patience::seconds,
    registration::{self, ACCOUNT},
    site::Site,
};
use jiff::Timestamp;
use kube::{
    api::DynamicObject,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

/// The life of the first tokens. Those that a cluster grants live for ten minutes at least.
const LIFE: Duration = Duration::from_secs(200);

fn expires(object: &DynamicObject) -> Result<Timestamp> {
    let end = object.data.pointer("/status/credential/expiresAt");
    Ok(serde_json::from_value(end.cloned().unwrap_or_default())?)
}

/// Registers a target with a token that ends after `left`, and has it renewed if the target grants that.
async fn register(
    site: &Site<'_>,
    target: &str,
    grants_renewal: bool,
    left: Duration,
) -> Result<()> {
    let member = site.fleet().member(target)?;
    let plane = member.plane().context("a control plane of our own")?;
    let access = site.access_namespace();
    let values = json!({ "renewCredentials": grants_renewal });
    let namespaces = [site.namespace()];
    registration::grant(member.cluster(), &access, &namespaces, &values).await?;
    site.policy(target, json!({ "renewCredentials": true }))
        .await?;
    let age = LIFE.saturating_sub(left);
    let kubeconfig = plane
        .kubeconfig_of_age(&access, ACCOUNT, (age, LIFE))
        .await?;
    let (ns, scope) = (site.clusters_namespace(), Some(site.namespace()));
    registration::register(site.hub(), &ns, target, &kubeconfig, scope).await
}

async fn secret(site: &Site<'_>, name: &str) -> Result<DynamicObject> {
    let namespace = site.clusters_namespace();
    let found = Object::new(site.hub(), kinds::SECRET, &namespace, name)
        .get()
        .await?;
    found.with_context(|| format!("no Secret {name}"))
}

/// Takes the Service of a Glance away and waits until it is made again: seen and done on the target.
async fn works(site: &Site<'_>, target: &str, glance: &str) -> Result<()> {
    let cluster = site.fleet().cluster(target)?;
    let service = Object::new(cluster, kinds::SERVICE, site.namespace(), glance);
    let before = service.exists(seconds(5)).await?.metadata.uid;
    cluster
        .delete(&json!({
            "apiVersion": kinds::SERVICE.0, "kind": kinds::SERVICE.1,
            "metadata": { "namespace": site.namespace(), "name": glance },
        }))
        .await?;
    service
        .satisfies(seconds(30), "to be made again", |found| {
            let same = found.metadata.uid == before;
            (!same).then_some(()).ok_or("it is the old one".to_owned())
        })
        .await?;
    Ok(())
}

#[test]
fn a_token_is_renewed_by_its_own_cluster_and_the_registration_stays_as_it_was_written() {
    run(async |fleet: &Fleet| {
        if fleet.member("edge-1")?.plane().is_none() {
            return Ok(());
        }
        let site = Site::open(fleet, "renew").await?;
        let clusters = site.clusters_namespace();
        // Past four fifths of its life, and not in its last tenth.
        let left = Duration::from_secs(36);
        register(&site, "edge-1", true, left).await?;
        // The same, on a target that does not let its account ask for tokens.
        register(&site, "edge-2", false, left).await?;
        let written = secret(&site, "edge-1").await?;
        let end = Timestamp::now() + left;
        let operator = site.operator().await?;
        let running = operator.start().await?;

        // At once, since it is due: after half of a life at the earliest, after four fifths at the latest.
        let object = site.target_cluster(&clusters, "edge-1");
        let seen = object
            .satisfies(seconds(20), "to have a new end", |found| {
                let known = expires(found).map_err(|error| error.to_string())?;
                (known > end).then_some(()).ok_or(known.to_string())
            })
            .await?;
        let renewed = expires(&seen)?.duration_since(end);
        ensure!(renewed.as_secs() > 500, "a whole life again: {renewed}");
        let kept = secret(&site, "edge-1-renewed-token").await?;
        let owner = kept.metadata.owner_references.unwrap_or_default();
        assert_eq!(owner.first().map(|owner| &owner.name[..]), Some("edge-1"));
        let scenario = site.scenario("images").on("edge-1").backend("fast", true);
        site.apply(&scenario).await?;
        site.glance("images").is_ready(seconds(60)).await?;

        // Who may not renew is told in time.
        let poor = site.target_cluster(&clusters, "edge-2");
        let near = poor.event(seconds(30), "CredentialExpiring").await?;
        assert_eq!(near.type_.as_deref(), Some("Warning"));
        let near = near.message.unwrap_or_default();
        assert!(near.contains("cannot be renewed: "), "{near}");
        assert!(operator.output().contains("cannot renew the token"));
        let degraded = [("cluster", "edge-2"), ("state", "Degraded")];
        let state = "glance_operator_target_cluster_state";
        assert_eq!(running.metric(state, &degraded).await?, Some(1.0));

        // The first token ends; a server goes on with it for a minute and some seconds.
        let old: Value = serde_json::to_value(&written)?;
        let old = old["data"]["kubeconfig"].as_str().unwrap_or_default();
        let old = String::from_utf8(data_encoding::BASE64.decode(old.as_bytes())?)?;
        let down = Wanted::of("Reachable").reason("Unauthorized");
        poor.condition(seconds(120), down).await?;
        eventually(
            seconds(90),
            "the first token to end",
            async || match login(&old).await {
                Err(Some(401)) => Ok(()),
                other => Err(anyhow!("{other:?}")),
            },
        )
        .await?;
        works(&site, "edge-1", "images").await?;
        let ready = Wanted::of("Ready").status("True");
        object.condition(seconds(5), ready).await?;
        site.glance("images").is_ready(seconds(30)).await?;

        // The next process begins with what is kept.
        assert!(running.stop()?.success());
        let _running = operator.start().await?;
        works(&site, "edge-1", "images").await?;
        object.condition(seconds(20), ready).await?;

        // Nobody was warned of an end that was put off, and nobody wrote to the user's Secret.
        let events = object.events().await?;
        let warned = |e: &&k8s_openapi::api::core::v1::Event| {
            e.reason
                .as_deref()
                .is_some_and(|reason| reason.starts_with("Credential"))
        };
        assert!(!events.iter().any(|e| warned(&e)), "{events:#?}");
        let now = secret(&site, "edge-1").await?;
        assert_eq!(
            now.metadata.resource_version,
            written.metadata.resource_version
        );

        // The doctor logs in as the operator does.
        let user = Commands::of(&site).await?;
        // Glances of other tests name the cluster too, which is not what is asked here.
        let report = user.clusters(&["doctor", "edge-1", "-o", "json"]).await?;
        let report = report.json()?;
        let checks = report["items"][0]["checks"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for name in ["credential", "login", "operator"] {
            let check = checks.iter().find(|check| check["check"] == name);
            let check = check.with_context(|| format!("{name} in {report}"))?;
            assert_eq!(check["result"], "ok", "{check}");
        }
        Ok(())
    });
}

/// The HTTP code of a refusal to somebody who logs in by a kubeconfig.
async fn login(kubeconfig: &str) -> Result<(), Option<u16>> {
    let read = Kubeconfig::from_yaml(kubeconfig).map_err(|_| None)?;
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    let client = kube::Client::try_from(config.map_err(|_| None)?).map_err(|_| None)?;
    let answer = client.apiserver_version().await;
    // Anybody may ask for that, but for somebody whose token is wrong.
    answer.map(drop).map_err(|error| e2e::cluster::code(&error))
}
