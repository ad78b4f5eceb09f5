//! What people and programs see of a Glance: events, conditions, logs, metrics; and what they must
//! never see.

use anyhow::{Context as _, Result};
use data_encoding::BASE64;
use e2e::{
    bed::run,
    children::KINDS,
    expect::{Object, Wanted, eventually},
    fleet::{Fleet, Member},
    kinds,
    operator::Running,
    patience::seconds,
    registration,
    scenario::Scenario,
    site::Site,
    workload::{Rollout, Workload},
};
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::{Api, api::ListParams};
use serde_json::json;

const READY: u64 = 60;

/// A `GlanceBackend` never gets an event, on no cluster.
async fn no_event_about_backends(site: &Site<'_>) -> Result<()> {
    for member in site.fleet().members() {
        let events: Api<Event> = member.cluster().api(site.namespace());
        let about = ListParams::default().fields("involvedObject.kind=GlanceBackend");
        let found = events.list(&about).await?.items;
        assert!(found.is_empty(), "{found:#?}");
    }
    Ok(())
}

#[test]
fn the_documented_field_selectors_find_what_went_wrong() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "events").await?;
        site.register("edge-1").await?;
        let operator = site.operator().await?;
        let _running = operator.start().await?;
        let (hub, edge) = (site.hub(), fleet.cluster("edge-1")?);
        let images = site
            .scenario("images")
            .backend("bad-s3", false)
            .backend("good-s3", true)
            .on("edge-1");
        images.apply_surroundings(edge).await?;
        images.apply_credentials(edge).await?;
        is_skipped_and_healed(&site, &images).await?;
        is_refused(&site, &images).await?;
        all_in_all(&site).await?;

        // Deletion tells in its order, and nobody ever told anything about a backend.
        hub.delete(&images.glance()).await?;
        site.glance("images").is_gone(seconds(READY)).await?;
        for reason in ["FinalizingDatabase", "DatabaseFinalized"] {
            eventually(seconds(20), reason, async || {
                let found = select(&site, &format!("reason={reason}")).await?.len();
                (found == 1)
                    .then_some(())
                    .with_context(|| found.to_string())
            })
            .await?;
        }
        for backend in images.backends() {
            hub.delete(&backend).await?;
        }
        no_event_about_backends(&site).await
    });
}

/// What `kubectl get events --field-selector` shows.
async fn select(site: &Site<'_>, selector: &str) -> Result<Vec<Event>> {
    let events: Api<Event> = site.hub().api(site.namespace());
    let found = events.list(&ListParams::default().fields(selector)).await?;
    Ok(found.items)
}

async fn is_skipped_and_healed(site: &Site<'_>, images: &Scenario) -> Result<()> {
    let (hub, edge, ns) = (site.hub(), site.children(images)?, site.namespace());
    // A newline that a hand-made Secret picked up.
    edge.secret(
        ns,
        "bad-s3-credentials",
        &[
            ("access-key-id", "AKIAEXAMPLE"),
            ("secret-access-key", "s3-secret\n"),
        ],
    )
    .await?;
    images.apply_resources(hub).await?;
    let waiting = Wanted::of("BackendsReady")
        .status("False")
        .reason("WaitingForBackends");
    site.glance("images")
        .condition(seconds(READY), waiting)
        .await?;
    let skipped = eventually(seconds(20), "reason=GlanceBackendSkipped", async || {
        let found = select(site, "reason=GlanceBackendSkipped").await?;
        (found.len() == 1)
            .then_some(found.clone())
            .with_context(|| format!("{found:?}"))
    })
    .await?;
    let event = &skipped[0];
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(
        event
            .message
            .as_ref()
            .is_some_and(|m| m.starts_with("Skipping backend bad-s3: ")),
        "{event:?}"
    );
    assert_eq!(event.involved_object.kind.as_deref(), Some("Glance"));
    assert_eq!(event.involved_object.name.as_deref(), Some("images"));
    edge.secret(
        ns,
        "bad-s3-credentials",
        &[
            ("access-key-id", "AKIAEXAMPLE"),
            ("secret-access-key", "s3-secret"),
        ],
    )
    .await?;
    site.glance("images").is_ready(seconds(READY)).await?;
    site.backend("bad-s3").is_ready(seconds(READY)).await?;
    Ok(())
}

async fn is_refused(site: &Site<'_>, images: &Scenario) -> Result<()> {
    let hub = site.hub();
    // A path that is none, and options that the operator owns.
    hub.apply(&images.clone().release("2026.2").glance())
        .await?;
    site.glance("images")
        .event(seconds(20), "UpgradePathInvalid")
        .await?;
    assert_eq!(select(site, "reason=UpgradePathInvalid").await?.len(), 1);
    let owned = json!({ "DEFAULT": { "use_stderr": "false" } });
    hub.apply(&images.clone().with("extraConfig", owned).glance())
        .await?;
    let event = site
        .glance("images")
        .event(seconds(20), "ExtraConfigOwnedKeyOverride")
        .await?;
    assert_eq!(
        event.message.as_deref(),
        Some("spec.extraConfig overrides operator-owned keys: [DEFAULT] use_stderr")
    );
    site.glance("images").is_ready(seconds(READY)).await?;
    Ok(())
}

