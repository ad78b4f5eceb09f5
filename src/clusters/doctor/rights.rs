//! What the registered account may do, compared with what Glances need.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, ResourceRule, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
    SelfSubjectRulesReview, SelfSubjectRulesReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

use crate::clusters::access::Rule;

/// Questions to one API server at a time.
const AT_ONCE: usize = 16;

/// One thing that an account may do or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// API group.
    pub group: &'static str,
    /// Resource, with a subresource behind a slash.
    pub resource: &'static str,
    /// Verb.
    pub verb: &'static str,
}

/// Rules as single rights.
pub fn single(rules: &[Rule]) -> BTreeSet<Right> {
    let rights = rules.iter().flat_map(|rule| {
        rule.resources.iter().flat_map(move |resource| {
            rule.verbs.iter().map(move |verb| Right {
                group: rule.group,
                resource,
                verb,
            })
        })
    });
    rights.collect()
}

/// Rights as rules of a role, those of one group with the same verbs together.
pub fn rules(rights: &BTreeSet<Right>) -> Vec<Value> {
    let mut verbs: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for right in rights {
        verbs
            .entry((right.group, right.resource))
            .or_default()
            .push(right.verb);
    }
    let mut together: BTreeMap<(&str, Vec<&str>), Vec<&str>> = BTreeMap::new();
    for ((group, resource), verbs) in verbs {
        together.entry((group, verbs)).or_default().push(resource);
    }
    let rule = |((group, verbs), resources)| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    together.into_iter().map(rule).collect()
}

/// Rights in words, for a line of a table.
pub fn words(rights: &BTreeSet<Right>) -> String {
    let mut verbs: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for right in rights {
        verbs
            .entry((right.group, right.resource))
            .or_default()
            .push(right.verb);
    }
    let word = |((group, resource), verbs): ((&str, &str), Vec<&str>)| {
        let dot = if group.is_empty() { "" } else { "." };
        format!("{} {resource}{dot}{group}", verbs.join("/"))
    };
    verbs.into_iter().map(word).collect::<Vec<_>>().join(", ")
}

/// The needed rights that the account lacks in a namespace; `None` means in the whole cluster.
pub async fn missing(
    client: &Client,
    namespace: Option<&str>,
    needed: BTreeSet<Right>,
) -> Result<BTreeSet<Right>, kube::Error> {
    let open = match namespace {
        Some(namespace) => {
            let granted = granted(client, namespace).await?;
            needed
                .into_iter()
                .filter(|right| !covered(&granted, *right))
                .collect()
        }
        // A review of rules is always about one namespace.
        None => needed,
    };
    // A list of rules may be incomplete; a single question is answered for good.
    let answers = stream::iter(open).map(|right| async move {
        Ok::<_, kube::Error>((right, may(client, namespace, right).await?))
    });
    let answers: Vec<_> = answers.buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(answers
        .into_iter()
        .filter(|(_, may)| !may)
        .map(|(right, _)| right)
        .collect())
}

async fn granted(client: &Client, namespace: &str) -> Result<Vec<ResourceRule>, kube::Error> {
    let review = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec {
            namespace: Some(namespace.to_owned()),
        },
        ..SelfSubjectRulesReview::default()
    };
    let api: Api<SelfSubjectRulesReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer
        .status
        .map(|status| status.resource_rules)
        .unwrap_or_default())
}

async fn may(client: &Client, namespace: Option<&str>, right: Right) -> Result<bool, kube::Error> {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (right.resource, None),
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(right.group.to_owned()),
                namespace: namespace.map(str::to_owned),
                resource: Some(resource.to_owned()),
                subresource,
                verb: Some(right.verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Whether rules without names of objects give the right.
fn covered(granted: &[ResourceRule], right: Right) -> bool {
    let has = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
    granted.iter().any(|rule| {
        rule.resource_names
            .as_deref()
            .unwrap_or_default()
            .is_empty()
            && has(&rule.verbs, right.verb)
            && has(rule.api_groups.as_deref().unwrap_or_default(), right.group)
            && has(
                rule.resources.as_deref().unwrap_or_default(),
                right.resource,
            )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::access::IN_NAMESPACES;

    fn rule(group: &str, resources: &[&str], verbs: &[&str], names: &[&str]) -> ResourceRule {
        let owned = |list: &[&str]| list.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
        ResourceRule {
            api_groups: Some(owned(&[group])),
            resources: Some(owned(resources)),
            resource_names: Some(owned(names)),
            verbs: owned(verbs),
        }
    }

    const SECRETS: Right = Right {
        group: "",
        resource: "secrets",
        verb: "list",
    };

    #[test]
    fn a_rule_for_single_objects_gives_no_right_to_all() {
        assert!(covered(
            &[rule("", &["secrets"], &["get", "list"], &[])],
            SECRETS
        ));
        assert!(covered(&[rule("*", &["*"], &["*"], &[])], SECRETS));
        assert!(!covered(
            &[rule("", &["secrets"], &["list"], &["one"])],
            SECRETS
        ));
        assert!(!covered(&[rule("", &["secrets"], &["get"], &[])], SECRETS));
        assert!(!covered(
            &[rule("apps", &["secrets"], &["list"], &[])],
            SECRETS
        ));
    }

    #[test]
    fn what_is_missing_comes_back_as_the_rules_that_grant_it() {
        let rights = single(IN_NAMESPACES);
        assert!(rights.len() > 80, "{}", rights.len());
        let rules = rules(&rights);
        let back: usize = rules
            .iter()
            .map(|rule| {
                let len = |key: &str| rule[key].as_array().map_or(0, Vec::len);
                len("resources") * len("verbs")
            })
            .sum();
        assert_eq!(back, rights.len());
        let two = [
            SECRETS,
            Right {
                verb: "watch",
                ..SECRETS
            },
        ]
        .into();
        assert_eq!(words(&two), "list/watch secrets");
    }
}
