//! The `TargetCluster` objects: read for policy, created where a registration has none, and kept up
//! to date with what is known.
//!
//! Written on change only. Where the kind is not served, or may not be read, nothing of this happens
//! and everything else works; it begins as soon as the kind appears.

mod reports;
mod status;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::reports::Dependents;
use self::status::Facts;
pub(crate) use self::{
    reports::{Findings, Reports},
    status::missing,
};
use crate::{
    Cluster, ClusterState, Kind, Payload, RegistryOptions, State, TargetCluster, TargetClusterSpec,
    TargetClusterStatus,
    failure::{error_code, error_text},
    informer::{
        feed::Feed,
        leg::{self, Sink},
    },
    policy::{Labels, Policies, selects},
    registry::Shared,
    target_cluster::{MANAGED_BY_LABEL, TARGET_CLUSTER},
};

/// Namespaces, for their labels or their presence.
pub(crate) const NAMESPACE: Kind = Kind::cluster_wide("", "v1", "Namespace", "namespaces");

/// Changes that come together are written together.
const GATHER: Duration = Duration::from_millis(100);

/// Shortest time between two writes of one status.
const PAUSE: Duration = Duration::from_secs(1);

/// Pause after a write that failed.
const RETRY: Duration = Duration::from_secs(5);

/// Pause after a write that is not allowed.
const FORBIDDEN_RETRY: Duration = Duration::from_mins(1);

/// Starts the watches and the writer.
pub(crate) fn spawn(
    shared: &Arc<Shared>,
    hub: &Arc<Cluster>,
    options: &RegistryOptions,
    stop: &CancellationToken,
) {
    let run = |work: futures::future::BoxFuture<'static, ()>| {
        let stop = stop.clone();
        shared.tasks.spawn(async move {
            stop.run_until_cancelled(work).await;
        });
    };
    let objects = shared.policies.objects.clone();
    run(Box::pin(follow(
        hub,
        TARGET_CLUSTER,
        Some(options.namespace.clone()),
        Payload::Full,
        objects,
    )));
    let labels = follow(
        hub,
        NAMESPACE,
        None,
        Payload::Metadata,
        shared.policies.namespaces.clone(),
    );
    let watched = shared.clone();
    run(Box::pin(async move {
        // Only for grants by label: most installations have none.
        until_selected(&watched.policies).await;
        labels.await;
    }));
    let settled = shared.clone();
    run(Box::pin(async move { settled.policies.settle().await }));
    let writer = Writer {
        shared: shared.clone(),
        api: Api::namespaced(hub.client(), &options.namespace),
        program: options.program.clone(),
        next: BTreeMap::new(),
    };
    run(Box::pin(writer.run()));
}

/// Keeps a mirror up to date until it is dropped.
fn follow<T: Send + Sync + 'static>(
    hub: &Cluster,
    kind: Kind,
    namespace: Option<String>,
    payload: Payload,
    mirror: Arc<crate::mirror::Mirror<T>>,
) -> impl Future<Output = ()> + Send + use<T> {
    let legs = hub.legs();
    let feed = Feed {
        kind,
        namespace,
        selector: None,
        payload,
    };
    async move { leg::supervise(|| legs.leg(feed.clone()), &*mirror as &dyn Sink).await }
}

