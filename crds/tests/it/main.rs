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
mod files;
#[cfg(test)]
mod structure;
