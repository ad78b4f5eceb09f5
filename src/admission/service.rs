//! From an HTTP request to an answer, within its time and its share of memory.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{StatusCode, header},
    response::{IntoResponse, Json, Response},
    routing::any,
};
use futures::FutureExt as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::core::{
    DynamicObject,
    admission::{AdmissionRequest, AdmissionReview, Operation},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::{answer::Answer, backend, glance, lookup::Lookup};
use crate::{
    duration,
    metrics::{Metrics, WebhookMetrics},
};

/// No review is larger (contract: operations, webhook server).
const BODY_LIMIT: usize = 7 << 20;
/// What all bodies together may hold at a time, in KiB; whoever comes then waits. Decoded they are a few times as large.
const BODIES: usize = 8 << 10;
/// What the API server waits unless it says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// One webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Fills in what a Glance leaves out.
    MutateGlance,
    /// Fills in what a backend leaves out.
    MutateBackend,
    /// Judges a Glance.
    ValidateGlance,
    /// Judges a backend.
    ValidateBackend,
}

struct Service {
    hook: Hook,
    lookup: Lookup,
    metrics: WebhookMetrics,
    bodies: Arc<Semaphore>,
}

/// A review that has been read; its body counts until this is dropped.
struct Pending {
    request: AdmissionRequest<DynamicObject>,
    _body: OwnedSemaphorePermit,
}

// === impl Hook ===

impl Hook {
    /// All of them, in the order of the registration.
    pub const ALL: [Self; 4] = [
        Self::MutateGlance,
        Self::MutateBackend,
        Self::ValidateGlance,
        Self::ValidateBackend,
    ];

    /// Where it is served (contract: custom-resource API, webhook registration).
    pub const fn path(self) -> &'static str {
        match self {
            Self::MutateGlance => "/mutate-glance-openstack-c5c3-io-v1alpha1-glance",
            Self::MutateBackend => "/mutate-glance-openstack-c5c3-io-v1alpha1-glancebackend",
            Self::ValidateGlance => "/validate-glance-openstack-c5c3-io-v1alpha1-glance",
            Self::ValidateBackend => "/validate-glance-openstack-c5c3-io-v1alpha1-glancebackend",
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::MutateGlance | Self::ValidateGlance => "Glance",
            Self::MutateBackend | Self::ValidateBackend => "GlanceBackend",
        }
    }

    async fn answer(self, lookup: &Lookup, request: &AdmissionRequest<DynamicObject>) -> Answer {
        if request.kind.kind != self.kind() {
            let message = format!("a {} is not reviewed at {}", request.kind.kind, self.path());
            return Answer::error(400, message);
        }
        // Neither is asked for, and neither is ever held up.
        let status = request
            .sub_resource
            .as_ref()
            .is_some_and(|of| !of.is_empty());
        if status || !matches!(request.operation, Operation::Create | Operation::Update) {
            return Answer::admitted();
        }
        let Some(object) = &request.object else {
            return Answer::error(400, "the review has no object");
        };
        let old = match request.operation {
            Operation::Update => request.old_object.as_ref(),
            _ => None,
        };
        match self {
            Self::MutateGlance => glance::default(object),
            Self::MutateBackend => backend::default(object),
            Self::ValidateGlance => glance::validate(lookup, &request.user_info, old, object).await,
            Self::ValidateBackend => backend::validate(lookup, old, object).await,
        }
    }
}

/// The router of the webhook address.
pub fn router(lookup: &Lookup, metrics: &Metrics) -> Router {
    let bodies = Arc::new(Semaphore::new(BODIES));
    let mut router = Router::new();
    for hook in Hook::ALL {
        let service = Arc::new(Service {
            hook,
            lookup: lookup.clone(),
            metrics: metrics.webhook(hook.path()),
            bodies: Arc::clone(&bodies),
        });
        let serve = move |request: Request| {
            let service = Arc::clone(&service);
            async move { service.serve(request).await }
        };
        router = router.route(hook.path(), any(serve));
    }
    router
}

// === impl Service ===

