//! Every reason why a Glance or a backend is not ready: provoked on the hub and on a target, told
//! in the words of its page, healed by the event that ends it and not by the next poll.

mod api;
mod backend;
mod backends;
mod database;
mod errors;
mod logins;
mod moved;
mod rollout;
mod route;
mod secrets;
pub(crate) mod stage;
mod stuck;
