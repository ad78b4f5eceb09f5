//! What a managed database asks of the `MariaDB` operator: a database, a user, its rights.
//!
//! No `cleanupPolicy` is sent, so its default holds and removing an object drops what it stands
//! for. Most fields are immutable over there; a field that was once left out stays out.

use glance_api::Glance;
use glance_api::defaults;
use glance_api::glance::{CredentialsMode, DatabaseSpec, TlsMode};
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

/// Where a database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the `MariaDB`.
    pub cluster: String,
    /// Name of the database.
    pub database: String,
}

/// Where a live `Database` is, if that is not where the spec has it. Neither can change over there.
pub fn other_place(live: &Value, spec: &DatabaseSpec) -> Option<Place> {
    let wanted = Place {
        cluster: spec.cluster_ref.as_ref()?.name.clone(),
        database: spec.database.clone(),
    };
    let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str);
    let found = Place {
        cluster: text("/spec/mariaDbRef/name")
            .unwrap_or(&wanted.cluster)
            .to_owned(),
        database: text("/spec/name").unwrap_or(&wanted.database).to_owned(),
    };
    (found != wanted).then_some(found)
}

/// What a Glance asks for; nothing when it brings its own database.
pub fn provisioning(glance: &Glance, id: Identity<'_>) -> Option<Provisioning> {
    let database = &glance.spec.database;
    let cluster = &database.cluster_ref.as_ref()?.name;
    // Sent although it reads like a default: the default over there is `true`, and it cannot be
    // changed.
    let server = json!({ "name": cluster, "waitForIt": false });

    let login = (defaults::credentials_mode(database) == CredentialsMode::Static).then(|| Login {
        user: user(glance, id, &server),
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

fn user(glance: &Glance, id: Identity<'_>, server: &Value) -> Value {
    let database = &glance.spec.database;
    let mut spec = json!({
        "mariaDbRef": server,
        "passwordSecretKeyRef": { "name": database.secret_ref.name, "key": "password" },
        "passwordPlugin": {},
        "maxUserConnections": max_user_connections(glance),
    });
    if let Some(require) = require(database) {
        spec["require"] = require;
    }
    object("User", id, &spec)
}

/// What the server asks of the login. The driver goes on in clear text where a server offers no TLS, so only the
/// server can make sure that a mode means what it says; all but `prefer` promise it.
///
/// Versions of the `MariaDB` operator before 0.37 drop the field. None of them takes a requirement back by itself:
/// whoever switches TLS off has to `ALTER USER … REQUIRE NONE`.
fn require(database: &DatabaseSpec) -> Option<Value> {
    let (tls, mode) = defaults::database_tls(database)?;
    if mode == TlsMode::Prefer {
        return None;
    }
    let what = match tls.client_cert_secret_ref {
        Some(_) => "x509",
        None => "ssl",
    };
    Some(json!({ what: true }))
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
    use rstest::rstest;

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

    #[rstest]
    #[case::off(Value::Null, Value::Null)]
    #[case::disabled(json!({ "mode": "disabled" }), Value::Null)]
    #[case::optional(json!({ "mode": "prefer" }), Value::Null)]
    #[case::by_default(json!({}), json!({ "ssl": true }))]
    #[case::required(json!({ "mode": "require" }), json!({ "ssl": true }))]
    #[case::certificate(
        json!({ "mode": "require", "clientCertSecretRef": { "name": "cert" } }),
        json!({ "x509": true })
    )]
    #[case::verified(
        json!({ "mode": "verify-full", "clientCertSecretRef": { "name": "cert" } }),
        json!({ "x509": true })
    )]
    fn a_server_lets_nobody_in_without_the_tls_that_the_mode_promises(
        #[case] mut tls: Value,
        #[case] expected: Value,
    ) {
        if tls.is_object() {
            tls["caBundleSecretRef"] = json!({ "name": "ca" });
        }
        let asked = managed(&json!({ "database": { "tls": tls } }));
        assert_eq!(asked.login.unwrap().user["spec"]["require"], expected);
    }

    #[test]
    fn a_database_is_where_it_was_made_whatever_the_spec_says_later() {
        let live = managed(&json!({})).database;
        let found = |database: Value| {
            let spec = json!({ "database": database });
            other_place(&live, &specimen::with(&spec).spec.database)
        };
        let here = json!({ "host": null, "clusterRef": { "name": "openstack-db" } });
        assert_eq!(found(here.clone()), None);
        let (mut renamed, mut moved) = (here.clone(), here);
        renamed["database"] = json!("other");
        moved["clusterRef"]["name"] = json!("other");
        let there = Place {
            cluster: "openstack-db".into(),
            database: specimen::with(&json!({})).spec.database.database,
        };
        assert_eq!(found(renamed), Some(there.clone()));
        assert_eq!(found(moved), Some(there));
        // To a server of its own it may go.
        assert_eq!(found(json!({ "host": "db.example.org" })), None);
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
