//! Reviews of a Glance.

use glance_api::glance::Glance;
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::{ResourceExt as _, core::DynamicObject};

use super::{
    answer::Answer,
    lookup::{Class, Lookup},
};
use crate::{
    cluster::placed_on,
    policy::{self, Cause, CauseKind, Review, quote},
};

const KIND: &str = "Glance";
const PRIORITY_CLASS: &str = "spec.deployment.priorityClassName";
const TARGET: &str = "spec.targetClusterRef.name";

/// Fills in what it leaves out.
pub fn default(object: &DynamicObject) -> Answer {
    if object.metadata.deletion_timestamp.is_some() {
        return Answer::admitted();
    }
    let defaults = policy::default_glance(&object.data);
    Answer::patched(defaults.patch, defaults.warnings)
}

/// Judges it.
pub async fn validate(
    lookup: &Lookup,
    user: &UserInfo,
    old: Option<&DynamicObject>,
    object: &DynamicObject,
) -> Answer {
    // Whatever it is, it is not this write that brings it.
    let is_unchanged = old.is_some_and(|old| old.data.get("spec") == object.data.get("spec"));
    let new: Glance = match object.clone().try_parse() {
        Ok(new) => new,
        Err(_) if is_unchanged => return Answer::admitted(),
        Err(error) => return Answer::error(400, format!("the Glance cannot be read: {error}")),
    };
    let before = old.map(|old| old.clone().try_parse::<Glance>());
    let mut review = match &before {
        None => policy::glance_create(&new),
        Some(Ok(old)) => policy::glance_update(old, &new),
        // No rule knows what it was, so all speak, but for those of names, which cannot change.
        Some(Err(_)) => {
            let mut review = policy::glance_create(&new);
            review.causes.retain(|cause| cause.field != "metadata.name");
            review
        }
    };
    if new.metadata.deletion_timestamp.is_none() {
        let before = before.as_ref().and_then(|old| old.as_ref().ok());
        let (class, cluster, right, sibling) = tokio::join!(
            priority_class(lookup, before, &new),
            target_cluster(lookup, old.is_none(), &new),
            right_to_use(lookup, user, before, &new),
            same_database(lookup, is_unchanged, &new),
        );
        for found in [class, cluster, right, sibling] {
            review.merge(found);
        }
    }
    Answer::reviewed(KIND, &new.name_any(), review)
}

/// A class that does not exist keeps every pod from being made.
async fn priority_class(lookup: &Lookup, old: Option<&Glance>, new: &Glance) -> Review {
    let Some(name) = class_of(new) else {
        return Review::default();
    };
    if old.and_then(class_of) == Some(name) {
        return Review::default();
    }
    let target = placed_on(new);
    match lookup.priority_class(name, target).await {
        Class::Found => Review::default(),
        Class::Missing => Review::refused(Cause {
            kind: CauseKind::NotFound,
            field: PRIORITY_CLASS.to_owned(),
            value: Some(quote::quoted(&quote::cut(name))),
            detail: String::new(),
        }),
        Class::Failed(why) => Review::refused(Cause {
            kind: CauseKind::Internal,
            field: PRIORITY_CLASS.to_owned(),
            value: None,
            detail: format!(
                "failed to look up PriorityClass {}: {why}",
                quote::quoted(&quote::cut(name))
            ),
        }),
        Class::Unchecked(why) => {
            let place = target.map_or_else(
                || "this cluster".to_owned(),
                |target| format!("cluster {}", quote::quoted(&quote::cut(target))),
            );
            Review::warned(format!(
                "{PRIORITY_CLASS}: not looked up on {place}: {}",
                quote::cut(&why)
            ))
        }
    }
}

/// A Glance may be there before its cluster, so a name that is not registered is worth a word and no more.
async fn target_cluster(lookup: &Lookup, is_new: bool, glance: &Glance) -> Review {
    let Some(target) = placed_on(glance).filter(|_| is_new) else {
        return Review::default();
    };
    let namespace = glance.namespace().unwrap_or_default();
    if let Some(why) = lookup.not_granted(target, &namespace) {
        return Review::warned(format!("{TARGET}: {why}"));
    }
    match lookup.is_registered(target).await {
        Some(false) => Review::warned(format!(
            "{TARGET}: no cluster {} is registered; nothing happens until it is, and the name cannot be changed",
            quote::quoted(&quote::cut(target))
        )),
        _ => Review::default(),
    }
}

/// Two Glances on one managed database: neither knows of the other, and each takes the database along when it goes.
async fn same_database(lookup: &Lookup, is_unchanged: bool, new: &Glance) -> Review {
    let namespace = new.namespace().unwrap_or_default();
    if is_unchanged || managed_database(new).is_none() {
        return Review::default();
    }
    let glances = lookup.glances(&namespace).await;
    let sibling = glances.iter().find(|other| {
        other.name_any() != new.name_any() && managed_database(other) == managed_database(new)
    });
    sibling.map_or_else(Review::default, |other| {
        Review::warned(format!(
            "spec.database.database: Glance {} has the same database on the same MariaDB: both write one schema, and \
             the deletion of either drops it for both",
            quote::quoted(&quote::cut(&other.name_any()))
        ))
    })
}

/// Cluster, `MariaDB` and name of a managed database.
fn managed_database(glance: &Glance) -> Option<(Option<&str>, &str, &str)> {
    let database = &glance.spec.database;
    let server = database.cluster_ref.as_ref()?;
    Some((placed_on(glance), &server.name, &database.database))
}

/// Whoever lets a Glance run on a cluster works there with the hub's credentials.
async fn right_to_use(
    lookup: &Lookup,
    user: &UserInfo,
    old: Option<&Glance>,
    new: &Glance,
) -> Review {
    let Some(target) = placed_on(new) else {
        return Review::default();
    };
    if old.and_then(placed_on) == Some(target) {
        return Review::default();
    }
    let (kind, detail) = match lookup.may_use(user, target).await {
        Ok(true) => return Review::default(),
        Ok(false) => (
            CauseKind::Forbidden,
            format!(
                "{} may not use the target cluster {}: that takes the verb use on its TargetCluster",
                quote::quoted(&quote::cut(user.username.as_deref().unwrap_or_default())),
                quote::quoted(&quote::cut(target))
            ),
        ),
        Err(why) => (
            CauseKind::Internal,
            format!("whether you may use this cluster could not be found out: {why}"),
        ),
    };
    Review::refused(Cause {
        kind,
        field: TARGET.to_owned(),
        value: None,
        detail,
    })
}

fn class_of(glance: &Glance) -> Option<&str> {
    let deployment = glance.spec.deployment.as_ref()?;
    let name = deployment.priority_class_name.as_deref()?;
    Some(name).filter(|name| !name.is_empty())
}
