//! Work on the cluster that holds a CR's children, the hub or another one.

pub mod probe;
