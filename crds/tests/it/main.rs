//! The contract of both custom resources, checked without a server.
//!
//! The modules are marked as tests so that the lints for tests hold in their
//! helpers too.

#[cfg(test)]
mod files;
