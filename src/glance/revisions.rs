//! The immutable, content-addressed objects of a Glance: made once, kept while anything mounts them, a few for the
//! way back (contract: configuration, immutable objects).

use std::collections::BTreeSet;

use glance_api::keys::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{ResourceExt, api::ListParams, core::DynamicObject};
use serde_json::{Value, json};
use target_registry::Kind;

use super::{database::job_state, steps::value_of, workload::rollout::Rollout};
use crate::{
    cluster::{
        Target,
        children::Created,
        kinds::{CRON_JOB, DEPLOYMENT, JOB},
        ownership::Claim,
    },
    hash::ContentHash,
    names::Family,
    pipeline::report::{ErrorKind, StepError},
};

/// How many earlier revisions of a content-addressed object are kept for a fast way back.
const RETAINED_REVISIONS: usize = 3;
/// How many are kept while the Deployment has not converged: pods of an older template may mount any of them. The
/// number only stops growth under a Deployment that never does.
const RETAINED_WHILE_ROLLING: usize = 20;

/// A revision that should exist.
pub struct Revision<'a> {
    /// `ConfigMap` or Secret.
    pub kind: &'a Kind,
    /// Its family.
    pub family: Family,
    /// Hash of its data.
    pub hash: ContentHash,
    /// Its data as it stands in the object: text of a `ConfigMap`, base64 of a Secret.
    pub data: Value,
}

/// Makes a revision exist. Its name.
pub async fn ensure(target: &Target, revision: &Revision<'_>) -> Result<String, StepError> {
    let name = revision.family.revision(&revision.hash);
    if ensure_named(target, revision, &name).await? {
        return Ok(name);
    }
    // Eight digits collide once in billions, and a deleted object can be made again by hand with other content.
    let long = revision.family.long_revision(&revision.hash);
    tracing::warn!(%name, %long, "an object of this name holds other content; using a longer name");
    if ensure_named(target, revision, &long).await? {
        return Ok(long);
    }
    Err(StepError::new(
        ErrorKind::Refused,
        format!(
            "{} {}/{long} holds other content than its name says; delete it",
            revision.kind.kind,
            target.namespace()
        ),
    ))
}

/// Whether a revision that was made to exist is still there as it was made, so that nothing has to be rendered to know.
pub async fn is_intact(
    target: &Target,
    kind: &Kind,
    family: &Family,
    name: &str,
) -> Result<bool, StepError> {
    let live = target.child(kind, name).await?;
    Ok(live.is_some_and(|live| {
        live.labels().get(labels::CONFIG_BASE) == Some(&family.label()) && is_genuine(target, &live)
    }))
}

/// Makes a revision exist under this name; false when other content has the name.
async fn ensure_named(
    target: &Target,
    revision: &Revision<'_>,
    name: &str,
) -> Result<bool, StepError> {
    match target.child(revision.kind, name).await? {
        Some(live) if is_genuine(target, &live) => {
            mark(target, revision, &live).await?;
            return Ok(true);
        }
        Some(_) => {}
        None => {
            let desired = object(revision, name);
            if let Created::New(live) = target.create(revision.kind, desired).await? {
                let uid = live.uid().unwrap_or_default();
                target.view.ledger.learn_genuine(&uid);
                return Ok(true);
            }
        }
    }
    occupant(target, revision, name).await
}

/// Whether we made this object or have compared it: watches do not show what it holds.
fn is_genuine(target: &Target, live: &DynamicObject) -> bool {
    let uid = live.uid().unwrap_or_default();
    target.view.ledger.is_genuine(&uid)
}

/// Deletes what the family no longer needs.
///
/// Part of every pass, not only of those that make a revision: what the pods mounted then becomes history when the
/// roll-out is through, long after the revision that replaced it was made. At rest it sends nothing.
pub async fn prune(
    target: &Target,
    kind: &Kind,
    family: &Family,
    current: &str,
) -> Result<(), StepError> {
    let all = target.children_by_prefix(kind, &family.prefix()).await?;
    let label = family.label();
    let family: Vec<_> = all
        .iter()
        .filter(|object| object.labels().get(labels::CONFIG_BASE) == Some(&label))
        .map(|object| &object.metadata)
        .collect();
    let nothing = BTreeSet::new();
    if superseded(
        family.iter().copied(),
        current,
        &nothing,
        RETAINED_REVISIONS,
    )
    .is_empty()
    {
        // Neither a mount nor a roll-out makes it more.
        return Ok(());
    }
    let deployment = target.child(&DEPLOYMENT, &target.owner.name).await?;
    let converged = deployment
        .as_deref()
        .is_none_or(|live| Rollout::of(&value_of(live)).is_complete());
    let keep = if converged {
        RETAINED_REVISIONS
    } else {
        RETAINED_WHILE_ROLLING
    };
    let mut mounted = watched_mounts(target, deployment.as_deref()).await?;
    if superseded(family.iter().copied(), current, &mounted, keep).is_empty() {
        return Ok(());
    }
    mounted.extend(listed_mounts(target).await?);
    for meta in superseded(family.iter().copied(), current, &mounted, keep) {
        target.delete(kind, meta).await?;
    }
    Ok(())
}

/// The object of a revision under this name, as it is created.
pub fn object(revision: &Revision<'_>, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": revision.kind.kind,
        "metadata": {
            "name": name,
            "labels": { labels::CONFIG_BASE: revision.family.label() },
        },
        "immutable": true,
        "data": revision.data,
    })
}

/// Puts back marks and labels: without them neither the prune nor the teardown would find it.
async fn mark(
    target: &Target,
    revision: &Revision<'_>,
    live: &DynamicObject,
) -> Result<(), StepError> {
    let base = (labels::CONFIG_BASE, revision.family.label());
    target
        .reclaim(revision.kind, &live.metadata, &[(base.0, &base.1)])
        .await
        .map(drop)
}

