//! The purge: a `CronJob` that deletes for good what was soft-deleted long enough, and what its
//! runs say.

use std::fmt::Write as _;

use glance_api::Glance;
use glance_api::defaults::{self, DbPurge};
use glance_api::glance::{GlanceSpec, UpgradePhase};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::job_state::{self, Outcome};
use crate::glance::workload::containers::{image, restricted};
use crate::glance::workload::labels::{self, Component};
use crate::glance::workload::volumes::CONFIG_DIR;
use crate::glance::workload::{Identity, environment, pod, volumes};
use crate::names;

/// Turns a run that hangs into one that failed.
const DEADLINE_SECONDS: u32 = 3600;
/// Rows per table and pass; keeps the write sets of a cluster small.
const MAX_ROWS: u32 = 1000;
/// Passes over the child rows in one run, with the images table.
const MAX_PASSES: u32 = 100;
/// The largest age that `glance-manage` reads: it has to lie after 1970.
const MAX_AGE_DAYS: i32 = 20_000;

/// A run of the purge that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<'a> {
    /// Name of its Job.
    pub name: &'a str,
    /// UID of its Job.
    pub uid: &'a str,
    /// How it ended.
    pub outcome: Outcome<'a>,
    /// Its Job.
    pub job: &'a Value,
}

/// What the purge says about itself (contract: database, `DBPurgeReady`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgeVerdict {
    /// It runs on schedule.
    Scheduled {
        /// For the condition.
        message: String,
    },
    /// It was told to pause.
    Suspended {
        /// For the condition.
        message: String,
    },
    /// Its newest run failed.
    Failed {
        /// What every message about this run begins with.
        run: String,
        /// For the condition.
        message: String,
        /// For the event.
        event: String,
    },
}

/// The desired `CronJob`.
pub fn cron_job(glance: &Glance, id: Identity<'_>, config_map: &str) -> Value {
    let spec = &glance.spec;
    let settings = defaults::db_purge(spec);
    json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": id.metadata_named(&names::db_purge(id.name), &labels::common(id.name)),
        "spec": {
            "schedule": settings.schedule,
            "suspend": settings.suspend,
            // Two purges contend for the same rows.
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {
                // The names of the runs are made up, so they are found by these.
                "metadata": { "labels": labels::common(id.name) },
                "spec": {
                    "activeDeadlineSeconds": DEADLINE_SECONDS,
                    "template": {
                        "metadata": { "labels": labels::component(id.name, Component::DbPurge) },
                        "spec": {
                            "restartPolicy": "OnFailure",
                            "securityContext": pod::pod_security(),
                            "automountServiceAccountToken": false,
                            "enableServiceLinks": false,
                            "containers": [{
                                "name": "db-purge",
                                "image": image(&spec.image),
                                "command": ["/bin/sh", "-eu", "-c", script(&settings)],
                                "env": [environment::database_connection(id.name)],
                                "volumeMounts": volumes::manage_mounts(spec),
                                "securityContext": restricted(),
                            }],
                            "volumes": volumes::manage(spec, config_map),
                        },
                    },
                },
            },
        },
    })
}

/// One pass over everything but images; with the images table, as many as its rows need.
///
/// An image has many child rows, and both commands stop at the same number of rows per table. One
/// pass of each would leave children behind whose images then cannot go, and the run would fail on
/// any backlog. So the children are purged until nothing is deleted any more, and once more
/// whenever the images table refuses (the log may be set too quiet to tell what was deleted).
/// Bounded, because rows may come faster than they go.
fn script(settings: &DbPurge) -> String {
    let purge = |what: &str| {
        format!(
            "glance-manage --config-dir {CONFIG_DIR} db {what} --age_in_days {} --max_rows {MAX_ROWS}",
            age_in_days(settings)
        )
    };
    let children = purge("purge");
    if !settings.purge_images_table {
        return children;
    }
    let images = purge("purge_images_table");
    format!(
        r#"passes=0
while :; do
  passes=$((passes + 1))
  status=0
  report=$({children} 2>&1) || status=$?
  printf '%s\n' "$report"
  [ "$status" -eq 0 ] || exit "$status"
  if [ "$passes" -lt {MAX_PASSES} ]; then
    case "$report" in
      *"Deleted "[1-9]*" row(s)"*) continue ;;
    esac
  fi
  status=0
  {images} || status=$?
  if [ "$status" -eq 0 ] || [ "$passes" -ge {MAX_PASSES} ]; then
    exit "$status"
  fi
done
"#
    )
}

