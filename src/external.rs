//! Kinds that other operators define: their coordinates, and the few facts we read from them.
//!
//! Objects of these kinds stay untyped JSON. We write three of them and read one or two fields of
//! the rest, so a full type would only be a way to lose fields that a newer version of their
//! operator adds.

pub mod gateway;
pub mod mariadb;
pub mod secrets;

use serde_json::Value;

/// The condition of type `kind` in `status.conditions`, if the object reports it.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object
        .pointer("/status/conditions")?
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
}

/// Whether the object reports the condition of type `kind` with status `True`.
pub fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Whether the object is ready by the habit of its operator: `Ready` is `True`. Nothing else is
/// read.
pub fn is_ready(object: &Value) -> bool {
    is_true(object, "Ready")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::no_status(json!({}), false)]
    #[case::no_conditions(json!({"status": {"conditions": []}}), false)]
    #[case::other(json!({"status": {"conditions": [{"type": "Synced", "status": "True"}]}}), false)]
    #[case::unknown(json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}), false)]
    #[case::not_text(json!({"status": {"conditions": [{"type": "Ready", "status": true}]}}), false)]
    #[case::ready(json!({"status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}]}}), true)]
    fn ready_is_the_condition_and_nothing_else(#[case] object: Value, #[case] ready: bool) {
        assert_eq!(is_ready(&object), ready);
    }
}
