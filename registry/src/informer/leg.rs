//! One list followed by watches, for as long as its cluster is connected.
//!
//! The loop is our own and not `kube::runtime::watcher` because of what a remote cluster can do:
//! end every watch at once (that one starts the next without a pause), answer 410 to the start of
//! a watch (that one repeats it for ever), or not serve the kind (that one lists again for ever).

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt};
use kube::{
    Client,
    api::{DynamicObject, WatchEvent},
};
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::Instant,
};

use super::{
    Phase,
    feed::{Feed, IDLE},
};
use crate::{
    backoff::{Backoff, jittered},
    capability::Capabilities,
    client::Connection,
    failure::{error_code, error_text},
    metrics::ClusterMetrics,
    permits::keeping,
};

/// A watch that ends sooner than this and brought nothing is a failure.
const SHORT: Duration = Duration::from_secs(5);

/// Pause between two looks whether a kind that is not served has appeared. The answer is cached, so
/// most looks cost nothing.
const LOOK: Duration = Duration::from_secs(5);

/// Failures in a row after which what is known counts as stale.
const STALE_AFTER: u32 = 3;

/// How long a page counts among those that are under way. One that takes longer waits for its answer.
const BUSY: Duration = Duration::from_millis(500);

/// Why the watches of a lost cluster rest.
const OUT_OF_REACH: &str = "the cluster is out of reach";

/// What is listed and watched, and what that needs.
pub(crate) struct Leg {
    feed: Feed,
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
    /// Told when a leg is forbidden that was not before: a reason to look at the rights again.
    pub(crate) denied: Arc<Notify>,
    /// False while the cluster is lost.
    pub(crate) usable: watch::Receiver<bool>,
    /// Lists that may be under way at one time.
    pub(crate) lists: Arc<Semaphore>,
}

/// Where the events of a leg go. Nothing in here may block.
pub(crate) trait Sink: Send + Sync {
    /// A list begins.
    fn begin(&self);
    /// An object of the list, or a new or changed one.
    fn put(&self, object: DynamicObject, listed: bool) -> Result<(), Full>;
    /// An object was deleted.
    fn remove(&self, object: DynamicObject);
    /// The list is complete.
    fn end(&self);
    /// Nothing of what is known counts any more.
    fn forget(&self);
    /// The kind is served, having not been before.
    fn served(&self);
    /// The kind is not served.
    fn gone(&self);
    /// How the leg is.
    fn phase(&self, phase: Phase);
}

/// There is no room for what a cluster tells of: more than this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full(pub(crate) usize);

/// Why following ended.
enum End {
    /// The resourceVersion is too old: list again.
    Expired,
    NotServed,
    Full(Full),
    Forbidden(String),
    Failed {
        code: Option<u16>,
        reason: String,
    },
}

