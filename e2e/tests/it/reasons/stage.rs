//! What the stories of this folder share: a corner of the fleet with a running operator, on
//! either placement, and a condition as a page words it.

use std::time::Duration;

use anyhow::{Result, anyhow};
use e2e::{
    cluster::Cluster,
    doubles::Doubles,
    expect::{Object, condition, eventually},
    fleet::Fleet,
    kinds,
    operator::{Operator, Running},
    patience::seconds,
    scenario::{Scenario, cluster_secret_store},
    site::Site,
};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

/// Runs each story twice: for a Glance on the hub, and for one on a target.
macro_rules! on_hub_and_target {
    ($($story:ident),+ $(,)?) => {
        mod on_the_hub {
            $(#[test]
            fn $story() {
                e2e::bed::run(async |fleet| super::$story(fleet, "hub").await);
            })+
        }
        mod on_a_target {
            $(#[test]
            fn $story() {
                e2e::bed::run(async |fleet| super::$story(fleet, "edge-1").await);
            })+
        }
    };
}
pub(crate) use on_hub_and_target;

/// A corner with a running operator, and the cluster on which its Glances run.
pub struct Stage {
    pub site: Site<'static>,
    pub operator: Running,
    place: &'static str,
}

/// Long enough for a loaded machine, and well below the shortest poll of the operator (10 s): what
/// heals within this time was woken by an event.
pub fn soon() -> Duration {
    seconds(7)
}

/// For what has to go through pods, Jobs and the operators of others.
pub fn later() -> Duration {
    seconds(40)
}

// === impl Stage ===

impl Stage {
    /// Opens a corner; `place` is `hub` or the name of a target, which is registered.
    pub async fn open(fleet: &'static Fleet, name: &str, place: &'static str) -> Result<Self> {
        Self::open_with(fleet, name, place, |operator| operator).await
    }

    /// The same with an operator that is set up otherwise.
    pub async fn open_with(
        fleet: &'static Fleet,
        name: &str,
        place: &'static str,
        set_up: impl FnOnce(Operator) -> Operator,
    ) -> Result<Self> {
        let letter = if place == "hub" { "h" } else { "t" };
        let site = Site::open(fleet, &format!("{name}-{letter}")).await?;
        let stage = Self {
            operator: set_up(site.operator().await?).start().await?,
            site,
            place,
        };
        stage
            .children()?
            .apply(&cluster_secret_store(&stage.store()))
            .await?;
        if stage.is_remote() {
            stage.site.register(place).await?;
        }
        Ok(stage)
    }

    pub fn is_remote(&self) -> bool {
        self.place != "hub"
    }

    pub fn namespace(&self) -> &str {
        self.site.namespace()
    }

    pub fn hub(&self) -> &'static Cluster {
        self.site.hub()
    }

    /// The cluster on which the Glances of this corner run.
    pub fn children(&self) -> Result<&'static Cluster> {
        self.site.fleet().cluster(self.place)
    }

    /// The neighbours on that cluster.
    pub fn doubles(&self) -> Result<&'static Doubles> {
        self.site.fleet().doubles(self.place)
    }

    /// The corner's own store of secrets: to break the one that all share would break others.
    pub fn store(&self) -> String {
        format!("{}-store", self.namespace())
    }

    /// A Glance to be, in its place.
    pub fn scenario(&self, name: &str) -> Scenario {
        let scenario = self.site.scenario(name).with(
            "secretStoreRef",
            json!({ "kind": "ClusterSecretStore", "name": self.store() }),
        );
        if self.is_remote() {
            scenario.on(self.place)
        } else {
            scenario
        }
    }

    /// A Glance of this corner.
    pub fn glance<'a>(&'a self, name: &'a str) -> Object<'a> {
        self.site.glance(name)
    }

    /// An object where the Glances run.
    pub fn child<'a>(&'a self, kind: (&'a str, &'a str), name: &'a str) -> Result<Object<'a>> {
        Ok(Object::new(self.children()?, kind, self.namespace(), name))
    }

    /// An object where the Glances run, as it is now.
    pub async fn live(&self, kind: (&str, &str), name: &str) -> Result<DynamicObject> {
        let found = self.child(kind, name)?.get().await?;
        found.ok_or_else(|| anyhow!("there is no {} {name}", kind.1))
    }

    /// Deletes an object where the Glances run.
    pub async fn delete(&self, (api_version, kind): (&str, &str), name: &str) -> Result<()> {
        self.children()?
            .delete(&json!({
                "apiVersion": api_version, "kind": kind,
                "metadata": { "namespace": self.namespace(), "name": name },
            }))
            .await
    }

    /// Changes a CR on the hub as `kubectl patch` does.
    pub async fn patch(
        &self,
        (api_version, kind): (&str, &str),
        name: &str,
        patch: Value,
    ) -> Result<()> {
        self.hub()
            .any(api_version, kind, Some(self.namespace()))
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    /// Makes the operator look at a Glance, as any edit of its metadata does.
    pub async fn poke(&self, name: &str) -> Result<()> {
        let now = jiff::Timestamp::now().to_string();
        let patch = json!({ "metadata": { "annotations": { "e2e.c5c3.io/poked": now } } });
        self.patch(kinds::GLANCE, name, patch).await
    }

    /// A Secret with values, where the Glances run.
    pub async fn secret(&self, name: &str, data: &[(&str, &str)]) -> Result<()> {
        self.children()?.secret(self.namespace(), name, data).await
    }
}

/// Waits until the condition is False for exactly this reason, in exactly these words.
pub async fn says(
    object: &Object<'_>,
    limit: Duration,
    (type_, reason, message): (&str, &str, &str),
) -> Result<()> {
    becomes(object, limit, type_, ("False", reason, Some(message))).await
}

/// Waits until the condition is True for this reason.
pub async fn holds(
    object: &Object<'_>,
    limit: Duration,
    (type_, reason): (&str, &str),
) -> Result<()> {
    becomes(object, limit, type_, ("True", reason, None)).await
}

async fn becomes(
    object: &Object<'_>,
    limit: Duration,
    type_: &str,
    (status, reason, message): (&str, &str, Option<&str>),
) -> Result<()> {
    let what = format!("{type_}={status}/{reason} in the words {message:?}");
    let outcome = eventually(limit, &what, async || {
        let found = object.get().await?;
        let found = found.and_then(|found| {
            let generation = found.metadata.generation;
            condition(&found, type_).filter(|c| c["observedGeneration"].as_i64() == generation)
        });
        let found = found.ok_or_else(|| anyhow!("it has not been judged"))?;
        let same = found["status"] == status
            && found["reason"] == reason
            && message.is_none_or(|message| found["message"] == message);
        if same {
            Ok(())
        } else {
            Err(anyhow!(
                "{}/{} in the words {}",
                found["status"],
                found["reason"],
                found["message"]
            ))
        }
    })
    .await;
    match outcome {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(object.account().await)),
    }
}
