//! One list followed by watches, for as long as its cluster is connected.
//!
//! The loop is our own and not `kube::runtime::watcher` because of what a remote cluster can do:
//! end every watch at once (that one starts the next without a pause), answer 410 to the start of
//! a watch (that one repeats it for ever), or not serve the kind (that one lists again for ever).

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, TryStreamExt, stream::BoxStream};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, TypeMeta, WatchEvent, WatchParams},
    core::{PartialObjectMeta, Status},
};
use tokio::{sync::watch, time::Instant};

use super::{Payload, Phase};
use crate::{
    Kind,
    backoff::{Backoff, jittered},
    capability::Capabilities,
    client::Connection,
    failure::{error_code, error_text},
    metrics::ClusterMetrics,
};

/// Longest life of one watch, in seconds. Load balancers drop what is silent for 240 s or less.
const WATCH_SECONDS: u32 = 180;

/// What a server may be late in ending a watch before the connection counts as dead.
const WATCH_MARGIN: Duration = Duration::from_secs(5);

/// A watch that ends sooner than this and brought nothing is a failure.
const SHORT: Duration = Duration::from_secs(5);

/// Pause between two looks whether a kind that is not served has appeared. The answer is cached, so
/// most looks cost nothing.
const LOOK: Duration = Duration::from_secs(5);

/// Failures in a row after which what is known counts as stale.
const STALE_AFTER: u32 = 3;

/// Objects per page of a list: metadata is small, whole objects are not.
const fn page_size(payload: Payload) -> u32 {
    match payload {
        Payload::Metadata => 500,
        Payload::Full => 100,
    }
}

/// What is listed and watched.
pub(crate) struct Leg {
    kind: Kind,
    namespace: Option<String>,
    selector: Option<String>,
    payload: Payload,
    of: Legs,
}

/// What the legs of one cluster have in common.
#[derive(Clone)]
pub(crate) struct Legs {
    pub(crate) connection: Arc<Connection>,
    pub(crate) capabilities: Arc<Capabilities>,
    pub(crate) metrics: Arc<ClusterMetrics>,
    /// Changes when the credential does: a reason to try again at once.
    pub(crate) rotated: watch::Receiver<u64>,
}

/// Where the events of a leg go. Nothing in here may block.
pub(crate) trait Sink: Send + Sync {
    /// A list begins.
    fn begin(&self);
    /// An object of the list, or a new or changed one.
    fn put(&self, object: DynamicObject, listed: bool);
    /// An object was deleted.
    fn remove(&self, object: DynamicObject);
    /// The list is complete.
    fn end(&self);
    /// The kind is served, having not been before.
    fn served(&self);
    /// The kind is not served.
    fn gone(&self);
    /// How the leg is.
    fn phase(&self, phase: Phase);
}

/// Why following ended.
enum End {
    /// The resourceVersion is too old: list again.
    Expired,
    NotServed,
    Forbidden(String),
    Failed {
        code: Option<u16>,
        reason: String,
    },
}

type Events = BoxStream<'static, Result<WatchEvent<DynamicObject>, kube::Error>>;

