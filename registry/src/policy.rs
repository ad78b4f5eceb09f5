//! What may be done with a cluster, and by whom: read from its `TargetCluster`.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::watch;

use crate::{
    TargetCluster, TargetClusterSpec, Unresolved,
    informer::Phase,
    mirror::Mirror,
    target_cluster::{AllowedNamespaces, DEFAULT_MAX_IN_FLIGHT},
};

/// Labels of a namespace.
pub(crate) type Labels = BTreeMap<String, String>;

/// What a cluster is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To read. A paused cluster may be read.
    Read,
    /// To write.
    Work,
    /// To remove what was written. Needs no grant.
    Teardown,
}

/// The policies of all clusters, as the hub has them now.
pub(crate) struct Policies {
    pub(crate) objects: Arc<Mirror<TargetCluster>>,
    pub(crate) namespaces: Arc<Mirror<Labels>>,
    /// Without a `TargetCluster` that says otherwise: nobody, instead of everybody.
    require_grants: bool,
    limit: usize,
    settled: watch::Sender<bool>,
}

// === impl Policies ===

impl Policies {
    pub(crate) fn new(
        objects: Arc<Mirror<TargetCluster>>,
        namespaces: Arc<Mirror<Labels>>,
        require_grants: bool,
        limit: usize,
    ) -> Self {
        Self {
            objects,
            namespaces,
            require_grants,
            limit,
            settled: watch::Sender::new(false),
        }
    }

    /// Whether the policies have been read, or there are none to be read.
    pub(crate) fn settled(&self) -> watch::Receiver<bool> {
        self.settled.subscribe()
    }

    /// Reads the policies once, however long the hub needs: to work without a policy that exists
    /// would be worse than to wait.
    pub(crate) async fn settle(&self) {
        until_known(self.objects.phases()).await;
        if self.objects.all().values().any(|o| selects(&o.spec)) {
            until_known(self.namespaces.phases()).await;
        }
        self.settled.send_replace(true);
    }

    /// Whether a namespace may use a cluster for this.
    pub(crate) fn admit(
        &self,
        name: &str,
        namespace: &str,
        purpose: Purpose,
    ) -> Result<(), Unresolved> {
        if !*self.settled.borrow() {
            return Err(Unresolved::Pending {
                name: name.to_owned(),
            });
        }
        let object = self.objects.get(name);
        let spec = object.as_ref().map(|object| &object.spec);
        if purpose != Purpose::Read && spec.is_some_and(TargetClusterSpec::is_paused) {
            return Err(Unresolved::Paused {
                name: name.to_owned(),
            });
        }
        let allowed = spec.and_then(|spec| spec.allowed_namespaces.as_ref());
        if purpose != Purpose::Teardown && !self.grants(allowed, namespace) {
            return Err(Unresolved::NotGranted {
                name: name.to_owned(),
                namespace: namespace.to_owned(),
            });
        }
        Ok(())
    }

    pub(crate) fn is_paused(&self, name: &str) -> bool {
        let object = self.objects.get(name);
        object.is_some_and(|object| object.spec.is_paused())
    }

    /// The identity that is demanded by hand.
    pub(crate) fn pinned(&self, name: &str) -> Option<String> {
        let object = self.objects.get(name)?;
        object.spec.pinned().map(str::to_owned)
    }

    /// The identity an earlier process has seen.
    pub(crate) fn seen(&self, name: &str) -> Option<String> {
        let object = self.objects.get(name)?;
        object.status.as_ref()?.cluster_uid.clone()
    }

    /// Whether its token is to be renewed.
    pub(crate) fn renews(&self, name: &str) -> bool {
        let object = self.objects.get(name);
        object.is_some_and(|object| object.spec.renew_credentials == Some(true))
    }

    /// How much may be under way at one time.
    pub(crate) fn limit(&self, name: &str) -> usize {
        match self.objects.get(name) {
            Some(object) if object.spec.max_in_flight.is_some() => object.spec.limit(),
            _ => self.limit,
        }
    }

    fn grants(&self, allowed: Option<&AllowedNamespaces>, namespace: &str) -> bool {
        match allowed {
            None => !self.require_grants,
            Some(allowed) => allowed.admits(namespace, self.namespaces.get(namespace).as_deref()),
        }
    }
}

impl Default for Policies {
    /// Without any policy.
    fn default() -> Self {
        let policies = Self::new(
            Arc::new(Mirror::new(|_| None, |_, _, _| {})),
            Arc::new(Mirror::new(|_| None, |_, _, _| {})),
            false,
            DEFAULT_MAX_IN_FLIGHT,
        );
        policies.settled.send_replace(true);
        policies
    }
}

/// Whether grants depend on labels.
pub(crate) fn selects(spec: &TargetClusterSpec) -> bool {
    let allowed = spec.allowed_namespaces.as_ref();
    allowed.is_some_and(|allowed| allowed.selector.is_some())
}

