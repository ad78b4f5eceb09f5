//! The outermost layer of every client: deadlines, body limits, back-pressure and counting.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::RETRY_AFTER};
use http_body::{Body, Frame, SizeHint};
use kube::core::Status;
use tokio::{
    sync::Notify,
    time::{Instant, Sleep},
};
use tower::{BoxError, Layer, Service};

use super::{
    fence::Fence,
    limits::{Limits, Tally},
};
use crate::metrics::ClusterMetrics;

/// A server's wish to be left alone is honoured up to this long; a longer one is somebody's
/// mistake or malice.
const LONGEST_THROTTLE: Duration = Duration::from_secs(30);

/// A call got no complete answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer from the API server within {}s", .0.as_secs_f32())]
pub struct DeadlineExceeded(
    /// The time the call was given.
    pub Duration,
);

/// What the server said that concerns all calls: until when it asked not to be called, and that it
/// does not accept the credential, or not for everything. Belongs to a cluster, not to a connection, so
/// that a new connection does not forget it.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    until: Mutex<Option<Instant>>,
    refused: Notify,
    denied: Notify,
}

/// Adds [`Guarded`] to a stack.
#[derive(Clone)]
pub(crate) struct Guard {
    /// For the whole answer; for a watch only until its headers, which a server sends at once.
    pub(crate) deadline: Duration,
    pub(crate) limits: Limits,
    pub(crate) throttle: Arc<Throttle>,
    pub(crate) metrics: Arc<ClusterMetrics>,
    pub(crate) fence: Option<Fence>,
}

/// See [`Guard`].
#[derive(Clone)]
pub(crate) struct Guarded<S> {
    inner: S,
    guard: Guard,
}

/// An answer under the rules of its [`Guard`].
pub(crate) struct GuardedBody<B> {
    inner: B,
    /// `None` for a watch: it ends when the server or the connection ends it.
    deadline: Option<(Pin<Box<Sleep>>, Duration)>,
    /// Told of every piece of a watch.
    watch: Option<Arc<ClusterMetrics>>,
    tally: Tally,
}

// === impl Throttle ===

impl Throttle {
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let until = (*self.until.lock().unwrap_or_else(PoisonError::into_inner))?;
        until
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
    }

    /// Completes once the credential was not accepted, also if that was before the call.
    pub(crate) async fn refused(&self) {
        self.refused.notified().await;
    }

    /// Completes once the credential was not allowed to do something with an object of a namespace, also
    /// if that was before the call. Lists and watches are not meant: those who watch tell of it themselves.
    pub(crate) async fn denied(&self) {
        self.denied.notified().await;
    }

    fn hold(&self, wish: Duration) {
        let until = Instant::now() + wish.min(LONGEST_THROTTLE);
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }
}

/// Always the same words, since they end up in a status that is written when it changes.
fn too_many_requests() -> BoxError {
    kube::Error::Api(
        Status::failure(
            "the API server asked not to be called for a while",
            "TooManyRequests",
        )
        .with_code(429)
        .boxed(),
    )
    .into()
}

// === impl Guard ===

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            inner,
            guard: self.clone(),
        }
    }
}

// === impl Guarded ===

