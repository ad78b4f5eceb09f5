//! Gateway API: the route kind, and what a gateway says about our route.

use serde_json::Value;
use target_registry::Kind;

/// A route of HTTP requests to a Service.
pub const HTTP_ROUTE: Kind =
    Kind::namespaced("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes");

/// The parent a route asks to be attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent<'a> {
    /// Name of the Gateway.
    pub name: &'a str,
    /// Its namespace; the route's own when the reference names none.
    pub namespace: &'a str,
    /// The listener, when the reference names one.
    pub section: Option<&'a str>,
}

/// What the gateways say about a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// The wanted parent serves the route as it is now.
    Accepted,
    /// It does not, or has not said so yet; with its words when it has any.
    NotAccepted(Option<String>),
}

/// Judges `status.parents` of a route in namespace `namespace`.
///
/// Only the wanted parent counts, and only what it says about the current generation, so the former
/// parent's consent does not outlive a change (contract: workload, `HTTPRoute`; better than the Go
/// operator, which takes anybody's). A parent that accepts the route but cannot resolve its backend
/// serves errors, hence is not counted as accepting.
pub fn acceptance(route: &Value, namespace: &str, wanted: Parent<'_>) -> Acceptance {
    let generation = route
        .pointer("/metadata/generation")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    let parents = route
        .pointer("/status/parents")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);

    let mut said = None;
    for parent in parents
        .iter()
        .filter(|parent| is(parent, namespace, wanted))
    {
        let current = |kind: &str| {
            parent["conditions"].as_array()?.iter().find(|condition| {
                condition["type"] == kind
                    && condition["observedGeneration"]
                        .as_i64()
                        .is_none_or(|seen| seen >= generation)
            })
        };
        let unresolved = current("ResolvedRefs").filter(|refs| refs["status"] == "False");
        match (current("Accepted"), unresolved) {
            (Some(accepted), None) if accepted["status"] == "True" => return Acceptance::Accepted,
            (Some(accepted), _) if accepted["status"] != "True" => said = said.or(words(accepted)),
            (_, Some(refs)) => said = said.or(words(refs)),
            _ => {}
        }
    }
    Acceptance::NotAccepted(said)
}

/// Whether a status entry speaks for the wanted parent.
fn is(entry: &Value, namespace: &str, wanted: Parent<'_>) -> bool {
    let reference = &entry["parentRef"];
    reference["name"] == wanted.name
        && reference["namespace"].as_str().unwrap_or(namespace) == wanted.namespace
        && wanted
            .section
            .is_none_or(|section| reference["sectionName"] == section)
}

/// `<type> is <status>: <reason>: <message>`, as far as the condition has them.
fn words(condition: &Value) -> Option<String> {
    let mut text = format!(
        "{} is {}",
        condition["type"].as_str()?,
        condition["status"].as_str()?
    );
    for part in ["reason", "message"] {
        if let Some(part) = condition[part].as_str().filter(|part| !part.is_empty()) {
            text.push_str(": ");
            text.push_str(part);
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const WANTED: Parent<'_> = Parent {
        name: "edge",
        namespace: "openstack",
        section: None,
    };

    fn route(parents: &Value) -> Value {
        json!({"metadata": {"generation": 3}, "status": {"parents": parents}})
    }

    fn accepted(reference: &Value, generation: Option<i64>) -> Value {
        let mut condition =
            json!({"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""});
        if let Some(generation) = generation {
            condition["observedGeneration"] = json!(generation);
        }
        json!({"parentRef": reference, "conditions": [condition]})
    }

    #[test]
    fn the_smallest_status_a_gateway_writes_is_enough() {
        // One parent without namespace, generation 1 of 1.
        let mut route = route(&json!([accepted(&json!({"name": "edge"}), Some(1))]));
        route["metadata"]["generation"] = json!(1);
        assert_eq!(
            acceptance(&route, "openstack", WANTED),
            Acceptance::Accepted
        );
    }

    #[rstest]
    #[case::nobody(json!([]))]
    #[case::former_parent(json!([accepted(&json!({"name": "old-edge"}), Some(3))]))]
    #[case::same_name_elsewhere(json!([accepted(&json!({"name": "edge", "namespace": "other"}), Some(3))]))]
    #[case::said_about_an_older_route(json!([accepted(&json!({"name": "edge"}), Some(2))]))]
    fn consent_that_is_not_the_wanted_parents_does_not_count(#[case] parents: Value) {
        assert_eq!(
            acceptance(&route(&parents), "openstack", WANTED),
            Acceptance::NotAccepted(None)
        );
    }

    #[test]
    fn a_gateway_that_names_no_generation_is_believed() {
        let route = route(&json!([accepted(
            &json!({"name": "edge", "namespace": "openstack"}),
            None
        )]));
        assert_eq!(
            acceptance(&route, "openstack", WANTED),
            Acceptance::Accepted
        );
    }

    #[test]
    fn a_wanted_listener_has_to_be_the_one_that_accepts() {
        let wanted = Parent {
            section: Some("https"),
            ..WANTED
        };
        let by = |section: &str| {
            route(&json!([accepted(
                &json!({"name": "edge", "sectionName": section}),
                Some(3)
            )]))
        };
        assert_eq!(
            acceptance(&by("https"), "openstack", wanted),
            Acceptance::Accepted
        );
        assert_eq!(
            acceptance(&by("http"), "openstack", wanted),
            Acceptance::NotAccepted(None)
        );
    }

    #[test]
    fn a_route_without_a_backend_is_not_accepted_and_says_why() {
        let mut parent = accepted(&json!({"name": "edge"}), Some(3));
        parent["conditions"].as_array_mut().unwrap().push(json!({
            "type": "ResolvedRefs", "status": "False", "reason": "BackendNotFound", "message": "no Service glance",
        }));
        assert_eq!(
            acceptance(&route(&json!([parent])), "openstack", WANTED),
            Acceptance::NotAccepted(Some(
                "ResolvedRefs is False: BackendNotFound: no Service glance".into()
            ))
        );
    }

    #[test]
    fn a_refusal_is_reported_in_the_gateways_words() {
        let parent = json!({"parentRef": {"name": "edge"}, "conditions": [
            {"type": "Accepted", "status": "False", "reason": "NoMatchingListenerHostname", "message": "no listener"},
        ]});
        assert_eq!(
            acceptance(&route(&json!([parent])), "openstack", WANTED),
            Acceptance::NotAccepted(Some(
                "Accepted is False: NoMatchingListenerHostname: no listener".into()
            ))
        );
    }
}
