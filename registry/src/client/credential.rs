//! The `Authorization` header, which can be changed under a running connection.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use arc_swap::ArcSwapOption;
use http::{HeaderMap, HeaderValue, Request, header::AUTHORIZATION};
use tower::{Layer, Service};

/// The credential a client sends, shared by every connection of a cluster.
///
/// A watch that is open goes on with what it was opened with; the next call and the next start of
/// a watch send the new one. So a rotated token costs no connection and no list.
#[derive(Clone, Default)]
pub(crate) struct Credential {
    header: Arc<ArcSwapOption<HeaderValue>>,
}

/// Adds the credential and the fixed headers of a cluster to each request.
#[derive(Clone)]
pub(crate) struct Headers {
    pub(crate) credential: Credential,
    pub(crate) fixed: Arc<HeaderMap>,
}

/// See [`Headers`].
#[derive(Clone)]
pub(crate) struct WithHeaders<S> {
    inner: S,
    headers: Headers,
}

// === impl Credential ===

impl Credential {
    pub(crate) fn new(header: Option<HeaderValue>) -> Self {
        let credential = Self::default();
        credential.set(header);
        credential
    }

    pub(crate) fn set(&self, header: Option<HeaderValue>) {
        self.header.store(header.map(|mut header| {
            header.set_sensitive(true);
            Arc::new(header)
        }));
    }
}

// === impl Headers ===

impl<S> Layer<S> for Headers {
    type Service = WithHeaders<S>;

    fn layer(&self, inner: S) -> WithHeaders<S> {
        WithHeaders {
            inner,
            headers: self.clone(),
        }
    }
}

// === impl WithHeaders ===

impl<S, Q> Service<Request<Q>> for WithHeaders<S>
where
    S: Service<Request<Q>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Q>) -> S::Future {
        let headers = request.headers_mut();
        for (name, value) in self.headers.fixed.iter() {
            headers.append(name.clone(), value.clone());
        }
        if let Some(value) = self.headers.credential.header.load().as_deref() {
            headers.insert(AUTHORIZATION, value.clone());
        }
        self.inner.call(request)
    }
}
