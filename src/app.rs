//! The composition root: what is started, in which order, and how it stops.
//!
//! Every replica serves metrics and health; only the leader connects to targets and reconciles. The registry starts
//! before the controllers, so that a target is engaged before the first pass needs it (contract: operations, start
//! order).

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Context as _;
use glance_api::{backend::GlanceBackend, glance::Glance};
use kube::{
    Api, Client,
    runtime::reflector::{ObjectRef, Store, store::Writer},
};
use target_registry::{
    ClientOptions, Cluster, ProbeOptions, Registry, RegistryOptions, Trigger, Triggered,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admission::Webhooks,
    backend,
    backoff::StepFailures,
    cli::{LocalProbe, RunArgs, environment},
    cluster::{ledger::Ledgers, needs, probe::Probe},
    context::{Context, Newest, Resync, Settings},
    controller::{self, Wiring},
    definitions, fleet,
    glance::{self, watches::Router},
    leader::Leadership,
    metrics::Metrics,
    pipeline::notice::{COMPONENT, Publisher},
    ready::{Handle, Readiness},
    telemetry::Telemetry,
};

mod election;
mod hub;
mod listeners;
mod memory;
mod registrations;
mod signals;
mod summary;
mod webhooks;

use self::{
    election::{Seat, Standing},
    listeners::Vitals,
};

/// What running passes get to finish after a stop; a pod has 30 s in all. A call that hangs takes ten of them.
const GRACE: Duration = Duration::from_secs(20);
/// How long the hub may take to say who it is and to list the custom resources.
const SYNC: Duration = Duration::from_mins(2);
/// How soon the hub is asked again who it is.
const IDENTITY_RETRY: Duration = Duration::from_secs(2);
/// What events get to be written after that.
const FLUSH: Duration = Duration::from_secs(2);

/// Where the CRs are kept and what wakes their controllers.
struct Crs<K: kube::Resource + Clone + 'static>
where
    K::DynamicType: std::hash::Hash + Eq + Clone,
{
    api: Api<K>,
    reader: Store<K>,
    writer: Writer<K>,
    wake: Trigger<ObjectRef<K>>,
    woken: Triggered<ObjectRef<K>>,
}

/// Runs the operator until a signal, or until something it cannot do without ends.
pub async fn run(args: RunArgs) -> anyhow::Result<()> {
    // A build without its catalogs would admit whatever they refuse.
    crate::policy::catalog::all()?;
    let telemetry = Telemetry::start(&args.log)?;
    let stop = CancellationToken::new();
    signals::stop(&stop)?;
    let metrics = Metrics::new()?;
    let readiness = Readiness::new();
    let config = hub::config().await?;
    let standing = Standing::default();
    let client = ClientOptions {
        user_agent: user_agent(),
        metrics: Some(target_registry::Metrics::register(
            metrics.registry(),
            "glance_operator",
        )?),
        fence: Some(standing.fence()),
        memory_limit: memory::of_one_target(),
        ..ClientOptions::default()
    };
    let hub = Cluster::hub(config.clone(), scope(&args), &client)
        .context("the hub's configuration cannot be used")?;
    summary::say(&args, &hub);
    let engaged = Arc::new(OnceLock::new());
    let tasks = TaskTracker::new();
    let webhooks = webhooks::open(&args).await?;
    let vitals = Vitals {
        readiness: readiness.clone(),
        standing: standing.clone(),
        hub: Arc::clone(&hub),
        engaged: Arc::clone(&engaged),
        webhooks: webhooks.as_ref().map(Webhooks::check),
    };
    listeners::serve(&args, &metrics, vitals, telemetry, &stop, &tasks).await?;
    let definitions = definitions::check(hub.client(), metrics.clone());
    tasks.spawn(stop.clone().run_until_cancelled_owned(definitions));
    let reviews = webhooks::serve(webhooks, &args, (&hub, &engaged), &metrics, &stop);

    let (publisher, writer) = Publisher::new(COMPONENT, environment::hostname());
    let events = tokio::spawn(writer.run(hub.client()));
    registrations::name_hosts(&metrics, &hub, &engaged);
    let mut seat = Seat::take(&args, config, &metrics, &standing)?;
    let outcome = match seat.lead(&stop).await? {
        None => Ok(()),
        Some(leadership) => {
            let caches = readiness.handle(listeners::CACHES);
            let registry = registry(&args, &hub, client, &stop);
            // The only writer of this cell.
            let _ = engaged.set(registry.clone());
            let parts = Parts {
                hub: Arc::clone(&hub),
                registry,
                metrics,
                publisher: publisher.clone(),
                leadership,
                caches,
            };
            work(&args, parts, &stop).await
        }
    };
    stop.cancel();
    publisher.flush(FLUSH).await;
    events.abort();
    seat.give_up().await;
    if let Some(reviews) = reviews.filter(|_| outcome.is_ok()) {
        // They go on for a while: the API server may not know yet that this replica goes. They look up on the hub.
        let _ = reviews.await;
    }
    tasks.close();
    // Listeners end with the token; nothing of theirs is worth waiting longer for.
    let _ =
        tokio::time::timeout(FLUSH, async { tokio::join!(hub.shut_down(), tasks.wait()) }).await;
    tracing::info!("stopped");
    outcome
}

