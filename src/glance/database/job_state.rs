//! What a live Job says: how it ended, whether it is the one we want, and what to do about it.

use std::time::Duration;

use glance_api::keys::annotations::{POD_SPEC_HASH, SCHEMA_KEY};
use jiff::Timestamp;
use serde_json::Value;

use super::jobs::{
    ATTEMPT, CONNECTION_KEY, DATABASE_KEY, MigrationJob, ORIGIN_KEY, RETRY_KEY, work,
};
use crate::external::is_true;

/// The pause after the first attempt that failed for good.
const FIRST_PAUSE: Duration = Duration::from_mins(10);
/// How far behind its pods the counts of a Job may be, generously.
const COUNTS_FOLLOW: Duration = Duration::from_mins(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_hours(6);

/// How a Job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// It did what it was for.
    Complete,
    /// It gave up, for this reason (`BackoffLimitExceeded`, `DeadlineExceeded`, or empty).
    Failed(&'a str),
}

/// The end of a Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal<'a> {
    /// How it ended.
    pub outcome: Outcome<'a>,
    /// When; the time of the condition.
    pub at: Option<Timestamp>,
}

/// What to do about a migration Job (contract: database, ensure a Job).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is none: create it.
    Absent,
    /// It is on its way out: wait, then create it.
    Terminating,
    /// It is somebody else's: refuse.
    Foreign,
    /// It has not ended: wait, whatever its template is.
    Running {
        /// It runs another template than wanted. Harmless to replace as long as nothing of it ever
        /// started.
        outdated: bool,
        /// The connection to the database is another than when it began.
        rotated: bool,
    },
    /// It did what is wanted: done.
    Complete,
    /// It did something else, an older image's work as a rule: replace it.
    CompleteStale,
    /// It gave up and nothing has changed since: an error, until the time for the next attempt.
    Failed {
        /// How long until then.
        retry_in: Duration,
    },
    /// It gave up, and there is a reason to try again: replace it.
    FailedStale {
        /// The number of the new attempt; 1 when something changed that may cure it.
        attempt: u32,
    },
}

/// What a pass knows beside the Job.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time of the pass.
    pub now: Timestamp,
    /// Since when the database cluster is ready, where we can see one.
    pub database_ready_since: Option<Timestamp>,
}

/// Judges the live Job of a migration. `ours` is whether it passed the test of ownership.
pub fn judge(live: Option<&Value>, ours: bool, wanted: &MigrationJob, moment: Moment) -> Verdict {
    let Some(job) = live else {
        return Verdict::Absent;
    };
    if !ours {
        return Verdict::Foreign;
    }
    if job["metadata"]["deletionTimestamp"].is_string() {
        return Verdict::Terminating;
    }
    match terminal(job) {
        None => Verdict::Running {
            outdated: !is_same_template(job, wanted),
            rotated: annotation(job, CONNECTION_KEY)
                .is_some_and(|key| key != wanted.keys().connection),
        },
        Some(Terminal {
            outcome: Outcome::Complete,
            ..
        }) => {
            if is_same_schema(job, wanted)
                && is_of_same_origin(job, wanted)
                && !is_of_another_database(job, wanted)
            {
                Verdict::Complete
            } else {
                Verdict::CompleteStale
            }
        }
        Some(Terminal {
            outcome: Outcome::Failed(_),
            at,
        }) => failed(job, at, wanted, moment),
    }
}

