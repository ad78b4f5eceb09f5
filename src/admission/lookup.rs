//! What a review has to know of the clusters.
//!
//! Read from the API server each time, never from a watch: a class or a sibling that was made a moment ago counts, and
//! a replica that does not lead has no watches (contract: custom-resource API, webhook registration).

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use glance_api::{backend::GlanceBackend, glance::Glance};
use k8s_openapi::api::{
    authentication::v1::UserInfo,
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    core::v1::Secret,
    scheduling::v1::PriorityClass,
};
use kube::{
    Api, Client, Resource,
    api::{DynamicObject, ListParams, PostParams},
    core::ApiResource,
};
use serde::de::DeserializeOwned;
use target_registry::{Purpose, Registry, Unresolved, error_code, error_text, target_cluster};

/// For a question that decides.
const DECIDING: Duration = Duration::from_secs(5);
/// For a question that only warns, and for one to another cluster.
const ADVISORY: Duration = Duration::from_secs(2);

/// Reads on behalf of reviews.
#[derive(Clone)]
pub struct Lookup {
    hub: Client,
    /// Where registrations are; `None` when target clusters are switched off.
    clusters_namespace: Option<String>,
    /// Filled on the replica that leads.
    registry: Arc<OnceLock<Registry>>,
    /// Whether naming a cluster takes a right of its own.
    authorize_use: bool,
}

/// What is known of a named `PriorityClass` where the pods will run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// It is there.
    Found,
    /// It is not.
    Missing,
    /// It could not be looked up, and that is reason to refuse.
    Failed(String),
    /// It could not be looked up, and nobody here can help that.
    Unchecked(String),
}

// === impl Lookup ===

impl Lookup {
    /// Reads from the hub, and from the clusters of `registry` once it is there.
    pub fn new(hub: Client, clusters_namespace: &str, registry: Arc<OnceLock<Registry>>) -> Self {
        Self {
            hub,
            clusters_namespace: Some(clusters_namespace.to_owned()).filter(|name| !name.is_empty()),
            registry,
            authorize_use: false,
        }
    }

    /// Whether [`Self::may_use`] asks at all.
    #[must_use]
    pub fn authorize_use(self, authorize_use: bool) -> Self {
        Self {
            authorize_use,
            ..self
        }
    }