/// Whether two specs differ in what concerns who uses the cluster.
pub(crate) fn differs(before: Option<&TargetCluster>, now: Option<&TargetCluster>) -> bool {
    let default = TargetClusterSpec::default();
    let spec = |object: Option<&TargetCluster>| object.map_or(default.clone(), |o| o.spec.clone());
    spec(before) != spec(now)
}

/// The clusters that admit a namespace with these labels and did not before, or the other way.
pub(crate) fn regranted(
    clusters: &BTreeMap<String, Arc<TargetCluster>>,
    namespace: &str,
    before: Option<&Labels>,
    now: Option<&Labels>,
) -> Vec<String> {
    let turned = |object: &TargetCluster| {
        let Some(allowed) = &object.spec.allowed_namespaces else {
            return false;
        };
        allowed.admits(namespace, before) != allowed.admits(namespace, now)
    };
    clusters
        .iter()
        .filter(|(_, object)| turned(object))
        .map(|(name, _)| name.clone())
        .collect()
}

async fn until_known(mut phases: watch::Receiver<Phase>) {
    let known = |phase: &Phase| {
        matches!(
            phase,
            Phase::Synced | Phase::NotServed | Phase::Forbidden(_)
        )
    };
    // Ends early only with the mirror itself.
    let _ = phases.wait_for(known).await;
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn policies(spec: Option<Value>, require_grants: bool) -> Policies {
        let objects = Mirror::new(|o: DynamicObject| o.try_parse().ok(), |_, _, _| {});
        if let Some(spec) = spec {
            let object = json!({
                "apiVersion": "clusters.openstack.c5c3.io/v1alpha1", "kind": "TargetCluster",
                "metadata": { "name": "blue", "resourceVersion": "1" }, "spec": spec,
            });
            objects.fold(serde_json::from_value(object).unwrap());
        }
        let namespaces = Mirror::new(
            |o: DynamicObject| Some(o.metadata.labels.unwrap_or_default()),
            |_, _, _| {},
        );
        for (name, tenant) in [("one", "a"), ("two", "b")] {
            let object = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": name, "resourceVersion": "1", "labels": { "tenant": tenant } },
            });
            namespaces.fold(serde_json::from_value(object).unwrap());
        }
        let policies = Policies::new(Arc::new(objects), Arc::new(namespaces), require_grants, 8);
        policies.settled.send_replace(true);
        policies
    }

    fn selector() -> Value {
        json!({"allowedNamespaces": {"names": ["three"], "selector": {"matchLabels": {"tenant": "a"}}}})
    }

    #[rstest]
    #[case::no_object(None, false, "one", true)]
    #[case::no_object_but_grants_required(None, true, "one", false)]
    #[case::no_grants(Some(json!({})), false, "one", true)]
    #[case::no_grants_but_required(Some(json!({})), true, "one", false)]
    #[case::an_empty_grant(Some(json!({"allowedNamespaces": {}})), false, "one", false)]
    #[case::by_name(Some(json!({"allowedNamespaces": {"names": ["one"]}})), true, "one", true)]
    #[case::not_by_name(Some(json!({"allowedNamespaces": {"names": ["one"]}})), false, "two", false)]
    #[case::by_label(Some(selector()), false, "one", true)]
    #[case::not_by_label(Some(selector()), false, "two", false)]
    #[case::by_either(Some(selector()), false, "three", true)]
    #[case::everybody(Some(json!({"allowedNamespaces": {"selector": {}}})), true, "two", true)]
    fn a_namespace_may_use_what_it_is_granted(
        #[case] spec: Option<Value>,
        #[case] require_grants: bool,
        #[case] namespace: &str,
        #[case] admitted: bool,
    ) {
        let policies = policies(spec, require_grants);
        let verdict = policies.admit("blue", namespace, Purpose::Work);
        assert_eq!(verdict.is_ok(), admitted, "{verdict:?}");
        if let Err(error) = verdict {
            let text = format!("cluster \"blue\" does not admit namespace \"{namespace}\"");
            assert!(error.to_string().starts_with(&text), "{error}");
            assert!(!error.may_abandon());
        }
        assert!(
            policies.admit("blue", namespace, Purpose::Teardown).is_ok(),
            "what exists may always be removed"
        );
    }

    #[test]
    fn a_pause_holds_writes_and_teardown_and_no_reads() {
        let policies = policies(Some(json!({"paused": true})), false);
        for purpose in [Purpose::Work, Purpose::Teardown] {
            let error = policies.admit("blue", "one", purpose).unwrap_err();
            assert!(error.to_string().contains("is paused"), "{error}");
            assert!(!error.may_abandon());
        }
        assert!(policies.admit("blue", "one", Purpose::Read).is_ok());
    }

    #[test]
    fn nobody_works_before_the_policies_are_known() {
        let policies = policies(None, false);
        policies.settled.send_replace(false);
        let error = policies.admit("blue", "one", Purpose::Work).unwrap_err();
        assert!(matches!(error, Unresolved::Pending { .. }));
    }
}