async fn all_in_all(site: &Site<'_>) -> Result<()> {
    let mut reasons: Vec<_> = select(site, "type=Warning,reportingComponent=glance-controller")
        .await?
        .into_iter()
        .map(|e| {
            (
                e.reason.unwrap_or_default(),
                e.source.and_then(|s| s.component),
            )
        })
        .collect();
    reasons.sort();
    let source = Some("glance-controller".to_owned());
    let wanted = [
        "ExtraConfigOwnedKeyOverride",
        "GlanceBackendSkipped",
        "UpgradePathInvalid",
    ];
    assert_eq!(
        reasons,
        wanted.map(|reason| (reason.to_owned(), source.clone()))
    );
    let normal = select(site, "type=Normal,reportingComponent=glance-controller").await?;
    let normal: Vec<_> = normal.iter().filter_map(|e| e.reason.as_deref()).collect();
    assert_eq!(normal, ["DatabaseSynced"]);
    Ok(())
}

/// Texts that must not be seen, each with the name of where it was planted.
type Planted = Vec<(&'static str, String)>;

/// A value and the forms in which it could be seen: as it is, in base64, and what is left of it
/// around the characters that some encoding changes.
fn forms(name: &'static str, value: &str) -> Planted {
    let mut forms = vec![(name, value.to_owned())];
    let encoded = BASE64.encode(value.as_bytes());
    forms.push((name, encoded[..encoded.len() - 4].to_owned()));
    let parts = value
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|part| part.len() >= 10);
    forms.extend(parts.map(|part| (name, part.to_owned())));
    forms
}

#[track_caller]
fn assert_clean(place: &str, text: &str, planted: &Planted) {
    for (name, secret) in planted {
        assert!(
            !text.contains(secret.as_str()),
            "{place} shows the {name}: …{secret}…"
        );
    }
}

const DATABASE: &str = "plantedDatabase7f3a9@word/1";
const SERVICE: &str = "plantedService9c1d$plantedDollarTail";
const ROTATED: &str = "plantedRotated5e5e";
const ACCESS_KEY: &str = "PLANTEDACCESSKEY55";
const SECRET_KEY: &str = "plantedS3Secret41aa+plantedTail77";
/// Of a backend that is left out for it.
const BAD_KEY: &str = "plantedWithNewline88\nplantedSecondLine99";
/// A kubeconfig that is refused by name.
const REFUSED: &str = "apiVersion: v1
kind: Config
current-context: c
contexts: [{ name: c, context: { cluster: c, user: u } }]
clusters: [{ name: c, cluster: { server: \"https://192.0.2.7:6443\" } }]
users: [{ name: u, user: { token: plantedRefusedToken1, exec: { command: plantedCommand22 } } }]
";
/// One that is none.
const GARBAGE: &str = "plantedGarbage333: [ plantedGarbage444";

#[test]
fn a_secret_is_never_shown() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "planted").await?;
        site.register("edge-1").await?;
        // More than debug: everything that we and our libraries have to say.
        let operator = site.operator().await?.arg("--zap-log-level=9");
        let running = operator.start().await?;
        let mut planted: Planted = [
            ("database password", DATABASE),
            ("service password", SERVICE),
            ("rotated password", ROTATED),
            ("access key", ACCESS_KEY),
            ("secret key", SECRET_KEY),
            ("key with a newline", BAD_KEY),
        ]
        .into_iter()
        .flat_map(|(name, value)| forms(name, value))
        .collect();
        let refused = [
            "plantedRefusedToken1",
            "plantedGarbage333",
            "plantedGarbage444",
        ];
        planted.extend(refused.map(|text| ("registration", text.to_owned())));
        planted.push(("token", token(&site).await?));

        let here = site
            .scenario("here")
            .backend("here-s3", true)
            .backend("here-bad", false);
        let there = site
            .scenario("there")
            .backend("there-s3", true)
            .backend("there-bad", false)
            .on("edge-1");
        futures::try_join!(plant(&site, &here), plant(&site, &there))?;
        stumble(&site, &here, &there).await?;
        planted.push(("new token", token(&site).await?));

        search(&site, &running, &planted).await?;
        running.stop()?;
        let log = operator.output();
        assert!(
            log.contains("\"level\":\"debug\"") && log.contains("edge-1"),
            "{log}"
        );
        assert_clean("the log", &log, &planted);
        Ok(())
    });
}

