//! What the doctor found.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use crate::clusters::output::{Show, table};

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, and something should be done.
    Warning,
    /// It does not work.
    Failed,
    /// It could not be looked at.
    Skipped,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// What was looked at.
    #[serde(rename = "check")]
    pub name: &'static str,
    /// How it went.
    pub result: Verdict,
    /// What was seen.
    pub detail: String,
    /// A command that cures it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The objects that the command applies, where it applies some.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<Value>,
}

/// Everything about one cluster.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// The cluster.
    pub name: String,
    /// In the order of what depends on what.
    pub checks: Vec<Check>,
}

/// Everything about several.
#[derive(Clone, Debug, Serialize)]
pub struct Reports {
    /// By name.
    pub items: Vec<Diagnosis>,
}

// === impl Verdict ===

impl Verdict {
    /// Whether there is something to do.
    pub fn is_finding(self) -> bool {
        matches!(self, Self::Warning | Self::Failed)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "FAILED",
            Self::Skipped => "skipped",
        }
    }
}

// === impl Check ===

impl Check {
    /// With a result.
    pub fn new(name: &'static str, result: Verdict, detail: impl Into<String>) -> Self {
        Self {
            name,
            result,
            detail: detail.into(),
            remedy: None,
            manifests: Vec::new(),
        }
    }

    /// As it should be.
    pub fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, detail)
    }

    /// It does not work.
    pub fn failed(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Verdict::Failed, detail)
    }

    /// It could not be looked at.
    pub fn skipped(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Verdict::Skipped, detail)
    }

    /// Something should be done.
    pub fn warning(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Verdict::Warning, detail)
    }

    /// With the command that cures it.
    #[must_use]
    pub fn cured_by(mut self, command: String) -> Self {
        self.remedy = Some(command);
        self
    }

    /// With the command that cures it by applying these objects.
    #[must_use]
    pub fn cured_by_objects(mut self, (command, manifests): (String, Vec<Value>)) -> Self {
        self.remedy = Some(command);
        self.manifests = manifests;
        self
    }
}

// === impl Diagnosis ===

impl Diagnosis {
    /// How much there is to do.
    fn findings(&self) -> usize {
        self.checks
            .iter()
            .filter(|check| check.result.is_finding())
            .count()
    }

    /// The findings alone, and what cures them.
    pub fn findings_for_people(&self) -> String {
        self.text(|check| check.result.is_finding())
    }

    fn text(&self, shown: impl Fn(&Check) -> bool) -> String {
        let rows: Vec<_> = self
            .checks
            .iter()
            .filter(|check| shown(check))
            .map(|check| {
                let result = check.result.as_str().to_owned();
                vec![check.name.to_owned(), result, check.detail.clone()]
            })
            .collect();
        let mut text = format!(
            "{}:\n{}\n",
            self.name,
            table(&["CHECK", "RESULT", "DETAIL"], &rows)
        );
        for check in &self.checks {
            if let Some(remedy) = &check.remedy {
                let _ = write!(text, "\n# {} of {}:\n{remedy}\n", check.name, self.name);
            }
        }
        text
    }
}

// === impl Reports ===

impl Reports {
    /// How much there is to do.
    pub fn findings(&self) -> usize {
        self.items.iter().map(Diagnosis::findings).sum()
    }
}

impl Show for Reports {
    fn human(&self, _: bool) -> String {
        let texts: Vec<_> = self.items.iter().map(|item| item.text(|_| true)).collect();
        texts.join("\n")
    }

    fn names(&self) -> Vec<String> {
        let ill = self.items.iter().filter(|item| item.findings() > 0);
        ill.map(|item| format!("targetcluster/{}", item.name))
            .collect()
    }
}
