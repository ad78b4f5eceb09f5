//! The `MariaDB` operator: clusters are up, databases, users and grants are made.

use kube::api::DynamicObject;
use serde_json::json;

use super::status::{Behaviour, Role, Wish, condition};
use crate::kinds;

/// The kinds of this operator.
pub fn roles() -> [Role; 4] {
    [
        Role {
            kind: kinds::MARIADB,
            wish: cluster,
            errand: None,
        },
        Role {
            kind: kinds::DATABASE,
            wish: database,
            errand: None,
        },
        Role {
            kind: kinds::USER,
            wish: user,
            errand: None,
        },
        Role {
            kind: kinds::GRANT,
            wish: grant,
            errand: None,
        },
    ]
}

fn cluster(_: &DynamicObject, behaviour: Behaviour) -> Wish {
    let ready = match behaviour {
        Behaviour::Broken => condition("Ready", false, "StatefulSetNotReady", "Not ready"),
        _ => condition("Ready", true, "StatefulSetReady", "Running"),
    };
    Wish {
        status: Some(json!({ "conditions": [ready] })),
        finalizer: None,
    }
}

fn database(_: &DynamicObject, behaviour: Behaviour) -> Wish {
    made(behaviour, "database.k8s.mariadb.com/finalizer")
}

fn user(_: &DynamicObject, behaviour: Behaviour) -> Wish {
    made(behaviour, "user.k8s.mariadb.com/finalizer")
}

fn grant(_: &DynamicObject, behaviour: Behaviour) -> Wish {
    made(behaviour, "grant.k8s.mariadb.com/finalizer")
}

fn made(behaviour: Behaviour, finalizer: &'static str) -> Wish {
    let ready = match behaviour {
        Behaviour::Broken => condition("Ready", false, "Failed", "Error creating: access denied"),
        _ => condition("Ready", true, "Created", "Created"),
    };
    Wish {
        status: Some(json!({ "conditions": [ready] })),
        finalizer: Some(finalizer),
    }
}
