//! What every pass of either controller works with.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use glance_api::glance::Glance;
use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use target_registry::{Cluster, Purpose, Registry, Unresolved};

use crate::{
    backoff::StepFailures,
    cluster::{
        Target,
        ledger::Ledgers,
        placed_on,
        probe::Probe,
        view::{Routes, View},
    },
    glance::watches::Router,
    leader::Leadership,
    metrics::Metrics,
    pipeline::notice::Publisher,
};

/// Settings that passes read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a deleted CR waits for a target that is not registered.
    pub abandon_after: Duration,
    /// How often a converged CR is looked at although nothing happened.
    pub resync: Resync,
    /// Whether the health of a local Glance is asked through the API server's proxy.
    pub local_probe_by_proxy: bool,
    /// The DNS domain of the clusters.
    pub cluster_domain: String,
    /// The operator's own namespace, when it is known.
    pub operator_namespace: Option<String>,
    /// Identity of this hub: `--hub-id`, else the UID of its `kube-system` namespace.
    pub hub_uid: Option<String>,
}

/// The sync period. Nobody gets it as it is: a fleet that comes round at one moment is a burst.
#[derive(Clone, Copy, Debug)]
pub struct Resync(Duration);

/// Shared by all passes.
pub struct Context {
    /// The cluster that holds the CRs.
    pub hub: Arc<Cluster>,
    /// All other clusters.
    pub registry: Registry,
    /// What is remembered of each cluster.
    pub ledgers: Ledgers,
    /// Who is woken by what.
    pub router: Arc<Router>,
    /// Whether this process may write.
    pub leadership: Leadership,
    /// Counts and times.
    pub metrics: Metrics,
    /// Failures in a row, by CR and step.
    pub failures: StepFailures<String>,
    /// Writes events.
    pub publisher: Publisher,
    /// Asks Glance for its health.
    pub probe: Probe,
    /// Settings.
    pub settings: Settings,
    /// The newest version of each Glance that we wrote or read ourselves.
    pub glances: Newest<Glance>,
    /// The same of each backend.
    pub backends: Newest<glance_api::backend::GlanceBackend>,
}

/// Remembers objects that an own write has just changed, until the watch has caught up: a pass that starts from an
/// older copy would only fail on its precondition.
pub struct Newest<K> {
    objects: Mutex<HashMap<String, Arc<K>>>,
}

// === impl Context ===

impl Context {
    /// Now.
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// The cluster the children of a Glance live on. Right after the start its registration may not have had its first
    /// attempt, which is waited for: it is no reason to say that there is none. The attempts of others are not.
    pub async fn settled_target(
        &self,
        glance: &Glance,
        purpose: Purpose,
    ) -> Result<Target, Unresolved> {
        match self.target(glance, purpose) {
            Err(Unresolved::NotRegistered { .. } | Unresolved::Pending { .. }) => {
                self.registry
                    .settled(placed_on(glance).unwrap_or_default())
                    .await;
                self.target(glance, purpose)
            }
            target => target,
        }
    }

    /// The cluster the children of a Glance live on.
    pub fn target(&self, glance: &Glance, purpose: Purpose) -> Result<Target, Unresolved> {
        let cluster = match placed_on(glance) {
            Some(name) => {
                let namespace = glance.namespace().unwrap_or_default();
                let cluster = self.registry.resolve_for(name, &namespace, purpose)?;
                self.is_where_it_was(glance, &cluster)?;
                cluster
            }
            None => Arc::clone(&self.hub),
        };
        let view = self.view(&cluster);
        Ok(Target::new(
            glance,
            cluster,
            view,
            self.settings.hub_uid.clone(),
        ))
    }

    /// The watches on a cluster, started when nobody has.
    pub fn view(&self, cluster: &Cluster) -> Arc<View> {
        let routes: Arc<dyn Routes> = Arc::clone(&self.router) as Arc<dyn Routes>;
        let ledger = self.ledgers.of(cluster.name());
        cluster.extension(|cluster| View::start(cluster, &routes, ledger))
    }