/// A failed Job is tried again when its template, its database, the connection to it or the user's button
/// changed, when the database came back after it failed, or when the pause is over.
fn failed(job: &Value, at: Option<Timestamp>, wanted: &MigrationJob, moment: Moment) -> Verdict {
    if annotation(job, RETRY_KEY) != Some(wanted.keys().retry.as_str())
        || is_of_another_database(job, wanted)
    {
        return Verdict::FailedStale { attempt: 1 };
    }
    let attempts: u32 = annotation(job, ATTEMPT)
        .and_then(|attempt| attempt.parse().ok())
        .unwrap_or(1);
    let next = Verdict::FailedStale {
        attempt: attempts.saturating_add(1),
    };
    let Some(at) = at else {
        // Without a time nothing can be waited for; the full pause keeps this from spinning.
        return Verdict::Failed {
            retry_in: pause(attempts),
        };
    };
    if moment.database_ready_since.is_some_and(|since| since > at) {
        return next;
    }
    let passed = Duration::try_from(moment.now.duration_since(at)).unwrap_or_default();
    match pause(attempts).checked_sub(passed) {
        Some(retry_in) if !retry_in.is_zero() => Verdict::Failed { retry_in },
        _ => next,
    }
}

/// What a Glance remembers of the attempts at a migration, since their count on the Job goes with it: nothing once it
/// succeeded.
pub fn attempts(ended: &Value) -> Option<String> {
    let Outcome::Failed(_) = terminal(ended)?.outcome else {
        return None;
    };
    let attempt = annotation(ended, ATTEMPT)?;
    Some(format!("{}:{attempt}", annotation(ended, RETRY_KEY)?))
}

/// The number of the attempt that takes the place of a Job that is gone, by what [`attempts`] said of it.
pub fn next_attempt(remembered: Option<&str>, wanted: &MigrationJob) -> u32 {
    remembered
        .and_then(|text| text.split_once(':'))
        .filter(|(key, _)| *key == wanted.keys().retry)
        .and_then(|(_, attempt)| attempt.parse::<u32>().ok())
        .map_or(1, |attempt| attempt.saturating_add(1))
}

/// The pause after that many attempts: ten minutes, doubled each time, six hours at most.
fn pause(attempts: u32) -> Duration {
    FIRST_PAUSE
        .saturating_mul(1 << attempts.saturating_sub(1).min(10))
        .min(LONGEST_PAUSE)
}

/// How the Job ended; `None` while it has not. `Failed` wins should both be set. A suspended Job,
/// and one whose end is only announced, have not ended.
pub fn terminal(job: &Value) -> Option<Terminal<'_>> {
    let outcome = if is_true(job, "Failed") {
        let reason = crate::external::condition(job, "Failed")?["reason"].as_str();
        Outcome::Failed(reason.unwrap_or_default())
    } else if is_true(job, "Complete") {
        Outcome::Complete
    } else {
        return None;
    };
    let kind = match outcome {
        Outcome::Complete => "Complete",
        Outcome::Failed(_) => "Failed",
    };
    let at = crate::external::condition(job, kind)?["lastTransitionTime"].as_str();
    Some(Terminal {
        outcome,
        at: at.and_then(|at| at.parse().ok()),
    })
}

/// How long the Job took from its creation to its end; never negative. `None` while it has not
/// ended.
pub fn duration(job: &Value) -> Option<Duration> {
    let end = terminal(job)?.at?;
    let created: Timestamp = job["metadata"]["creationTimestamp"]
        .as_str()?
        .parse()
        .ok()?;
    Some(Duration::try_from(end.duration_since(created)).unwrap_or_default())
}

/// Whether nothing of the Job ever ran, so that replacing it interrupts nothing. `pods` are the
/// Job's own; where nobody may look at them, the counts of the Job have to do, once they had the time
/// to follow.
pub fn never_started(job: &Value, pods: Option<&[Value]>, now: Timestamp) -> bool {
    let counted = |field: &str| job["status"][field].as_i64().unwrap_or(0);
    if counted("failed") + counted("succeeded") + counted("ready") + counted("terminating") > 0 {
        return false;
    }
    let Some(pods) = pods else {
        let began: Option<Timestamp> = job["status"]["startTime"]
            .as_str()
            .and_then(|time| time.parse().ok());
        return counted("active") > 0 && began.is_some_and(|began| began + COUNTS_FOLLOW <= now);
    };
    !pods.iter().flat_map(containers).any(|container| {
        container["started"] == true
            || container["restartCount"].as_i64().unwrap_or(0) > 0
            || ["running", "terminated"]
                .iter()
                .any(|state| container["state"][state].is_object())
    })
}

