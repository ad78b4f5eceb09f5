//! The rules of a Glance (contract: custom-resource API, Glance validation).
//!
//! Each block has its rules in a function of its own that takes the path of the
//! block, so that a resource that embeds it can ask too. What the types cannot
//! hold (another scheme, another level) is refused when an object is read.

mod connections;
mod deployment;
mod extension;
mod extra_config;
mod identity;
mod imports;
mod launch;
mod logging;
mod properties;
mod purge;
mod storage;
mod traffic;
mod upgrade;

use glance_api::Glance;
use serde::Serialize;
use serde_json::Value;

use super::path::Path;
use super::review::{Findings, Review};

pub use imports::import_filtering;
pub use properties::import_plugins;
pub use storage::{decompression_needs_a_limit, image_cache, staging};

/// The answer to the creation of a Glance.
pub fn glance_create(new: &Glance) -> Review {
    let mut findings = judge(new);
    identity::name(new, &mut findings);
    upgrade::image(&new.spec, &mut findings);
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
        let mut findings = judge(new);
        connections::moved(old, new, &mut findings);
        purge::shortened(&old.spec, &new.spec, &mut findings);
        upgrade::release(old, new, &mut findings);
        upgrade::image(&new.spec, &mut findings);
        findings.since(judge(old))
    };
    review.causes.extend(immutable.into_review().causes);
    review
}

/// Every fault of an object by itself, in the order of the contract.
fn judge(glance: &Glance) -> Findings {
    let mut findings = Findings::default();
    let f = &mut findings;
    let (spec, at) = (&glance.spec, &Path::new("spec"));
    let deployment_at = &at.child("deployment");
    if let Some(deployment) = &spec.deployment {
        deployment::replicas(deployment, deployment_at, f);
    }
    connections::judge(spec, at, f);
    identity::target(spec, at, f);
    connections::keystone(spec, at, f);
    if let Some(logging) = &spec.logging {
        logging::judge(logging, &at.child("logging"), f);
    }
    deployment::timings(spec, at, f);
    if let Some(strategy) = spec.deployment.as_ref().and_then(|d| d.strategy.as_ref()) {
        deployment::strategy(strategy, &deployment_at.child("strategy"), f);
    }
    traffic::judge(spec, at, f);
    import_filtering(
        spec.import_filtering.as_ref(),
        &at.child("importFiltering"),
        f,
    );
    import_plugins(spec.import_plugins.as_ref(), &at.child("importPlugins"), f);
    decompression_needs_a_limit(spec.import_plugins.as_ref(), spec.staging.as_ref(), at, f);
    if let Some(purge) = &spec.db_purge {
        purge::judge(purge, &at.child("dbPurge"), f);
    }
    staging(spec.staging.as_ref(), &at.child("staging"), f);
    image_cache(spec.image_cache.as_ref(), &at.child("imageCache"), f);
    extension::middleware(spec, &at.child("middleware"), f);
    extra_config::shape(spec, &at.child("extraConfig"), f);
    extra_config::rejected(spec, &at.child("extraConfig"), f);
    extension::plugins(spec, &at.child("plugins"), f);
    extension::policy(spec, &at.child("policyOverrides"), f);
    if let Some(deployment) = &spec.deployment {
        deployment::resources(deployment, deployment_at, f);
        deployment::spread(glance, deployment, deployment_at, f);
    }
    launch::inert(spec, f);
    extra_config::catalog(spec, &at.child("extraConfig"), f);
    imports::inert(spec.import_filtering.as_ref(), f);
    connections::ignored(spec, f);
    findings
}

/// A whole block as the value of a fault.
fn block(block: &impl Serialize) -> Value {
    serde_json::to_value(block).unwrap_or_default()
}
