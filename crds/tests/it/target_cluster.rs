//! The definition of `TargetCluster`, whose type lives with the registry.

use std::{fs, path::Path};

use glance_api::schema;
use kube::CustomResourceExt;
use rstest::rstest;
use serde_json::{Value, json};
use target_registry::{TargetCluster, target_cluster};

use crate::admission::Server;

pub fn definition() -> (&'static str, Value) {
    let definition = schema::shipped(&TargetCluster::crd()).unwrap();
    (target_cluster::FILE, definition)
}

fn complaints(spec: &Value) -> Vec<String> {
    Server::serving(&definition().1).complaints(&json!({
        "apiVersion": "clusters.openstack.c5c3.io/v1alpha1", "kind": "TargetCluster",
        "metadata": { "name": "blue" },
        "spec": spec,
    }))
}

#[test]
fn the_committed_file_is_what_the_type_says() {
    let (file, definition) = definition();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let yaml = schema::yaml(&definition).unwrap();
    assert!(committed == yaml, "{file} is stale: run `make generate`");
}

#[test]
fn kubectl_knows_it_as_tc_and_shows_what_matters() {
    let (_, definition) = definition();
    let spec = &definition["spec"];
    assert_eq!(spec["group"], "clusters.openstack.c5c3.io");
    assert_eq!(spec["scope"], "Namespaced");
    assert_eq!(spec["names"]["shortNames"], json!(["tc"]));
    let version = &spec["versions"][0];
    assert_eq!(version["subresources"], json!({ "status": {} }));
    let columns = |wide: bool| {
        let columns = version["additionalPrinterColumns"].as_array().unwrap();
        let of = columns
            .iter()
            .filter(|c| c.get("priority").is_some() == wide);
        of.map(|c| c["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        columns(false),
        ["Ready", "Version", "Glances", "Expires", "Reason", "Age"]
    );
    assert_eq!(columns(true), ["Server", "UID"]);
}

#[rstest]
#[case::nothing(json!({}))]
#[case::everything(json!({
    "allowedNamespaces": {
        "names": ["tenant-a", "tenant-b"],
        "selector": {
            "matchLabels": { "images": "yes" },
            "matchExpressions": [
                { "key": "stage", "operator": "NotIn", "values": ["test"] },
                { "key": "region", "operator": "Exists" },
            ],
        },
    },
    "paused": true,
    "identity": "1b4a5bd1-6d2f-4b52-9a2e-6a0d2a1f8e53",
    "maxInFlight": 1,
    "renewCredentials": true,
}))]
#[case::nobody(json!({ "allowedNamespaces": {} }))]
fn sound_policies_are_admitted(#[case] spec: Value) {
    assert_eq!(complaints(&spec), [""; 0]);
}

#[rstest]
#[case::not_a_namespace(json!({ "allowedNamespaces": { "names": ["Tenant_A"] } }), "names")]
#[case::empty_name(json!({ "allowedNamespaces": { "names": [""] } }), "names")]
#[case::no_passes(json!({ "maxInFlight": 0 }), "maxInFlight")]
#[case::too_many_passes(json!({ "maxInFlight": 1001 }), "maxInFlight")]
#[case::empty_identity(json!({ "identity": "" }), "identity")]
#[case::identity_with_spaces(json!({ "identity": "not a uid" }), "identity")]
#[case::unknown_operator(
    json!({ "allowedNamespaces": { "selector": { "matchExpressions": [{ "key": "a", "operator": "Is" }] } } }),
    "operator"
)]
#[case::in_without_values(
    json!({ "allowedNamespaces": { "selector": { "matchExpressions": [{ "key": "a", "operator": "In" }] } } }),
    "values are required"
)]
#[case::exists_with_values(
    json!({ "allowedNamespaces": { "selector": { "matchExpressions": [
        { "key": "a", "operator": "Exists", "values": ["b"] }
    ] } } }),
    "values are required"
)]
fn policies_that_mean_nothing_are_refused(#[case] spec: Value, #[case] named: &str) {
    let complaints = complaints(&spec);
    assert!(
        complaints.iter().any(|text| text.contains(named)),
        "{complaints:?}"
    );
}