    /// Ends the watches on a cluster that no CR names.
    pub fn retire_unused(&self, name: &str) {
        if !self.router.is_used(name)
            && let Ok(cluster) = self.registry.resolve(name)
        {
            cluster.retire::<View>();
        }
    }

    /// A name can lead to another cluster, also where no registry remembers the first one. What was written there is
    /// not there, and what is there was not written by this Glance, unless somebody has approved of the move.
    fn is_where_it_was(&self, glance: &Glance, cluster: &Cluster) -> Result<(), Unresolved> {
        let status = glance.status.as_ref();
        let expected = status.and_then(|status| status.target_cluster_uid.clone());
        match (expected, cluster.uid()) {
            (Some(expected), Some(found))
                if expected != found
                    && self.registry.pinned(cluster.name()) != Some(found.clone()) =>
            {
                Err(Unresolved::Moved {
                    name: cluster.name().to_owned(),
                    expected,
                    found,
                })
            }
            _ => Ok(()),
        }
    }
}

// === impl Newest ===

impl<K> Default for Newest<K> {
    fn default() -> Self {
        Self {
            objects: Mutex::default(),
        }
    }
}

impl<K: Resource> Newest<K> {
    /// The newer of `seen` and what we know.
    pub fn of(&self, seen: Arc<K>) -> Arc<K> {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = seen.uid().unwrap_or_default();
        match objects.get(&uid) {
            Some(known) if version(known.as_ref()) > version(seen.as_ref()) => Arc::clone(known),
            Some(_) => {
                // The watch has caught up: no need to hold a second copy.
                objects.remove(&uid);
                seen
            }
            None => seen,
        }
    }

    /// Remembers the answer to a write of ours.
    pub fn learn(&self, object: Arc<K>) {
        let uid = object.uid().unwrap_or_default();
        self.objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(uid, object);
    }

    /// Forgets all of them: a list says how things are, also where its numbers are smaller, as on a hub that was restored.
    pub fn clear(&self) {
        self.objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, uid: &str) {
        self.objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid);
    }
}

/// Versions of one object compare as numbers on every server we support; anything else compares as oldest.
fn version<K: Resource>(object: &K) -> u64 {
    object
        .meta()
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

// === impl Resync ===

impl Resync {
    /// Every CR at least this often, give or take the spread.
    pub fn every(period: Duration) -> Self {
        Self(period)
    }

    /// When this CR is looked at again: the period and up to a tenth more, the same for one CR always.
    pub fn of(self, resource: &impl Resource) -> Duration {
        let seed = crate::hash::hash8(resource.meta().uid.as_deref().unwrap_or_default());
        let share = u32::from_str_radix(&seed, 16).unwrap_or_default() % 100;
        self.0 + self.0 * share / 1000
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;

    use super::*;

    fn at(version: &str) -> Arc<ConfigMap> {
        Arc::new(ConfigMap {
            metadata: ObjectMeta {
                uid: Some("u".into()),
                resource_version: Some(version.into()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        })
    }

    #[test]
    fn a_fleet_of_one_age_does_not_come_round_at_one_moment() {
        let period = Duration::from_mins(10);
        let of = |uid: String| {
            let mut resource = ConfigMap::default();
            resource.metadata.uid = Some(uid);
            let pause = Resync::every(period).of(&resource);
            assert_eq!(
                pause,
                Resync::every(period).of(&resource),
                "the same for one always"
            );
            assert!(pause >= period && pause < period + period / 10);
            pause
        };
        let all: std::collections::BTreeSet<_> = (0..50).map(|n| of(format!("uid-{n}"))).collect();
        assert!(all.len() > 25, "{all:?}");
    }

    #[test]
    fn an_own_write_outlives_a_lagging_watch_and_no_longer() {
        let newest = Newest::default();
        newest.learn(at("10"));
        assert_eq!(
            newest.of(at("9")).metadata.resource_version.as_deref(),
            Some("10")
        );
        assert_eq!(
            newest.of(at("11")).metadata.resource_version.as_deref(),
            Some("11")
        );
        assert_eq!(
            newest.of(at("9")).metadata.resource_version.as_deref(),
            Some("9")
        );
    }
}
