use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use tokio::net::TcpListener;

use super::*;

const IMAGES: ProbeTarget<'_> = ProbeTarget {
    namespace: "openstack",
    name: "images",
    uid: "5b0c",
};
const URL: &str = "http://images.openstack.svc.cluster.local:9292/healthcheck";

/// Serves `router` on a port of its own.
async fn peer(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

/// A port nobody listens on.
async fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
}

async fn dial(url: &str, patience: Duration) -> Outcome {
    let direct = Direct::new(ProxyRules::default());
    let deadline = Instant::now() + patience;
    match direct.get(&url.parse().unwrap(), deadline).await {
        Ok(answer) => answer.judge(url),
        Err(failure) => failure.into_outcome(),
    }
}

async fn dial_peer(router: Router) -> Outcome {
    let address = peer(router).await;
    dial(
        &format!("http://{address}/healthcheck"),
        Duration::from_secs(5),
    )
    .await
}

fn answers(status: StatusCode, body: &'static str) -> Router {
    Router::new().route(
        "/healthcheck",
        get(move || std::future::ready((status, body))),
    )
}

/// A probe whose HTTP proxy is `address`, so that the real URL can be asked.
fn through(address: SocketAddr) -> Probe {
    let rules = ProxyRules::new(&format!("http://{address}"), "");
    Probe::with(rules, DEFAULT_DOMAIN, Arc::new(Instant::now))
}

#[tokio::test]
async fn a_healthy_peer() {
    let outcome = dial_peer(answers(StatusCode::OK, "OK")).await;
    assert!(outcome.healthy, "{outcome:?}");
}

