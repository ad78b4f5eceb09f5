//! `GlanceAPIReady`: what the health check can meet, through an API server and directly.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use e2e::{
    bed::run, doubles::glance_api::Answer, expect::condition, fleet::Fleet, patience::seconds,
    ports,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::{JoinHandle, JoinSet},
};

use super::stage::{Stage, holds, later, on_hub_and_target, says, soon};

on_hub_and_target!(an_api_that_does_not_answer_well_is_quoted);

const TYPE: &str = "GlanceAPIReady";

async fn an_api_that_does_not_answer_well_is_quoted(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "api", place).await?;
    let ns = stage.namespace();
    let api = fleet.glance_api();
    let body = format!("the store\r\nis down\n{}", "x".repeat(300));
    api.set(ns, "images", Answer::Code(503, body));
    stage
        .site
        .apply(&stage.scenario("images").backend("store", true))
        .await?;
    let glance = stage.glance("images");
    // 256 bytes of the body, then its lines joined.
    let shown = "x".repeat(256 - "the store\r\nis down\n".len());
    let quoted = format!("Glance API returned HTTP 503: the store is down {shown}");
    says(&glance, later(), (TYPE, "APIUnhealthy", &quoted)).await?;
    holds(&glance, soon(), ("DeploymentReady", "DeploymentReady")).await?;

    api.set(ns, "images", Answer::Hang);
    stage.poke("images").await?;
    let late = "health check timed out";
    says(&glance, seconds(20), (TYPE, "HealthCheckTimeout", late)).await?;

    // The API server answers for an API that hangs up.
    api.set(ns, "images", Answer::Close);
    stage.poke("images").await?;
    glance
        .satisfies(seconds(15), "to quote the API server", |found| {
            let said = condition(found, TYPE).unwrap_or_default();
            let message = said["message"].as_str().unwrap_or_default();
            let is_quote = said["reason"] == "APIUnhealthy"
                && message.starts_with("Glance API returned HTTP 50")
                && message.contains("error trying to reach service");
            is_quote.then_some(()).ok_or_else(|| said.to_string())
        })
        .await?;

    // No event tells that an API is well again: that is what the poll is for.
    api.set(ns, "images", Answer::Healthy);
    holds(&glance, seconds(15), (TYPE, "APIHealthy")).await?;
    let url = format!("http://images.{ns}.svc.cluster.local:9292/healthcheck");
    let said = condition(&glance.get().await?.unwrap(), TYPE).unwrap();
    assert_eq!(
        said["message"],
        format!("Glance API is responding at {url}")
    );
    glance.is_ready(soon()).await?;
    Ok(())
}

/// Both placements in one corner: this test mostly waits.
#[test]
fn an_api_that_dies_without_an_event_is_noticed_within_a_minute() {
    run(async |fleet: &'static Fleet| {
        let stage = Stage::open(fleet, "silent", "edge-1").await?;
        let (ns, api) = (stage.namespace(), fleet.glance_api());
        let placed = stage.scenario("placed").backend("far", true);
        stage.site.apply(&placed).await?;
        let local = stage.site.scenario("local").backend("near", true);
        stage.site.apply(&local).await?;
        for name in ["placed", "local"] {
            stage.glance(name).is_ready(later()).await?;
            api.set(ns, name, Answer::Code(500, "no store".to_owned()));
        }
        let said = "Glance API returned HTTP 500: no store";
        for name in ["placed", "local"] {
            let glance = stage.glance(name);
            says(&glance, seconds(75), (TYPE, "APIUnhealthy", said)).await?;
            api.set(ns, name, Answer::Healthy);
            holds(&glance, seconds(15), (TYPE, "APIHealthy")).await?;
        }
        Ok(())
    });
}

