//! A test's own corner of the fleet: one namespace on every cluster, one for registrations on
//! the hub, and an operator that looks at nothing else. Tests in different corners do not see
//! each other.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{
    audit::account,
    cluster::Cluster,
    expect::Object,
    fleet::Fleet,
    operator::{Operator, Running},
    registration,
    scenario::Scenario,
    webhooks::Webhooks,
};

/// A corner.
#[derive(Debug)]
pub struct Site<'f> {
    fleet: &'f Fleet,
    namespace: String,
}

/// A corner with webhooks, not registered yet.
#[derive(Debug)]
pub struct Reviewed<'f> {
    /// The corner.
    pub site: Site<'f>,
    /// Its webhooks.
    pub webhooks: Webhooks,
    /// The namespace that they are asked about.
    pub namespace: String,
}

// === impl Reviewed ===

impl Reviewed<'_> {
    /// Starts the operator and registers the webhooks with the hub.
    pub async fn start(&self) -> Result<Running> {
        let operator = self.webhooks.on(self.site.operator().await?);
        let running = operator.start().await?;
        self.webhooks.register(self.site.hub()).await?;
        Ok(running)
    }
}

// === impl Site ===

impl<'f> Site<'f> {
    /// Makes the namespaces. `name` is short, of lower-case letters, digits and dashes.
    pub async fn open(fleet: &'f Fleet, name: &str) -> Result<Self> {
        // Clusters that existed before the test may still hold what an earlier run left.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let namespace = format!("t-{name}-{:04x}", now.as_millis() & 0xffff);
        for member in fleet.members() {
            member.cluster().namespace(&namespace).await?;
        }
        let site = Self { fleet, namespace };
        fleet.hub().namespace(&site.clusters_namespace()).await?;
        Ok(site)
    }

