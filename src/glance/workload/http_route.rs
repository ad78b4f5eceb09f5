//! The route from a gateway to the API, and the address people reach the API by.

use glance_api::defaults::gateway_path;
use glance_api::glance::{GatewaySpec, Glance};
use serde_json::{Value, json};

use super::{API_PORT, Identity, labels};
use crate::external::gateway::Parent;

/// The longest a request may take. Gateways cut after seconds by default, and a transfer of many
/// GiB takes hours; without any limit nothing would ever free a worker of a stalled one.
const REQUEST_TIMEOUT: &str = "4h";

/// The desired `HTTPRoute`, when `spec.gateway` asks for one.
pub fn http_route(glance: &Glance, id: Identity<'_>) -> Option<Value> {
    let gateway = glance.spec.gateway.as_ref()?;
    let path = gateway_path(gateway);

    let mut parent = json!({ "name": gateway.parent_ref.name });
    if let Some(namespace) = non_empty(gateway.parent_ref.namespace.as_ref()) {
        parent["namespace"] = json!(namespace);
    }
    if let Some(section) = non_empty(gateway.parent_ref.section_name.as_ref()) {
        parent["sectionName"] = json!(section);
    }
    let mut rule = json!({
        "matches": [{ "path": { "type": "PathPrefix", "value": path } }],
        "backendRefs": [{ "kind": "Service", "name": id.name, "port": API_PORT }],
        "timeouts": { "request": REQUEST_TIMEOUT },
    });
    if path != "/" {
        // Glance knows nothing of the prefix and would answer 404.
        rule["filters"] = json!([{
            "type": "URLRewrite",
            "urlRewrite": { "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/" } },
        }]);
    }
    let mut metadata = id.metadata(&labels::common(id.name));
    if !gateway.annotations.is_empty() {
        metadata["annotations"] = json!(gateway.annotations);
    }
    Some(json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": metadata,
        "spec": {
            "parentRefs": [parent],
            "hostnames": [gateway.hostname],
            "rules": [rule],
        },
    }))
}

/// The parent whose consent the route needs. `namespace` is the route's own.
pub fn parent<'a>(gateway: &'a GatewaySpec, namespace: &'a str) -> Parent<'a> {
    Parent {
        name: &gateway.parent_ref.name,
        namespace: non_empty(gateway.parent_ref.namespace.as_ref()).unwrap_or(namespace),
        section: non_empty(gateway.parent_ref.section_name.as_ref()),
    }
}

/// `status.endpoint`: the gateway's address when there is one, else the Service's.
///
/// TLS ends at the gateway, whatever the listener's port. A path prefix is part of the address
/// (better than the Go operator, whose address answers 404 then).
pub fn endpoint(glance: &Glance, id: Identity<'_>, domain: &str) -> String {
    match &glance.spec.gateway {
        Some(gateway) => {
            let path = gateway_path(gateway);
            let path = path.trim_end_matches('/');
            format!("https://{}{path}/", gateway.hostname)
        }
        None => format!("{}/", service_url(id, domain)),
    }
}

/// The address of the Service inside its cluster, whose DNS domain is `domain`, without a slash at the end.
pub fn service_url(id: Identity<'_>, domain: &str) -> String {
    format!(
        "http://{}.{}.svc.{domain}:{API_PORT}",
        id.name, id.namespace
    )
}

fn non_empty(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::glance::specimen;

    fn gateway(patch: &Value) -> Glance {
        let mut gateway =
            json!({ "parentRef": { "name": "edge" }, "hostname": "image.example.com" });
        json_patch::merge(&mut gateway, patch);
        specimen::with(&json!({ "gateway": gateway }))
    }

    fn route(glance: &Glance) -> Value {
        http_route(glance, Identity::of(glance)).unwrap()
    }

    #[test]
    fn the_least_route() {
        let route = route(&gateway(&json!({})));
        specimen::assert_no_null(&route);
        assert!(route["metadata"].get("annotations").is_none());
        assert_eq!(
            route["spec"],
            json!({
                "parentRefs": [{ "name": "edge" }],
                "hostnames": ["image.example.com"],
                "rules": [{
                    "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
                    "backendRefs": [{ "kind": "Service", "name": "pictures", "port": 9292 }],
                    "timeouts": { "request": "4h" },
                }],
            })
        );
    }

    #[rstest]
    #[case::absent(json!({}), "/", "https://image.example.com/")]
    #[case::empty(json!({ "path": "" }), "/", "https://image.example.com/")]
    #[case::root(json!({ "path": "/" }), "/", "https://image.example.com/")]
    #[case::bare(json!({ "path": "image" }), "/image", "https://image.example.com/image/")]
    #[case::slash(json!({ "path": "/image/" }), "/image/", "https://image.example.com/image/")]
    fn a_prefix_is_cut_off_for_glance_and_part_of_the_address(
        #[case] patch: Value,
        #[case] path: &str,
        #[case] address: &str,
    ) {
        let glance = gateway(&patch);
        let rule = route(&glance)["spec"]["rules"][0].clone();
        assert_eq!(rule["matches"][0]["path"]["value"], path);
        assert_eq!(
            endpoint(&glance, Identity::of(&glance), "cluster.local"),
            address
        );
        let rewritten = rule["filters"][0]["urlRewrite"]["path"]["replacePrefixMatch"] == "/";
        assert_eq!(rewritten, path != "/");
    }

    #[test]
    fn without_a_gateway_the_address_is_the_services() {
        let glance = specimen::eventlet();
        assert_eq!(http_route(&glance, Identity::of(&glance)), None);
        assert_eq!(
            endpoint(&glance, Identity::of(&glance), "cluster.local"),
            "http://pictures.openstack.svc.cluster.local:9292/"
        );
    }

    #[test]
    fn empty_parts_of_the_parent_are_left_out() {
        let glance = gateway(&json!({ "parentRef": { "namespace": "", "sectionName": "" } }));
        assert_eq!(
            route(&glance)["spec"]["parentRefs"],
            json!([{ "name": "edge" }])
        );
        let parent = parent(glance.spec.gateway.as_ref().unwrap(), "openstack");
        assert_eq!(
            (parent.name, parent.namespace, parent.section),
            ("edge", "openstack", None)
        );
    }
}
