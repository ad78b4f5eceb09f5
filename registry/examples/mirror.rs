//! A whole operator in one file: copies `ConfigMap`s of the hub to the clusters they name, and
//! keeps the copies as they ought to be, until Ctrl-C.
//!
//! ```console
//! $ cargo run -p target-registry --example mirror -- CLUSTERS_NAMESPACE NAMESPACE
//! $ kubectl -n NAMESPACE create configmap motd --from-literal=text=hello
//! $ kubectl -n NAMESPACE label configmap motd example.org/copy-to=edge-1
//! ```
//!
//! Everything that wakes it goes through one stream of names: a changed original, a changed or
//! deleted copy, a cluster that comes, goes or comes back. A name may be sent as often as one
//! likes; it is worked on once.

use std::{collections::BTreeSet, error::Error, sync::Arc, time::Duration};

use futures::StreamExt;
use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::json;
use target_registry::{
    Change, Cluster, Informer, InformerSpec, Kind, Payload, Readiness, Registry, RegistryOptions,
    Trigger, error_code, error_text,
};
use tokio_util::sync::CancellationToken;

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");

/// On an original: the cluster that gets a copy.
const COPY_TO: &str = "example.org/copy-to";
/// On a copy: who made it. Nothing without this mark is written or deleted.
const COPIED_BY: &str = "example.org/copied-by";
const ME: &str = "mirror";

/// How long a name rests after a failure. Real operators double this for each failure in a row.
const REST: Duration = Duration::from_secs(2);

/// Namespace and name of an original and of its copies.
type Key = (String, String);

/// The copies on one cluster, watched for as long as the connection lives.
struct Copies(Arc<Informer>);

struct Mirror {
    registry: Registry,
    originals: Arc<Informer>,
    keys: Trigger<Key>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let mut args = std::env::args().skip(1);
    let clusters = args.next().unwrap_or_else(|| "clusters".to_owned());
    let namespaces: BTreeSet<String> = args.collect();
    let options = RegistryOptions::new(clusters);
    let namespaces = (!namespaces.is_empty()).then_some(namespaces);
    let hub = Cluster::hub(kube::Config::infer().await?, namespaces, &options.client)?;
    let stop = CancellationToken::new();
    let (keys, mut woken) = Trigger::new();
    let mirror = Mirror {
        registry: Registry::start(&hub, options, stop.clone()),
        originals: hub.informer(watch(COPY_TO.to_owned(), keys.clone())),
        keys,
    };

