//! Everything that Glance reads as configuration, as pure functions of the
//! custom resource: no client, no clock, the same bytes for the same input.
//!
//! What is written here becomes part of immutable objects whose names come
//! from their content, so a change of one byte restarts the pods of every
//! Glance once.

pub mod escape;
pub mod ini;
