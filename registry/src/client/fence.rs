//! Keeps a process that may have been replaced from changing anything.

use std::{fmt, sync::Arc, time::Duration};

use http::{Method, Request};
use tokio::time::Instant;

/// Asked before every call that changes something: until when it may take effect, `None` for not
/// at all. One that is under way at that time is given up.
///
/// Reads and the reviews of the groups `authentication.k8s.io` and `authorization.k8s.io`, which
/// store nothing, are never asked for.
#[derive(Clone)]
pub struct Fence(Arc<dyn Fn() -> Option<Instant> + Send + Sync>);

/// A call was not made because this process may not change anything at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: another process may have taken over from this one")]
pub struct Fenced;

// === impl Fence ===

impl Fence {
    /// A fence that `until` opens. It must answer at once.
    pub fn new(until: impl Fn() -> Option<Instant> + Send + Sync + 'static) -> Self {
        Self(Arc::new(until))
    }

    /// How long `request` may take.
    pub(crate) fn limit<Q>(&self, request: &Request<Q>) -> Result<Option<Duration>, Fenced> {
        if !changes(request) {
            return Ok(None);
        }
        let left = (self.0)().map(|until| until.saturating_duration_since(Instant::now()));
        match left {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(Fenced),
        }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fence")
    }
}

fn changes<Q>(request: &Request<Q>) -> bool {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    let reviews = [
        "/apis/authentication.k8s.io/",
        "/apis/authorization.k8s.io/",
    ];
    !reads && !reviews.iter().any(|group| path.starts_with(group))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn request(method: Method, path: &str) -> Request<()> {
        let request = Request::builder().method(method).uri(path);
        request.body(()).unwrap()
    }

    #[rstest]
    #[case(Method::POST, "/api/v1/namespaces/n/secrets", true)]
    #[case(Method::PUT, "/api/v1/namespaces/n/secrets/s", true)]
    #[case(Method::PATCH, "/api/v1/namespaces/n/secrets/s", true)]
    #[case(Method::DELETE, "/api/v1/namespaces/n/secrets/s", true)]
    #[case(Method::POST, "/api/v1/namespaces/n/events", true)]
    #[case(
        Method::POST,
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        false
    )]
    #[case(Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", false)]
    #[case(Method::GET, "/api/v1/namespaces/n/secrets?watch=1", false)]
    fn what_stores_something_is_asked_for(
        #[case] method: Method,
        #[case] path: &str,
        #[case] asked: bool,
    ) {
        let closed = Fence::new(|| None);
        assert_eq!(closed.limit(&request(method, path)).is_err(), asked);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_gets_the_time_that_is_left_and_none_afterwards() {
        let until = Instant::now() + Duration::from_secs(4);
        let fence = Fence::new(move || Some(until));
        let write = request(Method::POST, "/api/v1/namespaces/n/secrets");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(fence.limit(&write), Ok(Some(Duration::from_secs(3))));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(fence.limit(&write), Err(Fenced));
    }
}
