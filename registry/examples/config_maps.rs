//! Watches the `ConfigMap`s of all registered clusters and hands their names to one place, until
//! Ctrl-C.
//!
//! ```console
//! $ cargo run -p target-registry --example config_maps -- NAMESPACE
//! ```

use std::{error::Error, sync::Arc};

use futures::StreamExt;
use kube::ResourceExt;
use target_registry::{
    Change, Cluster, Informer, InformerSpec, Kind, Payload, Registry, RegistryOptions, Trigger,
};
use tokio_util::sync::CancellationToken;

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");

/// Cluster, namespace, name.
type Key = (String, String, String);

/// What this example wants to live as long as a connection.
struct Watch(#[allow(dead_code, reason = "watches for as long as it is kept")] Arc<Informer>);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let namespace = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "clusters".to_owned());
    let options = RegistryOptions::new(namespace);
    let hub = Cluster::hub(kube::Config::infer().await?, None, &options.client)?;
    let stop = CancellationToken::new();
    let registry = Registry::start(&hub, options, stop.clone());
    let (trigger, mut keys) = Trigger::new();

    let mut changes = registry.subscribe();
    watch(&registry, &trigger);
    loop {
        tokio::select! {
            // A new generation has no watch yet; one that has keeps it.
            _ = changes.recv() => watch(&registry, &trigger),
            Some((cluster, namespace, name)) = keys.next() => {
                println!("{cluster}: {namespace}/{name}");
            }
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    stop.cancel();
    registry.closed().await;
    Ok(())
}

fn watch(registry: &Registry, trigger: &Trigger<Key>) {
    let names = registry.snapshot().into_iter().map(|state| state.name);
    for cluster in names.filter_map(|name| registry.resolve(&name).ok()) {
        let trigger = trigger.clone();
        cluster.extension(|cluster| Watch(cluster.informer(spec(trigger))));
    }
}

fn spec(trigger: Trigger<Key>) -> InformerSpec {
    InformerSpec {
        kind: CONFIG_MAP,
        selector: None,
        payload: Payload::Metadata,
        // Nothing is remembered: every event is handed on and forgotten.
        keep: Arc::new(|_| false),
        reduce: Arc::new(|_| {}),
        on_change: Arc::new(move |cluster, change| {
            if let Change::Applied(object) | Change::Deleted(object) = change {
                let namespace = object.namespace().unwrap_or_default();
                trigger.send((cluster.name().to_owned(), namespace, object.name_any()));
            }
        }),
    }
}
