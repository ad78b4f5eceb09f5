//! The eleven steps, a file each.
//!
//! Every file reads the same way: what the step guarantees, its output, `reconcile` (thin I/O), then pure functions
//! that decide, then tests. No step calls another; what one needs of another is an argument.

pub mod backends;
pub mod config;
pub mod database;
pub mod db_connection;
pub mod db_purge;
pub mod deployment;
pub mod health_check;
pub mod hpa;
pub mod http_route;
pub mod network_policy;
pub mod secrets;

/// A live object as plain JSON, metadata included.
pub(crate) fn value_of(object: &kube::core::DynamicObject) -> serde_json::Value {
    serde_json::to_value(object).unwrap_or_default()
}
