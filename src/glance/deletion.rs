//! Teardown of a Glance: database objects first, then, on a target, everything else; or, when the target is gone for
//! good, nothing at all, and said so (contract: target clusters, finalizers and deletion).

use std::time::Duration;

use glance_api::{
    conditions::{SECRETS_READY, reasons},
    glance::Glance,
    keys::{
        annotations::ABANDON_REMOTE_CHILDREN,
        events,
        finalizers::{GLANCE as FINALIZER, REMOTE_CHILDREN},
    },
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, ResourceExt};
use target_registry::{Purpose, Unresolved, target_cluster::Abandoned};

use super::finalizers;
use crate::{
    cluster::{Target, cluster_label, ownership::OWNER_KIND, placed_on},
    context::Context,
    duration::go_duration,
    names,
    pipeline::{
        notice::Notice,
        report::{REQUEUE_SECRETS, StepError, Verdict},
    },
};

/// How soon to look whether the database objects carry their deletion mark; their watch is usually faster.
const DATABASE_HOLD: Duration = Duration::from_secs(1);

const FINALIZING: &str = "Cleaning up MariaDB Database, User, and Grant before removing Glance";
const FINALIZED: &str =
    "MariaDB Database, User, and Grant marked for deletion; releasing finalizer";
const ABANDONED_DATABASE: &str = "Target cluster is no longer registered; releasing the finalizer without deleting \
                                  the MariaDB Database, User, and Grant on it";
const ABANDONED_CHILDREN: &str = "Target cluster is no longer registered; releasing the remote-children finalizer \
                                  without deleting the objects on it labelled as owned by this Glance";

/// How a teardown pass ended.
#[derive(Debug)]
pub enum Progress {
    /// Nothing of ours holds the CR any more.
    Released,
    /// Look again after this pause.
    Hold(Duration),
    /// The target does not resolve: this is what the CR should say, and when to look again.
    Unresolved(Verdict, Duration),
}

/// What is said once of a Glance that has to wait for its cluster: why, and how it is let go without.
pub fn held(glance: &Glance, verdict: &Verdict) -> Option<Notice> {
    let generation = glance.metadata.generation;
    let conditions = glance.status.iter().flat_map(|s| &s.conditions);
    // The deletion made a generation of its own.
    let is_told = conditions.into_iter().any(|c| {
        c.type_ == SECRETS_READY
            && c.reason == reasons::TARGET_CLUSTER_UNAVAILABLE
            && c.observed_generation == generation
    });
    (!is_told).then(|| {
        Notice::warning(
            events::TEARDOWN_HELD,
            format!(
                "{}. To let it go at once and leave behind what is there: kubectl -n {} annotate glance {} \
                 {ABANDON_REMOTE_CHILDREN}=true",
                verdict.message,
                glance.namespace().unwrap_or_default(),
                glance.name_any()
            ),
        )
    })
}

/// What can be done about the children.
enum Reach {
    /// Their cluster is there.
    Cluster(Box<Target>),
    /// Not yet known whether it comes back; when to look again.
    Wait(Verdict, Duration),
    /// Given up, by the windows or by the user.
    Gone,
}