    let mut changes = mirror.registry.subscribe();
    mirror.look_at_clusters();
    loop {
        tokio::select! {
            // A cluster that begins to resolve gets what was made while it was away.
            _ = changes.recv() => mirror.look_at_clusters(),
            Some(key) = woken.next() => {
                if let Err(error) = mirror.reconcile(&key).await {
                    tracing::warn!(namespace = key.0, name = key.1, error, "not in step, trying again");
                    mirror.later(key);
                }
            }
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    stop.cancel();
    mirror.registry.closed().await;
    hub.shut_down().await;
    Ok(())
}

// === impl Mirror ===

impl Mirror {
    /// Starts to watch the copies on clusters that are new, and looks at everything once.
    fn look_at_clusters(&self) {
        for state in self.registry.snapshot() {
            if let Ok(cluster) = self.registry.resolve(&state.name) {
                self.copies(&cluster);
            }
        }
        for original in self.originals.list(None) {
            self.keys.send(key_of(&original));
        }
    }

    fn copies(&self, cluster: &Cluster) -> Arc<Copies> {
        let keys = self.keys.clone();
        let mine = format!("{COPIED_BY}={ME}");
        cluster.extension(|cluster| Copies(cluster.informer(watch(mine, keys))))
    }

    /// Makes one copy what it ought to be, and removes those that ought not to be. What fails on one
    /// cluster keeps no other from its due.
    async fn reconcile(&self, key: &Key) -> Result<(), String> {
        let (namespace, name) = key;
        // What is not known yet is not gone.
        match self.originals.ready(Some(namespace), REST).await {
            Readiness::Synced => {}
            other => return Err(format!("the originals are not known: {other:?}")),
        }
        let original = self.originals.get(Some(namespace), name);
        let mut failures = Vec::new();
        for state in self.registry.snapshot() {
            // One that does not resolve is no failure: its return is an event.
            if let Ok(cluster) = self.registry.resolve(&state.name)
                && let Err(failure) = self.bring_in_step(&cluster, key, original.as_deref()).await
            {
                failures.push(failure);
            }
        }
        if failures.is_empty() {
            Ok(())
        } else {
            Err(failures.join("; "))
        }
    }

    async fn bring_in_step(
        &self,
        cluster: &Cluster,
        (namespace, name): &Key,
        original: Option<&DynamicObject>,
    ) -> Result<(), String> {
        let copy = self.copies(cluster).0.get(Some(namespace), name);
        let wanted = original.filter(|original| {
            let named = original.labels().get(COPY_TO);
            named.is_some_and(|named| named == cluster.name())
        });
        match (wanted, copy) {
            (Some(original), Some(copy)) if copy.data["data"] == original.data["data"] => Ok(()),
            (Some(original), _) => write(cluster, original).await,
            (None, Some(copy)) => remove(cluster, &copy).await,
            (None, None) => Ok(()),
        }
    }

    fn later(&self, key: Key) {
        let keys = self.keys.clone();
        tokio::spawn(async move {
            tokio::time::sleep(REST).await;
            keys.send(key);
        });
    }
}

async fn write(cluster: &Cluster, original: &DynamicObject) -> Result<(), String> {
    let (namespace, name) = key_of(original);
    cluster
        .check_scope(&namespace, &name)
        .map_err(|error| error.to_string())?;
    // No more at a time than the cluster may bind.
    let _permit = cluster.try_permit().ok_or("the cluster is busy")?;
    let api = CONFIG_MAP.api(cluster.client(), Some(&namespace));
    let existing = api.get_metadata_opt(&name).await;
    let existing = existing.map_err(|error| error_text(&error))?;
    if existing.is_some_and(|object| object.labels().get(COPIED_BY).is_none_or(|by| by != ME)) {
        return Err(format!(
            "{namespace}/{name} on {} belongs to somebody else",
            cluster.name()
        ));
    }
    let copy = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": namespace, "name": name, "labels": { COPIED_BY: ME } },
        "data": original.data["data"],
    });
    let parameters = PatchParams::apply(ME).force();
    let written = api.patch(&name, &parameters, &Patch::Apply(&copy)).await;
    written.map_err(|error| error_text(&error))?;
    println!("{}: wrote {namespace}/{name}", cluster.name());
    Ok(())
}

async fn remove(cluster: &Cluster, copy: &DynamicObject) -> Result<(), String> {
    let (namespace, name) = key_of(copy);
    let _permit = cluster.try_permit().ok_or("the cluster is busy")?;
    let api = CONFIG_MAP.api(cluster.client(), Some(&namespace));
    // The one that was seen, and none that has taken its name since.
    let parameters = DeleteParams {
        preconditions: Some(kube::api::Preconditions {
            uid: copy.metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(&name, &parameters).await {
        Ok(_) => println!("{}: removed {namespace}/{name}", cluster.name()),
        Err(error) if error_code(&error) == Some(404) => {}
        Err(error) => return Err(error_text(&error)),
    }
    Ok(())
}

fn watch(selector: String, keys: Trigger<Key>) -> InformerSpec {
    InformerSpec {
        kind: CONFIG_MAP,
        selector: Some(selector),
        payload: Payload::Full,
        keep: Arc::new(|_| true),
        reduce: Arc::new(|object| object.metadata.managed_fields = None),
        on_change: Arc::new(move |_, change| match change {
            Change::Applied(object) | Change::Deleted(object) | Change::Relabelled(object) => {
                keys.send(key_of(object));
            }
            Change::Synced | Change::Served | Change::Gone => {}
        }),
    }
}

fn key_of(object: &DynamicObject) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}
