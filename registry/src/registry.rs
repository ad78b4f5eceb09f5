//! The registry itself: names in, clusters out.

mod options;
mod shared;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

pub use self::options::RegistryOptions;
pub(crate) use self::shared::{Entry, Shared};
use crate::{
    Cluster, ClusterChanged, ClusterState, TargetCluster, Unresolved, manager,
    objects::{self, Dependents},
    policy::Purpose,
    preflight,
    target_cluster::Abandoned,
};

/// How long [`Registry::attempted`] waits at most after the start.
const FIRST_ATTEMPTS: Duration = Duration::from_secs(30);

/// How long an entry into a ledger is waited for.
const LEDGER: Duration = Duration::from_secs(2);

/// The registered clusters by name. Cheap to clone; reads never wait.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

// === impl Registry ===

impl Registry {
    /// A registry in which no name resolves: for an installation that has only its own cluster.
    pub fn disabled() -> Self {
        Self {
            shared: Arc::new(Shared::new(false)),
        }
    }

    /// Watches the registration Secrets of `hub` and keeps a connection to each cluster they name,
    /// until `stop` is cancelled. Start it before whatever resolves names, and await
    /// [`Self::attempted`] before judging a name by its absence.
    pub fn start(hub: &Arc<Cluster>, options: RegistryOptions, stop: CancellationToken) -> Self {
        let (shared, policies) = Shared::following(&options);
        let shared = Arc::new(shared);
        objects::spawn(&shared, hub, &options, &stop);
        let look = preflight::run(shared.clone(), options.needs.clone(), stop.clone());
        shared.tasks.spawn(look);
        manager::spawn(&shared, hub, options, policies, stop);
        shared.tasks.close();
        Self { shared }
    }

    /// The cluster of that name, as it is registered now. Never waits.
    ///
    /// # Errors
    ///
    /// Why there is none to be had, in a text fit for a condition.
    pub fn resolve(&self, name: &str) -> Result<Arc<Cluster>, Unresolved> {
        self.shared.resolve(name)
    }

    /// The same for a resource in `namespace` of the hub, if its policy admits that. Never waits.
    ///
    /// # Errors
    ///
    /// Why there is none to be had, in a text fit for a condition.
    pub fn resolve_for(
        &self,
        name: &str,
        namespace: &str,
        purpose: Purpose,
    ) -> Result<Arc<Cluster>, Unresolved> {
        if self.shared.enabled {
            self.shared.policies.admit(name, namespace, purpose)?;
        }
        let cluster = self.shared.resolve(name)?;
        if purpose == Purpose::Work && self.shared.reports.lacks(name, namespace) {
            return Err(Unresolved::NoNamespace {
                name: name.to_owned(),
                namespace: namespace.to_owned(),
            });
        }
        Ok(cluster)
    }

    /// The cluster that a name has to lead to, where somebody has said so by hand.
    pub fn pinned(&self, name: &str) -> Option<String> {
        self.shared.policies.pinned(name)
    }

    /// The `TargetCluster` of a name, as it was last seen.
    pub fn target_cluster(&self, name: &str) -> Option<Arc<TargetCluster>> {
        self.shared.policies.objects.get(name)
    }

    /// Every `TargetCluster` by name, as it was last seen.
    pub fn target_clusters(&self) -> BTreeMap<String, Arc<TargetCluster>> {
        self.shared.policies.objects.all()
    }

    /// Whether the hub has `TargetCluster`s at all, and lets us read them.
    pub fn shows_target_clusters(&self) -> bool {
        self.shared.policies.objects.is_live()
    }

    /// Changes whenever a `TargetCluster` does.
    pub fn target_clusters_changed(&self) -> watch::Receiver<u64> {
        self.shared.policies.objects.changes()
    }

    /// How many resources name each cluster, by the namespace of the resources, for their status.
    /// Clusters that are not among them have none.
    pub fn set_dependents(&self, dependents: Dependents) {
        self.shared.reports.set_dependents(dependents);
    }

    /// Enters what is left behind on a cluster into its ledger. Returns when that is written, or
    /// cannot be within two seconds; it is tried on then.
    pub async fn abandon(&self, name: &str, entry: Abandoned) {
        if !self.shared.enabled {
            return;
        }
        let owner = entry.uid.clone();
        let reports = &self.shared.reports;
        let mut changes = reports.changes();
        reports.add(name, entry);
        let written = changes.wait_for(|_| reports.is_written(name, &owner));
        // What cannot be written now must not hold up who lets go.
        let _ = tokio::time::timeout(LEDGER, written).await;
    }

    /// Strikes what owners of these UIDs left behind off a cluster's ledger.
    pub fn strike(&self, name: &str, owners: impl IntoIterator<Item = String>) {
        self.shared.reports.strike(name, owners);
    }

    /// Tells of each change of a registration that concerns who uses it. A receiver that lags
    /// behind has to look at everything.
    pub fn subscribe(&self) -> broadcast::Receiver<ClusterChanged> {
        self.shared.changes.subscribe()
    }

    /// Changes whenever anything in [`Self::snapshot`] does, also what concerns nobody who uses the
    /// cluster: for whoever shows the states to people. Look at the snapshot, then wait.
    pub fn published(&self) -> watch::Receiver<u64> {
        self.shared.published()
    }