/// The age as `glance-manage` accepts it.
fn age_in_days(settings: &DbPurge) -> i32 {
    settings.retention_days.min(MAX_AGE_DAYS)
}

/// The ended runs among `jobs`, newest first: those that the `CronJob` with this UID controls.
///
/// A Job made by hand from the `CronJob` carries the reference too, and counts. Runs of one second
/// are told apart by name.
pub fn ended_runs<'a>(
    jobs: impl IntoIterator<Item = &'a Value>,
    cron_job_uid: &str,
) -> Vec<Run<'a>> {
    let mut runs: Vec<(Option<Timestamp>, Run<'a>)> = jobs
        .into_iter()
        .filter(|job| is_controlled_by(job, cron_job_uid))
        .filter_map(|job| {
            let metadata = &job["metadata"];
            let run = Run {
                name: metadata["name"].as_str()?,
                uid: metadata["uid"].as_str()?,
                outcome: job_state::terminal(job)?.outcome,
                job,
            };
            let created = metadata["creationTimestamp"].as_str();
            Some((created.and_then(|created| created.parse().ok()), run))
        })
        .collect();
    runs.sort_by(|(a_time, a), (b_time, b)| b_time.cmp(a_time).then_with(|| b.name.cmp(a.name)));
    runs.into_iter().map(|(_, run)| run).collect()
}

/// When the last of these runs to succeed ended.
pub fn last_success(runs: &[Run<'_>]) -> Option<Timestamp> {
    runs.iter()
        .filter(|run| run.outcome == Outcome::Complete)
        .filter_map(|run| job_state::terminal(run.job)?.at)
        .max()
}

/// The runs to count, oldest first, when those in `counted` were. A run made by hand may end long after a younger one,
/// or in the same second, so no order tells what is new.
///
/// Without that list (a Glance that another operator counted for) the run with the UID `last` was the last one. When
/// it is gone from the history, what is left of the older runs cannot be told from the newer ones, and only the newest
/// counts: rather one too few than one twice.
pub fn uncounted<'a>(runs: &[Run<'a>], last: Option<&str>, counted: Option<&str>) -> Vec<Run<'a>> {
    if let Some(counted) = counted {
        let is_known =
            |run: &&Run<'_>| last == Some(run.uid) || counted.split(',').any(|uid| uid == run.uid);
        return runs
            .iter()
            .rev()
            .filter(|run| !is_known(run))
            .copied()
            .collect();
    }
    let newer = match last {
        None => runs.len(),
        Some(last) => runs.iter().position(|run| run.uid == last).unwrap_or(1),
    };
    runs.iter().take(newer).rev().copied().collect()
}

