use axum::http::{Method, Request as HttpRequest};
use data_encoding::BASE64;
use kube::Client;
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::testing::minimal_glance;

/// What a made-up API server answers to a path, or `None` to leave the client waiting.
type Script = fn(&str) -> Option<(u16, Value)>;

fn lookup(script: Script) -> Lookup {
    let server = tower::service_fn(move |request: HttpRequest<kube::client::Body>| {
        let answer = script(request.uri().path());
        async move {
            let Some((code, body)) = answer else {
                return std::future::pending().await;
            };
            axum::http::Response::builder()
                .status(code)
                .body(kube::client::Body::from(body.to_string().into_bytes()))
        }
    });
    Lookup::new(
        Client::new(server, "default"),
        "c5c3-clusters",
        Arc::default(),
    )
}

fn not_found() -> (u16, Value) {
    let status = json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "gone" });
    (404, status)
}

const NOTHING: Script = |_| Some(not_found());

const SILENT: Script = |_| None;

const DOWN: Script = |_| {
    Some((
        500,
        json!({ "kind": "Status", "status": "Failure", "code": 500, "message": "no etcd" }),
    ))
};

fn backend(name: &str) -> Value {
    json!({
        "apiVersion": "glance.openstack.c5c3.io/v1alpha1", "kind": "GlanceBackend",
        "metadata": { "name": name, "namespace": "tenant" },
        "spec": {
            "glanceRef": { "name": "images" }, "type": "S3",
            "s3": { "host": "https://s3", "bucket": "images", "credentialsSecretRef": { "name": "s3" } },
        },
    })
}

fn review(operation: &str, old: &Value, object: &Value) -> Value {
    let of = if operation == "DELETE" { old } else { object };
    let kind = &of["kind"];
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7", "operation": operation, "name": of["metadata"]["name"], "namespace": "tenant",
            "kind": { "group": "glance.openstack.c5c3.io", "version": "v1alpha1", "kind": kind },
            "resource": { "group": "glance.openstack.c5c3.io", "version": "v1alpha1", "resource": "x" },
            "userInfo": { "username": "somebody" },
            "object": object, "oldObject": old,
        },
    })
}

struct Asked {
    router: Router,
    metrics: Metrics,
}

impl Asked {
    fn new(script: Script) -> Self {
        let metrics = Metrics::new().unwrap();
        Self {
            router: router(&lookup(script), &metrics),
            metrics,
        }
    }

    async fn send(&self, request: HttpRequest<Body>) -> (u16, Value) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// The `response` of a review.
    async fn review(&self, hook: Hook, review: &Value) -> Value {
        let request = post(&format!("{}?timeout=10s", hook.path()), review.to_string());
        let (code, mut answer) = self.send(request).await;
        assert_eq!(code, 200);
        assert_eq!(answer["kind"], "AdmissionReview");
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        let response = answer["response"].take();
        assert_eq!(response["uid"], "7");
        response
    }
}

fn post(uri: &str, body: impl Into<Body>) -> HttpRequest<Body> {
    HttpRequest::builder()
        .method(Method::POST)
        .uri(uri)
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap()
}

#[tokio::test]
async fn a_minimal_glance_comes_back_with_the_contracts_defaults() {
    let asked = Asked::new(NOTHING);
    let answer = asked
        .review(
            Hook::MutateGlance,
            &review("CREATE", &Value::Null, &minimal_glance("images")),
        )
        .await;
    assert_eq!(
        (&answer["allowed"], &answer["patchType"]),
        (&json!(true), &json!("JSONPatch"))
    );
    let patch = BASE64
        .decode(answer["patch"].as_str().unwrap().as_bytes())
        .unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    let paths: Vec<_> = patch
        .as_array()
        .unwrap()
        .iter()
        .map(|op| op["path"].as_str().unwrap())
        .collect();
    assert!(paths.contains(&"/spec/serviceUser/username"), "{paths:?}");
    assert!(patch.as_array().unwrap().iter().all(|op| op["op"] == "add"));
}