#[tokio::test]
async fn an_unhealthy_peer_is_quoted() {
    let outcome = dial_peer(answers(StatusCode::SERVICE_UNAVAILABLE, "no\r\nstore\n")).await;
    assert_eq!(outcome.reason, "APIUnhealthy");
    assert_eq!(outcome.message, "Glance API returned HTTP 503: no store");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let elsewhere = get(move || {
        seen.fetch_add(1, Ordering::Relaxed);
        std::future::ready("healthy")
    });
    let redirect = get(|| std::future::ready((StatusCode::FOUND, [("location", "/elsewhere")])));
    let router = Router::new()
        .route("/healthcheck", redirect)
        .route("/elsewhere", elsewhere);
    let outcome = dial_peer(router).await;
    assert_eq!(outcome.message, "Glance API returned HTTP 302");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_peer_that_hangs_is_given_up() {
    let router = Router::new().route("/healthcheck", get(std::future::pending::<()>));
    let address = peer(router).await;
    let url = format!("http://{address}/healthcheck");
    let begin = std::time::Instant::now();
    let outcome = dial(&url, Duration::from_millis(200)).await;
    assert_eq!(outcome.reason, "HealthCheckTimeout");
    assert_eq!(outcome.message, "health check timed out");
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_body_that_never_ends_costs_only_the_excerpt() {
    let router = Router::new().route(
        "/healthcheck",
        get(|| async {
            let (sender, body) = tokio::io::duplex(64);
            std::mem::forget(sender);
            let stream = futures::stream::unfold(body, |mut body| async move {
                let mut bytes = vec![0; 16];
                let read = tokio::io::AsyncReadExt::read(&mut body, &mut bytes).await;
                Some((read.map(|_| bytes), body))
            });
            let body = axum::body::Body::from_stream(stream);
            (StatusCode::BAD_GATEWAY, body).into_response()
        }),
    );
    let address = peer(router).await;
    let url = format!("http://{address}/healthcheck");
    let outcome = dial(&url, Duration::from_millis(300)).await;
    assert_eq!(outcome.message, "Glance API returned HTTP 502");
}

#[tokio::test]
async fn a_refused_connection_names_the_address() {
    let address = closed().await;
    let outcome = dial(
        &format!("http://{address}/healthcheck"),
        Duration::from_secs(5),
    )
    .await;
    assert_eq!(outcome.reason, "ConnectionFailed");
    let expected = format!("connection failed: dial tcp {address}: ");
    assert!(outcome.message.starts_with(&expected), "{outcome:?}");
    let again = dial(
        &format!("http://{address}/healthcheck"),
        Duration::from_secs(5),
    )
    .await;
    assert_eq!(outcome, again, "the text must be the same each time");
}

#[tokio::test]
async fn a_name_that_leads_nowhere() {
    let outcome = dial(
        "http://nowhere.invalid:9292/healthcheck",
        Duration::from_secs(30),
    )
    .await;
    assert_eq!(outcome.reason, "EndpointNotReady");
    assert_eq!(outcome.message, "endpoint not resolvable");
}

#[tokio::test]
async fn a_peer_that_hangs_up_is_a_failed_check() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(stream);
        }
    });
    let outcome = dial(
        &format!("http://{address}/healthcheck"),
        Duration::from_secs(5),
    )
    .await;
    assert_eq!(outcome.reason, "HealthCheckFailed");
    assert!(
        outcome.message.starts_with("health check failed: "),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn the_proxy_is_asked_for_the_whole_url() {
    let seen = Arc::new(Mutex::new(String::new()));
    let kept = Arc::clone(&seen);
    let router = Router::new().fallback(move |request: axum::extract::Request| {
        let host = request.headers()["host"].to_str().unwrap().to_owned();
        *kept.lock().unwrap() = format!("{} {host}", request.uri());
        std::future::ready("OK")
    });
    let probe = through(peer(router).await);
    let outcome = probe.check(Transport::Direct, IMAGES, false).await;
    assert_eq!(outcome, Outcome::healthy(URL));
    let expected = format!("{URL} images.openstack.svc.cluster.local:9292");
    assert_eq!(*seen.lock().unwrap(), expected);
}

/// Counts what it is asked and answers 200 until told otherwise.
#[derive(Clone, Default)]
struct Counting {
    asked: Arc<AtomicUsize>,
    broken: Arc<std::sync::atomic::AtomicBool>,
}

impl Counting {
    async fn probe(&self, clock: Clock) -> Probe {
        let counting = self.clone();
        let router = Router::new().fallback(move || {
            counting.asked.fetch_add(1, Ordering::Relaxed);
            let status = if counting.broken.load(Ordering::Relaxed) {
                500
            } else {
                200
            };
            std::future::ready(StatusCode::from_u16(status).unwrap())
        });
        let rules = ProxyRules::new(&format!("http://{}", peer(router).await), "");
        Probe::with(rules, DEFAULT_DOMAIN, clock)
    }

    fn take(&self) -> usize {
        self.asked.swap(0, Ordering::Relaxed)
    }
}

fn hand_clock() -> (Clock, impl Fn(u64)) {
    let base = Instant::now();
    let millis = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&millis);
    let clock: Clock = Arc::new(move || base + Duration::from_millis(read.load(Ordering::Relaxed)));
    (clock, move |now| millis.store(now, Ordering::Relaxed))
}

#[tokio::test]
async fn a_success_is_believed_for_half_a_minute() {
    let server = Counting::default();
    let (clock, set) = hand_clock();
    let probe = server.probe(clock).await;
    let ask = |healthy| probe.check(Transport::Direct, IMAGES, healthy);
    let first = ask(false).await;
    assert_eq!(server.take(), 1);
    set(29_999);
    assert_eq!(
        ask(true).await,
        Outcome {
            age: Duration::from_millis(29_999),
            ..first
        },
        "byte-equal, so that no status is written, and as old as it is"
    );
    assert_eq!(server.take(), 0);
    set(30_000);
    ask(true).await;
    assert_eq!(server.take(), 1);
    ask(false).await;
    assert_eq!(
        server.take(),
        1,
        "a condition that is not True is always asked for"
    );
}

#[tokio::test]
async fn a_success_is_not_another_ones() {
    let server = Counting::default();
    let probe = server.probe(Arc::new(Instant::now)).await;
    let ask = |target| probe.check(Transport::Direct, target, true);
    ask(IMAGES).await;
    assert_eq!(server.take(), 1);
    ask(ProbeTarget {
        uid: "re-created",
        ..IMAGES
    })
    .await;
    assert_eq!(server.take(), 1);
    ask(ProbeTarget {
        namespace: "other",
        ..IMAGES
    })
    .await;
    assert_eq!(server.take(), 1);
    probe.evict("other", "images");
    ask(ProbeTarget {
        namespace: "other",
        ..IMAGES
    })
    .await;
    assert_eq!(server.take(), 1);
}

