//! Which event wakes which CR.
//!
//! Children lead to their Glance by ownership, inputs by an index over the specs of all CRs on the hub. Every event
//! of a target passes the gate: the CR must exist and must name that very cluster, or anybody who may create an
//! object on some cluster could keep another tenant's CR reconciling (contract: target clusters, watches).

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, PoisonError},
};

use glance_api::{backend::GlanceBackend, glance::Glance};
use kube::{
    Resource, ResourceExt,
    core::DynamicObject,
    runtime::reflector::{ObjectRef, Store},
};
use target_registry::{Dependents, Kind, LOCAL, Trigger};
use tokio::sync::watch;

use super::{
    index::{CrKey, Dependency, Dependent, Index},
    steps::backends::{is_credential_ready, is_undetermined},
    workload::volumes,
};
use crate::cluster::{cluster_label, kinds, ownership, placed_on, runs, view::Routes};

/// What of a Glance concerns its backends: which one it is, and where their credentials are read.
type ParentFacts = (Option<String>, Option<String>);

/// What of a backend concerns its Glance: what to render, whether it may be, whether it goes.
type BackendFacts = (Option<String>, Option<i64>, bool, bool, bool);

/// The facts that were last acted upon, so that the controllers do not wake each other by every status write.
#[derive(Debug, Default)]
struct Seen {
    parents: HashMap<CrKey, ParentFacts>,
    backends: HashMap<CrKey, BackendFacts>,
    mounted: HashMap<CrKey, Option<String>>,
    jobs: HashMap<(String, CrKey), u64>,
}

/// Wakes the controllers.
pub struct Router {
    glances: Store<Glance>,
    backends: Store<GlanceBackend>,
    index: Mutex<Index>,
    seen: Mutex<Seen>,
    wake_glance: Trigger<ObjectRef<Glance>>,
    wake_backend: Trigger<ObjectRef<GlanceBackend>>,
    glances_listed: watch::Sender<bool>,
    backends_listed: watch::Sender<bool>,
    placements: watch::Sender<u64>,
}

// === impl Router ===

impl Router {
    /// A router over the CRs in these stores.
    pub fn new(
        glances: Store<Glance>,
        backends: Store<GlanceBackend>,
        wake_glance: Trigger<ObjectRef<Glance>>,
        wake_backend: Trigger<ObjectRef<GlanceBackend>>,
    ) -> Self {
        Self {
            glances,
            backends,
            index: Mutex::default(),
            seen: Mutex::default(),
            wake_glance,
            wake_backend,
            glances_listed: watch::Sender::new(false),
            backends_listed: watch::Sender::new(false),
            placements: watch::Sender::new(0),
        }
    }

    /// A Glance appeared or changed: the index follows, its backends look at it again.
    pub fn glance_seen(&self, glance: &Glance) {
        self.with_index(|index| index.put_glance(glance));
        let key = key_of(glance);
        let facts = (glance.uid(), placed_on(glance).map(str::to_owned));
        let before = self.with_seen(|seen| seen.parents.insert(key.clone(), facts.clone()));
        if before != Some(facts) {
            self.placements.send_modify(|count| *count += 1);
            self.wake_backends_of(&key);
        }
    }

    /// Changes when a Glance comes or goes.
    pub fn placements_changed(&self) -> watch::Receiver<u64> {
        self.placements.subscribe()
    }

    /// Whether a Glance names the cluster; so it seems as long as they are not listed.
    pub fn is_used(&self, cluster: &str) -> bool {
        !*self.glances_listed.borrow()
            || self.with_seen(|seen| {
                seen.parents
                    .values()
                    .any(|(_, on)| on.as_deref() == Some(cluster))
            })
    }

    /// How many Glances of each namespace name each target cluster.
    pub fn placements(&self) -> Dependents {
        let mut counts = Dependents::new();
        self.with_seen(|seen| {
            for ((namespace, _), (_, cluster)) in &seen.parents {
                if let Some(cluster) = cluster {
                    let of_cluster = counts.entry(cluster.clone()).or_default();
                    *of_cluster.entry(namespace.clone()).or_default() += 1;
                }
            }
        });
        counts
    }

    /// A Glance is gone.
    pub fn glance_gone(&self, glance: &Glance) {
        let key = key_of(glance);
        self.with_index(|index| index.remove_glance(&key));
        self.with_seen(|seen| {
            seen.parents.remove(&key);
            seen.mounted.remove(&key);
        });
        self.placements.send_modify(|count| *count += 1);
        self.wake_backends_of(&key);
    }

