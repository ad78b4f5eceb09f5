//! What a list of rules allows.

use k8s_openapi::api::authorization::v1::ResourceRule;

/// Whether any rule allows the verb on every object of the resource.
pub(super) fn allows(rules: &[ResourceRule], verb: &str, group: &str, resource: &str) -> bool {
    rules.iter().any(|rule| {
        let names = rule.resource_names.iter().flatten();
        // A rule for some objects does not allow to list or create.
        names.count() == 0
            && rule.verbs.iter().any(|v| v == "*" || v == verb)
            && rule
                .api_groups
                .iter()
                .flatten()
                .any(|g| g == "*" || g == group)
            && rule
                .resources
                .iter()
                .flatten()
                .any(|named| covers(named, resource))
    })
}

fn covers(named: &str, resource: &str) -> bool {
    let any = |subresource: &str| {
        resource
            .split_once('/')
            .is_some_and(|(_, s)| s == subresource)
    };
    named == "*" || named == resource || named.strip_prefix("*/").is_some_and(any)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::exactly(json!({"verbs": ["list"], "apiGroups": [""], "resources": ["secrets"]}), true)]
    #[case::everything(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}), true)]
    #[case::another_verb(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}), false)]
    #[case::another_group(json!({"verbs": ["list"], "apiGroups": ["apps"], "resources": ["secrets"]}), false)]
    #[case::one_object(
        json!({"verbs": ["list"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"]}),
        false
    )]
    #[case::no_resource(json!({"verbs": ["list"], "apiGroups": [""]}), false)]
    fn a_rule_allows_what_it_says(#[case] rule: Value, #[case] expected: bool) {
        let rule: ResourceRule = serde_json::from_value(rule).unwrap();
        assert_eq!(allows(&[rule], "list", "", "secrets"), expected);
    }

    #[rstest]
    #[case("services/proxy", true)]
    #[case("*/proxy", true)]
    #[case("services", false)]
    #[case("*", true)]
    fn a_subresource_is_not_its_resource(#[case] named: &str, #[case] expected: bool) {
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": [named]});
        let rule: ResourceRule = serde_json::from_value(rule).unwrap();
        assert_eq!(allows(&[rule], "get", "", "services/proxy"), expected);
    }
}
