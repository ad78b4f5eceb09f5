//! The rules of a Glance (contract: custom-resource API, Glance validation).

mod identity;

use glance_api::Glance;

use super::path::Path;
use super::review::{Findings, Review};

/// The answer to the creation of a Glance.
pub fn glance_create(new: &Glance) -> Review {
    let mut findings = judge(new);
    identity::name(new, &mut findings);
    findings.into_review()
}

/// The answer to a change of a Glance.
///
/// One that is being deleted may change in any way but to another cluster:
/// nothing may stand between it and the removal of its finalizers.
pub fn glance_update(old: &Glance, new: &Glance) -> Review {
    let mut immutable = Findings::default();
    identity::target_cluster(old, new, &mut immutable);
    let mut review = if new.metadata.deletion_timestamp.is_some() {
        Review::default()
    } else {
        judge(new).since(judge(old))
    };
    review.causes.extend(immutable.into_review().causes);
    review
}

/// Every fault of an object by itself.
fn judge(glance: &Glance) -> Findings {
    let mut findings = Findings::default();
    let spec = Path::new("spec");
    identity::target(&glance.spec, &spec, &mut findings);
    findings
}
