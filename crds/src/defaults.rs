//! What an absent value means.
//!
//! Every function is total: it takes a spec as it stands, also one that never
//! passed a webhook or was stored before the schema had a rule, and answers
//! with what the operator works with. Controllers and webhooks use the same
//! functions, so pods come out alike with webhooks on and off.
//!
//! Most of these values are never written back into a resource: an unset
//! field keeps following the operator's default across its versions
//! (contract: values resolved when they are used). The ones the defaulting
//! webhook does write are marked as such.

mod constants;
mod imports;
mod logins;
mod pods;
mod serving;

pub use constants::*;
pub use imports::{
    ImportFiltering, bucket_url_format, ignore_user_roles, image_cache_size_limit,
    import_filtering, is_default, maintenance_interval, output_format, staging_size_limit,
};
pub use logins::{
    DbPurge, ServiceUser, cache_backend, credentials_mode, database_port, database_tls, db_purge,
    keystone_public_endpoint, memcached_servers, secret_store, service_user,
};
pub use pods::{
    min_replicas, pre_stop_sleep_seconds, replica_floor, replicas, resources, strategy,
    termination_grace_period_seconds, topology_spread_constraints,
};
pub use serving::{Logging, Uwsgi, gateway_path, logging, uwsgi, workers};

/// Clients without a notion of "unset" send zero.
fn positive(set: Option<i32>) -> Option<i32> {
    set.filter(|number| *number > 0)
}

/// Clients without a notion of "unset" send the empty text.
fn text(set: Option<&str>) -> Option<&str> {
    set.filter(|text| !text.is_empty())
}