#[tokio::test]
async fn an_object_that_goes_is_neither_changed_nor_held() {
    let asked = Asked::new(SILENT);
    let mut going = minimal_glance("images");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    going["metadata"]["finalizers"] = json!(["a/b"]);
    going["spec"]["deployment"] = json!({ "priorityClassName": "nobody-knows" });
    let mut released = going.clone();
    released["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("finalizers");
    let update = review("UPDATE", &going, &released);
    for hook in [Hook::MutateGlance, Hook::ValidateGlance] {
        let answer = asked.review(hook, &update).await;
        assert_eq!(answer["allowed"], true, "{answer}");
        assert!(answer.get("patch").is_none());
    }
    let mut store = backend("default");
    store["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    store["spec"]["isDefault"] = json!(true);
    let answer = asked
        .review(Hook::ValidateBackend, &review("UPDATE", &store, &store))
        .await;
    assert_eq!(answer["allowed"], true, "{answer}");
}

#[tokio::test]
async fn deletion_and_status_are_never_held_up() {
    let asked = Asked::new(SILENT);
    let delete = review("DELETE", &backend("default"), &Value::Null);
    assert_eq!(
        asked.review(Hook::ValidateBackend, &delete).await["allowed"],
        true
    );
    let mut status = review("UPDATE", &backend("default"), &backend("default"));
    status["request"]["subResource"] = json!("status");
    assert_eq!(
        asked.review(Hook::ValidateBackend, &status).await["allowed"],
        true
    );
}

#[tokio::test]
async fn a_refusal_has_code_reason_and_causes() {
    let asked = Asked::new(NOTHING);
    let answer = asked
        .review(
            Hook::ValidateBackend,
            &review("CREATE", &Value::Null, &backend("default")),
        )
        .await;
    let status = &answer["status"];
    assert_eq!(
        (
            &answer["allowed"],
            &status["code"],
            &status["reason"],
            &status["status"]
        ),
        (
            &json!(false),
            &json!(422),
            &json!("Invalid"),
            &json!("Failure")
        )
    );
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.name");
    assert_eq!(
        status["details"]["causes"][0]["reason"],
        "FieldValueInvalid"
    );
    let text = asked.metrics.encode();
    let path = Hook::ValidateBackend.path();
    for series in [
        format!(
            "glance_operator_admission_reviews_total{{result=\"denied\",webhook=\"{path}\"}} 1"
        ),
        format!("controller_runtime_webhook_requests_total{{code=\"200\",webhook=\"{path}\"}} 1"),
        format!("controller_runtime_webhook_requests_total{{code=\"500\",webhook=\"{path}\"}} 0"),
        format!("controller_runtime_webhook_requests_in_flight{{webhook=\"{path}\"}} 0"),
        format!("controller_runtime_webhook_latency_seconds_count{{webhook=\"{path}\"}} 1"),
    ] {
        assert!(text.contains(&series), "{series}\n{text}");
    }
}

/// A sibling that is the default already.
fn with_sibling(path: &str) -> (u16, Value) {
    if !path.ends_with("/glancebackends") {
        return not_found();
    }
    let mut sibling = backend("slow");
    sibling["spec"]["isDefault"] = json!(true);
    let unreadable =
        json!({ "metadata": { "name": "odd", "namespace": "tenant" }, "spec": { "type": 7 } });
    let items = json!([unreadable, sibling]);
    let list = json!({ "apiVersion": "glance.openstack.c5c3.io/v1alpha1", "kind": "GlanceBackendList", "metadata": {}, "items": items });
    (200, list)
}

const HAS_SIBLING: Script = |path| Some(with_sibling(path));

fn default_store(name: &str) -> Value {
    let mut store = backend(name);
    store["spec"]["isDefault"] = json!(true);
    store
}

#[rstest]
#[case::a_sibling_has_it(HAS_SIBLING, "exactly one default store is allowed")]
#[case::nobody_knows(DOWN, "listing GlanceBackends for the single-default check: no etcd")]
#[tokio::test]
async fn no_second_default_slips_in(#[case] script: Script, #[case] text: &str) {
    let asked = Asked::new(script);
    let create = review("CREATE", &Value::Null, &default_store("fast"));
    let answer = asked.review(Hook::ValidateBackend, &create).await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains(text), "{message}");
    // Nobody has to be asked about one that has been the default all along.
    let mut changed = default_store("fast");
    changed["spec"]["s3"]["bucket"] = json!("other");
    let update = review("UPDATE", &default_store("fast"), &changed);
    let answer = asked.review(Hook::ValidateBackend, &update).await;
    assert_eq!(answer["allowed"], true, "{answer}");
}

fn with_class(name: &str) -> Value {
    let mut glance = minimal_glance("images");
    glance["spec"]["deployment"] = json!({ "priorityClassName": name });
    glance
}

#[rstest]
#[case::gone(NOTHING, "spec.deployment.priorityClassName: Not found: \"urgent\"")]
#[case::nobody_knows(
    DOWN,
    "Internal error: failed to look up PriorityClass \"urgent\": no etcd"
)]
#[tokio::test]
async fn a_class_that_is_not_there_is_refused_when_it_is_named(
    #[case] script: Script,
    #[case] text: &str,
) {
    let asked = Asked::new(script);
    let answer = asked
        .review(
            Hook::ValidateGlance,
            &review("CREATE", &Value::Null, &with_class("urgent")),
        )
        .await;
    let message = answer["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains(text), "{answer}");
    // It may have been deleted since: that is no reason to freeze the Glance.
    let mut scaled = with_class("urgent");
    scaled["spec"]["deployment"]["replicas"] = json!(5);
    let update = review("UPDATE", &with_class("urgent"), &scaled);
    assert_eq!(
        asked.review(Hook::ValidateGlance, &update).await["allowed"],
        true
    );
}

/// Who may use any cluster, and who none.
const NO_RIGHTS: Script = |path| {
    let denied = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "metadata": {}, "spec": {}, "status": { "allowed": false },
    });
    let asked = path.ends_with("/subjectaccessreviews");
    Some(if asked { (201, denied) } else { not_found() })
};