impl Service {
    async fn serve(&self, request: Request) -> Response {
        let _timed = self.metrics.started();
        let deadline = Instant::now() + budget(request.uri().query());
        let read = tokio::time::timeout_at(deadline, self.read(request)).await;
        let (answer, pending) = match read {
            Ok(Ok(pending)) => {
                // The look-ups make it large.
                let judged = Box::pin(self.hook.answer(&self.lookup, &pending.request));
                let answer = self.guarded(deadline, judged).await;
                (answer, Some(pending))
            }
            Ok(Err(answer)) => (answer, None),
            Err(_) => (late(), None),
        };
        let result = answer.result();
        let request = pending.as_ref().map(|pending| &pending.request);
        self.tell(request, result);
        let response = Json(answer.into_review(request)).into_response();
        self.metrics.answered(response.status().as_u16(), result);
        response
    }

    /// The answer in time, whatever happens: one that panics is refused like one that takes too long.
    async fn guarded(&self, deadline: Instant, judged: impl Future<Output = Answer>) -> Answer {
        let judged = AssertUnwindSafe(judged).catch_unwind();
        match tokio::time::timeout_at(deadline, judged).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                self.metrics.panicked();
                let hook = self.hook.path();
                tracing::error!(hook, "a review panicked; this is a bug");
                Answer::error(
                    500,
                    "the review panicked; this is a bug, the operator's log has its trace",
                )
            }
            Err(_) => late(),
        }
    }

    async fn read(&self, request: Request) -> Result<Pending, Answer> {
        let (parts, body) = request.into_parts();
        let header = |name| {
            parts
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        let content_type = header(header::CONTENT_TYPE).unwrap_or_default();
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case("application/json") {
            let message = format!("contentType={content_type}, expected application/json");
            return Err(Answer::error(400, message));
        }
        // Who does not say how much is coming is counted with the most.
        let length = header(header::CONTENT_LENGTH).and_then(|text| text.parse::<usize>().ok());
        let length = length.unwrap_or(BODY_LIMIT);
        if length > BODY_LIMIT {
            return Err(too_large());
        }
        let share = u32::try_from(length.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.bodies)
            .acquire_many_owned(share)
            .await
            .map_err(|error| Answer::error(500, error.to_string()))?;
        let bytes = collect(body).await?;
        if bytes.is_empty() {
            return Err(Answer::error(400, "request body is empty"));
        }
        let review: AdmissionReview<DynamicObject> = serde_json::from_slice(&bytes)
            .map_err(|error| Answer::error(400, format!("the review cannot be read: {error}")))?;
        let request = review
            .try_into()
            .map_err(|_| Answer::error(400, "the review has no request"))?;
        Ok(Pending {
            request,
            _body: permit,
        })
    }

    fn tell(&self, request: Option<&AdmissionRequest<DynamicObject>>, result: &'static str) {
        if result == "allowed" {
            return;
        }
        let hook = self.hook.path();
        let namespace = request.and_then(|request| request.namespace.as_deref());
        let name = request.map(|request| request.name.as_str());
        let user = request.and_then(|request| request.user_info.username.as_deref());
        tracing::debug!(
            hook,
            namespace,
            name,
            user,
            result,
            "a review was not admitted"
        );
    }
}

async fn collect(body: Body) -> Result<bytes::Bytes, Answer> {
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(Answer::error(
            400,
            format!("the body cannot be read: {error}"),
        )),
    }
}

fn late() -> Answer {
    Answer::error(504, "the review took too long and was given up")
}

fn too_large() -> Answer {
    let message = format!("request entity is too large; limit is {BODY_LIMIT} bytes");
    Answer::error(StatusCode::PAYLOAD_TOO_LARGE.as_u16(), message)
}

/// The time for an answer: what the API server says it waits, less what the way back needs.
fn budget(query: Option<&str>) -> Duration {
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let timeout = pairs
        .into_iter()
        .find(|(key, _)| key == "timeout")
        .and_then(|(_, value)| duration::unsigned(&value).ok())
        .filter(|timeout| !timeout.is_zero())
        .unwrap_or(DEFAULT_TIMEOUT);
    timeout * 9 / 10
}

#[cfg(test)]
mod tests;
