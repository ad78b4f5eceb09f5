//! What both controllers share: one fallible stream of CRs, wake-ups through a channel, passes that are bounded,
//! timed and never take the process down.

use std::{
    collections::HashSet,
    convert::Infallible,
    fmt::Debug,
    future::Future,
    hash::{DefaultHasher, Hash, Hasher},
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt, Stream, StreamExt, stream};
use glance_api::keys::annotations::COUNTED_JOBS;
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        Controller, Predicate, PredicateConfig, WatchStreamExt,
        controller::{self, Action},
        predicates,
        reflector::{self, ObjectRef, Store, store::Writer},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use target_registry::{Permit, Unresolved};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use self::pauses::Pauses;
use crate::{
    context::Context,
    metrics::{Metrics, PassResult},
    pipeline::report::{ErrorKind, StepError},
    random,
};

mod pauses;

/// The longest a pass may take, once it had its turn.
pub const PASS_DEADLINE: Duration = Duration::from_mins(1);
/// How long a wake-up waits for others of the same CR: what belongs together comes in a burst, as the readiness of a
/// database, its user and its grant does.
const BURST: Duration = Duration::from_millis(200);
/// When a pass that found its cluster busy tries again.
const BUSY: Duration = Duration::from_secs(1);

/// One of the two controllers.
pub struct Wiring<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Default + Debug + Unpin,
{
    /// `glance` or `glancebackend`: the label of metrics and logs.
    pub name: &'static str,
    /// The CRs.
    pub api: Api<K>,
    /// Where the watch writes them.
    pub writer: Writer<K>,
    /// Where others read them.
    pub reader: Store<K>,
    /// Ends the controller; running passes finish.
    pub stop: CancellationToken,
}

/// What a controller does with its CRs.
pub trait Handler<K>: Send + Sync + 'static {
    /// The watch shows the CR, or a change of it.
    fn seen(&self, object: &K);
    /// The watch shows that the CR is gone.
    fn gone(&self, object: &K);
    /// The store holds a whole list.
    fn listed(&self);
    /// The label of the cluster that a pass over this CR works on.
    fn cluster(&self, object: &K) -> String;
    /// Waits for the turn of a pass over this CR.
    fn admit(&self, object: &K) -> impl Future<Output = Turn<'_>> + Send;
    /// One pass.
    fn pass(&self, object: Arc<K>) -> impl Future<Output = Result<Action, StepError>> + Send;
}

/// Leave to work on the cluster of a CR, for as long as it is held.
pub enum Turn<'a> {
    /// One of the hub's own passes.
    Hub {
        /// Its place.
        _place: SemaphorePermit<'a>,
    },
    /// One of a target's passes.
    Target {
        /// Its place.
        _place: Permit,
    },
    /// The cluster does not resolve: nothing will be sent anywhere but to the hub.
    Unbounded,
    /// The cluster has as many passes as it may have.
    Busy,
}

/// Waits for a turn on the cluster a CR names. The hub's own passes queue up; a pass over a busy target does not wait,
/// so that a target which hangs cannot hold up others.
pub async fn admit<'a>(ctx: &Context, hub: &'a Semaphore, cluster: Option<&str>) -> Turn<'a> {
    let Some(cluster) = cluster else {
        return match hub.acquire().await {
            Ok(place) => Turn::Hub { _place: place },
            Err(_closed) => Turn::Busy,
        };
    };
    let mut resolved = ctx.registry.resolve(cluster);
    if let Err(Unresolved::NotRegistered { .. } | Unresolved::Pending { .. }) = resolved {
        // Before the first attempt has ended, or all its CRs would go on without a place when it has.
        ctx.registry.settled(cluster).await;
        resolved = ctx.registry.resolve(cluster);
    }
    match resolved.map(|cluster| cluster.try_permit()) {
        Ok(Some(place)) => Turn::Target { _place: place },
        Ok(None) => Turn::Busy,
        Err(_unresolved) => Turn::Unbounded,
    }
}