async fn until_selected(policies: &Policies) {
    let mut changes = policies.objects.changes();
    loop {
        changes.mark_unchanged();
        if policies.objects.all().values().any(|o| selects(&o.spec)) {
            return;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// What a mirror keeps of a `TargetCluster`.
pub(crate) fn read(mut object: DynamicObject) -> Option<TargetCluster> {
    object.metadata.managed_fields = None;
    if object.data["spec"].is_null() {
        // The API requires none.
        object.data["spec"] = json!({});
    }
    object.try_parse().ok()
}

/// What a mirror keeps of a namespace.
#[allow(clippy::unnecessary_wraps, reason = "the form that a mirror takes")]
pub(crate) fn labels(object: DynamicObject) -> Option<Labels> {
    Some(object.metadata.labels.unwrap_or_default())
}

/// Writes the objects. The only one that does.
struct Writer {
    shared: Arc<Shared>,
    api: Api<TargetCluster>,
    program: String,
    /// Not to be written before.
    next: BTreeMap<String, Instant>,
}

// === impl Writer ===

impl Writer {
    async fn run(mut self) {
        let mut published = self.shared.published();
        let mut objects = self.shared.policies.objects.changes();
        let mut reports = self.shared.reports.changes();
        loop {
            published.mark_unchanged();
            objects.mark_unchanged();
            reports.mark_unchanged();
            let again = self.look().await;
            let pause = async {
                match again {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let go_on = tokio::select! {
                changed = published.changed() => changed.is_ok(),
                changed = objects.changed() => changed.is_ok(),
                changed = reports.changed() => changed.is_ok(),
                () = pause => true,
            };
            if !go_on {
                return;
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Looks at every object; answers when to look again although nothing changes.
    async fn look(&mut self) -> Option<Instant> {
        let live = self.shared.policies.objects.is_live();
        if !live || !self.shared.is_listed() {
            self.shared.reports.nowhere_to_write(live);
            return None;
        }
        let states = self.shared.states();
        let objects = self.shared.policies.objects.all();
        let names: BTreeSet<String> = states
            .keys()
            .chain(objects.keys())
            .cloned()
            .chain(self.shared.reports.with_ledger())
            .collect();
        self.next.retain(|name, _| names.contains(name));
        let mut again: Option<Instant> = None;
        for name in names {
            let due = self.next.get(&name).copied();
            let at = match due {
                Some(due) if due > Instant::now() => Some(due),
                _ => {
                    let pause = self
                        .reconcile(&name, &states, objects.get(&name).map(Arc::as_ref))
                        .await;
                    let next = pause.map(|pause| Instant::now() + pause);
                    match next {
                        Some(next) => self.next.insert(name, next),
                        None => self.next.remove(&name),
                    };
                    next
                }
            };
            again = match (again, at) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        again
    }

    /// Brings one object up to date; answers a pause if it was written.
    async fn reconcile(
        &self,
        name: &str,
        states: &BTreeMap<String, Arc<ClusterState>>,
        object: Option<&TargetCluster>,
    ) -> Option<Duration> {
        let state = states.get(name).map(Arc::as_ref);
        let known = object.and_then(|object| object.status.as_ref());
        let reports = &self.shared.reports;
        let facts = Facts {
            state,
            twins: twins(name, states),
            findings: reports.findings(name),
            dependents: reports.dependents(name),
            abandoned: reports.ledger(name, known.map_or(&[], |status| &status.abandoned)),
        };
        let is_needed = state.is_some()
            || !facts.abandoned.is_empty()
            || facts.dependents.is_some_and(|count| count > 0);
        let outcome = match object {
            Some(object) if object.metadata.deletion_timestamp.is_some() => return None,
            // What people wrote into it holds for whoever registers under this name next.
            Some(object)
                if !is_needed && object.is_managed_by(&self.program) && object.spec.is_empty() =>
            {
                // Whether others still name the cluster is not known right after the start.
                facts.dependents?;
                self.delete(object).await
            }
            None if state.is_none() && facts.abandoned.is_empty() => return None,
            None => self.create(name).await,
            Some(object) => {
                let settling = state.is_some_and(|state| state.state == State::Pending);
                if settling && known.is_some() && !self.shared.is_attempted() {
                    // A restart is no news.
                    return None;
                }
                let generation = object.metadata.generation;
                let wanted = facts.status(known, generation, Timestamp::now());
                if known == Some(&wanted) {
                    reports.written(name, &wanted.abandoned);
                    return None;
                }
                self.write(name, &wanted).await
            }
        };
        match outcome {
            // One that was just made has no status yet.
            Ok(()) if object.is_none() => Some(GATHER),
            Ok(()) => Some(PAUSE),
            Err(error) => {
                let code = error_code(&error);
                if code == Some(409) {
                    // Somebody was faster; the watch will show, and if it does not, asking at once again does not help.
                    return Some(RETRY);
                }
                let text = error_text(&error);
                if code == Some(403) {
                    tracing::warn!(cluster = name, error = text, "may not write TargetClusters");
                    return Some(FORBIDDEN_RETRY);
                }
                tracing::warn!(
                    cluster = name,
                    error = text,
                    "cannot write the TargetCluster"
                );
                Some(RETRY)
            }
        }
    }

    async fn create(&self, name: &str) -> Result<(), kube::Error> {
        let mut object = TargetCluster::new(name, TargetClusterSpec::default());
        object
            .labels_mut()
            .insert(MANAGED_BY_LABEL.to_owned(), self.program.clone());
        let params = PostParams {
            field_manager: Some(self.program.clone()),
            ..PostParams::default()
        };
        match self.api.create(&params, &object).await {
            Ok(created) => self.learn(&created),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn write(&self, name: &str, status: &TargetClusterStatus) -> Result<(), kube::Error> {
        let patch = json!({
            "apiVersion": TARGET_CLUSTER.api_version(),
            "kind": TARGET_CLUSTER.kind,
            "status": status,
        });
        let params = PatchParams::apply(&self.program).force();
        let answer = self
            .api
            .patch_status(name, &params, &Patch::Apply(&patch))
            .await;
        match answer {
            Ok(written) => {
                self.learn(&written);
                self.shared.reports.written(name, &status.abandoned);
                Ok(())
            }
            // Gone in between; the watch will show.
            Err(error) if error_code(&error) == Some(404) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn delete(&self, object: &TargetCluster) -> Result<(), kube::Error> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: object.metadata.uid.clone(),
                resource_version: object.metadata.resource_version.clone(),
            }),
            ..DeleteParams::default()
        };
        let name = object.name_any();
        match self.api.delete(&name, &params).await {
            Ok(_) => {
                self.shared.policies.objects.forget(&name);
                Ok(())
            }
            Err(error) if matches!(error_code(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn learn(&self, object: &TargetCluster) {
        let value = serde_json::to_value(object);
        if let Ok(object) = value.and_then(serde_json::from_value) {
            self.shared.policies.objects.fold(object);
        }
    }
}

/// Other names that lead to the same cluster.
fn twins(name: &str, states: &BTreeMap<String, Arc<ClusterState>>) -> Vec<String> {
    let uid = |state: &ClusterState| state.uid.clone().filter(|_| state.state != State::Rejected);
    let Some(own) = states.get(name).and_then(|state| uid(state)) else {
        return Vec::new();
    };
    states
        .iter()
        .filter(|(other, state)| *other != name && uid(state).as_ref() == Some(&own))
        .map(|(other, _)| other.clone())
        .collect()
}