/// The list of runs for [`uncounted`] once all of these are counted.
pub fn counted(runs: &[Run<'_>]) -> String {
    runs.iter().map(|run| run.uid).collect::<Vec<_>>().join(",")
}

/// Judges the purge by its newest ended run. `phase` is the upgrade that goes on, if one does.
///
/// A pause outranks a failure: a `CronJob` that is suspended never makes the run that would clear
/// it.
pub fn judge(
    spec: &GlanceSpec,
    newest: Option<&Run<'_>>,
    phase: Option<UpgradePhase>,
) -> PurgeVerdict {
    let settings = defaults::db_purge(spec);
    let schedule = &settings.schedule;
    let days = age_in_days(&settings);
    let failed = newest.and_then(|run| match run.outcome {
        Outcome::Failed(reason) => Some((run.name, reason)),
        Outcome::Complete => None,
    });
    if settings.suspend {
        let mut message = format!(
            "Database purge CronJob suspended via spec.dbPurge.suspend; no rows are being hard-deleted and the \
             soft-deleted backlog keeps growing (schedule \"{schedule}\", retention {days} days when resumed)"
        );
        if let Some((job, _)) = failed {
            let _ = write!(
                message,
                "; the last run (Job {job}) failed before the pause"
            );
        }
        return PurgeVerdict::Suspended { message };
    }
    if let Some((job, reason)) = failed {
        let run = format!("Database purge Job {job} failed;");
        let mut message = format!("{run} the soft-deleted backlog is no longer shrinking");
        if !reason.is_empty() {
            let _ = write!(message, " ({reason})");
        }
        if let Some(phase) = phase {
            let _ = write!(
                message,
                "; a release upgrade is in phase {phase}, in which a run may fail"
            );
        }
        return PurgeVerdict::Failed {
            run,
            message,
            event: format!(
                "Database purge Job {job} failed; inspect its pod logs \u{2014} the soft-deleted image and task rows \
                 keep accumulating until a run succeeds"
            ),
        };
    }
    PurgeVerdict::Scheduled {
        message: format!(
            "Database purge scheduled \"{schedule}\", hard-deleting rows soft-deleted more than {days} days ago"
        ),
    }
}

fn is_controlled_by(job: &Value, uid: &str) -> bool {
    job["metadata"]["ownerReferences"]
        .as_array()
        .is_some_and(|owners| {
            owners
                .iter()
                .any(|owner| owner["controller"] == true && owner["uid"] == uid)
        })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use k8s_openapi::api::batch::v1::CronJob;
    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;
    use crate::glance::specimen;

    fn cron_job_of(glance: &Glance) -> Value {
        let object = cron_job(glance, Identity::of(glance), "pictures-config-0a1b2c3d");
        specimen::assert_is::<CronJob>(&object);
        object
    }

    fn script_of(purge: &Value) -> String {
        let glance = specimen::with(&json!({ "dbPurge": purge }));
        let pod = &cron_job_of(&glance)["spec"]["jobTemplate"]["spec"]["template"]["spec"];
        pod["containers"][0]["command"][3]
            .as_str()
            .unwrap()
            .to_owned()
    }

    #[rstest]
    #[case("least", specimen::eventlet())]
    #[case("everything", specimen::everything())]
    fn the_cron_job(#[case] name: &str, #[case] glance: Glance) {
        insta::assert_snapshot!(
            format!("cron-job-{name}"),
            specimen::text(&cron_job_of(&glance))
        );
    }

    #[rstest]
    #[case::default(json!({}), 30)]
    #[case::set(json!({ "retentionDays": 7 }), 7)]
    #[case::beyond_what_glance_reads(json!({ "retentionDays": 2_000_000 }), 20_000)]
    fn without_the_images_table_the_command_is_the_contracts(
        #[case] purge: Value,
        #[case] days: u32,
    ) {
        assert_eq!(
            script_of(&purge),
            format!(
                "glance-manage --config-dir /etc/glance/glance-api.conf.d/ db purge --age_in_days {days} --max_rows 1000"
            )
        );
    }

    /// Runs the script with the images table against a stand-in that has `children` passes of child
    /// rows to delete, logs them or not, and refuses images before they are gone. Returns the calls
    /// and the status.
    fn run(children: u32, logs: bool, broken: bool) -> (Vec<String>, i32) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("glance-manage");
        let base = dir.path().display();
        fs::write(dir.path().join("left"), children.to_string()).unwrap();
        fs::write(
            &path,
            format!(
                r#"#!/bin/sh
echo "$4" >> {base}/calls
left=$(cat {base}/left)
if [ "$4" = purge ]; then
  {broken} && {{ echo "no database" >&2; exit 7; }}
  if [ "$left" -gt 0 ]; then echo $((left - 1)) > {base}/left; rows=1000; else rows=0; fi
  if {logs}; then
    echo "INFO Deleted 0 row(s) from table task_info" >&2
    echo "INFO Deleted $rows row(s) from table image_properties" >&2
  fi
  exit 0
fi
[ "$left" -eq 0 ] || {{ echo "foreign key" >&2; exit 1; }}
"#
            ),
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let script = script_of(&json!({ "purgeImagesTable": true }));
        let output = Command::new("sh")
            .args(["-eu", "-c", &script])
            .env("PATH", format!("{base}:{}", std::env::var("PATH").unwrap()))
            .output()
            .unwrap();
        let calls = fs::read_to_string(dir.path().join("calls")).unwrap();
        (
            calls.lines().map(str::to_owned).collect(),
            output.status.code().unwrap(),
        )
    }

    #[test]
    fn with_the_images_table_both_commands_are_the_contracts() {
        let script = script_of(&json!({ "purgeImagesTable": true }));
        for command in ["purge", "purge_images_table"] {
            assert!(script.contains(&format!(
                "glance-manage --config-dir /etc/glance/glance-api.conf.d/ db {command} --age_in_days 30 --max_rows 1000"
            )));
        }
        assert!(!script.contains("$$"), "Kubernetes would turn it into one");
        assert!(
            Command::new("sh")
                .args(["-n", "-c", &script])
                .status()
                .unwrap()
                .success()
        );
    }

    #[test]
    fn a_backlog_of_child_rows_goes_before_the_images() {
        let (calls, status) = run(3, true, false);
        assert_eq!(
            calls,
            ["purge", "purge", "purge", "purge", "purge_images_table"]
        );
        assert_eq!(status, 0);
    }

    #[test]
    fn a_backlog_goes_although_the_log_says_nothing() {
        let (calls, status) = run(2, false, false);
        assert_eq!(
            calls,
            ["purge", "purge_images_table", "purge", "purge_images_table"]
        );
        assert_eq!(status, 0);
    }

    #[test]
    fn a_failed_first_pass_stops_the_second() {
        assert_eq!(run(0, true, true), (vec!["purge".to_owned()], 7));
    }

    #[test]
    fn an_endless_backlog_ends_the_run() {
        let (calls, status) = run(1_000, true, false);
        assert_eq!(calls.len(), 101);
        assert_eq!(status, 1);
    }

    /// A Job that the `CronJob` with UID `cron` controls.
    fn job(name: &str, created: &str, kind: &str) -> Value {
        json!({
            "metadata": {
                "name": name, "uid": format!("uid-{name}"), "creationTimestamp": created,
                "ownerReferences": [{ "kind": "CronJob", "uid": "cron", "controller": true }],
            },
            "status": { "conditions": [{ "type": kind, "status": "True", "reason": "DeadlineExceeded" }] },
        })
    }

    fn names(jobs: &[Value]) -> Vec<String> {
        ended_runs(jobs, "cron")
            .iter()
            .map(|run| run.name.to_owned())
            .collect()
    }

    #[test]
    fn the_newest_ended_run_counts_and_ties_go_by_name() {
        let mut stray = job("stray", "2026-03-09T00:00:00Z", "Failed");
        stray["metadata"]["ownerReferences"][0]["controller"] = json!(false);
        let mut other = job("other", "2026-03-09T00:00:00Z", "Failed");
        other["metadata"]["ownerReferences"][0]["uid"] = json!("another");
        let jobs = [
            job("a", "2026-03-01T00:00:00Z", "Failed"),
            job("c", "2026-03-02T00:00:00Z", "Complete"),
            job("b", "2026-03-02T00:00:00Z", "Failed"),
            job("running", "2026-03-03T00:00:00Z", "Suspended"),
            stray,
            other,
        ];
        assert_eq!(names(&jobs), ["c", "b", "a"]);
    }

    #[rstest]
    #[case::first_time(None, &["a", "b", "c"])]
    #[case::up_to_date(Some("uid-c"), &[])]
    #[case::two_since(Some("uid-a"), &["b", "c"])]
    #[case::out_of_history(Some("uid-gone"), &["c"])]
    fn no_run_counts_twice_and_none_in_between_is_lost(
        #[case] last: Option<&str>,
        #[case] expected: &[&str],
    ) {
        let jobs = [
            job("a", "2026-03-01T00:00:00Z", "Failed"),
            job("b", "2026-03-02T00:00:00Z", "Complete"),
            job("c", "2026-03-03T00:00:00Z", "Complete"),
        ];
        let runs = ended_runs(&jobs, "cron");
        let names: Vec<&str> = uncounted(&runs, last, None)
            .iter()
            .map(|run| run.name)
            .collect();
        assert_eq!(names, expected);
    }

    /// `a` was started by hand and is overtaken by `b`, or both are of one second.
    #[rstest]
    #[case::overtaken("2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z")]
    #[case::of_one_second("2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z")]
    fn runs_beside_each_other_count_once_each_whichever_ends_first(
        #[case] a: &str,
        #[case] b: &str,
    ) {
        let names = |runs: &[Run<'_>]| {
            let names: Vec<_> = runs.iter().map(|run| run.name.to_owned()).collect();
            names.join(" ")
        };
        for early in ["a", "b"] {
            let all = [job("a", a, "Complete"), job("b", b, "Complete")];
            let one: Vec<_> = all
                .iter()
                .filter(|job| job["metadata"]["name"] == early)
                .cloned()
                .collect();
            let first = ended_runs(&one, "cron");
            assert_eq!(names(&uncounted(&first, None, None)), early);
            let (last, list) = (first[0].uid, counted(&first));
            let both = ended_runs(&all, "cron");
            let late = if early == "a" { "b" } else { "a" };
            assert_eq!(names(&uncounted(&both, Some(last), Some(&list))), late);
            let list = counted(&both);
            assert_eq!(names(&uncounted(&both, Some(both[0].uid), Some(&list))), "");
            // The history forgets the one that was counted last.
            assert_eq!(
                names(&uncounted(&both[1..], Some("uid-gone"), Some(&list))),
                ""
            );
        }
    }

    #[test]
    fn the_last_success_is_the_last_to_end() {
        let ended = |name: &str, created: &str, at: &str| {
            let mut job = job(name, created, "Complete");
            job["status"]["conditions"][0]["lastTransitionTime"] = json!(at);
            job
        };
        let jobs = [
            ended("long", "2026-03-01T00:00:00Z", "2026-03-01T00:50:00Z"),
            ended("short", "2026-03-01T00:10:00Z", "2026-03-01T00:11:00Z"),
        ];
        let at = last_success(&ended_runs(&jobs, "cron")).unwrap();
        assert_eq!(at, "2026-03-01T00:50:00Z".parse().unwrap());
    }

    fn judged(purge: &Value, kind: Option<&str>, phase: Option<UpgradePhase>) -> PurgeVerdict {
        let spec = specimen::with(&json!({ "dbPurge": purge })).spec;
        let jobs: Vec<Value> = kind
            .map(|kind| job("run-1", "2026-03-01T00:00:00Z", kind))
            .into_iter()
            .collect();
        let runs = ended_runs(&jobs, "cron");
        judge(&spec, runs.first(), phase)
    }

    #[rstest]
    #[case::no_run(None)]
    #[case::succeeded(Some("Complete"))]
    fn scheduled(#[case] kind: Option<&str>) {
        assert_eq!(
            judged(&json!({}), kind, None),
            PurgeVerdict::Scheduled {
                message: "Database purge scheduled \"1 0 * * *\", hard-deleting rows soft-deleted more than 30 days ago".into()
            }
        );
    }

    #[test]
    fn a_failure_names_the_run_its_end_and_the_upgrade_around_it() {
        let PurgeVerdict::Failed { message, event, .. } =
            judged(&json!({}), Some("Failed"), Some(UpgradePhase::Migrating))
        else {
            panic!("not failed");
        };
        assert_eq!(
            message,
            "Database purge Job run-1 failed; the soft-deleted backlog is no longer shrinking (DeadlineExceeded); \
             a release upgrade is in phase Migrating, in which a run may fail"
        );
        assert_eq!(
            event,
            "Database purge Job run-1 failed; inspect its pod logs \u{2014} the soft-deleted image and task rows keep \
             accumulating until a run succeeds"
        );
    }

    #[rstest]
    #[case::quiet(None, "")]
    #[case::after_a_failure(Some("Failed"), "; the last run (Job run-1) failed before the pause")]
    fn a_pause_outranks_a_failure(#[case] kind: Option<&str>, #[case] tail: &str) {
        let purge = json!({ "suspend": true, "schedule": "@daily", "retentionDays": 7 });
        assert_eq!(
            judged(&purge, kind, None),
            PurgeVerdict::Suspended {
                message: format!(
                    "Database purge CronJob suspended via spec.dbPurge.suspend; no rows are being hard-deleted and the \
                     soft-deleted backlog keeps growing (schedule \"@daily\", retention 7 days when resumed){tail}"
                )
            }
        );
    }
}
