//! The Glance controller.

#[cfg(test)]
pub(crate) mod specimen;
pub mod workload;
