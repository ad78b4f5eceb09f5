//! Policies of an API server that forbid something in one namespace.

use serde_json::{Value, json};

/// A policy and its binding, both of this name: what matches `rule` and does not satisfy `expression` is forbidden with this
/// message.
pub fn forbidding(
    name: &str,
    namespace: &str,
    rule: &Value,
    expression: &str,
    message: &str,
) -> [Value; 2] {
    let api = "admissionregistration.k8s.io/v1";
    [
        json!({
            "apiVersion": api, "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": name },
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
                    "resourceRules": [rule],
                },
                "validations": [{ "expression": expression, "message": message, "reason": "Forbidden" }],
            },
        }),
        json!({
            "apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": name },
            "spec": { "policyName": name, "validationActions": ["Deny"] },
        }),
    ]
}
