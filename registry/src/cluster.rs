//! One generation of one cluster: its clients, its watches and everything that ends with it.

mod identity;

use std::{
    any::{Any, TypeId},
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use http::{HeaderMap, HeaderValue};
use kube::{Client, client::ConfigExt as _};
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

pub use self::identity::Identity;
use self::identity::identify;
use crate::{
    CapabilityError, ClientOptions, Informer, InformerSpec, Kind, LOCAL,
    capability::Capabilities,
    client::{Connection, Limits, Shared, Throttle},
    informer::{Budget, leg::Legs},
    metrics::ClusterMetrics,
    permits::{Permit, Permits},
};

/// Pages of one target that are under way for its watches: each may be large.
const LISTS: usize = 2;

/// How long a generation that is replaced may take to end its tasks.
const JOIN: Duration = Duration::from_secs(5);

/// A connected cluster: the hub, or one generation of a registered one.
///
/// Who holds it can go on using it; a newer registration of the name is another value. Its watches
/// end with the generation.
pub struct Cluster {
    name: String,
    hub: bool,
    generation: u64,
    server: String,
    /// Declared namespaces; `None`: the whole cluster.
    namespaces: Option<BTreeSet<String>>,
    identity: ArcSwapOption<Identity>,
    connection: Arc<Connection>,
    capabilities: Arc<Capabilities>,
    permits: Arc<Permits>,
    metrics: Arc<ClusterMetrics>,
    rotated: watch::Sender<u64>,
    /// Told when a watch is forbidden that was not before.
    denied: Arc<Notify>,
    /// Whether its watches may try.
    usable: watch::Sender<bool>,
    /// Lists that its watches may begin with at one time.
    lists: Arc<Semaphore>,
    budget: Arc<Budget>,
    extensions: Mutex<HashMap<TypeId, Slot>>,
    tasks: TaskTracker,
    stop: CancellationToken,
    me: Weak<Cluster>,
}

/// An `OnceLock` of an `Arc` of the type it is filed under.
type Slot = Arc<dyn Any + Send + Sync>;

/// A namespace is outside of what a registration declares.
///
/// The text is the contract's (target clusters, namespace scope).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unable to get: {namespace}/{name} because of unknown namespace for the cache")]
pub struct OutOfScope {
    /// The namespace.
    pub namespace: String,
    /// The object that was asked for in it.
    pub name: String,
}

/// What the registry puts into a new generation.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) hub: bool,
    pub(crate) generation: u64,
    pub(crate) namespaces: Option<BTreeSet<String>>,
    pub(crate) connection: Connection,
    pub(crate) permits: Arc<Permits>,
    pub(crate) metrics: Arc<ClusterMetrics>,
    pub(crate) budget: Budget,
}

// === impl Cluster ===

