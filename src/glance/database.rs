//! The database of a Glance: the objects that provide it, the Jobs that change its schema, the
//! purge.
//!
//! Pure like its neighbour `workload`: desired objects as JSON, and judgements over live ones.
//! Whoever calls creates, deletes and waits (contract: gates, database and jobs).

pub mod job_state;
pub mod jobs;
pub mod mariadb;
pub mod purge;
