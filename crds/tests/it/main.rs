//! The contract of both custom resources, checked without a server.
//!
//! The modules are marked as tests so that the lints for tests hold in their
//! helpers too.

#[cfg(test)]
#[path = "../cases/list.rs"]
mod cases;

#[cfg(test)]
mod admission;
#[cfg(test)]
mod conditions;
#[cfg(test)]
mod cost;
#[cfg(test)]
mod defaults;
#[cfg(test)]
mod files;
#[cfg(test)]
mod manifests;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod structure;
#[cfg(test)]
mod target_cluster;
