//! What may enter, and what a user is told about it.
//!
//! One tree of pure functions that the webhooks, the checks at reconcile time
//! and the command line share, so that they cannot disagree: no client, no
//! clock, the same answer for the same objects. Whoever can look things up
//! (siblings, a `PriorityClass`) does so before and hands in what was found.
//!
//! [`review`] holds the form of an answer: a [`Cause`] reads as one field error
//! of the API server does. [`glance_create`] and [`glance_update`] hold the
//! rules of a Glance, [`backend_create`] and [`backend_update`] those of a
//! `GlanceBackend`; [`default_glance`] and [`default_backend`] fill in what is
//! left out.
//!
//! An update is refused only for what it brings. A fault that the old object
//! has too, with the same input, is forgiven: a rule of a newer operator, a
//! regenerated catalog or a write past the webhooks must never freeze an
//! object, its scaling or its deletion.

mod backend;
pub mod catalog;
pub mod cron;
mod defaulting;
pub mod glance;
#[cfg(any(test, feature = "fuzzing"))]
pub mod injection;
pub mod ownership;
pub mod path;
pub mod quote;
pub mod review;
#[cfg(test)]
mod tests;
mod text;

pub use backend::{backend_create, backend_update};
pub use defaulting::{Defaults, default_backend, default_glance};
pub use glance::{glance_create, glance_update};
pub use review::{Cause, CauseKind, Review};