#[rstest]
#[case::without_the_right(
    NO_RIGHTS,
    "spec.targetClusterRef.name: Forbidden: \"somebody\" may not use"
)]
#[case::nobody_knows(DOWN, "spec.targetClusterRef.name: Internal error")]
#[tokio::test]
async fn with_the_flag_a_cluster_is_named_by_those_who_may(
    #[case] script: Script,
    #[case] text: &str,
) {
    let metrics = Metrics::new().unwrap();
    let router = |authorize| router(&lookup(script).authorize_use(authorize), &metrics);
    let mut placed = minimal_glance("images");
    placed["spec"]["targetClusterRef"] = json!({ "name": "edge-1" });
    let create = review("CREATE", &Value::Null, &placed);
    for (authorize, allowed) in [(true, false), (false, true)] {
        let asked = Asked {
            router: router(authorize),
            metrics: metrics.clone(),
        };
        let answer = asked.review(Hook::ValidateGlance, &create).await;
        assert_eq!(answer["allowed"], allowed, "{answer}");
        let message = answer["status"]["message"].to_string().replace('\\', "");
        assert_eq!(message.contains(text), authorize, "{message}");
    }
    // It was named when that was allowed.
    let mut scaled = placed.clone();
    scaled["spec"]["deployment"] = json!({ "replicas": 5 });
    let asked = Asked {
        router: router(true),
        metrics: metrics.clone(),
    };
    let update = review("UPDATE", &placed, &scaled);
    assert_eq!(
        asked.review(Hook::ValidateGlance, &update).await["allowed"],
        true
    );
}

