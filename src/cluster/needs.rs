//! What every target cluster has to offer, as the chart `target-cluster-access` grants it.

use target_registry::{Kind, Needs, Permission};

use super::kinds::{
    CHILDREN, CLUSTER_SECRET_STORE, EXTERNAL_SECRET, HTTP_ROUTE, INPUTS, MARIADB, SECRET_STORE,
    is_everywhere,
};

const CRUD: &[&str] = &[
    "get", "list", "watch", "create", "update", "patch", "delete",
];
const READ: &[&str] = &["get", "list", "watch"];
const GET: &[&str] = &["get"];

/// Rights, and kinds worth showing.
pub fn of_targets() -> Needs {
    let children = CHILDREN.iter().map(|child| on(child.kind, CRUD));
    let inputs = INPUTS.iter().map(|kind| on(*kind, READ));
    let parts = [
        Permission {
            resource: "services/proxy",
            verbs: GET,
            ..on(super::kinds::SERVICE, GET)
        },
        Permission {
            resource: "httproutes/status",
            verbs: GET,
            ..on(HTTP_ROUTE, GET)
        },
    ];
    let mut capabilities = vec![HTTP_ROUTE, MARIADB];
    capabilities.extend(super::kinds::MARIADB_CHILDREN);
    capabilities.extend([EXTERNAL_SECRET, SECRET_STORE, CLUSTER_SECRET_STORE]);
    Needs {
        permissions: children.chain(inputs).chain(parts).collect(),
        capabilities,
    }
}

fn on(kind: Kind, verbs: &'static [&'static str]) -> Permission {
    Permission {
        group: kind.group,
        resource: kind.plural,
        verbs,
        namespaced: kind.namespaced,
        only_with: (!is_everywhere(&kind)).then_some(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_that_is_written_or_read_is_asked_for() {
        let needs = of_targets();
        let verbs = |group: &str, resource: &str| {
            let found = needs.permissions.iter();
            found
                .filter(|p| p.group == group && p.resource == resource)
                .map(|p| p.verbs.len())
                .collect::<Vec<_>>()
        };
        assert_eq!(needs.permissions.len(), 13 + 4 + 2);
        assert_eq!(verbs("", "secrets"), [7]);
        assert_eq!(verbs("k8s.mariadb.com", "mariadbs"), [3]);
        assert_eq!(verbs("", "services/proxy"), [1]);
        let cluster_wide: Vec<_> = needs.permissions.iter().filter(|p| !p.namespaced).collect();
        assert_eq!(cluster_wide.len(), 1);
        assert_eq!(cluster_wide[0].resource, "clustersecretstores");
    }
}