/// Runs a controller until it is told to stop.
pub async fn run<K, H>(
    wiring: Wiring<K>,
    wake_ups: impl Stream<Item = ObjectRef<K>> + Send + 'static,
    handler: Arc<H>,
    ctx: Arc<Context>,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Default + Debug + Unpin,
    H: Handler<K>,
{
    let Wiring {
        name,
        api,
        writer,
        reader,
        stop,
    } = wiring;
    let mut observer = Observer {
        name,
        handler: Arc::clone(&handler),
        reader: reader.clone(),
        listed: None,
    };
    let lister = Arc::clone(&handler);
    // Of its own: the failures of one controller slow the other one down in nothing.
    let pauses = Arc::new(Pauses::new(reader.clone()));
    let forgetful = Arc::clone(&pauses);
    // Shorter than the time after which watches that do not move count as stuck.
    let crs = watcher(api, watcher::Config::default().timeout(100))
        .default_backoff()
        // Who set which field is most of the memory of a CR, and never asked.
        .modify(|object| object.meta_mut().managed_fields = None)
        // Ahead of the store, so that at the end of a list the store still tells what was there before.
        .inspect(move |event| observer.observe(event))
        .reflect(writer)
        .inspect(move |event| {
            if matches!(event, Ok(watcher::Event::InitDone)) {
                lister.listed();
            }
            forgetful.observe(event);
        })
        .touched_objects()
        .predicate_filter(wakes::<K>(), PredicateConfig::default());
    let stopping = stop.clone();
    Controller::for_stream(crs, reader)
        // Passes are bounded by their own semaphores: by cluster, so that one that hangs cannot take them all.
        .with_config(controller::Config::default())
        .reconcile_on(in_bursts(wake_ups))
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(
            move |object, ctx: Arc<Context>| {
                let handler = Arc::clone(&handler);
                let (stop, pauses) = (stopping.clone(), Arc::clone(&pauses));
                // Of the highest level, so that whatever is logged inside bears these fields, at any log level.
                let span = tracing::error_span!(
                    "pass",
                    controller = name,
                    namespace = object.namespace().unwrap_or_default(),
                    name = object.name_any(),
                    cluster = handler.cluster(&object),
                    reconcileID = random::uuid(),
                );
                let pass = async move {
                    bounded(name, object, &ctx, handler.as_ref(), &pauses, &stop).await
                };
                pass.map(Ok).instrument(span)
            },
            |_, error: &Infallible, _| match *error {},
            ctx,
        )
        .for_each(|outcome| {
            // A wake-up for a CR that is gone is no news.
            drop(outcome);
            futures::future::ready(())
        })
        .await;
}

/// Gathers wake-ups from the first one on and passes each on once. Unlike a debounce it delays none for longer than
/// that, however many keep coming.
fn in_bursts<T: Eq + Hash + Send + 'static>(
    wake_ups: impl Stream<Item = T> + Send + 'static,
) -> impl Stream<Item = T> + Send {
    let burst = async |mut wake_ups: Pin<Box<dyn Stream<Item = T> + Send>>| {
        let mut waiting = HashSet::from([wake_ups.next().await?]);
        tokio::time::sleep(BURST).await;
        while let Some(Some(another)) = wake_ups.next().now_or_never() {
            waiting.insert(another);
        }
        Some((stream::iter(waiting), wake_ups))
    };
    stream::unfold(wake_ups.boxed(), burst).flatten()
}

/// Tells the handler of CRs that come and go, also when a repeated list shows it.
struct Observer<K, H>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    name: &'static str,
    handler: Arc<H>,
    reader: Store<K>,
    listed: Option<Vec<K>>,
}

impl<K, H> Observer<K, H>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone + Default + Debug,
    H: Handler<K>,
{
    fn observe(&mut self, event: &Result<watcher::Event<K>, watcher::Error>) {
        match event {
            Ok(watcher::Event::Init) => self.listed = Some(Vec::new()),
            // The store takes a list over at its end: what a pass could not find yet must not wake one.
            Ok(watcher::Event::InitApply(object)) => {
                self.listed.get_or_insert_default().push(object.clone());
            }
            Ok(watcher::Event::Apply(object)) => self.handler.seen(object),
            Ok(watcher::Event::Delete(object)) => self.handler.gone(object),
            Ok(watcher::Event::InitDone) => {
                let listed = self.listed.take().unwrap_or_default();
                let names: HashSet<_> = listed.iter().map(ObjectRef::from_obj).collect();
                for known in self.reader.state() {
                    if !names.contains(&ObjectRef::from_obj(known.as_ref())) {
                        self.handler.gone(&known);
                    }
                }
                for object in &listed {
                    self.handler.seen(object);
                }
            }
            Err(error) => {
                tracing::warn!(controller = self.name, %error, "the watch of the CRs failed; it is retried");
            }
        }
    }
}

