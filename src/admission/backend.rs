//! Reviews of a `GlanceBackend`.

use glance_api::backend::GlanceBackend;
use kube::{ResourceExt as _, core::DynamicObject};

use super::{answer::Answer, lookup::Lookup};
use crate::policy::{self, Cause, CauseKind, Review, quote};

const KIND: &str = "GlanceBackend";

/// Fills in what it leaves out.
pub fn default(object: &DynamicObject) -> Answer {
    if object.metadata.deletion_timestamp.is_some() {
        return Answer::admitted();
    }
    let defaults = policy::default_backend(&object.data);
    Answer::patched(defaults.patch, defaults.warnings)
}

/// Judges it.
pub async fn validate(
    lookup: &Lookup,
    old: Option<&DynamicObject>,
    object: &DynamicObject,
) -> Answer {
    // Whatever it is, it is not this write that brings it; nothing may keep one that goes.
    let is_unchanged = old.is_some_and(|old| old.data.get("spec") == object.data.get("spec"));
    if is_unchanged || object.metadata.deletion_timestamp.is_some() {
        return Answer::admitted();
    }
    let new: GlanceBackend = match object.clone().try_parse() {
        Ok(new) => new,
        Err(error) => {
            return Answer::error(400, format!("the GlanceBackend cannot be read: {error}"));
        }
    };
    let before: Option<GlanceBackend> = old.and_then(|old| old.clone().try_parse().ok());
    let siblings = siblings(lookup, before.as_ref(), &new);
    let parent = parent(lookup, old.is_none(), &new);
    let (siblings, parent) = tokio::join!(siblings, parent);
    let (siblings, unknown) = match siblings {
        Ok(siblings) => (siblings, None),
        Err(cause) => (Vec::new(), Some(cause)),
    };
    let mut review = match &before {
        Some(old) => policy::backend_update(old, &new, &siblings),
        None => policy::backend_create(&new, &siblings),
    };
    review.causes.extend(unknown);
    review.merge(parent);
    Answer::reviewed(KIND, &new.name_any(), review)
}

/// The backends beside it, when it is to become the default one. Not knowing them is a reason to refuse: a second
/// default must not slip in.
async fn siblings(
    lookup: &Lookup,
    old: Option<&GlanceBackend>,
    new: &GlanceBackend,
) -> Result<Vec<GlanceBackend>, Cause> {
    let is_default = |backend: &GlanceBackend| backend.spec.is_default == Some(true);
    if !is_default(new) || old.is_some_and(is_default) {
        return Ok(Vec::new());
    }
    let namespace = new.namespace().unwrap_or_default();
    lookup.backends(&namespace).await.map_err(|why| Cause {
        kind: CauseKind::Internal,
        field: "spec.isDefault".to_owned(),
        value: None,
        detail: format!("listing GlanceBackends for the single-default check: {why}"),
    })
}

/// A store may be there before its Glance, but a name that was misspelt cannot be changed any more.
async fn parent(lookup: &Lookup, is_new: bool, backend: &GlanceBackend) -> Review {
    let name = &backend.spec.glance_ref.name;
    if !is_new || name.is_empty() {
        return Review::default();
    }
    let namespace = backend.namespace().unwrap_or_default();
    match lookup.has_glance(&namespace, name).await {
        Some(false) => Review::warned(format!(
            "spec.glanceRef.name: there is no Glance {} in this namespace; the store waits for it, and the name cannot \
             be changed",
            quote::quoted(&quote::cut(name))
        )),
        _ => Review::default(),
    }
}
