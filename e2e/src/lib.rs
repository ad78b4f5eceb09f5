//! The test bed: a fleet of real Kubernetes control planes on this machine, the operator's
//! real binary on it, and doubles for the neighbours that we do not run.
//!
//! A fleet is one hub and some targets ([`fleet`]). Each is a [`control_plane`] of child
//! processes from one binary ([`assets`]) or a cluster that exists already; to a test both
//! are a [`cluster::Cluster`]. The [`doubles`] play nodes, pods, databases, secret stores,
//! gateways and the Glance API, and can be broken on command. [`expect`] waits for what a
//! test says, [`audit`] counts requests where they arrive.
//!
//! The bed knows the operator from outside only: its binary, its charts, its objects.

pub mod assets;
pub mod audit;
pub mod bed;
pub mod certificates;
pub mod chainsaw;
pub mod charts;
pub mod children;
pub mod cluster;
pub mod commands;
pub mod control_plane;
pub mod database_server;
pub mod definitions;
pub mod doubles;
pub mod expect;
pub mod fleet;
pub mod gate;
pub mod go;
#[cfg(test)]
mod image;
pub mod kinds;
pub mod kubeconfig;
pub mod line;
pub mod operator;
pub mod pages;
pub mod patience;
pub mod policy;
pub mod ports;
pub mod process;
pub mod progress;
pub mod prometheus;
pub mod registration;
pub mod reviews;
pub mod rights;
pub mod scenario;
pub mod shape;
pub mod site;
pub mod tokens;
pub mod webhooks;
pub mod witness;
pub mod workdir;
pub mod workload;

/// The folder of the checkout: at run time by `CARGO_MANIFEST_DIR`, which cargo and the Makefile set. Two checkouts with one
/// folder of build output share their binaries, and what was compiled in names whichever was built first.
pub fn checkout() -> &'static std::path::Path {
    static CHECKOUT: std::sync::LazyLock<std::path::PathBuf> = std::sync::LazyLock::new(|| {
        let folder = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(
            || env!("CARGO_MANIFEST_DIR").into(),
            std::path::PathBuf::from,
        );
        folder
            .parent()
            .map_or_else(|| folder.clone(), std::path::Path::to_path_buf)
    });
    &CHECKOUT
}