/// Which changes of a CR wake its controller: spec, labels, annotations, the deletion mark; not its own status, nor
/// the annotations that passes write for themselves.
fn wakes<K: Resource>() -> impl Predicate<K>
where
    K::DynamicType: Eq + Hash + Clone,
{
    (predicates::generation as fn(&K) -> Option<u64>)
        .combine(predicates::labels as fn(&K) -> Option<u64>)
        .combine(|object: &K| Some(annotations_of_others(object)))
        .combine(|object: &K| Some(u64::from(object.meta().deletion_timestamp.is_some())))
}

fn annotations_of_others<K: Resource>(object: &K) -> u64 {
    let mut hasher = DefaultHasher::new();
    for annotation in object.annotations() {
        if !COUNTED_JOBS.contains(&annotation.0.as_str()) {
            annotation.hash(&mut hasher);
        }
    }
    hasher.finish()
}

async fn bounded<K, H>(
    name: &'static str,
    object: Arc<K>,
    ctx: &Context,
    handler: &H,
    pauses: &Pauses<K>,
    stop: &CancellationToken,
) -> Action
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Default,
    H: Handler<K>,
{
    let waiting = ctx.metrics.waiting(name);
    let Some(turn) = stop.run_until_cancelled(handler.admit(&object)).await else {
        // Passes that run may finish, those that wait do not begin: the next leader has them all.
        return Action::await_change();
    };
    drop(waiting);
    if matches!(turn, Turn::Busy) {
        return Action::requeue(BUSY);
    }
    let started = Instant::now();
    let _active = ctx.metrics.pass_started(name);
    if !ctx.leadership.may_write() {
        // After a pause of the whole process another replica may lead, although nobody has told us yet.
        let error = StepError::new(
            ErrorKind::Conflict,
            "this replica does not lead at the moment",
        );
        return failed(name, pauses.after_failure(&object), &error, ctx);
    }
    let pass = AssertUnwindSafe(tokio::time::timeout(
        PASS_DEADLINE,
        handler.pass(Arc::clone(&object)),
    ));
    tracing::debug!("the pass begins");
    let result = match pass.catch_unwind().await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(StepError::new(
            ErrorKind::Timeout,
            format!("the pass took longer than {} s", PASS_DEADLINE.as_secs()),
        )),
        Err(_) => Err(StepError::new(
            ErrorKind::Panic,
            "the pass panicked; this is a bug, the log has its trace",
        )),
    };
    let took = started.elapsed();
    count(&ctx.metrics, name, &result, took);
    match result {
        Ok(action) => {
            pauses.after_success(&object);
            tracing::debug!(?took, ?action, "the pass ended");
            action
        }
        Err(error) => failed(name, pauses.after_failure(&object), &error, ctx),
    }
}

/// Counts a pass. A panic may have been caught further inside, around the step it happened in.
fn count(
    metrics: &Metrics,
    name: &'static str,
    result: &Result<Action, StepError>,
    took: Duration,
) {
    let label = match result {
        Ok(action) if *action == Action::await_change() => PassResult::Success,
        Ok(_) => PassResult::RequeueAfter,
        Err(error) if error.kind == ErrorKind::Conflict => PassResult::Requeue,
        Err(_) => PassResult::Error,
    };
    if matches!(result, Err(error) if error.kind == ErrorKind::Panic) {
        metrics.panicked(name);
    }
    metrics.reconciled(name, label, took);
}

/// A pass failed and is tried again. Said here, where the line bears the fields of the pass.
fn failed(name: &'static str, pause: Duration, error: &StepError, ctx: &Context) -> Action {
    ctx.metrics.retried(name);
    if error.is_final() {
        ctx.metrics.terminal_error(name);
    }
    if error.kind == ErrorKind::Conflict {
        tracing::debug!(%error, "somebody else wrote in between");
    } else {
        tracing::warn!(category = error.category(), retry_in = ?pause, %error, "the pass failed");
    }
    Action::requeue(pause)
}

/// A store and its writer.
pub fn store<K>() -> (Store<K>, Writer<K>)
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone + Default,
{
    reflector::store()
}

#[cfg(test)]
mod tests;
