//! The form of an answer.

use std::collections::HashMap;
use std::fmt;

use serde_json::Value;

use super::path::Path;
use super::quote::{quoted, shown};

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CauseKind {
    /// It is not there.
    Required,
    /// Its value cannot work.
    Invalid,
    /// Its value is none of the known ones.
    NotSupported,
    /// It is not the user's to set.
    Forbidden,
    /// Another entry has the same key.
    Duplicate,
    /// The list or map is too long.
    TooMany,
    /// It names something that does not exist.
    NotFound,
    /// It could not be judged.
    Internal,
}

/// One fault of an object. Prints as `<path>: <label>[: <value>][: <detail>]`,
/// like a field error of the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// What is wrong.
    pub kind: CauseKind,
    /// Path of the field.
    pub field: String,
    /// Its value as Go prints it; none where the kind shows none.
    pub value: Option<String>,
    /// Why, for people; may be empty.
    pub detail: String,
}

/// The answer to a create or an update: refused when there is a cause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Review {
    /// Every fault, in the order of the contract.
    pub causes: Vec<Cause>,
    /// What is admitted and still worth saying.
    pub warnings: Vec<String>,
}

/// Collects the faults of one object.
#[derive(Debug, Default)]
pub struct Findings {
    found: Vec<Finding>,
    warnings: Vec<String>,
}

#[derive(Debug)]
struct Finding {
    cause: Cause,
    identity: Identity,
}

/// What makes two faults the same one: equal kind, place and reason, and the
/// same input, in full where the answer cuts or hides it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Identity {
    kind: CauseKind,
    place: String,
    input: String,
    detail: String,
}

// === impl CauseKind ===

impl CauseKind {
    /// The reason in `status.details.causes`.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }

    /// What people read.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }
}

// === impl Cause ===

impl Cause {
    /// The text without its path: the `message` in `status.details.causes`.
    pub fn body(&self) -> String {
        let mut body = self.kind.label().to_owned();
        for part in self.value.iter().chain(Some(&self.detail)) {
            if !part.is_empty() {
                body.push_str(": ");
                body.push_str(part);
            }
        }
        body
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

// === impl Review ===

impl Review {
    /// Refused for one fault.
    pub fn refused(cause: Cause) -> Self {
        Self {
            causes: vec![cause],
            warnings: Vec::new(),
        }
    }

    /// Admitted with a word.
    pub fn warned(text: impl Into<String>) -> Self {
        Self {
            causes: Vec::new(),
            warnings: vec![text.into()],
        }
    }

    /// Adds what another look at the same object found.
    pub fn merge(&mut self, other: Self) {
        self.causes.extend(other.causes);
        self.warnings.extend(other.warnings);
    }

    /// Whether nothing speaks against the object.
    pub fn is_allowed(&self) -> bool {
        self.causes.is_empty()
    }
}

// === impl Findings ===

impl Findings {
    /// The field is not there.
    pub fn required(&mut self, path: &Path, detail: impl Into<String>) {
        self.add(CauseKind::Required, path, None, String::new(), detail);
    }

    /// The value cannot work.
    pub fn invalid(&mut self, path: &Path, value: impl Into<Value>, detail: impl Into<String>) {
        self.valued(CauseKind::Invalid, path, &value.into(), detail);
    }

    /// The value cannot work, and the answer must not show it.
    pub fn hidden(&mut self, path: &Path, input: &str, detail: impl Into<String>) {
        self.add(CauseKind::Invalid, path, None, input.to_owned(), detail);
    }

    /// The value is none of `supported`.
    pub fn not_supported(&mut self, path: &Path, value: impl Into<Value>, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|text| quoted(text)).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        self.valued(CauseKind::NotSupported, path, &value.into(), detail);
    }

    /// The field is not the user's. `input` is what was set, which the answer must not show.
    pub fn forbidden(&mut self, path: &Path, input: &str, detail: impl Into<String>) {
        self.add(CauseKind::Forbidden, path, None, input.to_owned(), detail);
    }

    /// Another entry has the same key.
    pub fn duplicate(&mut self, path: &Path, value: impl Into<Value>) {
        self.valued(CauseKind::Duplicate, path, &value.into(), "");
    }

    /// The list or map has more than `most` entries.
    pub fn too_many(&mut self, path: &Path, count: usize, most: usize) {
        let detail = format!("must have at most {most} items");
        self.valued(CauseKind::TooMany, path, &count.into(), detail);
    }

    /// Something to say that refuses nothing.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// The answer for an object that was not there before.
    pub fn into_review(self) -> Review {
        Review {
            causes: self.found.into_iter().map(|found| found.cause).collect(),
            warnings: self.warnings,
        }
    }

    /// The answer for an object that had the faults `before`: as many of them
    /// as it had are forgiven.
    pub fn since(self, before: Self) -> Review {
        let mut forgiven: HashMap<Identity, usize> = HashMap::new();
        for finding in before.found {
            *forgiven.entry(finding.identity).or_default() += 1;
        }
        let is_new = |finding: &Finding| match forgiven.get_mut(&finding.identity) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            _ => true,
        };
        Self {
            found: self.found.into_iter().filter(is_new).collect(),
            warnings: self.warnings,
        }
        .into_review()
    }

