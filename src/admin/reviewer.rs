//! Who may read the metrics when they are served securely: whoever the API server says may `get` that path.
//!
//! The caller's token is reviewed and then its right to the path, as every Kubernetes component does it. An answer is
//! believed for half a minute, so that a scraper costs two requests then and not at each scrape; what is remembered
//! is the token's hash. Without an answer nobody is let in.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use moka::future::Cache;
use sha2::{Digest as _, Sha256};
use target_registry::error_text;

/// How long an answer of the API server is believed.
const BELIEVED: Duration = Duration::from_secs(30);

/// Tokens whose answers are remembered at most.
const REMEMBERED: u64 = 256;

/// Longest token that is asked about; those of service accounts have about a thousand bytes.
const LONGEST_TOKEN: usize = 16 * 1024;

/// Asks the API server about callers. A clone shares what is remembered.
#[derive(Clone)]
pub struct Reviewer {
    client: Client,
    verdicts: Cache<[u8; 32], Verdict>,
}

/// What a caller may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    /// The token is none of this cluster's.
    Unauthenticated,
    /// It may not read this.
    Forbidden,
}

// === impl Reviewer ===

impl Reviewer {
    /// Asks through `client`, which needs to create token reviews and subject access reviews.
    pub fn new(client: Client) -> Self {
        let verdicts = Cache::builder()
            .max_capacity(REMEMBERED)
            .time_to_live(BELIEVED)
            .build();
        Self { client, verdicts }
    }

    async fn verdict(&self, token: &str, path: &str) -> Result<Verdict, Arc<kube::Error>> {
        let mut key = Sha256::new();
        for part in [token, path] {
            key.update(part.as_bytes());
            key.update([0]);
        }
        // Callers that come at once share one review; an error is not remembered.
        let asked = self
            .verdicts
            .try_get_with(key.finalize().into(), self.ask(token, path));
        asked.await
    }

    async fn ask(&self, token: &str, path: &str) -> kube::Result<Verdict> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews
            .create(&PostParams::default(), &review)
            .await?
            .status
            .unwrap_or_default();
        let (Some(true), Some(user)) = (status.authenticated, status.user) else {
            return Ok(Verdict::Unauthenticated);
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = access_of(user, path);
        let allowed = reviews
            .create(&PostParams::default(), &review)
            .await?
            .status
            .is_some_and(|status| status.allowed);
        Ok(if allowed {
            Verdict::Allowed
        } else {
            Verdict::Forbidden
        })
    }
}

/// Lets in who may `get` the path that is asked for.
pub async fn review(State(reviewer): State<Reviewer>, request: Request, next: Next) -> Response {
    let Some(token) = bearer(request.headers()) else {
        return unauthenticated();
    };
    match reviewer.verdict(token, request.uri().path()).await {
        Ok(Verdict::Allowed) => next.run(request).await,
        Ok(Verdict::Unauthenticated) => unauthenticated(),
        Ok(Verdict::Forbidden) => {
            let advice = "this account may not get the nonResourceURL /metrics\n";
            (StatusCode::FORBIDDEN, advice).into_response()
        }
        Err(error) => {
            tracing::warn!(
                error = error_text(&error),
                "cannot ask who may read the metrics"
            );
            let advice = "the API server does not say who you are\n";
            (StatusCode::INTERNAL_SERVER_ERROR, advice).into_response()
        }
    }
}

fn access_of(user: UserInfo, path: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some("get".to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim();
    let usable = !token.is_empty() && token.len() <= LONGEST_TOKEN;
    (scheme.eq_ignore_ascii_case("bearer") && usable).then_some(token)
}

fn unauthenticated() -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (
        StatusCode::UNAUTHORIZED,
        challenge,
        "a bearer token is needed\n",
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::{
        Json, Router,
        body::Body,
        middleware,
        routing::{get, post},
    };
    use rstest::rstest;
    use serde_json::{Value, json};
    use tower::ServiceExt as _;

    use super::*;

    /// An API server that knows two accounts; the first may read the metrics.
    fn server(asked: Arc<AtomicUsize>) -> Client {
        let token = move |Json(review): Json<Value>| {
            asked.fetch_add(1, Ordering::Relaxed);
            let status = match review["spec"]["token"].as_str() {
                Some(name @ ("scraper" | "stranger")) => {
                    json!({"authenticated": true, "user": {"username": name, "groups": ["g"]}})
                }
                _ => json!({"authenticated": false}),
            };
            let answer = json!({"spec": {}, "status": status});
            async move { Json(answer) }
        };
        let access = |Json(review): Json<Value>| async move {
            let spec = &review["spec"];
            let asks = json!({"path": "/metrics", "verb": "get"});
            let allowed = spec["user"] == "scraper"
                && spec["groups"] == json!(["g"])
                && spec["nonResourceAttributes"] == asks;
            Json(json!({"spec": {}, "status": {"allowed": allowed}}))
        };
        let router = Router::new()
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(token))
            .route(
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                post(access),
            );
        Client::new(router, "default")
    }

    fn guarded(client: Client) -> Router {
        let layer = middleware::from_fn_with_state(Reviewer::new(client), review);
        Router::new()
            .route("/metrics", get(|| async { "numbers" }))
            .layer(layer)
    }

    async fn ask(router: &Router, authorization: Option<&str>) -> StatusCode {
        let mut request = axum::http::Request::get("/metrics");
        if let Some(value) = authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request.body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap().status()
    }

    #[rstest]
    #[case::allowed(Some("Bearer scraper"), StatusCode::OK)]
    #[case::any_case(Some("bearer scraper"), StatusCode::OK)]
    #[case::no_right(Some("Bearer stranger"), StatusCode::FORBIDDEN)]
    #[case::no_account(Some("Bearer nobody"), StatusCode::UNAUTHORIZED)]
    #[case::no_token(None, StatusCode::UNAUTHORIZED)]
    #[case::empty(Some("Bearer "), StatusCode::UNAUTHORIZED)]
    #[case::password(Some("Basic c2NyYXBlcg=="), StatusCode::UNAUTHORIZED)]
    #[tokio::test]
    async fn the_metrics_are_for_who_may_get_them(
        #[case] authorization: Option<&str>,
        #[case] expected: StatusCode,
    ) {
        let router = guarded(server(Arc::default()));
        assert_eq!(ask(&router, authorization).await, expected);
    }

    #[tokio::test]
    async fn a_scraper_is_reviewed_once_in_a_while_and_not_at_each_scrape() {
        let asked = Arc::<AtomicUsize>::default();
        let router = guarded(server(Arc::clone(&asked)));
        for _ in 0..20 {
            assert_eq!(ask(&router, Some("Bearer scraper")).await, StatusCode::OK);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert_eq!(
            ask(&router, Some("Bearer stranger")).await,
            StatusCode::FORBIDDEN
        );
        assert_eq!(
            asked.load(Ordering::Relaxed),
            2,
            "another token is another caller"
        );
    }

    #[tokio::test]
    async fn without_an_answer_nobody_is_let_in() {
        let router = guarded(Client::new(Router::new(), "default"));
        let status = ask(&router, Some("Bearer scraper")).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    }
}
