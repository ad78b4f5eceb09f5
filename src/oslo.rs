//! Everything that Glance reads as configuration, as pure functions of the
//! custom resource: no client, no clock, the same bytes for the same input.
//!
//! What is written here becomes part of immutable objects whose names come
//! from their content, so a change of one byte restarts the pods of every
//! Glance once.
//!
//! [`render`] makes the data of the config `ConfigMap`; [`stores`] that of the
//! backends Secret; [`policy::ownership`](crate::policy::ownership) says which options belong to
//! the operator.

pub mod escape;
pub mod glance_api;
pub mod ini;
pub mod logging;
pub mod paste;
pub mod policy;
pub mod stores;

#[cfg(test)]
pub(crate) mod fixture;
mod render;

pub use glance_api::Projection;
pub use render::{ConfigData, RenderError, render};
