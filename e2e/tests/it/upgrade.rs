//! From one release to the next while the API serves, back again, what is refused, what fails, and what becomes of it
//! when the operator dies.

mod aborts;
mod failures;
mod kills;
pub(crate) mod life;
mod refusals;
mod serves;
