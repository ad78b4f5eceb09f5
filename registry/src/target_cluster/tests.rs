use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn selector(value: Value) -> LabelSelector {
    serde_json::from_value(value).unwrap()
}

#[rstest]
#[case::nothing(json!({}), true)]
#[case::equal(json!({"matchLabels": {"tenant": "a"}}), true)]
#[case::other(json!({"matchLabels": {"tenant": "b"}}), false)]
#[case::among(json!({"matchExpressions": [{"key": "tenant", "operator": "In", "values": ["a", "b"]}]}), true)]
#[case::exists(json!({"matchExpressions": [{"key": "tenant", "operator": "Exists"}]}), true)]
#[case::all_must_hold(
    json!({"matchLabels": {"tenant": "a"}, "matchExpressions": [{"key": "tenant", "operator": "DoesNotExist"}]}),
    false
)]
#[case::nonsense(json!({"matchExpressions": [{"key": "tenant", "operator": "Resembles", "values": ["a"]}]}), false)]
fn namespaces_are_chosen_by_label_as_everywhere_in_kubernetes(
    #[case] choice: Value,
    #[case] chosen: bool,
) {
    let labels = BTreeMap::from([("tenant".to_owned(), "a".to_owned())]);
    assert_eq!(selector(choice).matches(&labels), chosen);
}

#[test]
fn an_empty_object_is_a_policy_that_changes_nothing() {
    let object: TargetCluster = serde_json::from_value(json!({
        "apiVersion": "clusters.openstack.c5c3.io/v1alpha1", "kind": "TargetCluster",
        "metadata": { "name": "blue", "namespace": "clusters" },
        "spec": {},
    }))
    .unwrap();
    assert!(!object.spec.is_paused());
    assert_eq!(object.spec.limit(), DEFAULT_MAX_IN_FLIGHT);
    assert_eq!(object.spec.pinned(), None);
    assert!(!object.is_managed_by("anybody") && !object.wants_reclaim());
    assert_eq!(serde_json::to_value(&object.spec).unwrap(), json!({}));
}
