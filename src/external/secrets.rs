//! The External Secrets operator: the stores and the `ExternalSecret`s that fill our inputs. Only
//! read.

use target_registry::Kind;

/// A store every namespace may use.
pub const CLUSTER_SECRET_STORE: Kind =
    Kind::cluster_wide(GROUP, VERSION, "ClusterSecretStore", "clustersecretstores");
/// A store of one namespace.
pub const SECRET_STORE: Kind = Kind::namespaced(GROUP, VERSION, "SecretStore", "secretstores");
/// What asks a store for one Secret.
pub const EXTERNAL_SECRET: Kind =
    Kind::namespaced(GROUP, VERSION, "ExternalSecret", "externalsecrets");

const GROUP: &str = "external-secrets.io";
const VERSION: &str = "v1";