    /// A backend appeared or changed, status included: its Glance looks at it again.
    pub fn backend_seen(&self, backend: &GlanceBackend) {
        self.with_index(|index| index.put_backend(backend));
        let key = key_of(backend);
        let facts = (
            backend.uid(),
            backend.metadata.generation,
            backend.metadata.deletion_timestamp.is_some(),
            is_credential_ready(backend),
            is_undetermined(backend),
        );
        let before = self.with_seen(|seen| seen.backends.insert(key.clone(), facts.clone()));
        if before != Some(facts) {
            self.wake_parent_of(&key);
        }
    }

    /// A backend is gone.
    pub fn backend_gone(&self, backend: &GlanceBackend) {
        let key = key_of(backend);
        self.wake_parent_of(&key);
        self.with_index(|index| index.remove_backend(&key));
        self.with_seen(|seen| seen.backends.remove(&key));
    }

    /// The Deployment of a Glance is this one now: when it mounts other stores than before, they look at it.
    pub fn deployment_seen(&self, glance: &CrKey, deployment: Option<&DynamicObject>) {
        let mounted = deployment
            .and_then(|live| volumes::mounted(&live.data).1)
            .map(str::to_owned);
        let before = self.with_seen(|seen| seen.mounted.insert(glance.clone(), mounted.clone()));
        if before.as_ref() != Some(&mounted) {
            self.wake_backends_of(glance);
        }
    }

    /// Waits until both kinds of CR have been listed once: what is not known before may well be there.
    pub async fn listed(&self) {
        // Not the stores' own readiness: it wakes only the last of several that wait for it.
        for listed in [&self.glances_listed, &self.backends_listed] {
            // The sender lives as long as the router: there is always an answer.
            let _ = listed.subscribe().wait_for(|listed| *listed).await;
        }
    }

    /// The store of the Glances holds a whole list.
    pub fn glances_listed(&self) {
        self.glances_listed.send_replace(true);
    }

    /// The store of the backends holds a whole list.
    pub fn backends_listed(&self) {
        self.backends_listed.send_replace(true);
    }

    /// The Glance of this name, as the hub's watch knows it.
    pub fn glance(&self, namespace: &str, name: &str) -> Option<std::sync::Arc<Glance>> {
        self.glances.get(&ObjectRef::new(name).within(namespace))
    }

    /// The backend of this name, as the hub's watch knows it.
    pub fn backend(&self, namespace: &str, name: &str) -> Option<std::sync::Arc<GlanceBackend>> {
        self.backends.get(&ObjectRef::new(name).within(namespace))
    }

    /// The backends attached to a Glance, by name.
    pub fn attached(&self, namespace: &str, name: &str) -> Vec<std::sync::Arc<GlanceBackend>> {
        let key = (namespace.to_owned(), name.to_owned());
        let mut backends: Vec<_> = self
            .with_index(|index| index.backends_of(&key))
            .into_iter()
            .filter_map(|(namespace, name)| {
                self.backends.get(&ObjectRef::new(&name).within(&namespace))
            })
            .collect();
        backends.sort_by_key(|backend| backend.name_any());
        backends
    }

    /// Wakes every CR that lives on this cluster, and their backends.
    pub fn wake_cluster(&self, cluster: &str) {
        for glance in self.glances.state() {
            if cluster_label(&glance) == cluster {
                self.wake(&key_of(glance.as_ref()));
                self.wake_backends_of(&key_of(glance.as_ref()));
            }
        }
    }

    /// Wakes one Glance.
    pub fn wake(&self, (namespace, name): &CrKey) {
        self.wake_glance
            .send(ObjectRef::new(name).within(namespace));
    }

    fn wake_backend(&self, (namespace, name): &CrKey) {
        self.wake_backend
            .send(ObjectRef::new(name).within(namespace));
    }

    fn wake_backends_of(&self, glance: &CrKey) {
        for backend in self.with_index(|index| index.backends_of(glance)) {
            self.wake_backend(&backend);
        }
    }

    fn wake_parent_of(&self, backend: &CrKey) {
        if let Some(parent) = self.with_index(|index| index.parent_of(backend)) {
            self.wake(&parent);
        }
    }

    /// The gate: the CR exists and its children live on this cluster.
    fn lives_on(&self, (namespace, name): &CrKey, cluster: &str) -> bool {
        self.glance(namespace, name)
            .is_some_and(|glance| cluster_label(&glance) == cluster)
    }