    /// Whether a user may let a Glance run on a cluster: the verb `use` on its `TargetCluster`. An error when nobody
    /// could tell.
    pub async fn may_use(&self, user: &UserInfo, cluster: &str) -> Result<bool, String> {
        let namespace = self.clusters_namespace.as_ref();
        let Some(namespace) = namespace.filter(|_| self.authorize_use) else {
            return Ok(true);
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username.clone(),
                groups: user.groups.clone(),
                uid: user.uid.clone(),
                extra: user.extra.clone(),
                resource_attributes: Some(ResourceAttributes {
                    group: Some(target_cluster::GROUP.to_owned()),
                    resource: Some("targetclusters".to_owned()),
                    verb: Some("use".to_owned()),
                    namespace: Some(namespace.clone()),
                    name: Some(cluster.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.hub.clone());
        let params = PostParams::default();
        match tokio::time::timeout(DECIDING, reviews.create(&params, &review)).await {
            Ok(Ok(answer)) => Ok(answer.status.is_some_and(|status| status.allowed)),
            Ok(Err(error)) => Err(error_text(&error)),
            Err(_) => Err(no_answer(DECIDING)),
        }
    }

    /// A `PriorityClass` on the hub or on a target.
    pub async fn priority_class(&self, name: &str, target: Option<&str>) -> Class {
        let Some(target) = target else {
            return match exists::<PriorityClass>(Api::all(self.hub.clone()), name, DECIDING).await {
                Ok(true) => Class::Found,
                Ok(false) => Class::Missing,
                Err(Failure::Forbidden(text)) => Class::Unchecked(text),
                Err(Failure::Other(text)) => Class::Failed(text),
            };
        };
        let resolved = self.registry.get().map(|registry| registry.resolve(target));
        let cluster = match resolved {
            Some(Ok(cluster)) => cluster,
            Some(Err(unresolved)) => return Class::Unchecked(unresolved.to_string()),
            None => return Class::Unchecked("this replica is not connected to it".to_owned()),
        };
        match exists::<PriorityClass>(Api::all(cluster.client()), name, ADVISORY).await {
            Ok(true) => Class::Found,
            Ok(false) => Class::Missing,
            Err(Failure::Forbidden(text) | Failure::Other(text)) => Class::Unchecked(text),
        }
    }

    /// Whether a cluster of that name is registered, `None` when nobody knows.
    pub async fn is_registered(&self, cluster: &str) -> Option<bool> {
        let Some(namespace) = &self.clusters_namespace else {
            return Some(false);
        };
        match self
            .registry
            .get()
            .map(|registry| registry.resolve(cluster))
        {
            Some(Err(Unresolved::NotRegistered { .. } | Unresolved::Pending { .. })) | None => {}
            Some(_) => return Some(true),
        }
        // The registry may not have seen a new one yet.
        let secrets = Api::namespaced(self.hub.clone(), namespace);
        exists::<Secret>(secrets, cluster, ADVISORY).await.ok()
    }

    /// Why the policy of a cluster keeps a namespace out, as far as this replica knows it.
    pub fn not_granted(&self, cluster: &str, namespace: &str) -> Option<String> {
        let registry = self.registry.get()?;
        match registry.resolve_for(cluster, namespace, Purpose::Work) {
            Err(unresolved @ Unresolved::NotGranted { .. }) => Some(unresolved.to_string()),
            _ => None,
        }
    }

    /// Whether there is a Glance of that name, `None` when nobody knows.
    pub async fn has_glance(&self, namespace: &str, name: &str) -> Option<bool> {
        let glances = Api::namespaced(self.hub.clone(), namespace);
        exists::<Glance>(glances, name, ADVISORY).await.ok()
    }

    /// Every Glance of a namespace that can be read; none when nobody knows.
    pub async fn glances(&self, namespace: &str) -> Vec<Glance> {
        let kind = ApiResource::erase::<Glance>(&());
        let glances: Api<DynamicObject> = Api::namespaced_with(self.hub.clone(), namespace, &kind);
        let params = ListParams::default();
        match tokio::time::timeout(ADVISORY, glances.list(&params)).await {
            Ok(Ok(list)) => list
                .items
                .into_iter()
                .filter_map(|glance| glance.try_parse().ok())
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Every backend of a namespace. One that nobody could read counts as none: it must not block its siblings.
    pub async fn backends(&self, namespace: &str) -> Result<Vec<GlanceBackend>, String> {
        let kind = ApiResource::erase::<GlanceBackend>(&());
        let backends: Api<DynamicObject> = Api::namespaced_with(self.hub.clone(), namespace, &kind);
        let params = ListParams::default();
        match tokio::time::timeout(DECIDING, backends.list(&params)).await {
            Ok(Ok(list)) => Ok(list
                .items
                .into_iter()
                .filter_map(|backend| backend.try_parse().ok())
                .collect()),
            Ok(Err(error)) => Err(error_text(&error)),
            Err(_) => Err(no_answer(DECIDING)),
        }
    }
}

/// Why it is not known whether an object exists.
enum Failure {
    Forbidden(String),
    Other(String),
}

async fn exists<K>(api: Api<K>, name: &str, limit: Duration) -> Result<bool, Failure>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    match tokio::time::timeout(limit, api.get_metadata(name)).await {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(error)) => match error_code(&error) {
            Some(404) => Ok(false),
            Some(403) => Err(Failure::Forbidden(error_text(&error))),
            _ => Err(Failure::Other(error_text(&error))),
        },
        Err(_) => Err(Failure::Other(no_answer(limit))),
    }
}

fn no_answer(limit: Duration) -> String {
    format!("no answer within {} s", limit.as_secs())
}
