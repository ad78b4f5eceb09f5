//! The Service in front of the API pods, and which of its two selectors it carries.

use glance_api::keys::labels::COMPONENT;
use serde_json::{Value, json};

use super::labels::{self, Component};
use super::rollout::Rollout;
use super::{API_PORT, Identity};

/// Which pods the Service selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// By name and instance: also pods of an older template that lacks the component label.
    Wide,
    /// By component too: the API pods and nothing else.
    Narrow,
}

/// The desired Service. Addresses, families and node ports are the cluster's business.
pub fn service(id: Identity<'_>, selection: Selection) -> Value {
    let selector = match selection {
        Selection::Wide => labels::selector(id.name),
        Selection::Narrow => labels::api_selector(id.name),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": id.metadata(&labels::common(id.name)),
        "spec": {
            "ports": [{ "port": API_PORT, "targetPort": API_PORT, "protocol": "TCP" }],
            "selector": selector,
        },
    })
}

/// The selection for this pass, after the Deployment was applied.
///
/// Wide until every pod carries the component label, or pods of an older template would drop out of
/// the endpoints. Narrow for ever after, since each later roll-out loses convergence for a while
/// and widening would let purge pods in, which answer nothing. `live` has to be what the API server
/// holds now: an older copy could widen again. It is looked at only when the roll-out has not
/// converged.
pub fn selection(rollout: Rollout<'_>, live: Option<&Value>) -> Selection {
    let narrowed =
        || live.is_some_and(|live| live["spec"]["selector"][COMPONENT] == Component::Api.as_str());
    if rollout.is_converged() || narrowed() {
        Selection::Narrow
    } else {
        Selection::Wide
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use rstest::rstest;

    use super::*;
    use crate::glance::specimen;

    const ID: Identity<'_> = Identity {
        name: "pictures",
        namespace: "openstack",
    };

    #[test]
    fn the_service_has_one_nameless_port_and_leaves_addresses_alone() {
        let service = service(ID, Selection::Wide);
        specimen::assert_is::<Service>(&service);
        assert_eq!(
            service["spec"],
            json!({
                "ports": [{ "port": 9292, "targetPort": 9292, "protocol": "TCP" }],
                "selector": { "app.kubernetes.io/name": "glance", "app.kubernetes.io/instance": "pictures" },
            })
        );
    }

    fn deployment(updated: i64, replicas: i64) -> Value {
        json!({
            "metadata": { "generation": 2 },
            "status": { "observedGeneration": 2, "replicas": replicas, "updatedReplicas": updated },
        })
    }

    #[rstest]
    #[case::all_pods_are_new(deployment(3, 3), None, Selection::Narrow)]
    #[case::first_install(deployment(0, 0), None, Selection::Wide)]
    #[case::old_pods(deployment(1, 4), Some(Selection::Wide), Selection::Wide)]
    #[case::never_widens_again(deployment(1, 4), Some(Selection::Narrow), Selection::Narrow)]
    fn the_selector_narrows_once_and_for_all(
        #[case] deployment: Value,
        #[case] live: Option<Selection>,
        #[case] expected: Selection,
    ) {
        let live = live.map(|live| service(ID, live));
        assert_eq!(selection(Rollout::of(&deployment), live.as_ref()), expected);
    }

    #[test]
    fn another_component_is_not_a_latch() {
        let mut live = service(ID, Selection::Narrow);
        live["spec"]["selector"][COMPONENT] = json!("db-purge");
        assert_eq!(
            selection(Rollout::of(&deployment(1, 4)), Some(&live)),
            Selection::Wide
        );
    }
}