/// One pass over a CR that is being deleted.
pub async fn run(
    ctx: &Context,
    api: &Api<Glance>,
    glance: &Glance,
    notices: &mut Vec<Notice>,
) -> Result<Progress, StepError> {
    let ours = [FINALIZER, REMOTE_CHILDREN];
    if !ours
        .iter()
        .any(|finalizer| finalizers::has(glance, finalizer))
    {
        return Ok(Progress::Released);
    }
    let reach = match reach(ctx, glance).await {
        Reach::Wait(verdict, pause) => return Ok(Progress::Unresolved(verdict, pause)),
        reach => reach,
    };

    let mut current = glance.clone();
    if finalizers::has(&current, FINALIZER) {
        if let Reach::Cluster(target) = &reach {
            let found = target.delete_database(&current.name_any()).await;
            let found = target.or_void(found).await?;
            if !found.deleted.is_empty() {
                notices.push(Notice::normal(events::FINALIZING_DATABASE, FINALIZING));
                return Ok(Progress::Hold(DATABASE_HOLD));
            }
            notices.push(Notice::normal(events::DATABASE_FINALIZED, FINALIZED));
        } else {
            ctx.metrics.children_abandoned(cluster_label(&current));
            notices.push(Notice::warning(
                events::REMOTE_CHILDREN_ABANDONED,
                ABANDONED_DATABASE,
            ));
        }
        match finalizers::release(api, &current, FINALIZER).await? {
            Some(written) => current = written,
            None => return Ok(Progress::Released),
        }
    }
    if finalizers::has(&current, REMOTE_CHILDREN) {
        if let Reach::Cluster(target) = &reach {
            let deleted = target.or_void(target.sweep().await).await?;
            tracing::info!(
                namespace = current.namespace().as_deref().unwrap_or_default(),
                name = %current.name_any(),
                children = deleted.len(),
                "swept the children"
            );
        } else {
            let entry = abandoned(&current, ctx.now());
            notices.push(Notice::warning(
                events::REMOTE_CHILDREN_ABANDONED,
                format!(
                    "{ABANDONED_CHILDREN}; left behind: in namespace {} of cluster {}: {}",
                    entry.namespace,
                    placed_on(&current).unwrap_or_default(),
                    entry.objects.join(", ")
                ),
            ));
            if let Some(cluster) = placed_on(&current) {
                ctx.registry.abandon(cluster, entry).await;
            }
        }
        finalizers::release(api, &current, REMOTE_CHILDREN).await?;
    }
    Ok(Progress::Released)
}

async fn reach(ctx: &Context, glance: &Glance) -> Reach {
    let given_up = glance
        .annotations()
        .get(ABANDON_REMOTE_CHILDREN)
        .is_some_and(|value| value == "true");
    if placed_on(glance).is_some() && given_up {
        return Reach::Gone;
    }
    match ctx.settled_target(glance, Purpose::Teardown).await {
        Ok(target) => Reach::Cluster(Box::new(target)),
        Err(unresolved) => {
            let cluster = placed_on(glance).unwrap_or_default();
            let windows = Windows {
                abandon_after: ctx.settings.abandon_after,
                deleting_for: since(
                    glance
                        .metadata
                        .deletion_timestamp
                        .as_ref()
                        .map(|time| time.0),
                    ctx.now(),
                ),
                unresolved_for: ctx.registry.unresolved_for(cluster),
            };
            if unresolved.may_abandon() && windows.passed() {
                Reach::Gone
            } else {
                let verdict = windows.verdict(cluster, &unresolved, ctx.now());
                Reach::Wait(verdict, windows.pause())
            }
        }
    }
}

/// The two windows that must both pass before children are given up: one alone would give up on a reachable cluster
/// after a restart, or at once on a cluster that was gone for long.
#[derive(Clone, Copy, Debug)]
struct Windows {
    abandon_after: Duration,
    deleting_for: Duration,
    unresolved_for: Duration,
}

impl Windows {
    fn passed(&self) -> bool {
        self.deleting_for >= self.abandon_after && self.unresolved_for >= self.abandon_after
    }

    /// When to look again: as soon as both have passed, or by the clock of everything that does not resolve.
    fn pause(&self) -> Duration {
        let shorter = self.deleting_for.min(self.unresolved_for);
        match self.abandon_after.checked_sub(shorter) {
            Some(left) if !left.is_zero() => left.min(REQUEUE_SECRETS),
            _ => REQUEUE_SECRETS,
        }
    }

    fn verdict(&self, cluster: &str, unresolved: &Unresolved, now: Timestamp) -> Verdict {
        let message = if unresolved.may_abandon() {
            format!(
                "target cluster {cluster} does not resolve; waiting at least {} before abandoning its children; \
                 they are given up at {} unless the cluster is registered again",
                go_duration(self.abandon_after),
                self.deadline(now)
            )
        } else if matches!(
            unresolved,
            Unresolved::Paused { .. } | Unresolved::Moved { .. }
        ) {
            format!("holding the children on target cluster {cluster}: {unresolved}")
        } else {
            format!(
                "target cluster {cluster} does not resolve; holding its children until it is back: {unresolved}"
            )
        };
        Verdict::no(reasons::TARGET_CLUSTER_UNAVAILABLE, message)
    }