impl Cluster {
    /// The hub: the cluster the process itself belongs to, through the same stack as every other.
    ///
    /// Authentication is kube's own, so a token file, a client certificate and an in-cluster
    /// account work and are re-read. `namespaces` limits it to some; `None` means all. Call it on
    /// the runtime that will use it.
    ///
    /// # Errors
    ///
    /// When the TLS or authentication part of `config` is unusable.
    pub fn hub(
        config: kube::Config,
        namespaces: Option<BTreeSet<String>>,
        options: &ClientOptions,
    ) -> Result<Arc<Self>, kube::Error> {
        let metrics = ClusterMetrics::hub(options.metrics.clone());
        let shared = Shared {
            throttle: Arc::new(Throttle::default()),
            metrics: metrics.clone(),
            limits: Limits::hub(),
        };
        let tls = config.rustls_client_config()?;
        let connection = Connection::new(config, tls, None, HeaderMap::new(), options, &shared)?;
        let permits = Permits::new(options.max_in_flight);
        Ok(Self::new(Parts {
            name: LOCAL.to_owned(),
            hub: true,
            generation: 1,
            namespaces,
            connection,
            permits,
            metrics,
            budget: Budget::new(None),
        }))
    }

    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            name: parts.name,
            hub: parts.hub,
            generation: parts.generation,
            server: parts.connection.server(),
            namespaces: parts.namespaces,
            identity: ArcSwapOption::empty(),
            connection: Arc::new(parts.connection),
            capabilities: Arc::new(Capabilities::new()),
            permits: parts.permits,
            metrics: parts.metrics,
            rotated: watch::Sender::new(0),
            denied: Arc::default(),
            usable: watch::Sender::new(true),
            lists: Arc::new(Semaphore::new(if parts.hub {
                Semaphore::MAX_PERMITS
            } else {
                LISTS
            })),
            budget: Arc::new(parts.budget),
            extensions: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            me: me.clone(),
        })
    }

    /// Its name; [`LOCAL`] for the hub.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is the cluster the process belongs to. A registration that leads to that same
    /// cluster is not.
    pub fn is_hub(&self) -> bool {
        self.hub
    }

    /// Tells connections apart: a changed registration is a new one, with a greater number than any
    /// before it in the same registry, also under another name.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Host and port of the API server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// UID of the `kube-system` namespace, which tells clusters apart. `None` until
    /// [`Self::probe`] has been answered, or when it may not be read.
    pub fn uid(&self) -> Option<String> {
        self.identity.load().as_ref()?.uid.clone()
    }

    /// Version of the API server, with the same limits as [`Self::uid`].
    pub fn version(&self) -> Option<String> {
        self.identity.load().as_ref()?.version.clone()
    }

    /// The client for calls. Each one ends after the request timeout, its body included; nothing
    /// is tried twice; an answer that is too long is an error, [`crate::AnswerTooLong`]: of a target 4 MiB or
    /// 100,000 JSON values, of the hub 64 MiB. Lists are followed by [`crate::Pages`]. For watches take
    /// [`Self::informer`].
    pub fn client(&self) -> Client {
        self.connection.unary()
    }

    /// The declared namespaces, or `None` for the whole cluster.
    pub fn namespaces(&self) -> Option<&BTreeSet<String>> {
        self.namespaces.as_ref()
    }

    /// Refuses a namespace the registration does not declare, before the network is touched.
    pub fn check_scope(&self, namespace: &str, name: &str) -> Result<(), OutOfScope> {
        match &self.namespaces {
            Some(declared) if !declared.contains(namespace) => Err(OutOfScope {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Permission for one piece of work on this cluster, or `None` when enough is under way
    /// already: come back later and leave the worker to others. Shared by all generations.
    pub fn try_permit(&self) -> Option<Permit> {
        self.permits.try_acquire()
    }

    /// For how long no watch of this cluster has begun, failed or brought anything, bookmarks included; `None` before
    /// the first. An API server that is asked for a watch of less than `n` seconds moves it more often than every `n`.
    pub fn watch_silence(&self) -> Option<Duration> {
        self.metrics.watch_silence()
    }

    /// Whether the cluster serves `kind`. A yes is believed for ten minutes, a no for ten seconds;
    /// simultaneous askers share one request.
    ///
    /// # Errors
    ///
    /// When it could not be found out, which is neither yes nor no.
    pub async fn serves(&self, kind: &Kind) -> Result<bool, CapabilityError> {
        self.capabilities.serves(&self.client(), kind).await
    }

    /// Asks anew at the next [`Self::serves`]: for whoever just got a 404 for the kind itself.
    pub async fn forget_capability(&self, kind: &Kind) {
        self.capabilities.forget(kind).await;
    }

    /// Watches a kind. Waits until the kind is served, goes on when it disappears and comes back,
    /// and ends with this generation or with the last [`Informer`] handle.
    ///
    /// Each call starts watches of its own; share the answer, for example by
    /// [`Self::extension`].
    pub fn informer(&self, spec: InformerSpec) -> Arc<Informer> {
        Informer::start(self, spec)
    }

    /// Lets go of what [`Self::extension`] made, when nobody needs it any more; the next ask makes
    /// it anew.
    pub fn retire<T: Any + Send + Sync>(&self) {
        let slot = {
            let mut slots = self
                .extensions
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            slots.remove(&TypeId::of::<T>())
        };
        // Outside the lock: dropping may be as much work as making.
        drop(slot);
    }

    /// Something of the caller's that lives and dies with this generation, made at the first ask.
    ///
    /// `init` may ask for extensions of other types, not for its own.
    pub fn extension<T: Any + Send + Sync>(&self, init: impl FnOnce(&Self) -> T) -> Arc<T> {
        let slot: Arc<OnceLock<Arc<T>>> = {
            let mut slots = self
                .extensions
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let fresh = || -> Slot { Arc::new(OnceLock::<Arc<T>>::new()) };
            let filed = slots.entry(TypeId::of::<T>()).or_insert_with(fresh);
            filed.clone().downcast().unwrap_or_else(|_| {
                // Filed under its own type, so this cannot be; a new one is right all the same.
                let slot = Arc::new(OnceLock::new());
                *filed = slot.clone();
                slot
            })
        };
        // Outside of the lock: `init` may start informers or ask for other extensions.
        slot.get_or_init(|| Arc::new(init(self))).clone()
    }

    /// Requests made under this name so far, by every generation.
    pub fn request_count(&self) -> u64 {
        self.metrics.requests()
    }

    /// Asks who answers, over the client that does the work, and remembers it. Parts that are
    /// forbidden are left open.
    ///
    /// # Errors
    ///
    /// When there is no answer, or the credential is not accepted (HTTP 401).
    pub async fn probe(&self) -> Result<Identity, kube::Error> {
        let identity = identify(&self.client()).await?;
        self.identity.store(Some(Arc::new(identity.clone())));
        Ok(identity)
    }

    /// The same with a credential that is not in use yet.
    pub(crate) async fn probe_as(&self, header: HeaderValue) -> Result<Identity, kube::Error> {
        identify(&self.connection.unary_as(header)?).await
    }

    /// Uses another credential from now on, and lets watches that fail try again at once.
    pub(crate) fn set_credential(&self, header: HeaderValue) {
        self.connection.set_credential(header);
        self.rotated.send_modify(|count| *count += 1);
    }

    /// Counts changes of the credential.
    pub(crate) fn rotations(&self) -> watch::Receiver<u64> {
        self.rotated.subscribe()
    }

    /// What the server said that concerns all calls.
    pub(crate) fn throttle(&self) -> &Arc<Throttle> {
        self.connection.throttle()
    }

    /// Whether watches that fail may try again. When they may, they do so at once.
    pub(crate) fn set_usable(&self, usable: bool) {
        self.usable
            .send_if_modified(|now| std::mem::replace(now, usable) != usable);
    }

    /// Asks whether the server works. Who may not ask has been answered all the same.
    pub(crate) async fn ready(&self) -> Result<(), kube::Error> {
        identity::ready(&self.client()).await
    }

    /// Ends the watches and waits for them; `false` if they take longer than five seconds. The
    /// clients stay usable for who still holds them.
    pub async fn shut_down(&self) -> bool {
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(JOIN, self.tasks.wait()).await.is_ok()
    }

    pub(crate) fn metrics(&self) -> &Arc<ClusterMetrics> {
        &self.metrics
    }

    pub(crate) fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let span = tracing::error_span!("cluster", cluster = self.name);
        self.tasks.spawn(task.instrument(span));
    }

    /// A maker of legs that does not keep the cluster alive.
    pub(crate) fn legs(&self) -> Legs {
        Legs {
            connection: self.connection.clone(),
            capabilities: self.capabilities.clone(),
            metrics: self.metrics.clone(),
            rotated: self.rotated.subscribe(),
            denied: self.denied.clone(),
            usable: self.usable.subscribe(),
            lists: self.lists.clone(),
        }
    }

    /// What its informers may remember.
    pub(crate) fn budget(&self) -> Arc<Budget> {
        self.budget.clone()
    }

    /// Itself, for tasks that must not keep it alive.
    pub(crate) fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.name)
            .field("generation", &self.generation)
            .field("server", &self.server)
            .field("namespaces", &self.namespaces)
            .finish_non_exhaustive()
    }
}
