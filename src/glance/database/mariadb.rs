//! What a managed database asks of the `MariaDB` operator: a database, a user, its rights.
//!
//! No `cleanupPolicy` is sent, so its default holds and removing an object drops what it stands
//! for. Most fields are immutable over there; a field that was once left out stays out.

use glance_api::Glance;
use glance_api::defaults;
use glance_api::glance::CredentialsMode;
use serde_json::{Value, json};

use crate::glance::workload::Identity;
use crate::release::{LaunchMode, launch_mode};

/// Connections one worker process may hold: `SQLAlchemy`'s pool and its overflow as oslo.db sets
/// them.
const CONNECTIONS_PER_WORKER: i64 = 5 + 50;
/// Connections for what is not a worker: migrations, a purge run, a person who looks.
const HEADROOM: i64 = 10;

/// The objects of a managed database, in the order in which each may be asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Provisioning {
    /// Name of the `MariaDB` that has to be ready first.
    pub cluster: String,
    /// The database.
    pub database: Value,
    /// The login, unless a secrets engine issues logins.
    pub login: Option<Login>,
}

/// A SQL user and its rights.
#[derive(Clone, Debug, PartialEq)]
pub struct Login {
    /// The user.
    pub user: Value,
    /// Its rights. Only once the user is ready: a grant needs somebody to give to.
    pub grant: Value,
}

/// What a Glance asks for; nothing when it brings its own database.
pub fn provisioning(glance: &Glance, id: Identity<'_>) -> Option<Provisioning> {
    let database = &glance.spec.database;
    let cluster = &database.cluster_ref.as_ref()?.name;
    // Sent although it reads like a default: the default over there is `true`, and it cannot be
    // changed.
    let server = json!({ "name": cluster, "waitForIt": false });

    let login = (defaults::credentials_mode(database) == CredentialsMode::Static).then(|| Login {
        user: object(
            "User",
            id,
            &json!({
                "mariaDbRef": server,
                "passwordSecretKeyRef": { "name": database.secret_ref.name, "key": "password" },
                "passwordPlugin": {},
                "maxUserConnections": max_user_connections(glance),
            }),
        ),
        grant: object(
            "Grant",
            id,
            &json!({
                "mariaDbRef": server,
                "privileges": ["ALL PRIVILEGES"],
                "database": database.database,
                "table": "*",
                "username": id.name,
            }),
        ),
    });
    Some(Provisioning {
        cluster: cluster.clone(),
        database: object(
            "Database",
            id,
            &json!({
                "mariaDbRef": server,
                "name": database.database,
                "characterSet": "utf8",
                "collate": "utf8_general_ci",
            }),
        ),
        login,
    })
}

/// All three carry the Glance's name; the user's is also the SQL user's.
fn object(kind: &str, id: Identity<'_>, spec: &Value) -> Value {
    json!({
        "apiVersion": "k8s.mariadb.com/v1alpha1",
        "kind": kind,
        "metadata": { "name": id.name, "namespace": id.namespace },
        "spec": spec,
    })
}

/// The connections the API may ever ask for: a lower limit turns load into errors, and the default
/// of ten is less than two workers on two pods hold in the worst case.
///
/// Every pod the autoscaler or a surge may add counts. The server's own limit still stands above
/// it.
fn max_user_connections(glance: &Glance) -> i64 {
    let spec = &glance.spec;
    let replicas = spec
        .autoscaling
        .as_ref()
        .map_or(defaults::replicas(spec), |autoscaling| {
            autoscaling.max_replicas
        });
    let workers = match launch_mode(&spec.open_stack_release) {
        LaunchMode::Eventlet => defaults::workers(spec),
        LaunchMode::Uwsgi => defaults::uwsgi(spec).processes,
    };
    let pods = i64::from(replicas.max(1)) + 1;
    (pods * i64::from(workers.max(1)) * CONNECTIONS_PER_WORKER + HEADROOM).min(i64::from(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glance::specimen;

    fn provisioned(patch: &Value) -> Option<Provisioning> {
        let glance = specimen::with(patch);
        provisioning(&glance, Identity::of(&glance))
    }

    fn managed(patch: &Value) -> Provisioning {
        let mut spec =
            json!({ "database": { "host": null, "clusterRef": { "name": "openstack-db" } } });
        json_patch::merge(&mut spec, patch);
        provisioned(&spec).unwrap()
    }

    fn connections(patch: &Value) -> i64 {
        managed(patch).login.unwrap().user["spec"]["maxUserConnections"]
            .as_i64()
            .unwrap()
    }

    #[test]
    fn a_managed_database_with_its_login() {
        let asked = managed(&json!({}));
        let login = asked.login.clone().unwrap();
        for object in [&asked.database, &login.user, &login.grant] {
            specimen::assert_no_null(object);
            assert_eq!(
                object["spec"]["mariaDbRef"],
                json!({ "name": "openstack-db", "waitForIt": false })
            );
            assert!(object["spec"].get("cleanupPolicy").is_none());
        }
        insta::assert_snapshot!(specimen::text(&json!([
            asked.database,
            login.user,
            login.grant
        ])));
    }

    #[test]
    fn a_database_of_ones_own_asks_for_nothing() {
        assert_eq!(provisioned(&json!({})), None);
    }

    #[test]
    fn a_secrets_engine_makes_its_own_logins() {
        let asked = managed(&json!({ "database": { "credentialsMode": "Dynamic" } }));
        assert_eq!(asked.cluster, "openstack-db");
        assert_eq!(asked.login, None);
    }

    #[test]
    fn every_worker_of_every_pod_may_fill_its_pool() {
        // Three pods and one of a surge, two workers each.
        assert_eq!(connections(&json!({})), 4 * 2 * 55 + 10);
        let scaled = json!({ "autoscaling": { "maxReplicas": 9 }, "apiServer": { "workers": 4 } });
        assert_eq!(connections(&scaled), 10 * 4 * 55 + 10);
        // The knob of the other server does not count.
        let uwsgi = json!({ "openStackRelease": "2026.1", "apiServer": { "workers": 4, "uwsgi": { "processes": 3 } } });
        assert_eq!(connections(&uwsgi), 4 * 3 * 55 + 10);
    }
}
