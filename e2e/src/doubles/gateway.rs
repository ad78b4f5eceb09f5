//! A gateway controller: listeners are programmed, routes are accepted by every parent.

use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::status::{Behaviour, Role, Wish, condition};
use crate::kinds;

const CONTROLLER: &str = "e2e.c5c3.io/gateway";

/// The kinds of this controller.
pub fn roles() -> [Role; 2] {
    [
        Role {
            kind: kinds::GATEWAY,
            wish: gateway,
            errand: None,
        },
        Role {
            kind: kinds::HTTP_ROUTE,
            wish: route,
            errand: None,
        },
    ]
}

fn gateway(object: &DynamicObject, behaviour: Behaviour) -> Wish {
    let good = behaviour != Behaviour::Broken;
    let reason = |good_reason| if good { good_reason } else { "Invalid" };
    let conditions = [
        observed(object, condition("Accepted", good, reason("Accepted"), "")),
        observed(
            object,
            condition("Programmed", good, reason("Programmed"), ""),
        ),
    ];
    Wish {
        status: Some(json!({ "conditions": conditions })),
        finalizer: None,
    }
}

fn route(object: &DynamicObject, behaviour: Behaviour) -> Wish {
    let good = behaviour != Behaviour::Broken;
    let (reason, message) = if good {
        ("Accepted", "Route is accepted")
    } else {
        ("NotAllowedByListeners", "no listener allows this namespace")
    };
    let parents = object
        .data
        .pointer("/spec/parentRefs")
        .and_then(Value::as_array);
    let parents: Vec<Value> = parents
        .into_iter()
        .flatten()
        .map(|parent| {
            json!({
                "parentRef": parent,
                "controllerName": CONTROLLER,
                "conditions": [
                    observed(object, condition("Accepted", good, reason, message)),
                    observed(object, condition("ResolvedRefs", true, "ResolvedRefs", "")),
                ],
            })
        })
        .collect();
    Wish {
        status: Some(json!({ "parents": parents })),
        finalizer: None,
    }
}

fn observed(object: &DynamicObject, mut condition: Value) -> Value {
    condition["observedGeneration"] = json!(object.metadata.generation);
    condition
}