/// How API servers know this process.
fn user_agent() -> String {
    format!("glance-operator/{}", env!("CARGO_PKG_VERSION"))
}

fn scope(args: &RunArgs) -> Option<BTreeSet<String>> {
    args.watched_namespace()
        .map(|namespace| BTreeSet::from([namespace.to_owned()]))
}

fn registry(
    args: &RunArgs,
    hub: &Arc<Cluster>,
    client: ClientOptions,
    stop: &CancellationToken,
) -> Registry {
    if args.clusters_namespace.is_empty() {
        return Registry::disabled();
    }
    let options = RegistryOptions {
        allow_insecure: args.allow_insecure_registrations,
        require_grants: args.require_target_grants,
        needs: needs::of_targets(),
        program: "glance-operator".to_owned(),
        probe: probe_options(args),
        client,
        ..RegistryOptions::new(&args.clusters_namespace)
    };
    Registry::start(hub, options, stop.clone())
}

fn probe_options(args: &RunArgs) -> ProbeOptions {
    let usual = ProbeOptions::default();
    ProbeOptions {
        interval: args.target_probe_interval,
        timeout: usual.timeout.min(args.target_probe_interval),
        first_retry: args.target_first_retry,
        // As many doublings as usual.
        longest_retry: args.target_first_retry.saturating_mul(12),
        ..usual
    }
}

/// What the leader works with.
struct Parts {
    hub: Arc<Cluster>,
    registry: Registry,
    metrics: Metrics,
    publisher: Publisher,
    leadership: Leadership,
    /// Held until the custom resources are listed.
    caches: Handle,
}