#[tokio::test]
async fn names_that_lead_nowhere_are_admitted_with_a_word() {
    let asked = Asked::new(NOTHING);
    let mut placed = minimal_glance("images");
    placed["spec"]["targetClusterRef"] = json!({ "name": "edge-9" });
    let answer = asked
        .review(
            Hook::ValidateGlance,
            &review("CREATE", &Value::Null, &placed),
        )
        .await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let warning = answer["warnings"].to_string();
    assert!(
        warning.contains("spec.targetClusterRef.name: no cluster \\\"edge-9\\\" is registered"),
        "{warning}"
    );
    let answer = asked
        .review(
            Hook::ValidateBackend,
            &review("CREATE", &Value::Null, &backend("fast")),
        )
        .await;
    assert_eq!(answer["allowed"], true);
    assert!(
        answer["warnings"]
            .to_string()
            .contains("there is no Glance"),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_answer_comes_before_the_api_server_gives_up() {
    let asked = Asked::new(SILENT);
    let body = review("CREATE", &Value::Null, &default_store("fast")).to_string();
    let started = Instant::now();
    let (_, answer) = asked
        .send(post(
            &format!("{}?timeout=2s", Hook::ValidateBackend.path()),
            body,
        ))
        .await;
    assert!(started.elapsed() < Duration::from_secs(2));
    let status = &answer["response"]["status"];
    assert_eq!(
        (&status["code"], &answer["response"]["uid"]),
        (&json!(504), &json!("7"))
    );
}

#[rstest]
#[case::no_json("text/plain", "{}", 400)]
#[case::nothing("application/json", "", 400)]
#[case::garbage("application/json; charset=utf-8", "{]", 400)]
#[case::no_request(
    "application/json",
    r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
    400
)]
#[tokio::test]
async fn what_is_no_review_is_refused_in_the_form_of_one(
    #[case] content_type: &str,
    #[case] body: &'static str,
    #[case] code: u16,
) {
    let request = HttpRequest::post(Hook::ValidateGlance.path())
        .header("content-type", content_type)
        .body(Body::from(body))
        .unwrap();
    let (http, answer) = Asked::new(NOTHING).send(request).await;
    assert_eq!(http, 200);
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(answer["response"]["status"]["code"], code, "{answer}");
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused_whether_it_says_so_or_not() {
    let asked = Asked::new(NOTHING);
    let mut announced = post(Hook::MutateGlance.path(), "{}");
    announced
        .headers_mut()
        .insert("content-length", (BODY_LIMIT + 1).into());
    let (_, answer) = asked.send(announced).await;
    assert_eq!(answer["response"]["status"]["code"], 413);
    let (_, answer) = asked
        .send(post(Hook::MutateGlance.path(), vec![b' '; BODY_LIMIT + 1]))
        .await;
    assert_eq!(answer["response"]["status"]["code"], 413);
}

#[tokio::test]
async fn other_paths_and_kinds_are_not_answered_for() {
    let asked = Asked::new(NOTHING);
    let (code, _) = asked.send(post("/validate-something-else", "{}")).await;
    assert_eq!(code, 404);
    let answer = asked
        .review(
            Hook::ValidateGlance,
            &review("CREATE", &Value::Null, &backend("fast")),
        )
        .await;
    assert_eq!(answer["status"]["code"], 400, "{answer}");
}

/// What the schema cannot be asked yet must not be an error without a field.
#[tokio::test]
async fn an_object_of_wrong_types_passes_the_mutating_webhook_to_meet_the_schema() {
    let mut odd = minimal_glance("images");
    odd["spec"]["deployment"] = json!("many");
    odd["spec"]["openStackRelease"] = json!(2025.2);
    let answer = Asked::new(NOTHING)
        .review(Hook::MutateGlance, &review("CREATE", &Value::Null, &odd))
        .await;
    assert_eq!(answer["allowed"], true, "{answer}");
}

/// Neither the server nor the connection ends with it, and the API server reads why.
/// The selector that the alert on webhooks takes the rate of: the family, and its one label.
fn alerted_on() -> (String, String) {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let rules = format!("{folder}/charts/glance-operator/rules/glance-operator.yaml");
    let rules = std::fs::read_to_string(rules).unwrap();
    let (_, rule) = rules.split_once("- alert: GlanceWebhookErrors").unwrap();
    let (_, selector) = rule.split_once("rate(").unwrap();
    let (family, label) = selector
        .split_once("[5m]")
        .unwrap()
        .0
        .split_once('{')
        .unwrap();
    (family.to_owned(), label.trim_end_matches('}').to_owned())
}

#[tokio::test]
async fn a_review_that_cannot_be_judged_raises_the_series_that_the_alert_watches_and_a_refusal_does_not()
 {
    let (family, label) = alerted_on();
    let asked = Asked::new(DOWN);
    let errors = || {
        let page = asked.metrics.encode();
        let webhook = format!("webhook=\"{}\"", Hook::ValidateBackend.path());
        let mut lines = page.lines().filter(|line| {
            line.starts_with(&format!("{family}{{"))
                && line.contains(&label)
                && line.contains(&webhook)
        });
        let line = lines.next().map(str::to_owned);
        assert!(lines.next().is_none(), "{page}");
        line.and_then(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
    };
    assert_eq!(errors(), Some(0), "a rate cannot see how a series begins");
    let answer = |object: Value| {
        let review = review("CREATE", &Value::Null, &object);
        let asked = &asked;
        async move { asked.review(Hook::ValidateBackend, &review).await }
    };
    // Of these names none is for users, whatever else there is.
    let refused = answer(backend("default")).await;
    assert_eq!(refused["allowed"], false, "{refused}");
    assert_eq!(errors(), Some(0), "{refused}");
    let unjudged = answer(default_store("fast")).await;
    assert_eq!(unjudged["allowed"], false, "{unjudged}");
    assert_eq!(errors(), Some(1), "{unjudged}");
}

#[tokio::test]
async fn a_review_that_panics_is_refused_and_counted_and_the_next_one_is_answered() {
    let metrics = Metrics::new().unwrap();
    let hook = Hook::ValidateGlance;
    let service = Service {
        hook,
        lookup: lookup(NOTHING),
        metrics: metrics.webhook(hook.path()),
        bodies: Arc::new(Semaphore::new(BODIES)),
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    let answer = service
        .guarded(deadline, async { panic!("a bug") })
        .await
        .into_review(None);
    let answer = serde_json::to_value(answer).unwrap();
    assert_eq!(answer["response"]["allowed"], false);
    let status = &answer["response"]["status"];
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(500), &json!("InternalError"))
    );
    let text = metrics.encode();
    let panics = "controller_runtime_webhook_panics_total 1";
    assert!(text.contains(panics), "{text}");

    let create = review("CREATE", &Value::Null, &minimal_glance("images"));
    let response = service.serve(post(hook.path(), create.to_string())).await;
    assert_eq!(response.status(), 200);
}

#[rstest]
#[case(None, 9000)]
#[case(Some("timeout=1s"), 900)]
#[case(Some("a=b&timeout=30s"), 27000)]
#[case(Some("timeout=soon"), 9000)]
#[case(Some("timeout=0s"), 9000)]
fn the_time_for_an_answer_is_what_the_api_server_waits_less_a_tenth(
    #[case] query: Option<&str>,
    #[case] millis: u64,
) {
    assert_eq!(budget(query), Duration::from_millis(millis));
}
