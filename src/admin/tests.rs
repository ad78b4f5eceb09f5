use axum::{body::Body, http::Method};
use rstest::rstest;
use serde_json::json;
use tower::ServiceExt as _;

use super::*;
use crate::ready::Readiness;

async fn ask(router: &Router, method: Method, uri: &str, body: &str) -> (StatusCode, String) {
    ask_from("127.0.0.1:4000", router, method, uri, body).await
}

async fn ask_from(
    peer: &str,
    router: &Router,
    method: Method,
    uri: &str,
    body: &str,
) -> (StatusCode, String) {
    let peer: SocketAddr = peer.parse().unwrap();
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .extension(ConnectInfo(peer))
        .body(Body::from(body.to_owned()))
        .unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20)
        .await
        .unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

async fn get_page(router: &Router, uri: &str) -> (u16, String) {
    let (status, body) = ask(router, Method::GET, uri, "").await;
    (status.as_u16(), body)
}

fn health(readiness: &Readiness) -> Router {
    let caches = readiness.clone();
    let readyz = Checks::default().with(Check::new("caches", move || {
        if caches.is_ready("caches") {
            Ok(())
        } else {
            Err("hub caches are not synced".to_owned())
        }
    }));
    let clusters: ClusterReport = Arc::new(|| json!([{"name": "edge-1", "state": "Connected"}]));
    health_router(Checks::default(), readyz, clusters, Telemetry::detached())
}

#[rstest]
#[case("/healthz", 200, "ok")]
#[case("/healthz/", 200, "ok")]
#[case("/healthz/healthz", 200, "ok")]
#[case("/readyz", 200, "ok")]
#[case("/readyz/readyz", 200, "ok")]
#[case("/readyz/caches", 200, "ok")]
#[case("/healthz?verbose", 200, "[+]healthz ok\nhealthz check passed\n")]
#[case(
    "/readyz?verbose=1",
    200,
    "[+]readyz ok\n[+]caches ok\nreadyz check passed\n"
)]
#[case("/readyz/nonsense", 404, "")]
#[case("/", 404, "")]
#[case("/metrics", 404, "")]
#[tokio::test]
async fn healthy_pages(#[case] uri: &str, #[case] status: u16, #[case] body: &str) {
    let router = health(&Readiness::new());
    assert_eq!(get_page(&router, uri).await, (status, body.to_owned()));
}

#[rstest]
#[case(
    "/readyz",
    500,
    "[+]readyz ok\n[-]caches failed: reason withheld\nreadyz check failed\n"
)]
#[case(
    "/readyz/caches",
    500,
    "internal server error: hub caches are not synced\n"
)]
#[case("/readyz?exclude=caches", 200, "ok")]
#[case(
    "/readyz?verbose&exclude=caches&exclude=x",
    200,
    "[+]readyz ok\n[+]caches excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"x\"\nreadyz check passed\n"
)]
#[case("/healthz", 200, "ok")]
#[tokio::test]
async fn a_process_that_is_not_ready_says_so(
    #[case] uri: &str,
    #[case] status: u16,
    #[case] body: &str,
) {
    let readiness = Readiness::new();
    let handle = readiness.handle("caches");
    let router = health(&readiness);
    assert_eq!(get_page(&router, uri).await, (status, body.to_owned()));
    drop(handle);
    assert_eq!(get_page(&router, "/readyz").await.0, 200);
}

#[tokio::test]
async fn debug_pages_answer_this_machine_only() {
    let router = health(&Readiness::new());
    let (status, body) = get_page(&router, "/debug/clusters").await;
    assert_eq!(status, 200);
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap()[0]["name"],
        "edge-1"
    );
    for (peer, expected) in [
        ("10.1.2.3:4000", StatusCode::FORBIDDEN),
        ("[::1]:4000", StatusCode::OK),
        ("[::ffff:127.0.0.1]:4000", StatusCode::OK),
    ] {
        let (status, _) = ask_from(peer, &router, Method::GET, "/debug/clusters", "").await;
        assert_eq!(status, expected, "{peer}");
    }
}

#[rstest]
#[case("debug\n", 204)]
#[case("loud", 400)]
#[tokio::test]
async fn the_log_level_is_changed_by_a_put(#[case] body: &str, #[case] expected: u16) {
    let router = health(&Readiness::new());
    let (status, _) = ask(&router, Method::PUT, "/debug/log-level", body).await;
    assert_eq!(status.as_u16(), expected);
}

#[tokio::test]
async fn metrics_are_served_and_nothing_else() {
    let metrics = Metrics::new().unwrap();
    metrics.leader("glance.openstack.c5c3.io", true);
    let router = metrics_router(metrics, None);
    let (status, body) = get_page(&router, "/metrics").await;
    assert_eq!(status, 200);
    assert!(body.contains("leader_election_master_status{"), "{body}");
    assert_eq!(get_page(&router, "/").await.0, 404);
}

#[tokio::test]
async fn an_address_in_use_is_explained_in_one_sentence() {
    let first = Listener::metrics(&Listen::On("127.0.0.1:0".to_owned()))
        .await
        .unwrap()
        .unwrap();
    let taken = Listen::On(first.address().unwrap().to_string());
    let error = Listener::metrics(&taken).await.unwrap_err().to_string();
    assert!(error.contains("--metrics-bind-address=0"), "{error}");
    assert!(
        error.contains(&first.address().unwrap().to_string()),
        "{error}"
    );
    assert!(!error.contains('\n'), "{error}");
    let error = Listener::health(&taken).await.unwrap_err().to_string();
    assert!(error.contains("--health-probe-bind-address=0"), "{error}");
    assert!(Listener::health(&Listen::Off).await.unwrap().is_none());
}

#[tokio::test]
async fn a_listener_without_host_is_reached_and_stops_when_told() {
    let listener = Listener::metrics(&Listen::On(":0".to_owned()))
        .await
        .unwrap()
        .unwrap();
    let port = listener.address().unwrap().port();
    let stop = CancellationToken::new();
    let router = metrics_router(Metrics::new().unwrap(), None);
    let server = tokio::spawn(listener.serve(router, stop.clone()));
    assert!(
        tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_ok()
    );
    stop.cancel();
    tokio::time::timeout(std::time::Duration::from_secs(5), server)
        .await
        .unwrap()
        .unwrap();
}