#[tokio::test]
async fn a_failure_ends_belief() {
    let server = Counting::default();
    let probe = server.probe(Arc::new(Instant::now)).await;
    let ask = |healthy| probe.check(Transport::Direct, IMAGES, healthy);
    ask(false).await;
    server.broken.store(true, Ordering::Relaxed);
    assert!(!ask(false).await.healthy);
    server.broken.store(false, Ordering::Relaxed);
    server.take();
    ask(true).await;
    assert_eq!(server.take(), 1);
}

#[tokio::test]
async fn a_cancelled_check_changes_nothing() {
    let server = Counting::default();
    let probe = server.probe(Arc::new(Instant::now)).await;
    probe.check(Transport::Direct, IMAGES, false).await;
    server.take();
    {
        let check = probe.check(Transport::Direct, IMAGES, false);
        assert!(futures::FutureExt::now_or_never(check).is_none());
    }
    probe.check(Transport::Direct, IMAGES, true).await;
    assert_eq!(server.take(), 0, "the old success still counts");
}

fn api_server(router: Router) -> kube::Client {
    kube::Client::new(router, "default")
}

fn status(code: u16, message: &str) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message});
    (StatusCode::from_u16(code).unwrap(), axum::Json(body)).into_response()
}

#[tokio::test]
async fn a_placed_glance_is_asked_through_its_api_server() {
    let path = "/api/v1/namespaces/openstack/services/http:images:9292/proxy/healthcheck";
    let client = api_server(Router::new().route(path, get(|| std::future::ready("OK"))));
    let probe = through(closed().await);
    let outcome = probe.check(Transport::Target(&client), IMAGES, false).await;
    assert_eq!(
        outcome,
        Outcome::healthy(URL),
        "the text names the Service all the same"
    );
    let outcome = probe.check(Transport::Hub(&client), IMAGES, false).await;
    assert_eq!(outcome, Outcome::healthy(URL));
}

#[tokio::test]
async fn what_the_api_server_itself_says_is_shown() {
    let forbidden = "services \"http:images:9292\" is forbidden";
    let client =
        api_server(Router::new().fallback(move || std::future::ready(status(403, forbidden))));
    let probe = Probe::new(DEFAULT_DOMAIN);
    let outcome = probe.check(Transport::Target(&client), IMAGES, false).await;
    assert_eq!(outcome.reason, "APIUnhealthy");
    assert_eq!(
        outcome.message,
        format!("Glance API returned HTTP 403: {forbidden}")
    );
}

/// A client as kube builds it, for a server nobody has to trust.
fn client_of(url: &str) -> kube::Client {
    // Another test may have been faster.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = kube::Config::new(url.parse().unwrap());
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

#[tokio::test]
async fn trouble_on_the_way_to_the_api_server_is_not_blamed_on_glance() {
    let probe = Probe::new(DEFAULT_DOMAIN);
    let refusing = client_of(&format!("http://{}", closed().await));
    let outcome = probe
        .check(Transport::Target(&refusing), IMAGES, false)
        .await;
    assert_eq!(outcome.reason, "ConnectionFailed");
    let expected = "target cluster API server: connection failed: ";
    assert!(outcome.message.starts_with(expected), "{outcome:?}");
    let again = probe
        .check(Transport::Target(&refusing), IMAGES, false)
        .await;
    assert_eq!(outcome, again, "the text must be the same each time");

    let nowhere = client_of("http://nowhere.invalid:6443");
    let outcome = probe.check(Transport::Hub(&nowhere), IMAGES, false).await;
    assert_eq!(outcome.reason, "EndpointNotReady");
    assert_eq!(outcome.message, "hub API server: endpoint not resolvable");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_hangs_is_given_up_after_ten_seconds() {
    let client = api_server(Router::new().fallback(std::future::pending::<()>));
    let probe = Probe::new(DEFAULT_DOMAIN);
    let begin = Instant::now();
    let outcome = probe.check(Transport::Target(&client), IMAGES, false).await;
    assert_eq!(outcome.reason, "HealthCheckTimeout");
    assert_eq!(outcome.message, "health check timed out");
    assert_eq!(begin.elapsed(), DEADLINE);
}