/// The token in the registration of `edge-1`.
async fn token(site: &Site<'_>) -> Result<String> {
    let registrations: Api<Secret> = site.hub().api(&site.clusters_namespace());
    let data = registrations.get("edge-1").await?.data.unwrap_or_default();
    let text = String::from_utf8(data["kubeconfig"].0.clone())?;
    let token = regex::Regex::new(r"eyJ[\w.-]+")?;
    Ok(token.find(&text).context("no token")?.as_str().to_owned())
}

/// Installs a Glance with the planted values, one backend of which is left out.
async fn plant(site: &Site<'_>, scenario: &Scenario) -> Result<()> {
    let (ns, name, children) = (site.namespace(), scenario.name(), site.children(scenario)?);
    scenario.apply_surroundings(children).await?;
    let login = [("username", "glance"), ("password", DATABASE)];
    children.secret(ns, &format!("{name}-db"), &login).await?;
    children
        .secret(
            ns,
            &format!("{name}-service-user"),
            &[("password", SERVICE)],
        )
        .await?;
    for (backend, key) in [("s3", SECRET_KEY), ("bad", BAD_KEY)] {
        let keys = [("access-key-id", ACCESS_KEY), ("secret-access-key", key)];
        children
            .secret(ns, &format!("{name}-{backend}-credentials"), &keys)
            .await?;
    }
    scenario.apply_resources(site.hub()).await?;
    let skipped = Wanted::of("BackendsReady")
        .status("False")
        .reason("WaitingForBackends");
    site.glance(name).condition(seconds(READY), skipped).await?;
    let through = Wanted::of("DBPurgeReady").status("True");
    site.glance(name).condition(seconds(READY), through).await?;
    Ok(())
}

/// Makes things go wrong, or at least move, with a secret in hand.
async fn stumble(site: &Site<'_>, here: &Scenario, there: &Scenario) -> Result<()> {
    let (hub, edge, ns) = (site.hub(), site.children(there)?, site.namespace());
    for (name, kubeconfig) in [("refused", REFUSED), ("garbage", GARBAGE)] {
        registration::register(hub, &site.clusters_namespace(), name, kubeconfig, Some(ns)).await?;
    }
    // The password with a dollar arrives as it is: oslo.config reads two as one.
    for cluster in [hub, edge] {
        let name = if cluster.name() == "hub" {
            "here-authtoken"
        } else {
            "there-authtoken"
        };
        let copy = cluster
            .api::<Secret>(ns)
            .get(name)
            .await?
            .data
            .unwrap_or_default();
        assert_eq!(copy["password"].0, SERVICE.replace('$', "$$").into_bytes());
    }
    site.rotate("edge-1").await?;
    let before = [rollout(site, here).await?, rollout(site, there).await?];
    hub.secret(ns, "here-service-user", &[("password", ROTATED)])
        .await?;
    edge.secret(
        ns,
        "there-db",
        &[("username", "glance"), ("password", ROTATED)],
    )
    .await?;
    for (scenario, before) in [here, there].into_iter().zip(before) {
        eventually(seconds(READY), "the rotation to arrive", async || {
            let now = rollout(site, scenario).await?;
            (now.revision > before.revision)
                .then_some(())
                .with_context(|| now.revision.to_string())
        })
        .await?;
    }
    // The new password needs no copy; the pods with the old one did until they were gone.
    Object::new(hub, kinds::SECRET, ns, "here-authtoken")
        .is_gone(seconds(READY))
        .await
}

async fn rollout(site: &Site<'_>, scenario: &Scenario) -> Result<Rollout> {
    Workload::of(site, scenario)?.rollout().await
}

/// Looks at everything that people and programs read, the log aside.
async fn search(site: &Site<'_>, running: &Running, planted: &Planted) -> Result<()> {
    let clusters = eventually(seconds(20), "both refusals", async || {
        let page = running.health("/debug/clusters").await?;
        let both = page.contains("refused") && page.contains("garbage");
        both.then_some(page.clone()).context(page)
    })
    .await?;
    assert_clean("/debug/clusters", &clusters, planted);
    assert_clean("the metrics", &running.metrics().await?, planted);
    for cluster in site.fleet().members().iter().map(Member::cluster) {
        for namespace in [site.namespace(), &site.clusters_namespace()] {
            let events = cluster.any("v1", "Event", Some(namespace));
            let text = serde_json::to_string(&events.list(&ListParams::default()).await?.items)?;
            assert_clean("an event", &text, planted);
        }
        let others = [kinds::GLANCE, kinds::BACKEND, kinds::POD];
        for kind in KINDS
            .into_iter()
            .chain(others)
            .filter(|kind| *kind != kinds::SECRET)
        {
            let api = cluster.any(kind.0, kind.1, Some(site.namespace()));
            let text = serde_json::to_string(&api.list(&ListParams::default()).await?.items)?;
            assert_clean(kind.1, &text, planted);
        }
    }
    Ok(())
}
