//! The glance-operator as a library: the binary is a thin shell around it.

pub mod admin;
pub mod backoff;
pub mod cli;
pub mod leader;
pub mod metrics;
pub mod pipeline;
pub mod ready;
pub mod telemetry;