    /// For how long the name has been one that may be given up ([`Unresolved::may_abandon`]) in
    /// this process; zero when it is not.
    ///
    /// The clock starts when a registration goes or is refused, for a name never seen at the first
    /// call of this, and is cleared as soon as there is a registration that is not refused. A new
    /// process starts anew: it owes every cluster the full time (contract: target clusters, the
    /// two abandonment windows).
    pub fn unresolved_for(&self, name: &str) -> Duration {
        if self.shared.policies.is_paused(name) {
            self.shared.clocks().remove(name);
            return Duration::ZERO;
        }
        match self.resolve(name) {
            Err(unresolved) if unresolved.may_abandon() => {
                let mut clocks = self.shared.clocks();
                clocks
                    .entry(name.to_owned())
                    .or_insert_with(Instant::now)
                    .elapsed()
            }
            _ => Duration::ZERO,
        }
    }

    /// Returns once every registration that existed at the start had one attempt, at most 30 s
    /// after the start.
    pub async fn attempted(&self) {
        let mut attempted = self.shared.attempted.subscribe();
        let until = self.shared.started + FIRST_ATTEMPTS;
        // Either way there is nothing more to wait for.
        let _ = tokio::time::timeout_at(until, attempted.wait_for(|done| *done)).await;
    }

    /// Returns once a name is known for what it is: its own registration had an attempt or is
    /// refused, or there is none. Waits for no other cluster, and no longer than
    /// [`Self::attempted`].
    pub async fn settled(&self, name: &str) {
        let mut published = self.shared.published();
        let known = async {
            loop {
                published.mark_unchanged();
                if !matches!(self.resolve(name), Err(Unresolved::Pending { .. })) {
                    return;
                }
                if published.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = known => {}
            () = self.attempted() => {}
        }
    }

    /// Every registration as a person wants to see it, by name.
    pub fn snapshot(&self) -> Vec<ClusterState> {
        self.shared
            .snapshot
            .load()
            .values()
            .map(|entry| (*entry.state).clone())
            .collect()
    }

    /// Returns once everything the registry started has ended, after it was stopped.
    pub async fn closed(&self) {
        self.shared.tasks.wait().await;
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("enabled", &self.shared.enabled)
            .field(
                "clusters",
                &self.shared.snapshot.load().keys().collect::<Vec<_>>(),
            )
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cause, State};

    fn entry(state: State, cause: Option<Cause>) -> Entry {
        let state = ClusterState {
            state,
            cause,
            ..ClusterState::pending("blue")
        };
        Entry {
            state: Arc::new(state),
            cluster: None,
        }
    }

    #[tokio::test]
    async fn a_disabled_registry_resolves_nothing_and_makes_nobody_wait() {
        let registry = Registry::disabled();
        registry.attempted().await;
        registry.closed().await;
        let error = registry.resolve("blue").unwrap_err();
        assert_eq!(
            error.to_string(),
            "no multicluster provider set, but cluster \"blue\" passed"
        );
        assert!(registry.snapshot().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_runs_only_while_a_name_may_be_given_up() {
        let registry = Registry {
            shared: Arc::new(Shared::new(true)),
        };
        let minute = Duration::from_mins(1);
        assert_eq!(registry.unresolved_for("blue"), Duration::ZERO);
        tokio::time::advance(minute).await;
        assert_eq!(
            registry.unresolved_for("blue"),
            Duration::ZERO,
            "nobody knows what is registered before the first list"
        );
        assert!(matches!(
            registry.resolve("blue"),
            Err(Unresolved::Pending { .. })
        ));
        registry.shared.set_listed();
        assert_eq!(
            registry.unresolved_for("blue"),
            Duration::ZERO,
            "starts with the question"
        );
        tokio::time::advance(minute).await;
        assert_eq!(registry.unresolved_for("blue"), minute);

        registry
            .shared
            .publish("blue", Some(entry(State::Pending, None)), true);
        assert_eq!(registry.unresolved_for("blue"), Duration::ZERO);
        registry
            .shared
            .publish("blue", Some(entry(State::Lost, Some(Cause::Timeout))), true);
        tokio::time::advance(minute).await;
        assert_eq!(
            registry.unresolved_for("blue"),
            Duration::ZERO,
            "it may come back"
        );

        registry.shared.publish(
            "blue",
            Some(entry(State::Rejected, Some(Cause::CredentialsRefused))),
            true,
        );
        tokio::time::advance(minute).await;
        registry.shared.publish("blue", None, true);
        tokio::time::advance(minute).await;
        assert_eq!(
            registry.unresolved_for("blue"),
            2 * minute,
            "from refused to gone it goes on"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_first_attempts_ends() {
        let registry = Registry {
            shared: Arc::new(Shared::new(true)),
        };
        let before = Instant::now();
        registry.attempted().await;
        assert_eq!(before.elapsed(), FIRST_ATTEMPTS);
        registry.shared.set_attempted();
        registry.attempted().await;
        assert_eq!(before.elapsed(), FIRST_ATTEMPTS, "at once");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_one_name_waits_for_no_other() {
        let registry = Registry {
            shared: Arc::new(Shared::new(true)),
        };
        let shared = registry.shared.clone();
        let before = Instant::now();
        let pause = Duration::from_secs(1);
        let writer = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            shared.publish("dead", Some(entry(State::Pending, None)), true);
            shared.publish("blue", Some(entry(State::Pending, None)), true);
            shared.set_listed();
            tokio::time::sleep(pause).await;
            shared.publish("blue", Some(entry(State::Lost, Some(Cause::Timeout))), true);
        });
        registry.settled("absent").await;
        assert_eq!(before.elapsed(), pause, "not before the first list");
        registry.settled("blue").await;
        assert_eq!(before.elapsed(), 2 * pause, "not before its own attempt");
        registry.settled("dead").await;
        assert_eq!(before.elapsed(), FIRST_ATTEMPTS, "not for ever");
        writer.await.unwrap();
    }
}
