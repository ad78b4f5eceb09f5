//! Looks whether a cluster offers what it will be used for, before something fails halfway: rights,
//! namespaces, kinds.

mod rules;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::{
    authorization::v1::{
        ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
        SelfSubjectRulesReview, SelfSubjectRulesReviewSpec,
    },
    core::v1::Namespace,
};
use kube::{
    Api,
    api::PostParams,
    core::{DynamicObject, PartialObjectMeta},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::rules::allows;
use crate::{
    Change, Cluster, Informer, InformerSpec, Kind, Payload,
    backoff::{Backoff, jittered},
    failure::{error_code, error_text},
    objects::{Findings, NAMESPACE},
    registry::Shared,
    target_cluster::MissingPermission,
};

/// How often a cluster on which nothing is missing is looked at again.
const CONTENT: Duration = Duration::from_mins(10);

/// The same while something is missing: soon after anything has changed, and less often later.
const WANTING: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// Shortest time until a call that was not allowed is a reason to look again: what is denied for another
/// reason than want of a right, a quota for one, is denied again and again.
const DENIED: Duration = Duration::from_secs(10);

/// A namespace that no cluster has: what may be done in it may be done everywhere.
const NOWHERE: &str = "target-registry-preflight";

/// What every cluster is used for.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// What the credential has to be allowed to do.
    pub permissions: Vec<Permission>,
    /// Optional kinds whose presence is worth showing.
    pub capabilities: Vec<Kind>,
}

/// Verbs on one resource.
#[derive(Clone, Debug)]
pub struct Permission {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// Resource, with its subresource if it is about one.
    pub resource: &'static str,
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// Whether it is needed in each declared namespace, or outside of all.
    pub namespaced: bool,
    /// Needed only where this kind is served.
    pub only_with: Option<Kind>,
}