/// Why the pods of a Job do not get to work, in the words of the scheduler or the kubelet.
pub fn waiting_cause(pods: &[Value]) -> Option<String> {
    let unscheduled = pods.iter().filter_map(|pod| {
        crate::external::condition(pod, "PodScheduled")
            .filter(|condition| condition["status"] == "False")
    });
    // These two are the ordinary way up.
    let waiting = pods
        .iter()
        .flat_map(containers)
        .map(|container| &container["state"]["waiting"])
        .filter(|waiting| {
            waiting["reason"]
                .as_str()
                .is_some_and(|reason| !matches!(reason, "ContainerCreating" | "PodInitializing"))
        });
    let cause = unscheduled.chain(waiting).next()?;
    let reason = cause["reason"].as_str()?;
    Some(match cause["message"].as_str() {
        Some(message) if !message.is_empty() => format!("{reason}: {message}"),
        _ => reason.to_owned(),
    })
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["status"]["containerStatuses"]
        .as_array()
        .into_iter()
        .flatten()
}

/// By our key. A Job without one comes from another operator and is judged by what it runs.
fn is_same_schema(job: &Value, wanted: &MigrationJob) -> bool {
    match annotation(job, SCHEMA_KEY) {
        Some(key) => key == wanted.keys().schema,
        None => wanted.takes_over() && work(job) == wanted.work(),
    }
}

/// Whether the Job says nothing else of its schema than what is wanted. A Job from before it said anything is believed:
/// an update of the operator repeats no migration.
fn is_of_same_origin(job: &Value, wanted: &MigrationJob) -> bool {
    annotation(job, ORIGIN_KEY).is_none_or(|then| then == wanted.keys().origin)
}

/// Whether the Job ran in a database that has gone since: the one in its place is empty. A Job that does not say is
/// believed.
fn is_of_another_database(job: &Value, wanted: &MigrationJob) -> bool {
    match (annotation(job, DATABASE_KEY), wanted.database()) {
        (Some(then), Some(now)) => then != now,
        _ => false,
    }
}

fn is_same_template(job: &Value, wanted: &MigrationJob) -> bool {
    match (annotation(job, SCHEMA_KEY), annotation(job, POD_SPEC_HASH)) {
        (Some(_), Some(key)) => key == wanted.keys().template,
        _ => work(job) == wanted.work(),
    }
}

