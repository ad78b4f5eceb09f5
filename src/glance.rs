//! The Glance controller.

pub mod database;
#[cfg(test)]
pub(crate) mod specimen;
pub mod workload;