/// Starts a look at every cluster that is connected, and at each new connection.
pub(crate) async fn run(shared: Arc<Shared>, needs: Needs, stop: CancellationToken) {
    let needs = Arc::new(needs);
    let mut published = shared.published();
    let mut begun = BTreeMap::new();
    loop {
        published.mark_unchanged();
        let states = shared.states();
        begun.retain(|name: &String, _| {
            let stays = states.contains_key(name);
            if !stays {
                shared.reports.forget_findings(name);
            }
            stays
        });
        for name in states.keys() {
            let Ok(cluster) = shared.resolve(name) else {
                continue;
            };
            let generation = cluster.generation();
            if begun.insert(name.clone(), generation) != Some(generation) {
                let end = cluster.stop_token().clone();
                let looking = follow(shared.clone(), Arc::downgrade(&cluster), needs.clone());
                cluster.spawn(async move {
                    end.run_until_cancelled(looking).await;
                });
            }
        }
        tokio::select! {
            changed = published.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

/// Looks at one connection again and again, for as long as it lasts.
async fn follow(shared: Arc<Shared>, cluster: std::sync::Weak<Cluster>, needs: Arc<Needs>) {
    let Some(present) = cluster.upgrade() else {
        return;
    };
    let (legs, throttle) = (present.legs(), present.throttle().clone());
    let (mut rotated, denied) = (legs.rotated.clone(), legs.denied.clone());
    drop((legs, present));
    let mut reports = shared.reports.changes();
    let appeared = Arc::new(Notify::new());
    let mut watched: Option<(BTreeSet<String>, Arc<Informer>)> = None;
    let mut backoff = Backoff::new(WANTING.0, WANTING.1);
    loop {
        rotated.mark_unchanged();
        reports.mark_unchanged();
        let Some(present) = cluster.upgrade() else {
            return;
        };
        let name = present.name().to_owned();
        let wanted = wanted(&shared, &present);
        let findings = present.look(&needs, &wanted).await;
        let is_content = matches!(&findings, Ok(findings) if findings.is_content());
        match findings {
            Ok(findings) => {
                if shared.reports.findings(&name).as_deref() != Some(&findings) {
                    backoff.reset();
                }
                let missing: BTreeSet<_> = findings.missing_namespaces.iter().cloned().collect();
                if missing.is_empty() {
                    watched = None;
                } else if watched.as_ref().is_none_or(|(known, _)| *known != missing) {
                    let informer = present.informer(appearing(&missing, &appeared));
                    watched = Some((missing, informer));
                }
                shared.found(&name, findings);
            }
            // What was found before still stands; that the cluster is out of reach is shown elsewhere.
            Err(error) => {
                tracing::debug!(cluster = name, error = error_text(&error), "no preflight");
            }
        }
        drop(present);
        let pause = if is_content {
            jittered(CONTENT)
        } else {
            backoff.next()
        };
        let others = async {
            loop {
                if reports.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                let now = cluster
                    .upgrade()
                    .map(|cluster| self::wanted(&shared, &cluster));
                if now.is_none_or(|now| now != wanted) {
                    return;
                }
            }
        };
        let refused = async {
            tokio::time::sleep(DENIED).await;
            throttle.denied().await;
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = refused => {}
            Ok(()) = rotated.changed() => {}
            () = appeared.notified() => {}
            () = denied.notified() => {}
            () = others => {}
        }
    }
}

/// The namespaces that have to be there: the declared ones, else those somebody uses.
fn wanted(shared: &Shared, cluster: &Cluster) -> BTreeSet<String> {
    match cluster.namespaces() {
        Some(declared) => declared.clone(),
        None => shared.reports.used(cluster.name()),
    }
}

/// Tells when one of the namespaces appears, and of no other. Where that may not be watched, the next look does.
fn appearing(missing: &BTreeSet<String>, appeared: &Arc<Notify>) -> InformerSpec {
    let (missing, appeared) = (missing.clone(), appeared.clone());
    let is_missing = move |object: &DynamicObject| {
        let name = object.metadata.name.as_deref();
        name.is_some_and(|name| missing.contains(name))
    };
    let told = is_missing.clone();
    InformerSpec {
        kind: NAMESPACE,
        selector: None,
        payload: Payload::Metadata,
        keep: Arc::new(is_missing),
        reduce: Arc::new(|object: &mut DynamicObject| {
            object.metadata.managed_fields = None;
            object.metadata.annotations = None;
        }),
        on_change: Arc::new(move |_: &Cluster, change: &Change| {
            if matches!(change, Change::Applied(object) if told(object)) {
                appeared.notify_one();
            }
        }),
    }
}

// === impl Findings ===

impl Findings {
    fn is_content(&self) -> bool {
        self.missing.is_empty() && self.missing_namespaces.is_empty() && self.failure.is_none()
    }
}

// === impl Cluster ===

impl Cluster {
    async fn look(
        &self,
        needs: &Needs,
        wanted: &BTreeSet<String>,
    ) -> Result<Findings, kube::Error> {
        let mut findings = Findings::default();
        if needs.permissions.is_empty() && needs.capabilities.is_empty() {
            return Ok(findings);
        }
        for kind in &needs.capabilities {
            if self.serves(kind).await.unwrap_or(false) {
                findings.capabilities.push(kind.kind.to_owned());
            }
        }
        let mut needed = Vec::new();
        for permission in &needs.permissions {
            let is_needed = match &permission.only_with {
                Some(kind) => self.serves(kind).await.unwrap_or(true),
                None => true,
            };
            if is_needed {
                needed.push(permission);
            }
        }
        let mut places = Vec::new();
        for namespace in wanted {
            if self.lacks_namespace(namespace).await? {
                findings.missing_namespaces.push(namespace.clone());
            } else if self.namespaces().is_some() {
                places.push(Some(namespace.as_str()));
            }
        }
        if self.namespaces().is_none() {
            places.push(None);
        }
        for (index, place) in places.into_iter().enumerate() {
            // What lies outside of all namespaces is the same seen from each of them.
            let here = needed
                .iter()
                .filter(|p| p.namespaced || index == 0)
                .copied();
            if let Err(failure) = self.review(here, place, &mut findings.missing).await {
                if !matches!(error_code(&failure), Some(403 | 404)) {
                    return Err(failure);
                }
                findings.failure = Some(format!(
                    "the cluster does not tell what the credential may do: {}",
                    error_text(&failure)
                ));
            }
        }
        findings.missing.sort();
        findings.missing.dedup();
        Ok(findings)
    }

    /// Whether a namespace is certainly not there. One that may not be asked for counts as there.
    ///
    /// # Errors
    ///
    /// When the cluster does not answer.
    pub async fn lacks_namespace(&self, name: &str) -> Result<bool, kube::Error> {
        let api: Api<PartialObjectMeta<Namespace>> = Api::all(self.client());
        match api.get(name).await {
            Ok(_) => Ok(false),
            Err(error) => match error_code(&error) {
                Some(404) => Ok(true),
                Some(403) => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// Adds what is needed and not allowed, in a namespace or everywhere.
    async fn review<'p>(
        &self,
        needed: impl Iterator<Item = &'p Permission>,
        namespace: Option<&str>,
        missing: &mut Vec<MissingPermission>,
    ) -> Result<(), kube::Error> {
        let question = SelfSubjectRulesReview {
            spec: SelfSubjectRulesReviewSpec {
                namespace: Some(namespace.unwrap_or(NOWHERE).to_owned()),
            },
            ..SelfSubjectRulesReview::default()
        };
        let reviews: Api<SelfSubjectRulesReview> = Api::all(self.client());
        let answer = reviews.create(&PostParams::default(), &question).await?;
        let status = answer.status.unwrap_or_default();
        for permission in needed {
            for verb in permission.verbs {
                let known = allows(
                    &status.resource_rules,
                    verb,
                    permission.group,
                    permission.resource,
                );
                let place = namespace.filter(|_| permission.namespaced);
                // Not every authorizer can list its rules.
                let is_allowed =
                    known || status.incomplete && self.may(permission, verb, place).await?;
                if !is_allowed {
                    missing.push(MissingPermission {
                        verb: (*verb).to_owned(),
                        group: permission.group.to_owned(),
                        resource: permission.resource.to_owned(),
                        namespace: place.map(str::to_owned),
                    });
                }
            }
        }
        Ok(())
    }

    /// Asks about one verb.
    async fn may(
        &self,
        permission: &Permission,
        verb: &str,
        namespace: Option<&str>,
    ) -> Result<bool, kube::Error> {
        let (resource, subresource) = match permission.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (permission.resource, None),
        };
        let question = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    group: Some(permission.group.to_owned()),
                    resource: Some(resource.to_owned()),
                    subresource,
                    namespace: namespace.map(str::to_owned),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client());
        let answer = reviews.create(&PostParams::default(), &question).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClientOptions;

    #[tokio::test]
    async fn only_a_namespace_that_is_missing_leads_to_another_look() {
        let config = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        let cluster = Cluster::hub(config, None, &ClientOptions::default()).unwrap();
        let appeared = Arc::new(Notify::new());
        let spec = appearing(&["wanted".to_owned()].into(), &appeared);
        let tells = |name: &str| {
            let object = DynamicObject::new(name, &NAMESPACE.api_resource());
            (spec.on_change)(&cluster, &Change::Applied(Arc::new(object)));
            let told = futures::FutureExt::now_or_never(appeared.notified());
            told.is_some()
        };
        assert!(!tells("another"));
        assert!(tells("wanted"));
    }
}