/// Runs legs that `make` makes, one after the other. A panic in a function of the owner costs one
/// try, not the leg.
pub(crate) async fn supervise(make: impl Fn() -> Leg, sink: &dyn Sink) {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    loop {
        let leg = make();
        let (kind, metrics) = (leg.kind, leg.of.metrics.clone());
        if AssertUnwindSafe(leg.run(sink))
            .catch_unwind()
            .await
            .is_err()
        {
            tracing::error!(%kind, "a watch panicked, starting it again");
            metrics.restart(kind.kind);
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

// === impl Legs ===

impl Legs {
    pub(crate) fn leg(
        &self,
        kind: Kind,
        namespace: Option<String>,
        selector: Option<String>,
        payload: Payload,
    ) -> Leg {
        Leg {
            kind,
            namespace,
            selector,
            payload,
            of: self.clone(),
        }
    }
}

// === impl Leg ===

impl Leg {
    /// Lists and watches until it is dropped.
    pub(crate) async fn run(mut self, sink: &dyn Sink) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        let mut resume = None;
        let mut served = true;
        loop {
            let end = self
                .follow(&mut resume, &mut backoff, &mut served, sink)
                .await;
            let end = self.explain(end).await;
            match end {
                End::Expired => resume = None,
                End::NotServed => {
                    resume = None;
                    if served {
                        tracing::info!(kind = %self.kind, "kind is not served, waiting for it");
                        sink.gone();
                    }
                    served = false;
                    sink.phase(Phase::NotServed);
                    self.until_served().await;
                    continue;
                }
                End::Forbidden(reason) => {
                    self.of.metrics.restart(self.kind.kind);
                    sink.phase(Phase::Forbidden(reason));
                }
                End::Failed { code, reason } => {
                    self.of.metrics.restart(self.kind.kind);
                    tracing::debug!(kind = %self.kind, %reason, "watch failed");
                    if resume.is_none() || code == Some(401) || backoff.tries() + 1 >= STALE_AFTER {
                        sink.phase(Phase::Failing(reason));
                    }
                }
            }
            let pause = backoff.next();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                Ok(()) = self.of.rotated.changed() => {}
            }
        }
    }

    /// Lists if there is nothing to resume from, and watches until that ends.
    async fn follow(
        &self,
        resume: &mut Option<String>,
        backoff: &mut Backoff,
        served: &mut bool,
        sink: &dyn Sink,
    ) -> End {
        let place = match self.of.connection.watch() {
            Ok(place) => place,
            Err(error) => return End::from(&error),
        };
        let client = &place.client;
        let mut version = match resume.take() {
            Some(version) => version,
            None => match self.list(client, served, sink).await {
                Ok(version) => {
                    backoff.reset();
                    version
                }
                Err(end) => return end,
            },
        };
        loop {
            *resume = Some(version.clone());
            let mut events = match self.watch(client, &version).await {
                Ok(events) => events,
                Err(error) => return End::from(&error),
            };
            sink.phase(Phase::Synced);
            let opened = Instant::now();
            let mut quiet = true;
            let idle = Duration::from_secs(WATCH_SECONDS.into()) + WATCH_MARGIN;
            let end = loop {
                match tokio::time::timeout(idle, events.next()).await {
                    Err(_) | Ok(None) => break None,
                    Ok(Some(event)) => match self.take(event, sink) {
                        Ok(next) => {
                            if quiet {
                                quiet = false;
                                backoff.reset();
                            }
                            version = next;
                            *resume = Some(version.clone());
                        }
                        Err(end) => break Some(end),
                    },
                }
            };
            if opened.elapsed() >= SHORT {
                backoff.reset();
            }
            match end {
                Some(end) => return end,
                None if quiet && opened.elapsed() < SHORT => {
                    let reason = "the API server ended the watch at once".to_owned();
                    return End::Failed { code: None, reason };
                }
                None => {}
            }
        }
    }

    /// One event; answers the version to resume from.
    fn take(
        &self,
        event: Result<WatchEvent<DynamicObject>, kube::Error>,
        sink: &dyn Sink,
    ) -> Result<String, End> {
        let version = |object: &DynamicObject| {
            object
                .metadata
                .resource_version
                .clone()
                .filter(|v| !v.is_empty())
                .ok_or(End::Expired)
        };
        match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                let version = version(&object)?;
                sink.put(self.typed(object), false);
                Ok(version)
            }
            Ok(WatchEvent::Deleted(object)) => {
                let version = version(&object)?;
                sink.remove(self.typed(object));
                Ok(version)
            }
            Ok(WatchEvent::Bookmark(bookmark)) => Ok(bookmark.metadata.resource_version),
            Ok(WatchEvent::Error(status)) => Err(End::of(Some(status.code), text_of(&status))),
            Err(error) => Err(End::from(&error)),
        }
    }

    /// Lists everything, page by page; answers the version the list is of.
    async fn list(
        &self,
        client: &Client,
        served: &mut bool,
        sink: &dyn Sink,
    ) -> Result<String, End> {
        let mut params = ListParams {
            limit: Some(page_size(self.payload)),
            ..Default::default()
        };
        params.label_selector.clone_from(&self.selector);
        let mut begun = false;
        loop {
            let page =
                match self.payload {
                    Payload::Full => self.full(client).list(&params).await,
                    Payload::Metadata => self.partial(client).list(&params).await.map(|list| {
                        kube::core::ObjectList {
                            types: list.types,
                            metadata: list.metadata,
                            items: list.items.into_iter().map(whole).collect(),
                        }
                    }),
                };
            let page = page.map_err(|error| End::from(&error))?;
            if !std::mem::replace(&mut begun, true) {
                if !std::mem::replace(served, true) {
                    tracing::info!(kind = %self.kind, "kind is served now");
                    sink.served();
                }
                sink.begin();
            }
            for object in page.items {
                sink.put(self.typed(object), true);
            }
            let token = page.metadata.continue_.filter(|token| !token.is_empty());
            if token.is_some() {
                params.continue_token = token;
                continue;
            }
            let version = page.metadata.resource_version.filter(|v| !v.is_empty());
            let reason = "the list has no resourceVersion".to_owned();
            let version = version.ok_or(End::Failed { code: None, reason })?;
            sink.end();
            sink.phase(Phase::Synced);
            return Ok(version);
        }
    }

    async fn watch(&self, client: &Client, version: &str) -> Result<Events, kube::Error> {
        // Not all at the same second for ever.
        let seconds = jittered(Duration::from_secs(WATCH_SECONDS.into())).as_secs();
        let params = WatchParams {
            label_selector: self.selector.clone(),
            timeout: Some(u32::try_from(seconds).unwrap_or(WATCH_SECONDS)),
            bookmarks: true,
            ..Default::default()
        };
        Ok(match self.payload {
            Payload::Full => self.full(client).watch(&params, version).await?.boxed(),
            Payload::Metadata => {
                let events = self.partial(client).watch(&params, version).await?;
                events
                    .map_ok(|event| match event {
                        WatchEvent::Added(object) => WatchEvent::Added(whole(object)),
                        WatchEvent::Modified(object) => WatchEvent::Modified(whole(object)),
                        WatchEvent::Deleted(object) => WatchEvent::Deleted(whole(object)),
                        WatchEvent::Bookmark(bookmark) => WatchEvent::Bookmark(bookmark),
                        WatchEvent::Error(status) => WatchEvent::Error(status),
                    })
                    .boxed()
            }
        })
    }

    /// A server that does not serve a kind answers "forbidden" to whoever may not read it, too.
    async fn explain(&self, end: End) -> End {
        let End::Forbidden(reason) = end else {
            return end;
        };
        match self
            .of
            .capabilities
            .serves(&self.of.connection.unary(), &self.kind)
            .await
        {
            Ok(false) => End::NotServed,
            Ok(true) | Err(_) => End::Forbidden(reason),
        }
    }

    /// Ends when the cluster says that it serves the kind.
    async fn until_served(&mut self) {
        // What said "served" until now was wrong.
        self.of.capabilities.forget(&self.kind).await;
        loop {
            tokio::time::sleep(jittered(LOOK)).await;
            match self
                .of
                .capabilities
                .serves(&self.of.connection.unary(), &self.kind)
                .await
            {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::debug!(kind = %self.kind, %error, "cannot ask for the kind"),
            }
        }
    }

    fn full(&self, client: &Client) -> Api<DynamicObject> {
        self.kind.api(client.clone(), self.namespace.as_deref())
    }

    fn partial(&self, client: &Client) -> Api<PartialObjectMeta<DynamicObject>> {
        let resource = self.kind.api_resource();
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        }
    }

    /// Items of a list do not say what they are, partial ones say something else.
    fn typed(&self, mut object: DynamicObject) -> DynamicObject {
        object.types = Some(TypeMeta {
            api_version: self.kind.api_version(),
            kind: self.kind.kind.to_owned(),
        });
        object
    }
}

fn whole(partial: PartialObjectMeta<DynamicObject>) -> DynamicObject {
    DynamicObject {
        types: None,
        metadata: partial.metadata,
        data: serde_json::Value::Object(serde_json::Map::new()),
    }
}

fn text_of(status: &Status) -> String {
    error_text(&kube::Error::Api(Box::new(status.clone())))
}

// === impl End ===

impl End {
    fn of(code: Option<u16>, reason: String) -> Self {
        match code {
            Some(410) => Self::Expired,
            Some(404) => Self::NotServed,
            Some(403) => Self::Forbidden(reason),
            code => Self::Failed { code, reason },
        }
    }
}

impl From<&kube::Error> for End {
    fn from(error: &kube::Error) -> Self {
        Self::of(error_code(error), error_text(error))
    }
}
