//! Values that the API accepts as an integer or as a text.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The pattern of a Kubernetes quantity.
pub(crate) const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// A Kubernetes quantity, kept exactly as it was written.
///
/// `1024Mi` stays `1024Mi`, and an unquoted `0` stays an integer when it is
/// written back, so an object that passes through this type comes out as it
/// went in. The text is not interpreted here.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    text: String,
    integer: bool,
}

/// An integer or a text, such as `1` or `25%`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// A number.
    Int(i64),
    /// A text: a percentage or the name of a port.
    String(String),
}

// === impl Quantity ===

impl Quantity {
    /// A quantity from its text, e.g. `10Gi`.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            integer: false,
        }
    }

    /// The text as written; digits only when it was an integer.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&str> for Quantity {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Quantity {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // An integer beyond 64 bits was never read as one, so the fallback to
        // the text is only ever taken for texts.
        match self.text.parse::<i64>() {
            Ok(number) if self.integer => serializer.serialize_i64(number),
            _ => serializer.serialize_str(&self.text),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Integer(i64),
            Text(String),
            // The API server never lets these pass; a number such as 1.5 must
            // still not make a stored object unreadable.
            Number(serde_json::Number),
        }
        Ok(match Form::deserialize(deserializer)? {
            Form::Integer(number) => Self {
                text: number.to_string(),
                integer: true,
            },
            Form::Text(text) => Self::new(text),
            Form::Number(number) => Self::new(number.to_string()),
        })
    }
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-int-or-string": true, "pattern": QUANTITY_PATTERN })
    }
}

// === impl IntOrString ===

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => number.fmt(f),
            Self::String(text) => f.write_str(text),
        }
    }
}

impl From<i64> for IntOrString {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<&str> for IntOrString {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<IntOrString> for Value {
    fn from(value: IntOrString) -> Self {
        match value {
            IntOrString::Int(number) => number.into(),
            IntOrString::String(text) => text.into(),
        }
    }
}

impl JsonSchema for IntOrString {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "IntOrString".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-int-or-string": true })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quantity_comes_out_as_it_went_in() {
        for form in [
            json!(0),
            json!(12),
            json!(-3),
            json!("0"),
            json!("1024Mi"),
            json!(".5Gi"),
        ] {
            let read: Quantity = serde_json::from_value(form.clone()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), form);
        }
    }

    #[test]
    fn an_unquoted_fraction_is_read_and_not_refused() {
        let read: Quantity = serde_json::from_value(json!(1.5)).unwrap();
        assert_eq!(read.as_str(), "1.5");
    }

    #[test]
    fn a_percentage_and_a_count_keep_their_kind() {
        for form in [json!(1), json!("25%"), json!("8080")] {
            let read: IntOrString = serde_json::from_value(form.clone()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), form);
        }
    }
}