    fn wake_dependents(&self, cluster: &str, dependency: &Dependency) {
        for dependent in self.with_index(|index| index.dependents(dependency)) {
            match dependent {
                Dependent::Glance(key) if self.lives_on(&key, cluster) => self.wake(&key),
                Dependent::Backend(key) => {
                    let parent = self.with_index(|index| index.parent_of(&key));
                    if let Some(parent) = parent.filter(|parent| self.lives_on(parent, cluster)) {
                        self.wake_backend(&key);
                        self.wake(&parent);
                    }
                }
                Dependent::Glance(_) => {}
            }
        }
    }

    /// Whether an event of a Job tells more than that its pods are at work.
    fn is_news_of_job(&self, cluster: &str, job: &DynamicObject, is_gone: bool) -> bool {
        let key = (cluster.to_owned(), key_of(job));
        if is_gone {
            return true;
        }
        // Runs of the purge are shown while they last.
        if runs::glance_of(&kinds::JOB, job).is_some() {
            return true;
        }
        let status = &job.data["status"];
        let ended = ["conditions", "failed", "succeeded"].map(|field| status[field].to_string());
        let is_young = ended.iter().all(|field| field == "null");
        let meta = &job.metadata;
        let mut hasher = DefaultHasher::new();
        (&meta.uid, meta.generation, &meta.labels, &meta.annotations).hash(&mut hasher);
        (meta.deletion_timestamp.is_some(), &meta.finalizers, &ended).hash(&mut hasher);
        let owners = meta.owner_references.iter().flatten();
        owners.for_each(|owner| owner.uid.hash(&mut hasher));
        let now = hasher.finish();
        match self.with_seen(|seen| seen.jobs.insert(key, now)) {
            Some(before) => before != now,
            None => !is_young || meta.deletion_timestamp.is_some(),
        }
    }