/// What the HTTP proxy in front of a Service does with a request.
#[derive(Clone, Copy)]
enum Reaction {
    Answer(&'static str),
    Hang,
    Cut,
}

/// An HTTP proxy that reaches nothing and remembers what it was asked for.
struct Proxy {
    reaction: Arc<Mutex<Reaction>>,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

// === impl Proxy ===

impl Proxy {
    async fn start(port: u16, reaction: Reaction) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let reaction = Arc::new(Mutex::new(reaction));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (how, seen) = (reaction.clone(), asked.clone());
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let (how, seen) = (how.clone(), seen.clone());
                connections.spawn(async move {
                    let mut bytes = vec![0; 4096];
                    let read = stream.read(&mut bytes).await.unwrap_or(0);
                    let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
                    let line = text.lines().next().unwrap_or_default().to_owned();
                    seen.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(line);
                    let how = *how.lock().unwrap_or_else(PoisonError::into_inner);
                    match how {
                        Reaction::Answer(text) => drop(stream.write_all(text.as_bytes()).await),
                        Reaction::Hang => std::future::pending().await,
                        Reaction::Cut => {}
                    }
                });
            }
        });
        Ok(Self {
            reaction,
            asked,
            task,
        })
    }

    fn becomes(&self, reaction: Reaction) {
        *self.reaction.lock().unwrap_or_else(PoisonError::into_inner) = reaction;
    }

    fn asked(&self) -> Vec<String> {
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[test]
fn the_service_itself_is_asked_by_default_and_through_a_proxy_where_there_is_one() {
    run(async |fleet: &'static Fleet| {
        let port = ports::free()?;
        let healthy = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nOK";
        let broken =
            "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\nConnection: close\r\n\r\nno way";
        let stage = Stage::open_with(fleet, "direct", "hub", |operator| {
            operator
                .arg("--local-probe=direct")
                .env("HTTP_PROXY", &format!("http://127.0.0.1:{port}"))
                .env("NO_PROXY", "")
        })
        .await?;
        let ns = stage.namespace();
        stage
            .site
            .apply(&stage.scenario("images").backend("store", true))
            .await?;
        let glance = stage.glance("images");

        let refused = format!(
            "connection failed: dial tcp 127.0.0.1:{port}: Connection refused (os error 111)"
        );
        says(&glance, later(), (TYPE, "ConnectionFailed", &refused)).await?;
        let proxy = Proxy::start(port, Reaction::Cut).await?;
        stage.poke("images").await?;
        let cut = "health check failed: connection closed before message completed";
        says(&glance, soon(), (TYPE, "HealthCheckFailed", cut)).await?;
        proxy.becomes(Reaction::Answer(broken));
        stage.poke("images").await?;
        let said = "Glance API returned HTTP 502: no way";
        says(&glance, soon(), (TYPE, "APIUnhealthy", said)).await?;
        proxy.becomes(Reaction::Hang);
        stage.poke("images").await?;
        let late = "health check timed out";
        says(&glance, seconds(20), (TYPE, "HealthCheckTimeout", late)).await?;
        proxy.becomes(Reaction::Answer(healthy));
        stage.poke("images").await?;
        holds(&glance, soon(), (TYPE, "APIHealthy")).await?;
        glance.is_ready(soon()).await?;

        // The proxy saw the whole URL of the Service, and nothing else of ours goes that way.
        let url = format!("http://images.{ns}.svc.cluster.local:9292/healthcheck");
        for line in proxy.asked() {
            assert_eq!(line, format!("GET {url} HTTP/1.1"));
        }
        Ok(())
    });
}

#[test]
fn a_service_whose_name_leads_nowhere_is_not_ready() {
    run(async |fleet: &'static Fleet| {
        let stage = Stage::open_with(fleet, "nowhere", "hub", |operator| {
            operator
                .arg("--local-probe=direct")
                .env("HTTP_PROXY", "http://127.0.0.1:1")
                .env("NO_PROXY", ".svc.cluster.local")
        })
        .await?;
        stage
            .site
            .apply(&stage.scenario("images").backend("store", true))
            .await?;
        let nowhere = "endpoint not resolvable";
        let glance = stage.glance("images");
        says(&glance, later(), (TYPE, "EndpointNotReady", nowhere)).await
    });
}