/// Whether the object that has the name is ours and holds the same data. One that lost its marks is ours when it
/// holds just this.
async fn occupant(target: &Target, revision: &Revision<'_>, name: &str) -> Result<bool, StepError> {
    let Some(live) = target.read(revision.kind, name).await? else {
        return Err(StepError::new(
            ErrorKind::Conflict,
            format!("{} {name} went away during the pass", revision.kind.kind),
        ));
    };
    let same = live.data["data"] == revision.data && live.data["immutable"] == true;
    let claim = target.owner.claim(&live.metadata);
    if claim != Claim::Mine && !(claim == Claim::Unmarked && same) {
        return Err(StepError::new(
            ErrorKind::Refused,
            format!(
                "existing {} {}/{name} is not owned by {}/{}",
                revision.kind.kind,
                target.namespace(),
                target.namespace(),
                target.owner.name
            ),
        ));
    }
    target.view.observe(revision.kind, live.clone());
    if same {
        let uid = live.uid().unwrap_or_default();
        target.view.ledger.learn_genuine(&uid);
        mark(target, revision, &live).await?;
    }
    Ok(same)
}

/// Every name that a pod template of this Glance mounts, as far as watches show: of the Deployment, the purge, and Jobs
/// that have not ended.
async fn watched_mounts(
    target: &Target,
    deployment: Option<&DynamicObject>,
) -> Result<BTreeSet<String>, StepError> {
    let mut names = BTreeSet::new();
    if let Some(deployment) = deployment {
        names.extend(volumes(&deployment.data["spec"]["template"]));
    }
    for cron_job in target.children(&CRON_JOB).await? {
        names.extend(volumes(
            &cron_job.data["spec"]["jobTemplate"]["spec"]["template"],
        ));
    }
    let jobs = target.children(&JOB).await?;
    names.extend(mounts_of_jobs(jobs.iter().map(|job| value_of(job))));
    Ok(names)
}

/// The same of the runs of the purge: they carry no mark of ours, so no watch shows them.
async fn listed_mounts(target: &Target) -> Result<BTreeSet<String>, StepError> {
    let runs = ListParams::default().labels(&format!(
        "{}=glance,{}={}",
        labels::NAME,
        labels::INSTANCE,
        target.owner.name
    ));
    let listed = target.api(&JOB).list(&runs).await.map_err(|error| {
        StepError::from(error).context("listing the Jobs that mount configuration")
    })?;
    Ok(mounts_of_jobs(listed.items.iter().map(value_of)))
}

fn mounts_of_jobs(jobs: impl Iterator<Item = Value>) -> BTreeSet<String> {
    jobs.filter(|job| job_state::terminal(job).is_none())
        .flat_map(|job| volumes(&job["spec"]["template"]).collect::<Vec<_>>())
        .collect()
}

/// The `ConfigMap`s and Secrets in the volumes of a pod template.
fn volumes(template: &Value) -> impl Iterator<Item = String> + '_ {
    template["spec"]["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|volume| {
            let config_map = volume["configMap"]["name"].as_str();
            config_map.or(volume["secret"]["secretName"].as_str())
        })
        .map(str::to_owned)
}

/// The members of a content-addressed family that may go: not the current one, not what is mounted, not the newest
/// `keep` of the rest (contract: configuration, prune).
fn superseded<'a>(
    family: impl Iterator<Item = &'a ObjectMeta>,
    current: &str,
    mounted: &BTreeSet<String>,
    keep: usize,
) -> Vec<&'a ObjectMeta> {
    let mut history: Vec<_> = family
        .filter(|meta| {
            let name = meta.name.as_deref().unwrap_or_default();
            name != current && !mounted.contains(name)
        })
        .collect();
    history.sort_by(|a, b| {
        let age = |meta: &ObjectMeta| meta.creation_timestamp.as_ref().map(|time| time.0);
        age(b).cmp(&age(a)).then_with(|| b.name.cmp(&a.name))
    });
    history.split_off(keep.min(history.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn revision(name: &str, second: u32) -> ObjectMeta {
        serde_json::from_value(json!({
            "name": name,
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        }))
        .unwrap()
    }

    fn gone(family: &[ObjectMeta], current: &str, mounted: &[&str], keep: usize) -> Vec<String> {
        let mounted = mounted.iter().map(|name| (*name).to_owned()).collect();
        superseded(family.iter(), current, &mounted, keep)
            .into_iter()
            .filter_map(|meta| meta.name.clone())
            .collect()
    }

    #[test]
    fn the_newest_three_stay_and_equal_times_sort_by_name() {
        let family = [
            revision("g-config-a", 1),
            revision("g-config-b", 1),
            revision("g-config-c", 2),
            revision("g-config-d", 3),
            revision("g-config-e", 4),
        ];
        assert_eq!(gone(&family, "g-config-e", &[], 3), ["g-config-a"]);
        assert_eq!(gone(&family, "g-config-e", &[], 0).len(), 4);
        assert!(gone(&family[1..], "g-config-e", &[], 3).is_empty());
    }

    #[test]
    fn what_is_mounted_stays_and_does_not_use_up_the_history() {
        let family = [
            revision("g-config-a", 1),
            revision("g-config-b", 2),
            revision("g-config-c", 3),
            revision("g-config-d", 4),
            revision("g-config-e", 5),
        ];
        assert!(gone(&family, "g-config-e", &["g-config-a"], 3).is_empty());
        assert_eq!(
            gone(&family, "g-config-e", &["g-config-d"], 2),
            ["g-config-a"]
        );
    }
}
