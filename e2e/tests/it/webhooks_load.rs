//! The webhooks under load: certificates change, reviews keep coming, memory stays.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    bed::run,
    cluster::told,
    expect::eventually,
    fleet::Fleet,
    patience::seconds,
    reviews::{Reviewer, review},
    scenario::backend,
    site::Site,
    webhooks::{Webhooks, dry_run},
};
use futures::future::try_join_all;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};

const MUTATE: &str = "/mutate-glance-openstack-c5c3-io-v1alpha1-glance";
const VALIDATE: &str = "/validate-glance-openstack-c5c3-io-v1alpha1-glance";

/// How often the certificate changes under load.
const ROTATIONS: usize = 3;
const CLIENTS: u64 = 6;

/// Waits until new connections are shown `pem`.
async fn shows(reviewer: &Reviewer, pem: &str) -> Result<()> {
    let wanted = CertificateDer::from_pem_slice(pem.as_bytes())?;
    eventually(
        seconds(15),
        "the new certificate to be served",
        async || {
            let connection = reviewer.connect().await?;
            ensure!(
                connection.certificate == wanted.as_ref(),
                "an older certificate is served"
            );
            Ok(())
        },
    )
    .await
}

/// Renews again and again, the last time by another authority that the API server is told of before.
async fn rotate(site: &Site<'_>, webhooks: &mut Webhooks) -> Result<()> {
    let hub = site.hub();
    for round in 1..=ROTATIONS {
        if round == ROTATIONS {
            webhooks.another_authority()?;
            webhooks.register(hub).await?;
        }
        let reviewer = Reviewer::new(webhooks.port(), &webhooks.bundle())?;
        shows(&reviewer, &webhooks.renew()?).await?;
    }
    Ok(())
}

#[test]
fn a_certificate_that_changes_under_load_costs_no_request() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "certs").await?;
        let namespace = format!("{}-load", site.namespace());
        let Some(mut webhooks) = site.webhooks_for(&namespace)? else {
            return Ok(());
        };
        let hub = site.hub();
        hub.namespace(&namespace).await?;
        let _running = webhooks.on(site.operator().await?).start().await?;
        webhooks.register(hub).await?;
        // Authorities are only added, so one that trusts both from the start would do: this one trusts the first.
        let first = Reviewer::new(webhooks.port(), &webhooks.bundle())?;
        let over = AtomicBool::new(false);
        let (through_server, direct) = (AtomicU64::new(0), AtomicU64::new(0));
        let review = review(
            &Value::Null,
            &e2e::scenario::Scenario::new(&namespace, "images").glance(),
        );
        let by_server = async |client: u64| {
            let store = backend(&namespace, "images", &format!("store-{client}"), false);
            while !over.load(Ordering::Relaxed) {
                dry_run(hub, &store)
                    .await
                    .map_err(|e| anyhow::anyhow!(told(&e)))?;
                through_server.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok::<_, anyhow::Error>(())
        };
        // A handshake for each review, and one connection that outlives all certificates.
        let lasting = async {
            let mut connection = first.connect().await?;
            while !over.load(Ordering::Relaxed) {
                let answer = connection.ask(VALIDATE, &review).await?;
                ensure!(answer["allowed"] == true, "{answer}");
                direct.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        };
        let rotation = async {
            let outcome = rotate(&site, &mut webhooks).await;
            over.store(true, Ordering::Relaxed);
            outcome
        };
        let load = try_join_all((0..CLIENTS).map(by_server));
        let (rotated, load, lasting) = tokio::join!(rotation, load, lasting);
        rotated?;
        load.context("a write through the API server")?;
        lasting.context("a review over an old connection")?;
        let (through_server, direct) = (through_server.into_inner(), direct.into_inner());
        println!(
            "{ROTATIONS} certificates: {through_server} writes and {direct} reviews, none lost"
        );
        ensure!(
            through_server > 50 && direct > 50,
            "{through_server} {direct}"
        );
        // The old authority is worth nothing now.
        ensure!(
            first.connect().await.is_err(),
            "the old authority still signs"
        );
        webhooks.unregister(hub).await
    });
}

const REVIEWS: usize = 5000;

#[test]
fn five_thousand_reviews_leave_memory_where_it_was() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "reviews").await?;
        let Some(webhooks) = site.webhooks()? else {
            return Ok(());
        };
        let running = webhooks.on(site.operator().await?).start().await?;
        let reviewer = Reviewer::new(webhooks.port(), &webhooks.bundle())?;
        let usual = |number: usize| {
            let mut glance =
                e2e::scenario::Scenario::new("elsewhere", &format!("g-{number}")).glance();
            glance["spec"]["extraConfig"] =
                json!({ "DEFAULT": { "allow_anonymous_access": "false" } });
            glance["spec"]["importPlugins"] =
                json!({ "injectMetadata": { "properties": { "k": "v" } } });
            glance
        };
        // One in fifty is as large as an object can be, and wrong.
        let huge = |number: usize| {
            let mut glance = usual(number);
            let text = "x\n".repeat(500_000);
            glance["spec"]["importPlugins"]["injectMetadata"]["properties"]["k"] = json!(text);
            glance
        };
        let ask = async |from: usize, to: usize| {
            let mut connection = reviewer.connect().await?;
            let mut times = Vec::new();
            for number in from..to {
                let large = number % 50 == 0;
                let object = if large { huge(number) } else { usual(number) };
                let review = review(&Value::Null, &object);
                for path in [MUTATE, VALIDATE] {
                    // Making the next review may take longer than the server waits for it.
                    if !connection.is_ready().await {
                        connection = reviewer.connect().await?;
                    }
                    let begun = Instant::now();
                    let answer = connection.ask(path, &review).await?;
                    if !large {
                        times.push(begun.elapsed());
                    }
                    let refused = path == VALIDATE && large;
                    ensure!(
                        answer["allowed"] == json!(!refused),
                        "{}",
                        answer["status"]["message"]
                    );
                    ensure!(
                        answer.to_string().len() < 20_000,
                        "the answer repeats what was sent"
                    );
                }
            }
            Ok::<_, anyhow::Error>(times)
        };
        let share = REVIEWS / 2 / 5;
        // The first fifth warms up, as many at a time as later.
        let quarter = share / 4;
        try_join_all((0..4).map(|part| ask(part * quarter, (part + 1) * quarter))).await?;
        let before = running.resident()?;
        let rest = try_join_all((1..5).map(|part| ask(part * share, (part + 1) * share))).await?;
        let mut times = rest.concat();
        times.sort_unstable();
        let after = running.resident()?;
        let at = |hundredths: usize| {
            times
                .get(times.len() * hundredths / 100)
                .copied()
                .unwrap_or_default()
        };
        println!(
            "{REVIEWS} reviews, 4 at a time: p50 {:?}, p99 {:?}; resident {} KiB before, {} KiB after",
            at(50),
            at(99),
            before >> 10,
            after >> 10
        );
        // What a few large reviews at a time need, whatever their number.
        ensure!(after < before + (32 << 20), "{before} {after}");
        Ok(())
    });
}