    fn with_seen<T>(&self, use_it: impl FnOnce(&mut Seen) -> T) -> T {
        use_it(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn with_index<T>(&self, use_it: impl FnOnce(&mut Index) -> T) -> T {
        use_it(&mut self.index.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Routes for Router {
    fn wants(&self, cluster: &str, kind: &Kind, object: &DynamicObject) -> bool {
        if owner_of(cluster, kind, object).is_some() {
            return true;
        }
        match dependency_of(kind, object) {
            // What stores and database clusters there are is small; credentials and policies are not.
            Some(dependency) if is_bulk(kind) => {
                self.with_index(|index| index.is_named(&dependency))
            }
            Some(_) => true,
            None => false,
        }
    }

    fn changed(&self, cluster: &str, kind: &Kind, object: &DynamicObject, is_gone: bool) {
        if is_gone && kind.kind == kinds::JOB.kind {
            // Also of a Glance that went before it.
            self.with_seen(|seen| seen.jobs.remove(&(cluster.to_owned(), key_of(object))));
        }
        if let Some(key) = owner_of(cluster, kind, object).filter(|key| self.lives_on(key, cluster))
        {
            if kind.kind != kinds::JOB.kind || self.is_news_of_job(cluster, object, is_gone) {
                self.wake(&key);
            }
            if kind.kind == kinds::DEPLOYMENT.kind {
                self.deployment_seen(&key, (!is_gone).then_some(object));
            }
        }
        if let Some(dependency) = dependency_of(kind, object) {
            self.wake_dependents(cluster, &dependency);
        }
    }

    fn capability_changed(&self, cluster: &str, kind: &Kind) {
        tracing::info!(
            cluster,
            kind = kind.kind,
            "what the cluster serves has changed"
        );
        self.wake_cluster(cluster);
    }
}

/// Namespace and name of a CR or of a child.
pub fn key_of<K: Resource>(object: &K) -> CrKey {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn owner_of(cluster: &str, kind: &Kind, object: &DynamicObject) -> Option<CrKey> {
    let marked = if cluster == LOCAL {
        ownership::local_owner(&object.metadata)
    } else {
        ownership::remote_owner(&object.metadata)
    };
    marked.or_else(|| runs::glance_of(kind, object))
}

fn is_bulk(kind: &Kind) -> bool {
    [&kinds::SECRET, &kinds::CONFIG_MAP, &kinds::EXTERNAL_SECRET]
        .iter()
        .any(|bulk| bulk.kind == kind.kind)
}

fn dependency_of(kind: &Kind, object: &DynamicObject) -> Option<Dependency> {
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    match kind.kind {
        // An ExternalSecret has the name of the Secret it makes, and explains its absence.
        "Secret" | "ExternalSecret" => Some(Dependency::Secret(namespace, name)),
        "ConfigMap" => Some(Dependency::ConfigMap(namespace, name)),
        "MariaDB" => Some(Dependency::MariaDb(namespace, name)),
        "SecretStore" => Some(Dependency::SecretStore(namespace, name)),
        "ClusterSecretStore" => Some(Dependency::ClusterSecretStore(name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use glance_api::glance::TargetClusterRef;
    use kube::runtime::{reflector::store::Writer, watcher};
    use rstest::rstest;
    use serde_json::{Value, json};
    use target_registry::Triggered;

    use super::*;
    use crate::testing;

    struct World {
        router: Router,
        glances: Writer<Glance>,
        woken: Triggered<ObjectRef<Glance>>,
        woken_backends: Triggered<ObjectRef<GlanceBackend>>,
    }

    impl World {
        fn new() -> Self {
            let (glance_store, glances) = kube::runtime::reflector::store();
            let (backend_store, _) = kube::runtime::reflector::store();
            let (wake, woken) = Trigger::new();
            let (wake_backend, woken_backends) = Trigger::new();
            Self {
                router: Router::new(glance_store, backend_store, wake, wake_backend),
                glances,
                woken,
                woken_backends,
            }
        }

        fn apply(&mut self, glance: &Glance) {
            self.router.glance_seen(glance);
            self.glances
                .apply_watcher_event(&watcher::Event::Apply(glance.clone()));
        }

        fn woken(&mut self) -> Vec<String> {
            drain(&mut self.woken)
        }

        fn woken_backends(&mut self) -> Vec<String> {
            drain(&mut self.woken_backends)
        }
    }

    fn drain<K: kube::Resource<DynamicType = ()>>(
        stream: &mut Triggered<ObjectRef<K>>,
    ) -> Vec<String> {
        use futures::{FutureExt, StreamExt};
        let mut names = Vec::new();
        while let Some(Some(reference)) = stream.next().now_or_never() {
            names.push(reference.name);
        }
        names.sort();
        names
    }

    fn placed(name: &str, cluster: &str) -> Glance {
        let mut glance = testing::glance(name);
        glance.spec.target_cluster_ref = Some(TargetClusterRef {
            name: cluster.into(),
        });
        glance
    }

    fn backend(name: &str, parent: &str, ready: bool) -> GlanceBackend {
        serde_json::from_value(json!({
            "apiVersion": "glance.openstack.c5c3.io/v1alpha1",
            "kind": "GlanceBackend",
            "metadata": {"name": name, "namespace": "tenant", "uid": name, "generation": 1},
            "spec": {
                "glanceRef": {"name": parent},
                "type": "S3",
                "s3": {
                    "host": "https://s3.example.org", "bucket": "b",
                    "credentialsSecretRef": {"name": "s3-login"},
                },
            },
            "status": {"conditions": [{
                "type": "CredentialsReady", "status": if ready { "True" } else { "False" },
                "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        }))
        .unwrap()
    }

    fn object(kind: &Kind, meta: Value) -> DynamicObject {
        let mut object = DynamicObject::new("", &kind.api_resource());
        object.metadata = serde_json::from_value(meta).unwrap();
        object
    }

    fn secret(name: &str) -> DynamicObject {
        object(&kinds::SECRET, json!({"name": name, "namespace": "tenant"}))
    }

    #[tokio::test]
    async fn every_pass_that_waits_for_the_first_lists_goes_on_after_them() {
        use futures::FutureExt;
        let world = World::new();
        let waiting = futures::future::join_all((0..8).map(|_| world.router.listed()));
        tokio::pin!(waiting);

        world.router.glances_listed();
        assert_eq!(waiting.as_mut().now_or_never(), None);
        world.router.backends_listed();

        tokio::time::timeout(std::time::Duration::from_secs(5), waiting)
            .await
            .expect("all of them go on");
    }

    #[rstest]
    #[case::on_its_cluster("edge-1", &["images"])]
    #[case::on_another("edge-2", &[])]
    #[case::on_the_hub(LOCAL, &[])]
    fn an_event_wakes_only_a_glance_that_lives_on_the_cluster_it_came_from(
        #[case] cluster: &str,
        #[case] woken: &[&str],
    ) {
        let mut world = World::new();
        world.apply(&placed("images", "edge-1"));
        world.woken();
        world
            .router
            .changed(cluster, &kinds::SECRET, &secret("glance-db"), false);
        assert_eq!(world.woken(), woken);
        let labels = json!({
            "name": "images", "namespace": "tenant",
            "labels": {
                "openstack.c5c3.io/owner-kind": "Glance",
                "openstack.c5c3.io/owner-name": "images",
                "openstack.c5c3.io/owner-namespace": "tenant",
            },
        });
        world.router.changed(
            cluster,
            &kinds::SERVICE,
            &object(&kinds::SERVICE, labels),
            true,
        );
        assert_eq!(world.woken(), woken);
    }

    #[test]
    fn a_labelled_object_of_a_glance_that_does_not_exist_wakes_nobody() {
        let mut world = World::new();
        let labels = json!({
            "name": "x", "namespace": "tenant",
            "labels": {
                "openstack.c5c3.io/owner-kind": "Glance",
                "openstack.c5c3.io/owner-name": "ghost",
                "openstack.c5c3.io/owner-namespace": "tenant",
            },
        });
        world.router.changed(
            "edge-1",
            &kinds::SERVICE,
            &object(&kinds::SERVICE, labels),
            false,
        );
        assert!(world.woken().is_empty());
    }

    #[test]
    fn credentials_of_a_backend_wake_it_and_its_glance() {
        let mut world = World::new();
        world.apply(&placed("images", "edge-1"));
        world
            .router
            .backend_seen(&backend("store", "images", false));
        world.woken();
        world.woken_backends();
        world
            .router
            .changed("edge-1", &kinds::SECRET, &secret("s3-login"), false);
        assert_eq!(world.woken(), ["images"]);
        assert_eq!(world.woken_backends(), ["store"]);
    }

    #[test]
    fn a_status_write_that_says_nothing_new_wakes_nobody() {
        let mut world = World::new();
        let glance = testing::glance("images");
        world.apply(&glance);
        world
            .router
            .backend_seen(&backend("store", "images", false));
        assert_eq!(world.woken(), ["images"]);
        world
            .router
            .backend_seen(&backend("store", "images", false));
        assert!(world.woken().is_empty());
        world.router.backend_seen(&backend("store", "images", true));
        assert_eq!(world.woken(), ["images"]);
        world.woken_backends();
        world.apply(&glance);
        assert!(world.woken_backends().is_empty());
        world.router.glance_gone(&glance);
        assert_eq!(world.woken_backends(), ["store"]);
    }

    #[test]
    fn a_job_that_merely_runs_wakes_nobody_and_its_end_does() {
        let mut world = World::new();
        world.apply(&placed("images", "edge-1"));
        world.woken();
        let job = |labels: Value, status: Value| {
            let mut job = object(
                &kinds::JOB,
                json!({
                    "name": "images-db-sync", "namespace": "tenant",
                    "uid": "u", "labels": labels,
                }),
            );
            job.data = json!({ "status": status });
            job
        };
        let labels = json!({
            "openstack.c5c3.io/owner-kind": "Glance",
            "openstack.c5c3.io/owner-name": "images",
            "openstack.c5c3.io/owner-namespace": "tenant",
        });
        let mut edited = labels.clone();
        edited["by"] = json!("somebody");
        let running = json!({ "active": 1, "startTime": "2026-01-01T00:00:00Z" });
        let done =
            json!({ "succeeded": 1, "conditions": [{ "type": "Complete", "status": "True" }] });
        for (what, job, is_gone, woken) in [
            ("created", job(labels.clone(), json!({})), false, &[][..]),
            ("at work", job(labels.clone(), running.clone()), false, &[]),
            ("edited", job(edited.clone(), running), false, &["images"]),
            (
                "done",
                job(edited.clone(), done.clone()),
                false,
                &["images"],
            ),
            (
                "the same again",
                job(edited.clone(), done.clone()),
                false,
                &[],
            ),
            ("gone", job(edited.clone(), done.clone()), true, &["images"]),
            (
                "first seen when done",
                job(edited, done),
                false,
                &["images"],
            ),
        ] {
            world.router.changed("edge-1", &kinds::JOB, &job, is_gone);
            assert_eq!(world.woken(), woken, "{what}");
        }
    }

    #[test]
    fn a_secret_nobody_names_is_not_remembered() {
        let mut world = World::new();
        world.apply(&testing::glance("images"));
        let wants = |name| world.router.wants(LOCAL, &kinds::SECRET, &secret(name));
        assert!(wants("glance-db") && wants("glance-service-user"));
        assert!(!wants("somebody-elses"));
    }

    #[test]
    fn a_spec_that_names_another_secret_lets_go_of_the_first() {
        let mut world = World::new();
        let mut glance = testing::glance("images");
        world.apply(&glance);
        glance.spec.database.secret_ref.name = "other-db".into();
        world.apply(&glance);
        let wants = |name| world.router.wants(LOCAL, &kinds::SECRET, &secret(name));
        assert!(wants("other-db"));
        assert!(!wants("glance-db"));
    }
}