    /// The fleet.
    pub fn fleet(&self) -> &'f Fleet {
        self.fleet
    }

    /// The hub.
    pub fn hub(&self) -> &'f Cluster {
        self.fleet.hub()
    }

    /// The namespace of everything that is not a registration.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The namespace of the registrations on the hub.
    pub fn clusters_namespace(&self) -> String {
        format!("{}-clusters", self.namespace)
    }

    /// The namespace of the hub's account on a target.
    pub fn access_namespace(&self) -> String {
        format!("{}-access", self.namespace)
    }

    /// The user name of the hub in audit logs of targets.
    pub fn user_on_targets(&self) -> String {
        account(&self.access_namespace(), registration::ACCOUNT)
    }

    /// The operator of this corner, under its chart's rights, not started yet.
    pub async fn operator(&self) -> Result<Operator> {
        self.operator_with(&json!({})).await
    }

    /// The same with values for the chart.
    pub async fn operator_with(&self, values: &Value) -> Result<Operator> {
        let folder = self.fleet.folder().path();
        let operator = Operator::install_with(self.hub(), &self.namespace, folder, values).await?;
        Ok(operator
            .arg(&format!("--namespace={}", self.namespace))
            .arg(&format!(
                "--clusters-namespace={}",
                self.clusters_namespace()
            )))
    }

    /// The webhooks of this corner, not registered yet. A cluster that existed before cannot reach this machine, and
    /// gets none.
    pub fn webhooks(&self) -> Result<Option<Webhooks>> {
        self.webhooks_for(&self.namespace)
    }

    /// The same for objects of another namespace, on which the operator of this corner does not act.
    pub fn webhooks_for(&self, namespace: &str) -> Result<Option<Webhooks>> {
        if self.fleet.member("hub")?.plane().is_none() {
            eprintln!("the hub cannot reach an operator on this machine: nothing is tried");
            return Ok(None);
        }
        Webhooks::prepare(namespace, self.fleet.folder().path()).map(Some)
    }

    /// Opens a corner whose operator serves webhooks that are registered; nothing where the hub cannot reach this
    /// machine. They are asked about a namespace of their own, on whose objects the operator does not act.
    pub async fn reviewed(fleet: &'f Fleet, name: &str) -> Result<Option<Reviewed<'f>>> {
        let site = Self::open(fleet, name).await?;
        let namespace = format!("{}-held", site.namespace());
        let Some(webhooks) = site.webhooks_for(&namespace)? else {
            return Ok(None);
        };
        site.hub().namespace(&namespace).await?;
        Ok(Some(Reviewed {
            site,
            webhooks,
            namespace,
        }))
    }

    /// A kubeconfig of a target under the access chart's rights, for the namespace of
    /// this corner.
    pub async fn kubeconfig(&self, target: &Cluster) -> Result<String> {
        let namespaces = [self.namespace()];
        registration::grant(target, &self.access_namespace(), &namespaces, &Value::Null).await
    }

    /// Registers a target of the fleet under its own name, scoped to this corner.
    pub async fn register(&self, target: &str) -> Result<()> {
        let cluster = self.fleet.cluster(target)?;
        self.register_as(target, cluster).await
    }

    /// Registers any cluster under any name, scoped to this corner.
    pub async fn register_as(&self, name: &str, cluster: &Cluster) -> Result<()> {
        cluster.namespace(&self.namespace).await?;
        let kubeconfig = self.kubeconfig(cluster).await?;
        let scope = Some(self.namespace());
        registration::register(
            self.hub(),
            &self.clusters_namespace(),
            name,
            &kubeconfig,
            scope,
        )
        .await
        .with_context(|| format!("registering {name}"))
    }

    /// Registers a target of the fleet that is reached by another URL than the cluster's own.
    pub async fn register_by_way_of(&self, target: &str, url: &str) -> Result<()> {
        let cluster = self.fleet.cluster(target)?;
        let kubeconfig = self.kubeconfig(cluster).await?;
        registration::register(
            self.hub(),
            &self.clusters_namespace(),
            target,
            &kubeconfig.replace(&cluster.server(), url),
            Some(self.namespace()),
        )
        .await
    }

    /// Replaces the token of a target and the registration with it.
    pub async fn rotate(&self, target: &str) -> Result<()> {
        let cluster = self.fleet.cluster(target)?;
        let namespaces = [self.namespace()];
        let kubeconfig =
            registration::rotate(cluster, &self.access_namespace(), &namespaces).await?;
        let scope = Some(self.namespace());
        registration::register(
            self.hub(),
            &self.clusters_namespace(),
            target,
            &kubeconfig,
            scope,
        )
        .await
    }

    /// Removes the registration of a target.
    pub async fn deregister(&self, target: &str) -> Result<()> {
        registration::deregister(self.hub(), &self.clusters_namespace(), target).await
    }

    /// A Glance to be, in this corner.
    pub fn scenario(&self, name: &str) -> Scenario {
        Scenario::new(&self.namespace, name)
    }

    /// The cluster that a scenario's children belong on.
    pub fn children(&self, scenario: &Scenario) -> Result<&'f Cluster> {
        self.fleet.cluster(scenario.target().unwrap_or("hub"))
    }

    /// Applies all of a scenario.
    pub async fn apply(&self, scenario: &Scenario) -> Result<()> {
        scenario.apply(self.hub(), self.children(scenario)?).await
    }

    /// A Glance of this corner.
    pub fn glance<'a>(&'a self, name: &'a str) -> Object<'a> {
        Object::glance(self.hub(), &self.namespace, name)
    }

    /// What the operator says about a registration of this corner; `namespace` is that of the
    /// registrations.
    pub fn target_cluster<'a>(&'a self, namespace: &'a str, name: &'a str) -> Object<'a> {
        Object::new(self.hub(), crate::kinds::TARGET_CLUSTER, namespace, name)
    }

    /// Sets the policy of a registration of this corner, and nothing else of it.
    pub async fn policy(&self, name: &str, spec: Value) -> Result<()> {
        let (version, kind) = crate::kinds::TARGET_CLUSTER;
        let manifest = json!({
            "apiVersion": version, "kind": kind,
            "metadata": { "namespace": self.clusters_namespace(), "name": name },
            "spec": spec,
        });
        self.hub().apply(&manifest).await?;
        Ok(())
    }

    /// A backend of this corner.
    pub fn backend<'a>(&'a self, name: &'a str) -> Object<'a> {
        Object::backend(self.hub(), &self.namespace, name)
    }
}
