//! The standard status condition.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::text_enum;

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

text_enum! {
    /// What is known about a condition.
    ConditionStatus {
        /// It holds.
        True = "True",
        /// It does not hold.
        False = "False",
        /// Nobody can say.
        Unknown = "Unknown",
    }
}

/// One observation about the resource, replaced in place.
///
/// `message` is always written, even when empty: the schema requires it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about, in upper camel case or as a qualified name.
    #[serde(rename = "type")]
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub type_: String,

    /// Whether the condition holds: True, False or Unknown.
    pub status: ConditionStatus,

    /// Machine-readable cause of the current status, in upper camel case.
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    )]
    pub reason: String,

    /// The same for people. May be empty.
    #[schemars(length(max = 32768))]
    pub message: String,

    /// When `status` last changed.
    #[schemars(schema_with = "date_time")]
    pub last_transition_time: Time,

    /// The `metadata.generation` this observation was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
}

// === impl Condition ===

impl Condition {
    /// Whether the status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

fn date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}
