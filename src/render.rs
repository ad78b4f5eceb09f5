//! What the operator would write, without a cluster: `glance-operator render`.
//!
//! The manifests pass the same defaulting and policy as at admission and the
//! same builders as in a pass, so what is printed is what would be written, but
//! for what only a cluster knows. Values of Secrets are read where they are
//! given, since names come from content, and are never printed.

pub mod children;
pub mod diff;
pub mod input;
mod output;

use glance_api::{Glance, GlanceBackend};
use input::Key;
use kube::ResourceExt as _;

use crate::cli::RenderArgs;
use crate::policy::{self, Cause};

pub use input::{Input, InputError};
pub use output::Format;

/// What stands for every value of a Secret.
pub const MASK: &str = "masked";

/// What came out of a run of the command.
#[derive(Debug, Default)]
pub struct Outcome {
    /// For standard output.
    pub text: String,
    /// For standard error, line by line.
    pub notes: Vec<String>,
    /// Whether everything is well: admitted, rendered to the end and, in a
    /// comparison, without a difference.
    pub is_well: bool,
}

/// Runs the command.
pub async fn run(args: &RenderArgs) -> anyhow::Result<Outcome> {
    let mut input = Input::read(&args.files, &args.namespace)?;
    if input.glances.is_empty() {
        anyhow::bail!("the files hold no Glance; give at least one with -f");
    }
    if args.diff {
        return diff::run(args, input).await;
    }
    let mut outcome = judge(&mut input);
    if outcome.is_well {
        let mut objects = Vec::new();
        for glance in &input.glances {
            let rendered = children::render(glance, &input, args.operator_namespace.as_deref());
            outcome.is_well &= rendered.is_complete;
            outcome.notes.extend(rendered.notes);
            objects.extend(rendered.children.into_iter().map(|child| child.object));
        }
        outcome.text = output::print(&objects, args.output)?;
    }
    Ok(outcome)
}

/// What admission would say to each resource.
fn judge(input: &mut Input) -> Outcome {
    let mut outcome = Outcome {
        is_well: true,
        notes: std::mem::take(&mut input.notes),
        ..Outcome::default()
    };
    for glance in &input.glances {
        let review = match input.live.get(&key(glance)) {
            Some(live) => policy::glance_update(live, glance),
            None => policy::glance_create(glance),
        };
        outcome.add("Glance", &glance.name_any(), &review);
    }
    for backend in &input.backends {
        let namespace = backend.namespace().unwrap_or_default();
        let siblings = input.backends_of(&namespace);
        let siblings: Vec<GlanceBackend> = siblings.into_iter().cloned().collect();
        let review = policy::backend_create(backend, &siblings);
        outcome.add("GlanceBackend", &backend.name_any(), &review);
    }
    outcome
}

fn key(glance: &Glance) -> Key {
    (glance.namespace().unwrap_or_default(), glance.name_any())
}

// === impl Outcome ===

impl Outcome {
    fn add(&mut self, kind: &str, name: &str, review: &policy::Review) {
        let warnings = review.warnings.iter();
        self.notes
            .extend(warnings.map(|warning| format!("warning: {kind} {name}: {warning}")));
        let causes = review.causes.iter().map(Cause::to_string);
        self.notes
            .extend(causes.map(|cause| format!("refused: {kind} {name}: {cause}")));
        self.is_well &= review.is_allowed();
    }
}

#[cfg(test)]
mod tests;