    /// When both windows will have passed, rounded up: a text that moved with every pass would rewrite the status.
    fn deadline(&self, now: Timestamp) -> Timestamp {
        const STEP: i64 = 5;
        let passed = self.deleting_for.min(self.unresolved_for);
        let left = self.abandon_after.saturating_sub(passed).as_secs();
        let second = now.as_second() + i64::try_from(left).unwrap_or(i64::MAX / 2);
        Timestamp::from_second((second / STEP + 1) * STEP).unwrap_or(now)
    }
}

fn since(then: Option<Timestamp>, now: Timestamp) -> Duration {
    then.and_then(|then| Duration::try_from(now.duration_since(then)).ok())
        .unwrap_or_default()
}

/// What a Glance leaves behind, for the ledger of its cluster.
fn abandoned(glance: &Glance, now: Timestamp) -> Abandoned {
    let status = glance.status.as_ref();
    Abandoned {
        kind: OWNER_KIND.to_owned(),
        namespace: glance.namespace().unwrap_or_default(),
        name: glance.name_any(),
        uid: glance.uid().unwrap_or_default(),
        cluster_uid: status.and_then(|status| status.target_cluster_uid.clone()),
        abandoned_at: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
        objects: left_behind(glance),
    }
}

/// Kinds and names of what a Glance has on its cluster, from its spec alone: the cluster cannot be asked.
fn left_behind(glance: &Glance) -> Vec<String> {
    let name = glance.name_any();
    let spec = &glance.spec;
    let mut objects = vec![
        format!("Deployment {name}"),
        format!("Service {name}"),
        format!("PodDisruptionBudget {name}"),
        format!("ConfigMaps {}*", names::Family::config(&name).prefix()),
        format!("Secrets {}*", names::Family::backends(&name).prefix()),
        format!("Secret {}", names::db_connection(&name)),
        format!("Job {}", names::db_sync_job(&name)),
        format!("CronJob {}", names::db_purge(&name)),
    ];
    let optional = [
        (
            spec.autoscaling.is_some(),
            format!("HorizontalPodAutoscaler {name}"),
        ),
        (
            spec.network_policy.is_some(),
            format!("NetworkPolicies {name}, {name}-*"),
        ),
        (spec.gateway.is_some(), format!("HTTPRoute {name}")),
        (
            spec.database.cluster_ref.is_some(),
            format!("Database, User and Grant {name}"),
        ),
    ];
    objects.extend(
        optional
            .into_iter()
            .filter(|(there, _)| *there)
            .map(|(_, text)| text),
    );
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(deleting: u64, unresolved: u64) -> Windows {
        Windows {
            abandon_after: Duration::from_mins(5),
            deleting_for: Duration::from_secs(deleting),
            unresolved_for: Duration::from_secs(unresolved),
        }
    }

    #[test]
    fn both_windows_must_pass() {
        assert!(windows(300, 300).passed());
        assert!(!windows(3000, 299).passed());
        assert!(!windows(299, 3000).passed());
    }

    #[test]
    fn the_end_of_the_windows_is_not_slept_through() {
        assert_eq!(windows(3000, 290).pause(), Duration::from_secs(10));
        assert_eq!(windows(1, 1).pause(), REQUEUE_SECRETS);
        assert_eq!(windows(300, 300).pause(), REQUEUE_SECRETS);
    }

    #[test]
    fn the_hold_names_the_cluster_the_window_and_the_deadline() {
        let gone = Unresolved::NotRegistered {
            name: "edge-1".into(),
        };
        let now = Timestamp::from_second(1_800_000_001).unwrap();
        let verdict = windows(100, 1).verdict("edge-1", &gone, now);
        assert_eq!(
            verdict.message,
            "target cluster edge-1 does not resolve; waiting at least 5m0s before abandoning its children; they are \
             given up at 2027-01-15T08:05:05Z unless the cluster is registered again"
        );
        assert_eq!(verdict.reason, "TargetClusterUnavailable");
        // A second later the younger window is a second further on: the deadline stands still.
        let later = Timestamp::from_second(1_800_000_002).unwrap();
        assert_eq!(
            windows(101, 2).verdict("edge-1", &gone, later).message,
            verdict.message
        );
    }
}