/// Runs legs that `make` makes, one after the other. A panic in a function of the owner costs one
/// try, not the leg.
pub(crate) async fn supervise(make: impl Fn() -> Leg, sink: &dyn Sink) {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    loop {
        let leg = make();
        let (kind, metrics) = (leg.feed.kind, leg.of.metrics.clone());
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
    pub(crate) fn leg(&self, feed: Feed) -> Leg {
        Leg {
            feed,
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
        let mut was_denied = false;
        loop {
            let end = self
                .follow(&mut resume, &mut backoff, &mut served, sink)
                .await;
            let end = self.explain(end).await;
            match end {
                End::Expired => {
                    resume = None;
                    was_denied = false;
                    self.of.metrics.restart(self.feed.kind.kind);
                }
                End::NotServed => {
                    resume = None;
                    was_denied = false;
                    // What said "served" until now was wrong, and who is told of it asks again.
                    self.of.capabilities.forget(&self.feed.kind).await;
                    if served {
                        tracing::info!(kind = %self.feed.kind, "kind is not served, waiting for it");
                        sink.gone();
                    }
                    served = false;
                    sink.phase(Phase::NotServed);
                    self.until_served(sink).await;
                    continue;
                }
                End::Forbidden(reason) => {
                    self.of.metrics.restart(self.feed.kind.kind);
                    // Once, also when the connection was lost before.
                    if !was_denied {
                        self.of.denied.notify_one();
                    }
                    was_denied = true;
                    sink.phase(Phase::Forbidden(reason));
                }
                End::Full(Full(limit)) => {
                    // What is known has gaps, and so would have what follows.
                    resume = None;
                    was_denied = false;
                    self.of.metrics.restart(self.feed.kind.kind);
                    let reason = format!(
                        "the cluster has more objects with the operator's marks than fit into {limit} bytes"
                    );
                    tracing::warn!(kind = %self.feed.kind, %reason, "watch failed");
                    sink.phase(Phase::Failing(reason));
                    // What is gone by now may be what takes the room.
                    sink.forget();
                }
                End::Failed { code, reason } => {
                    was_denied = false;
                    self.of.metrics.restart(self.feed.kind.kind);
                    tracing::debug!(kind = %self.feed.kind, %reason, "watch failed");
                    if resume.is_none() || code == Some(401) || backoff.tries() + 1 >= STALE_AFTER {
                        sink.phase(Phase::Failing(reason));
                    }
                }
            }
            self.rest(backoff.next(), sink).await;
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
                Ok(version) => version,
                Err(end) => return end,
            },
        };
        loop {
            *resume = Some(version.clone());
            let mut events = match self.feed.watch(client, &version).await {
                Ok(events) => events,
                Err(error) => return End::from(&error),
            };
            sink.phase(Phase::Synced);
            let opened = Instant::now();
            let mut usable = self.of.usable.clone();
            let end = loop {
                let event = tokio::select! {
                    event = tokio::time::timeout(IDLE, events.next()) => event,
                    // It may be open for ever without a word: another one is asked for once the
                    // cluster is back.
                    Ok(_) = usable.wait_for(|usable| !usable) => break Some(End::out_of_reach()),
                };
                match event {
                    Err(_) | Ok(None) => break None,
                    Ok(Some(event)) => match take(event, sink) {
                        Ok(next) => {
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
                // Also with an event or two: a server that replays one at each watch would keep us spinning.
                None if opened.elapsed() < SHORT => {
                    let reason = "the API server ended the watch at once".to_owned();
                    return End::Failed { code: None, reason };
                }
                None => {}
            }
        }
    }

    /// Lists everything, page by page; answers the version the list is of.
    async fn list(
        &self,
        client: &Client,
        served: &mut bool,
        sink: &dyn Sink,
    ) -> Result<String, End> {
        let mut pages = self.feed.pages();
        let mut version = None;
        // What is written from here on may be newer than what is listed.
        sink.begin();
        loop {
            // An error would say that it is closed, which it never is.
            let turn = self.of.lists.acquire().await;
            let page = pages.next(|params| self.feed.page(client, params));
            let page = keeping(turn, BUSY, page).await;
            let Some(page) = page.map_err(|error| End::from(&error))? else {
                break;
            };
            if !std::mem::replace(served, true) {
                tracing::info!(kind = %self.feed.kind, "kind is served now");
                sink.served();
            }
            for object in page.items {
                sink.put(object, true).map_err(End::Full)?;
            }
            version = page.metadata.resource_version.filter(|v| !v.is_empty());
        }
        let reason = "the list has no resourceVersion".to_owned();
        let version = version.ok_or(End::Failed { code: None, reason })?;
        sink.end();
        sink.phase(Phase::Synced);
        Ok(version)
    }

    /// A server that does not serve a kind answers "forbidden" to whoever may not read it, too.
    async fn explain(&self, end: End) -> End {
        let End::Forbidden(reason) = end else {
            return end;
        };
        match self
            .of
            .capabilities
            .serves(&self.of.connection.unary(), &self.feed.kind)
            .await
        {
            Ok(false) => End::NotServed,
            Ok(true) | Err(_) => End::Forbidden(reason),
        }
    }

    /// Waits before another try, and leaves a lost cluster alone until it is back.
    async fn rest(&mut self, pause: Duration, sink: &dyn Sink) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Ok(()) = self.of.rotated.changed() => {}
            Ok(()) = self.of.usable.changed() => {}
        }
        if !*self.of.usable.borrow_and_update() {
            sink.phase(Phase::Failing(OUT_OF_REACH.to_owned()));
            // An error says that the cluster is gone, and this watch with it.
            let _ = self.of.usable.wait_for(|usable| *usable).await;
        }
    }

    /// Ends when the cluster says that it serves the kind.
    async fn until_served(&mut self, sink: &dyn Sink) {
        loop {
            self.rest(jittered(LOOK), sink).await;
            match self
                .of
                .capabilities
                .serves(&self.of.connection.unary(), &self.feed.kind)
                .await
            {
                Ok(true) => return,
                Ok(false) => sink.phase(Phase::NotServed),
                Err(error) => {
                    tracing::debug!(kind = %self.feed.kind, %error, "cannot ask for the kind");
                }
            }
        }
    }
}

/// One event; answers the version to resume from.
fn take(
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
            sink.put(object, false).map_err(End::Full)?;
            Ok(version)
        }
        Ok(WatchEvent::Deleted(object)) => {
            let version = version(&object)?;
            sink.remove(object);
            Ok(version)
        }
        Ok(WatchEvent::Bookmark(bookmark)) => Ok(bookmark.metadata.resource_version),
        Ok(WatchEvent::Error(status)) => {
            let code = Some(status.code);
            Err(End::of(code, error_text(&kube::Error::Api(status))))
        }
        Err(error) => Err(End::from(&error)),
    }
}

// === impl End ===

impl End {
    fn out_of_reach() -> Self {
        Self::Failed {
            code: None,
            reason: OUT_OF_REACH.to_owned(),
        }
    }

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
