use std::{
    collections::BTreeMap,
    future::ready,
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{patch, post},
};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

/// An API server that knows events only, and `create` and `patch` only.
#[derive(Clone, Default)]
struct Fake {
    events: Arc<Mutex<BTreeMap<String, Value>>>,
    requests: Arc<Mutex<Vec<&'static str>>>,
}

impl Fake {
    fn client(&self) -> kube::Client {
        let create = |fake, path, event| ready(Self::create(fake, path, event));
        let change = |fake, path, event| ready(Self::patch(fake, path, event));
        let router = Router::new()
            .route("/api/v1/namespaces/{namespace}/events", post(create))
            .route(
                "/api/v1/namespaces/{namespace}/events/{name}",
                patch(change),
            )
            .with_state(self.clone());
        kube::Client::new(router, "default")
    }

    fn create(
        State(fake): State<Self>,
        Path(namespace): Path<String>,
        Json(event): Json<Value>,
    ) -> Response {
        fake.requests.lock().unwrap().push("create");
        if namespace == "forbidden" {
            return status(403, "no");
        }
        assert_eq!(event["metadata"]["namespace"], namespace.as_str());
        let name = event["metadata"]["name"].as_str().unwrap().to_owned();
        let mut events = fake.events.lock().unwrap();
        if events.contains_key(&name) {
            return status(409, "already exists");
        }
        events.insert(name, event.clone());
        (StatusCode::CREATED, Json(event)).into_response()
    }

    fn patch(
        State(fake): State<Self>,
        Path((_, name)): Path<(String, String)>,
        Json(change): Json<Value>,
    ) -> Response {
        fake.requests.lock().unwrap().push("patch");
        let mut events = fake.events.lock().unwrap();
        let Some(event) = events.get_mut(&name) else {
            return status(404, "not found");
        };
        json_patch::merge(event, &change);
        Json(event.clone()).into_response()
    }

    fn only_event(&self) -> Value {
        let events = self.events.lock().unwrap();
        assert_eq!(events.len(), 1, "{events:?}");
        events.values().next().unwrap().clone()
    }

    fn take_requests(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

fn status(code: u16, message: &str) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message});
    (StatusCode::from_u16(code).unwrap(), Json(body)).into_response()
}

fn glance(namespace: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("glance.openstack.c5c3.io/v1alpha1".to_owned()),
        kind: Some("Glance".to_owned()),
        name: Some("images".to_owned()),
        namespace: Some(namespace.to_owned()),
        uid: Some("5b0c".to_owned()),
        resource_version: Some("42".to_owned()),
        field_path: None,
    }
}

/// A process of the operator that writes to `fake`.
fn process(fake: &Fake) -> Publisher {
    let (publisher, writer) = Publisher::new(COMPONENT, "operator-1");
    tokio::spawn(writer.run(fake.client()));
    publisher
}

async fn flush(publisher: &Publisher) {
    assert!(publisher.flush(Duration::from_secs(5)).await);
}

fn synced() -> Notice {
    Notice::normal("DatabaseSynced", "Database schema is up to date")
}

#[tokio::test]
async fn an_event_has_every_field_the_contract_names() {
    let fake = Fake::default();
    let publisher = process(&fake);
    publisher.publish(&glance("openstack"), synced());
    flush(&publisher).await;
    let event = fake.only_event();
    assert_eq!(event["involvedObject"]["name"], "images");
    assert_eq!(event["involvedObject"]["uid"], "5b0c");
    assert_eq!(event["involvedObject"]["resourceVersion"], "42");
    assert_eq!(event["type"], "Normal");
    assert_eq!(event["reason"], "DatabaseSynced");
    assert_eq!(event["message"], "Database schema is up to date");
    assert_eq!(event["count"], 1);
    assert_eq!(event["source"]["component"], "glance-controller");
    assert_eq!(event["reportingComponent"], "glance-controller");
    assert_eq!(event["reportingInstance"], "operator-1");
    assert_eq!(event["firstTimestamp"], event["lastTimestamp"]);
    assert!(event["lastTimestamp"].is_string());
    assert!(event.get("eventTime").is_none_or(Value::is_null));
    let name = event["metadata"]["name"].as_str().unwrap();
    let hash = name.strip_prefix("images.").unwrap();
    assert_eq!(hash.len(), 16, "{name}");
}