impl<S, Q, B> Service<Request<Q>> for Guarded<S>
where
    S: Service<Request<Q>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<GuardedBody<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let Guard {
            deadline,
            limits,
            throttle,
            metrics,
            fence,
        } = self.guard.clone();
        let verb = verb_of(&request);
        let deadline = match fence.map_or(Ok(None), |fence| fence.limit(&request)) {
            Ok(left) => left.map_or(deadline, |left| left.min(deadline)),
            Err(fenced) => {
                metrics.request(verb, "fenced");
                return Box::pin(async move { Err(fenced.into()) });
            }
        };
        if throttle.remaining().is_some() {
            metrics.request(verb, "throttled");
            return Box::pin(async move { Err(too_many_requests()) });
        }
        let watch = (verb == "watch").then(|| metrics.clone());
        if watch.is_some() {
            metrics.watch_moved();
        }
        // What a workload behind a proxy path answers says nothing about the API server.
        let proxied =
            request.uri().path().contains("/services/") && request.uri().path().contains("/proxy/");
        let about_object =
            !matches!(verb, "list" | "watch") && is_in_namespace(request.uri().path());
        let mut sleep = Box::pin(tokio::time::sleep(deadline));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = tokio::select! {
                // First, so that nothing is sent by a process that was stopped for longer.
                biased;
                () = &mut sleep => {
                    metrics.request(verb, "timeout");
                    return Err(DeadlineExceeded(deadline).into());
                }
                answer = answer => answer,
            };
            let answer = answer.inspect_err(|_| metrics.request(verb, "error"))?;
            metrics.request(verb, code_of(&answer.status()));
            if answer.status() == StatusCode::TOO_MANY_REQUESTS && !proxied {
                throttle.hold(retry_after(&answer));
            }
            if answer.status() == StatusCode::UNAUTHORIZED && !proxied {
                throttle.refused.notify_one();
            }
            if answer.status() == StatusCode::FORBIDDEN && about_object && !proxied {
                throttle.denied.notify_one();
            }
            let goes_on = answer.status().is_success();
            Ok(answer.map(|inner| GuardedBody {
                inner,
                // A watch that is refused is a call like any other.
                deadline: (watch.is_none() || !goes_on).then_some((sleep, deadline)),
                tally: limits.tally(watch.is_some()),
                watch,
            }))
        })
    }
}

/// The status as a label: by its number where that has a meaning, for a server may invent any.
fn code_of(status: &StatusCode) -> &str {
    if status.canonical_reason().is_some() {
        status.as_str()
    } else if status.is_client_error() {
        "4xx"
    } else if status.is_server_error() {
        "5xx"
    } else {
        "other"
    }
}

/// What the call is, from the name kube gives it or, for a raw request, from its method.
fn verb_of<Q>(request: &Request<Q>) -> &'static str {
    let named = request.extensions().get::<&'static str>().copied();
    match named.map(|name| name.strip_suffix("_metadata").unwrap_or(name)) {
        Some("get" | "get_subresource" | "get_status" | "get_scale") => return "get",
        Some("list") => return "list",
        Some("watch") => return "watch",
        Some("create" | "create_subresource") => return "create",
        Some("delete" | "delete_collection") => return "delete",
        Some("patch" | "patch_subresource" | "patch_status" | "patch_scale") => return "patch",
        Some("replace" | "replace_subresource" | "replace_status" | "replace_scale") => {
            return "update";
        }
        _ => {}
    }
    let watches = |query: &str| {
        query
            .split('&')
            .any(|p| matches!(p, "watch=true" | "watch=1"))
    };
    match *request.method() {
        http::Method::GET if request.uri().query().is_some_and(watches) => "watch",
        http::Method::GET => "get",
        http::Method::POST => "create",
        http::Method::PUT => "update",
        http::Method::PATCH => "patch",
        http::Method::DELETE => "delete",
        _ => "other",
    }
}

/// Whether a path leads into a namespace, and not just to one.
fn is_in_namespace(path: &str) -> bool {
    path.split_once("/namespaces/")
        .is_some_and(|(_, rest)| rest.contains('/'))
}

/// Seconds only: API servers send no dates here.
fn retry_after<B>(answer: &Response<B>) -> Duration {
    let seconds = answer
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok());
    Duration::from_secs(
        seconds
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(1),
    )
}

// === impl GuardedBody ===

impl<B> Body for GuardedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Some((sleep, given)) = &mut this.deadline
            && sleep.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Some(Err(DeadlineExceeded(*given).into())));
        }
        let Some(frame) = ready!(Pin::new(&mut this.inner).poll_frame(cx)) else {
            return Poll::Ready(None);
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Poll::Ready(Some(Err(error.into()))),
        };
        if let Some(metrics) = &this.watch {
            metrics.watch_moved();
        }
        if let Some(data) = frame.data_ref()
            && let Err(error) = this.tally.take(data)
        {
            return Poll::Ready(Some(Err(error.into())));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_cannot_make_up_labels() {
        let code = |number| StatusCode::from_u16(number).unwrap();
        assert_eq!(code_of(&code(200)), "200");
        assert_eq!(code_of(&code(429)), "429");
        let all = (100..1000).map(code).collect::<Vec<_>>();
        let labels: std::collections::BTreeSet<_> = all.iter().map(code_of).collect();
        assert!(labels.len() < 70, "{}", labels.len());
        assert!(labels.contains("4xx") && labels.contains("5xx") && labels.contains("other"));
    }
}
