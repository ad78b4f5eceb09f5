//! The `MariaDB` operator: the cluster we wait for, and the three objects we ask it for.

use jiff::Timestamp;
use serde_json::Value;
use target_registry::Kind;

/// A database server cluster. Only read.
pub const MARIADB: Kind = Kind::namespaced(GROUP, VERSION, "MariaDB", "mariadbs");
/// A database (schema) on a cluster.
pub const DATABASE: Kind = Kind::namespaced(GROUP, VERSION, "Database", "databases");
/// A SQL user.
pub const USER: Kind = Kind::namespaced(GROUP, VERSION, "User", "users");
/// Rights of a SQL user.
pub const GRANT: Kind = Kind::namespaced(GROUP, VERSION, "Grant", "grants");

const GROUP: &str = "k8s.mariadb.com";
const VERSION: &str = "v1alpha1";

/// Since when the cluster has been ready without a break; `None` while it is not ready or does not
/// say.
///
/// A migration that failed before this moment may have failed for want of a database.
pub fn ready_since(cluster: &Value) -> Option<Timestamp> {
    let ready = super::condition(cluster, "Ready").filter(|ready| ready["status"] == "True")?;
    ready["lastTransitionTime"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_time_of_recovery_counts_only_while_the_cluster_is_ready() {
        let cluster = |status: &str| {
            json!({"status": {"conditions": [
                {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-02T03:04:05Z"},
            ]}})
        };
        assert_eq!(
            ready_since(&cluster("True")),
            Some("2026-01-02T03:04:05Z".parse().unwrap())
        );
        assert_eq!(ready_since(&cluster("False")), None);
        assert_eq!(ready_since(&json!({})), None);
    }
}