#[tokio::test]
async fn a_repeat_raises_the_count_and_another_message_is_another_event() {
    let fake = Fake::default();
    let publisher = process(&fake);
    for _ in 0..3 {
        publisher.publish(&glance("openstack"), synced());
    }
    flush(&publisher).await;
    assert_eq!(fake.only_event()["count"], 3);
    assert_eq!(fake.take_requests(), ["create", "patch", "patch"]);
    publisher.publish(
        &glance("openstack"),
        Notice::normal("DatabaseSynced", "otherwise"),
    );
    publisher.publish(
        &glance("openstack"),
        Notice::warning("DatabaseSynced", "otherwise"),
    );
    flush(&publisher).await;
    assert_eq!(fake.events.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_new_process_goes_on_counting() {
    let fake = Fake::default();
    for _ in 0..3 {
        let publisher = process(&fake);
        publisher.publish(&glance("openstack"), synced());
        publisher.publish(&glance("openstack"), synced());
        flush(&publisher).await;
    }
    assert_eq!(fake.only_event()["count"], 6);
}

#[tokio::test]
async fn an_event_the_server_forgot_is_written_anew() {
    let fake = Fake::default();
    let publisher = process(&fake);
    publisher.publish(&glance("openstack"), synced());
    flush(&publisher).await;
    fake.events.lock().unwrap().clear();
    publisher.publish(&glance("openstack"), synced());
    flush(&publisher).await;
    assert_eq!(fake.only_event()["count"], 1);
    assert_eq!(fake.take_requests(), ["create", "patch", "create"]);
}

#[tokio::test]
async fn a_refused_event_stops_nothing() {
    let fake = Fake::default();
    let publisher = process(&fake);
    publisher.publish(&glance("forbidden"), synced());
    publisher.publish(&glance("openstack"), synced());
    flush(&publisher).await;
    assert_eq!(fake.only_event()["metadata"]["namespace"], "openstack");
}

#[tokio::test]
async fn publishing_never_waits_for_a_server_that_hangs() {
    let hanging = Router::new().fallback(std::future::pending::<()>);
    let (publisher, writer) = Publisher::new(COMPONENT, "operator-1");
    let task = tokio::spawn(writer.run(kube::Client::new(hanging, "default")));
    let begin = std::time::Instant::now();
    for n in 0..3 * QUEUE {
        publisher.publish(&glance("openstack"), Notice::normal("Test", n.to_string()));
    }
    assert!(!publisher.flush(Duration::from_millis(50)).await);
    assert!(begin.elapsed() < Duration::from_secs(5));
    task.abort();
}

#[tokio::test]
async fn events_of_cluster_scoped_objects_live_in_the_default_namespace() {
    let fake = Fake::default();
    let publisher = process(&fake);
    let mut object = glance("");
    object.namespace = None;
    publisher.publish(&object, synced());
    flush(&publisher).await;
    assert_eq!(fake.only_event()["metadata"]["namespace"], "default");
}

#[rstest]
#[case("x".repeat(1024), 1024)]
#[case("x".repeat(1025), 1024)]
#[case("ä".repeat(600), 1023)]
#[case("短".repeat(400), 1023)]
fn messages_are_cut_at_a_character(#[case] message: String, #[case] bytes: usize) {
    let short = cut(&message);
    assert_eq!(short.len(), bytes);
    assert_eq!(short.ends_with(CUT), message.len() > LONGEST_MESSAGE);
}
