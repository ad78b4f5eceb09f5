//! The glance-operator as a library: the binary is a thin shell around it.

pub mod admin;
pub mod backoff;
pub mod cli;
pub mod cluster;
pub mod dsn;
pub mod duration;
pub mod external;
pub mod glance;
pub mod hash;
pub mod leader;
pub mod metrics;
pub mod names;
pub mod oslo;
pub mod pipeline;
pub mod quantity;
pub mod ready;
pub mod release;
pub mod telemetry;
