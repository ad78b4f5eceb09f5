//! The glance-operator as a library: the binary is a thin shell around it.
//!
//! A walk through the house, in the order of a pass: [`app`] wires everything together; [`glance`] and [`backend`]
//! are the two controllers on the common ground of [`controller`]; [`pipeline`] is the skeleton of a pass and
//! [`glance::steps`] its eleven steps; [`cluster`] reads and writes on whatever cluster the children live. What is
//! rendered is pure: [`oslo`] the configuration, [`glance::workload`] and [`glance::database`] the objects.

pub mod admin;
pub mod admission;
pub mod app;
pub mod backend;
pub mod backoff;
pub mod cli;
pub mod cluster;
pub mod clusters;
pub mod context;
pub mod controller;
pub mod definitions;
pub mod dsn;
pub mod duration;
pub mod external;
pub mod fleet;
pub mod glance;
pub mod hash;
pub mod leader;
pub mod metrics;
pub mod names;
pub mod oslo;
pub mod pipeline;
pub mod policy;
pub mod quantity;
pub mod random;
pub mod ready;
#[cfg(test)]
mod reference;
pub mod release;
pub mod render;
pub mod telemetry;
#[cfg(test)]
pub(crate) mod testing;
pub mod tls;