fn annotation<'a>(job: &'a Value, key: &str) -> Option<&'a str> {
    job["metadata"]["annotations"][key].as_str()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::glance::database::jobs::{JobInputs, Migration, migration_job};
    use crate::glance::specimen;
    use crate::glance::workload::Identity;
    use crate::names::PhaseJob;

    const FAILED_AT: &str = "2026-03-01T12:00:00Z";

    fn wanted(config_map: &str) -> MigrationJob {
        wanted_by(Migration::Sync, config_map, "d1")
    }

    fn wanted_by(migration: Migration<'_>, config_map: &str, dsn_digest: &str) -> MigrationJob {
        let inputs = JobInputs {
            config_map,
            dsn_digest,
            database: None,
        };
        wanted_with(migration, inputs)
    }

    fn wanted_with(migration: Migration<'_>, inputs: JobInputs<'_>) -> MigrationJob {
        let glance = specimen::eventlet();
        migration_job(&glance, Identity::of(&glance), migration, inputs)
    }

    fn wanted_in(database: Option<&str>) -> MigrationJob {
        let inputs = JobInputs {
            config_map: "c",
            dsn_digest: "d1",
            database,
        };
        wanted_with(Migration::Sync, inputs)
    }

    fn ended(mut job: Value, kind: &str) -> Value {
        job["status"] = json!({ "conditions": [
            { "type": "SuccessCriteriaMet", "status": "True" },
            { "type": kind, "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": FAILED_AT },
        ] });
        job
    }

    /// As another operator left it: its own hash, no key of ours, and labels of the API server.
    fn foreign_made(mut job: Value) -> Value {
        job["metadata"]["annotations"] = json!({ POD_SPEC_HASH: "0123" });
        job["spec"]["template"]["metadata"]["labels"] = json!({ "job-name": "pictures-db-sync" });
        job
    }

    fn at(minutes: i64) -> Moment {
        let failed: Timestamp = FAILED_AT.parse().unwrap();
        Moment {
            now: failed + jiff::SignedDuration::from_mins(minutes),
            database_ready_since: None,
        }
    }

    fn verdict(job: &Value, wanted: &MigrationJob) -> Verdict {
        judge(Some(job), true, wanted, at(1))
    }

    #[test]
    fn what_is_not_there_is_created_and_what_is_not_ours_is_refused() {
        let wanted = wanted("c");
        assert_eq!(judge(None, true, &wanted, at(0)), Verdict::Absent);
        let complete = ended(wanted.object(1), "Complete");
        assert_eq!(
            judge(Some(&complete), false, &wanted, at(0)),
            Verdict::Foreign
        );
        let mut leaving = complete;
        leaving["metadata"]["deletionTimestamp"] = json!(FAILED_AT);
        assert_eq!(verdict(&leaving, &wanted), Verdict::Terminating);
    }

    #[test]
    fn a_running_job_is_left_alone_and_told_apart() {
        let job = wanted("c").object(1);
        assert_eq!(verdict(&job, &wanted("c")), running(false, false));
        assert_eq!(verdict(&job, &wanted("other")), running(true, false));
        let rotated = wanted_by(Migration::Sync, "c", "rotated");
        assert_eq!(verdict(&job, &rotated), running(false, true));
        assert_eq!(
            verdict(&foreign_made(job), &wanted("c")),
            running(false, false)
        );
    }

    fn running(outdated: bool, rotated: bool) -> Verdict {
        Verdict::Running { outdated, rotated }
    }

    #[test]
    fn a_deleted_job_does_not_take_the_count_of_its_attempts_along() {
        let wanted = wanted("c");
        let told = attempts(&ended(wanted.object(3), "Failed")).unwrap();
        assert_eq!(next_attempt(Some(&told), &wanted), 4);
        assert_eq!(attempts(&ended(wanted.object(3), "Complete")), None);
        assert_eq!(attempts(&wanted.object(3)), None);
        // Where the cause may be gone, and where nothing is known, it begins anew.
        let rotated = wanted_by(Migration::Sync, "c", "rotated");
        assert_eq!(next_attempt(Some(&told), &rotated), 1);
        for nothing in [None, Some(""), Some("k:x")] {
            assert_eq!(next_attempt(nothing, &wanted), 1);
        }
    }

    #[rstest]
    #[case::suspended("Suspended")]
    #[case::announced_failure("FailureTarget")]
    #[case::announced_success("SuccessCriteriaMet")]
    fn an_announced_end_is_not_an_end(#[case] kind: &str) {
        let job = ended(wanted("c").object(1), kind);
        assert_eq!(terminal(&job), None);
        assert_eq!(duration(&job), None);
    }

    #[test]
    fn failed_wins_over_complete() {
        let mut job = ended(json!({}), "Complete");
        let failed = ended(json!({}), "Failed")["status"]["conditions"][1].clone();
        job["status"]["conditions"]
            .as_array_mut()
            .unwrap()
            .push(failed);
        assert_eq!(
            terminal(&job).unwrap().outcome,
            Outcome::Failed("BackoffLimitExceeded")
        );
    }

    #[test]
    fn a_finished_migration_stays_finished_when_only_the_config_changes() {
        let job = ended(wanted("c").object(1), "Complete");
        assert_eq!(verdict(&job, &wanted("c")), Verdict::Complete);
        assert_eq!(verdict(&job, &wanted("other")), Verdict::Complete);
    }

    #[test]
    fn a_finished_migration_of_another_image_is_replaced() {
        let wanted = wanted("c");
        let mut job = ended(wanted.object(1), "Complete");
        job["metadata"]["annotations"][SCHEMA_KEY] = json!("older");
        assert_eq!(verdict(&job, &wanted), Verdict::CompleteStale);
    }

    #[test]
    fn a_database_that_was_made_again_is_migrated_again() {
        let (first, second) = (wanted_in(Some("u1")), wanted_in(Some("u2")));
        let done = ended(first.object(1), "Complete");
        assert_eq!(verdict(&done, &first), Verdict::Complete);
        assert_eq!(verdict(&done, &second), Verdict::CompleteStale);
        // Whoever does not say in which database it ran is believed.
        let untold = ended(wanted_in(None).object(1), "Complete");
        assert_eq!(verdict(&untold, &second), Verdict::Complete);
        assert_eq!(verdict(&foreign_made(done), &second), Verdict::Complete);
        let failed = ended(first.object(4), "Failed");
        let fresh = Verdict::FailedStale { attempt: 1 };
        assert_eq!(verdict(&failed, &second), fresh);
    }

    #[test]
    fn an_update_of_the_operator_repeats_no_migration_of_which_less_was_known() {
        let wanted = wanted("c");
        let mut job = ended(wanted.object(1), "Complete");
        assert_eq!(verdict(&job, &wanted), Verdict::Complete);
        job["metadata"]["annotations"][ORIGIN_KEY] = json!("port 3307");
        assert_eq!(verdict(&job, &wanted), Verdict::CompleteStale);
        let all = job["metadata"]["annotations"].as_object_mut();
        all.unwrap().remove(ORIGIN_KEY);
        assert_eq!(verdict(&job, &wanted), Verdict::Complete);
    }

    #[test]
    fn a_db_sync_that_another_operator_finished_is_kept() {
        let wanted = wanted("c");
        let job = foreign_made(ended(wanted.object(1), "Complete"));
        assert_eq!(verdict(&job, &wanted), Verdict::Complete);
        let mut other = job;
        other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("glance:2025.1");
        assert_eq!(verdict(&other, &wanted), Verdict::CompleteStale);
    }

    #[test]
    fn a_phase_that_another_operator_finished_is_repeated_rather_than_believed() {
        let phase = Migration::Phase {
            phase: PhaseJob::Contract,
            installed: "2025.1",
            target: "2025.2",
        };
        let wanted = wanted_by(phase, "c", "d1");
        let job = foreign_made(ended(wanted.object(1), "Complete"));
        assert_eq!(verdict(&job, &wanted), Verdict::CompleteStale);
    }

    #[rstest]
    #[case::first(1, 10)]
    #[case::second(2, 20)]
    #[case::sixth(6, 320)]
    #[case::seventh(7, 360)]
    #[case::hundredth(100, 360)]
    fn a_failed_migration_is_tried_again_after_a_growing_pause(
        #[case] attempt: u32,
        #[case] minutes: u64,
    ) {
        let wanted = wanted("c");
        let job = ended(wanted.object(attempt), "Failed");
        let before = i64::try_from(minutes).unwrap() - 1;
        assert_eq!(
            judge(Some(&job), true, &wanted, at(before)),
            Verdict::Failed {
                retry_in: Duration::from_mins(1)
            }
        );
        assert_eq!(
            judge(Some(&job), true, &wanted, at(before + 1)),
            Verdict::FailedStale {
                attempt: attempt + 1
            }
        );
    }

    #[test]
    fn a_failed_migration_is_tried_again_at_once_when_its_cause_may_be_gone() {
        let job = ended(wanted("c").object(4), "Failed");
        let fresh = Verdict::FailedStale { attempt: 1 };
        assert_eq!(verdict(&job, &wanted("other")), fresh);
        assert_eq!(
            verdict(&job, &wanted_by(Migration::Sync, "c", "rotated")),
            fresh
        );
        assert_eq!(verdict(&foreign_made(job.clone()), &wanted("c")), fresh);

        let recovered = |since: &str| Moment {
            database_ready_since: Some(since.parse().unwrap()),
            ..at(1)
        };
        let back = judge(
            Some(&job),
            true,
            &wanted("c"),
            recovered("2026-03-01T12:00:30Z"),
        );
        assert_eq!(back, Verdict::FailedStale { attempt: 5 });
        let always_there = judge(
            Some(&job),
            true,
            &wanted("c"),
            recovered("2026-02-01T00:00:00Z"),
        );
        assert_eq!(
            always_there,
            Verdict::Failed {
                retry_in: Duration::from_mins(79)
            }
        );
    }

    #[test]
    fn a_clock_behind_the_clusters_waits_the_whole_pause() {
        let wanted = wanted("c");
        let job = ended(wanted.object(1), "Failed");
        assert_eq!(
            judge(Some(&job), true, &wanted, at(-5)),
            Verdict::Failed {
                retry_in: Duration::from_mins(10)
            }
        );
    }

    #[test]
    fn a_job_takes_from_its_creation_to_its_end() {
        let mut job = ended(json!({}), "Complete");
        job["metadata"] = json!({ "creationTimestamp": "2026-03-01T11:58:30Z" });
        assert_eq!(duration(&job), Some(Duration::from_secs(90)));
        job["metadata"] = json!({ "creationTimestamp": "2026-03-01T12:00:10Z" });
        assert_eq!(duration(&job), Some(Duration::ZERO));
    }

    fn pod(status: &Value) -> Value {
        json!({ "status": { "containerStatuses": [status] } })
    }

    #[test]
    fn a_job_that_never_ran_may_be_replaced() {
        let job = json!({ "status": { "active": 1, "ready": 0 } });
        let pulling = pod(&json!({ "started": false, "restartCount": 0,
            "state": { "waiting": { "reason": "ImagePullBackOff", "message": "no such tag" } } }));
        let pods = std::slice::from_ref(&pulling);
        assert!(never_started(&job, Some(pods), at(0).now));
        assert!(never_started(&job, Some(&[]), at(0).now));
        assert_eq!(
            waiting_cause(&[pulling]).as_deref(),
            Some("ImagePullBackOff: no such tag")
        );
    }

    #[rstest]
    #[case::running(json!({}), json!({ "state": { "running": {} } }))]
    #[case::ended(json!({}), json!({ "state": { "terminated": {} } }))]
    #[case::restarted(json!({}), json!({ "restartCount": 1, "state": { "waiting": {} } }))]
    #[case::failed_pod_is_gone(json!({ "failed": 1 }), json!({}))]
    #[case::ready(json!({ "ready": 1 }), json!({}))]
    fn a_job_that_ran_may_not(#[case] status: Value, #[case] container: Value) {
        let pods = [pod(&container)];
        assert!(!never_started(
            &json!({ "status": status }),
            Some(&pods),
            at(0).now
        ));
    }

    #[rstest]
    #[case::pending(json!({ "active": 1, "ready": 0 }), 2, true)]
    #[case::young(json!({ "active": 1, "ready": 0 }), 0, false)]
    #[case::running(json!({ "active": 1, "ready": 1 }), 2, false)]
    #[case::ending(json!({ "active": 1, "terminating": 1 }), 2, false)]
    #[case::failed(json!({ "active": 1, "failed": 1 }), 2, false)]
    fn without_a_view_of_pods_the_counts_have_to_do(
        #[case] mut status: Value,
        #[case] minutes: i64,
        #[case] never: bool,
    ) {
        status["startTime"] = json!(FAILED_AT);
        let job = json!({ "status": status });
        assert_eq!(never_started(&job, None, at(minutes).now), never);
    }

    #[test]
    fn the_scheduler_speaks_first_and_a_normal_start_says_nothing() {
        let creating = pod(&json!({ "state": { "waiting": { "reason": "ContainerCreating" } } }));
        assert_eq!(waiting_cause(&[creating]), None);
        let pending = json!({ "status": { "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes" },
        ] } });
        assert_eq!(
            waiting_cause(&[pending]).as_deref(),
            Some("Unschedulable: 0/3 nodes")
        );
    }
}