/// The part that only one replica does.
async fn work(args: &RunArgs, parts: Parts, stop: &CancellationToken) -> anyhow::Result<()> {
    let Parts {
        hub,
        registry,
        metrics,
        publisher,
        leadership,
        caches,
    } = parts;
    let glances = crs::<Glance>(hub.client(), args.watched_namespace());
    let backends = crs::<GlanceBackend>(hub.client(), args.watched_namespace());
    let router = Arc::new(Router::new(
        glances.reader.clone(),
        backends.reader.clone(),
        glances.wake.clone(),
        backends.wake.clone(),
    ));
    let asked = stop.run_until_cancelled(tokio::time::timeout(SYNC, hub_uid(args, &hub)));
    let hub_uid = match asked.await {
        None => return Ok(()),
        Some(asked) => asked.context("the hub's API server did not answer within 2 min")?,
    };
    let workers = args.concurrency();
    for name in [glance::CONTROLLER, backend::CONTROLLER] {
        metrics.max_concurrent(name, workers);
    }
    let ctx = Arc::new(Context {
        hub,
        registry: registry.clone(),
        ledgers: Ledgers::default(),
        router: Arc::clone(&router),
        metrics,
        failures: StepFailures::new(),
        publisher,
        leadership,
        probe: Probe::new(&args.cluster_domain),
        settings: settings(args, hub_uid),
        glances: Newest::default(),
        backends: Newest::default(),
    });
    let follow = tokio::spawn(registrations::follow(Arc::clone(&ctx), stop.clone()));
    if !args.clusters_namespace.is_empty() {
        fleet::start(&ctx, &args.clusters_namespace, stop);
    }
    let of_glances = controller::run(
        wiring(
            glance::CONTROLLER,
            glances.api,
            glances.writer,
            glances.reader,
            stop,
        ),
        glances.woken,
        Arc::new(glance::Controller::new(Arc::clone(&ctx), workers)),
        Arc::clone(&ctx),
    );
    let of_backends = controller::run(
        wiring(
            backend::CONTROLLER,
            backends.api,
            backends.writer,
            backends.reader,
            stop,
        ),
        backends.woken,
        Arc::new(backend::Controller::new(Arc::clone(&ctx), workers)),
        Arc::clone(&ctx),
    );
    // What cannot be listed cannot be reconciled: better a restart that says so than a process that looks well.
    let not_listed = not_listed(&ctx.router, caches);
    let both = async { tokio::join!(of_glances, of_backends) };
    let mut both = std::pin::pin!(both);
    let outcome = tokio::select! {
        // A controller whose stream ends reconciles nothing any more: better a restart than a process that looks well.
        _ = &mut both, if !stop.is_cancelled() => {
            if stop.is_cancelled() { Ok(()) } else { Err(anyhow::anyhow!("a controller ended by itself")) }
        }
        () = not_listed, if !stop.is_cancelled() => Err(anyhow::anyhow!(
            "the custom resources were not listed within 2 min: are their definitions installed, and may this account read them?"
        )),
        () = stop.cancelled() => {
            if tokio::time::timeout(GRACE, &mut both).await.is_err() {
                tracing::warn!("passes that still ran after {} s are dropped", GRACE.as_secs());
            }
            Ok(())
        }
    };
    stop.cancel();
    follow.abort();
    let _ = tokio::time::timeout(FLUSH, registry.closed()).await;
    outcome
}

fn settings(args: &RunArgs, hub_uid: Option<String>) -> Settings {
    Settings {
        abandon_after: args.abandon_after,
        resync: Resync::every(args.sync_period),
        local_probe_by_proxy: args.local_probe == LocalProbe::ApiProxy,
        cluster_domain: args.cluster_domain.clone(),
        operator_namespace: environment::operator_namespace(),
        hub_uid,
    }
}

/// Completes when the custom resources are not listed in time, never when they are; then `caches` is let go.
async fn not_listed(router: &Router, caches: Handle) {
    let listed = tokio::time::timeout(SYNC, router.listed()).await;
    if listed.is_ok() {
        drop(caches);
        std::future::pending::<()>().await;
    }
}

fn crs<K>(client: Client, namespace: Option<&str>) -> Crs<K>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope> + Clone + 'static,
    K::DynamicType: std::hash::Hash + Eq + Clone + Default,
{
    let (reader, writer) = controller::store();
    let (wake, woken) = Trigger::new();
    Crs {
        api: match namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        },
        reader,
        writer,
        wake,
        woken,
    }
}

fn wiring<K>(
    name: &'static str,
    api: Api<K>,
    writer: Writer<K>,
    reader: Store<K>,
    stop: &CancellationToken,
) -> Wiring<K>
where
    K: kube::Resource
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static,
    K::DynamicType: std::hash::Hash + Eq + Clone + Default + std::fmt::Debug + Unpin,
{
    Wiring {
        name,
        api,
        writer,
        reader,
        stop: stop.clone(),
    }
}