    fn valued(&mut self, kind: CauseKind, path: &Path, value: &Value, detail: impl Into<String>) {
        self.add(kind, path, Some(shown(value)), value.to_string(), detail);
    }

    fn add(
        &mut self,
        kind: CauseKind,
        path: &Path,
        value: Option<String>,
        input: String,
        detail: impl Into<String>,
    ) {
        let detail = detail.into();
        self.found.push(Finding {
            identity: Identity {
                kind,
                place: path.shape().to_owned(),
                input,
                detail: detail.clone(),
            },
            cause: Cause {
                kind,
                field: path.to_string(),
                value,
                detail,
            },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(with: impl FnOnce(&mut Findings)) -> Findings {
        let mut findings = Findings::default();
        with(&mut findings);
        findings
    }

    fn texts(review: &Review) -> Vec<String> {
        review.causes.iter().map(Cause::to_string).collect()
    }

    #[test]
    fn each_kind_reads_as_a_go_field_error() {
        let path = Path::new("spec");
        let review = findings(|f| {
            f.required(&path.child("a"), "a must be set");
            f.invalid(&path.child("b"), "x\ny", "no");
            f.invalid(&path.child("c"), 0, "must be at least 1");
            f.not_supported(&path.child("d").index(0), "ftp", &["http", "https"]);
            f.forbidden(&path.child("e").key("s").key("k"), "secret", "hands off");
            f.duplicate(&path.child("f"), "x");
            f.too_many(&path.child("g"), 65, 64);
        })
        .into_review();
        assert_eq!(
            texts(&review),
            [
                "spec.a: Required value: a must be set",
                r#"spec.b: Invalid value: "x\ny": no"#,
                "spec.c: Invalid value: 0: must be at least 1",
                r#"spec.d[0]: Unsupported value: "ftp": supported values: "http", "https""#,
                "spec.e[s][k]: Forbidden: hands off",
                r#"spec.f: Duplicate value: "x""#,
                "spec.g: Too many: 65: must have at most 64 items",
            ]
        );
        assert_eq!(review.causes[5].body(), r#"Duplicate value: "x""#);
    }

    #[test]
    fn a_fault_that_was_there_before_blocks_no_update() {
        let list = Path::new("spec.hosts");
        let before = || findings(|f| f.invalid(&list.index(0), "bad", "no host"));
        let moved = findings(|f| f.invalid(&list.index(3), "bad", "no host"));
        assert!(moved.since(before()).is_allowed());

        let twice = findings(|f| {
            f.invalid(&list.index(0), "bad", "no host");
            f.invalid(&list.index(1), "bad", "no host");
        });
        assert_eq!(twice.since(before()).causes.len(), 1);
    }

    #[test]
    fn a_new_value_of_a_hidden_or_cut_input_is_a_new_fault() {
        let path = Path::new("spec.x");
        let forbidden = |input: &str| findings(|f| f.forbidden(&path, input, "no"));
        assert!(!forbidden("new").since(forbidden("old")).is_allowed());
        assert!(forbidden("old").since(forbidden("old")).is_allowed());

        let long = |end: &str| format!("{}{end}", "x".repeat(300));
        let invalid = |end: &str| findings(|f| f.invalid(&path, long(end), "too long"));
        assert!(!invalid("a").since(invalid("b")).is_allowed());
    }
}
