//! Places in an object.

use std::fmt;

use super::quote;

/// The path of a field: `spec.plugins[0].config[key]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    text: String,
    /// The same without the numbers of list entries: an entry that only moved
    /// is the entry it was.
    shape: String,
}

// === impl Path ===

impl Path {
    /// The path of a top-level field.
    pub fn new(field: &str) -> Self {
        Self {
            text: field.to_owned(),
            shape: field.to_owned(),
        }
    }

    /// A field below this one; `a.b` stands for two steps.
    #[must_use]
    pub fn child(&self, field: &str) -> Self {
        Self {
            text: format!("{}.{field}", self.text),
            shape: format!("{}.{field}", self.shape),
        }
    }

    /// An entry of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self {
            text: format!("{}[{index}]", self.text),
            shape: format!("{}[]", self.shape),
        }
    }

    /// An entry of this map. A long key is cut.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self {
            text: format!("{}[{}]", self.text, quote::cut(key)),
            shape: format!("{}[{key}]", self.shape),
        }
    }

    /// What stays the same when list entries move.
    pub(super) fn shape(&self) -> &str {
        &self.shape
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
