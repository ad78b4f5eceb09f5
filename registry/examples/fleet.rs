//! Prints the state of every registration, again at each change, until Ctrl-C.
//!
//! ```console
//! $ cargo run -p target-registry --example fleet -- NAMESPACE
//! ```

use std::error::Error;

use target_registry::{Cluster, Registry, RegistryOptions};
use tokio_util::sync::CancellationToken;

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
    hub.probe().await?;

    let stop = CancellationToken::new();
    let registry = Registry::start(&hub, options, stop.clone());
    let mut changes = registry.subscribe();
    registry.attempted().await;
    print(&registry);
    loop {
        tokio::select! {
            // Lagging behind is no reason to stop: the table shows everything anyway.
            _ = changes.recv() => print(&registry),
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    stop.cancel();
    registry.closed().await;
    hub.shut_down().await;
    Ok(())
}

fn print(registry: &Registry) {
    println!(
        "{:<20} {:<10} {:<30} {:<10} REASON",
        "NAME", "STATE", "SERVER", "VERSION"
    );
    for cluster in registry.snapshot() {
        println!(
            "{:<20} {:<10} {:<30} {:<10} {}",
            cluster.name,
            cluster.state,
            cluster.server.unwrap_or_default(),
            cluster.version.unwrap_or_default(),
            cluster.detail
        );
    }
}