/// Who this hub is, for the mark on children on targets: a given name, else the UID of its `kube-system` namespace. Without
/// either no mark is set, and none is asked for.
async fn hub_uid(args: &RunArgs, hub: &Cluster) -> Option<String> {
    if let Some(id) = args.hub_id() {
        return Some(id.to_owned());
    }
    if args.clusters_namespace.is_empty() {
        // Nothing on the hub itself bears the mark, and an operator for one namespace may not read another.
        return None;
    }
    loop {
        match hub.probe().await {
            Ok(identity) => {
                if identity.uid.is_none() {
                    tracing::warn!(
                        "the namespace kube-system may not be read, so children get no mark of this hub: grant it, or name the hub with --hub-id"
                    );
                }
                return identity.uid;
            }
            // Without the hub nothing else would work either.
            Err(error) => tracing::warn!(%error, "the hub does not say who it is; asking again"),
        }
        tokio::time::sleep(IDENTITY_RETRY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::{Cli, Command},
        ready::Readiness,
    };

    fn router() -> Router {
        let (glances, _) = controller::store();
        let (backends, _) = controller::store();
        Router::new(glances, backends, Trigger::new().0, Trigger::new().0)
    }

    fn args(line: &[&str]) -> RunArgs {
        let line = ["glance-operator"].iter().chain(line);
        let line = Cli::parse_from_args(line.map(Into::into)).unwrap();
        match line.into_command() {
            Command::Run(args) => *args,
            _ => panic!("these are not the operator's arguments"),
        }
    }

    /// A hub that answers nothing.
    fn hub() -> Arc<Cluster> {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        Cluster::hub(config, None, &ClientOptions::default()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn without_targets_nobody_is_asked_who_the_hub_is_nor_told_to_let_it_be_read() {
        let hub = hub();
        let asked = async |line: &[&str]| {
            let args = args(line);
            let answer = tokio::time::timeout(SYNC, hub_uid(&args, &hub)).await;
            answer.map_err(drop)
        };
        let scoped = ["--namespace=tenant", "--clusters-namespace="];
        assert_eq!(asked(&scoped).await, Ok(None));
        assert_eq!(asked(&[]).await, Err(()), "the mark of children needs it");
    }

    #[tokio::test]
    async fn a_standby_names_the_hub_by_its_host_in_its_metrics() {
        let metrics = Metrics::new().unwrap();
        let registered = target_registry::Metrics::register(metrics.registry(), "glance_operator");
        let options = ClientOptions {
            metrics: Some(registered.unwrap()),
            ..ClientOptions::default()
        };
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let hub = Cluster::hub(config, None, &options).unwrap();
        // No registry: only who leads starts one.
        registrations::name_hosts(&metrics, &hub, &Arc::default());
        assert!(hub.probe().await.is_err());
        let page = metrics.encode();
        assert!(
            page.contains(r#"host="127.0.0.1:1",method="GET""#),
            "{page}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_cannot_list_its_resources_ends_after_two_minutes_and_is_never_ready() {
        let readiness = Readiness::new();
        let router = router();
        router.glances_listed();
        let begun = tokio::time::Instant::now();
        let waiting = not_listed(&router, readiness.handle(listeners::CACHES));
        assert!(!readiness.is_ready(listeners::CACHES));
        waiting.await;
        assert_eq!(begun.elapsed(), Duration::from_mins(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_has_listed_them_is_ready_and_goes_on() {
        let readiness = Readiness::new();
        let router = router();
        router.glances_listed();
        router.backends_listed();
        let waiting = not_listed(&router, readiness.handle(listeners::CACHES));
        let ended = tokio::time::timeout(SYNC * 10, waiting).await;
        assert!(ended.is_err());
        assert!(readiness.is_ready(listeners::CACHES));
    }
}
