//! What a live Deployment says about its own roll-out.
//!
//! Every judgement reads the object as the apply returned it or as the watch last showed it, and
//! nothing else: no clock, no pods, no memory of earlier passes.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// A live Deployment, as far as its roll-out goes.
#[derive(Clone, Copy, Debug)]
pub struct Rollout<'a> {
    live: &'a Value,
}

/// What the Deployment step makes of a roll-out (contract: workload, Deployment
/// step, decision list).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The API serves.
    Ready,
    /// The API does not serve, or its new version never will; says why.
    Waiting(String),
    /// During an upgrade the API serves, but old pods are still among those that do.
    UpgradeWaiting(String),
    /// During an upgrade no old pod is left: the schema may contract.
    UpgradeRolledOut,
}

/// `DeploymentReady` is `False` with this sentence first.
const NOT_AVAILABLE: &str = "Glance API deployment is not yet available";
/// The same while an upgrade waits.
const UPGRADE_NOT_OUT: &str =
    "Waiting for the upgraded image to finish rolling out before contracting the database schema";

/// Whether the live selector is another one than the desired, which no update can change.
pub fn selector_differs(live: &Value, desired: &Value) -> bool {
    live["spec"]["selector"] != desired["spec"]["selector"]
}

/// The merge patch that has to go first when the strategy becomes `Recreate`.
///
/// The API server filled in `rollingUpdate` when nobody wrote it, so no apply of ours owns the
/// field and none removes it, yet the two exclude each other: without this patch the apply is
/// refused for ever.
pub fn recreate_patch(live: &Value, desired: &Value) -> Option<Value> {
    let recreate = desired["spec"]["strategy"]["type"] == "Recreate";
    let wedged = live.pointer("/spec/strategy/rollingUpdate").is_some();
    (recreate && wedged)
        .then(|| json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}))
}

// === impl Rollout ===

impl<'a> Rollout<'a> {
    /// Looks at a live Deployment.
    pub fn of(live: &'a Value) -> Self {
        Self { live }
    }

    /// Applies the whole decision list. `upgrading` is whether `status.upgradePhase` is
    /// `RollingUpdate`.
    pub fn judge(self, upgrading: bool) -> Judgement {
        if let Some(failure) = self.failure() {
            return Judgement::Waiting(self.sentence(NOT_AVAILABLE, Some(&failure)));
        }
        if !self.is_ready() {
            return Judgement::Waiting(self.sentence(NOT_AVAILABLE, None));
        }
        match (upgrading, self.is_complete()) {
            (false, _) => Judgement::Ready,
            (true, true) => Judgement::UpgradeRolledOut,
            (true, false) => Judgement::UpgradeWaiting(self.sentence(UPGRADE_NOT_OUT, None)),
        }
    }

    /// Whether the deployment controller has seen the current template.
    pub fn is_observed(self) -> bool {
        self.number("/status/observedGeneration") >= self.number("/metadata/generation")
    }

    /// Whether the API serves. Tolerant of surge on purpose: old pods count, so a plain roll-out
    /// does not look like an outage.
    pub fn is_ready(self) -> bool {
        self.is_observed()
            && self.ready() >= self.desired()
            && crate::external::is_true(self.live, "Available")
    }

    /// Whether every pod that exists is of the current template; ready or not.
    pub fn is_converged(self) -> bool {
        self.is_observed() && self.replicas() > 0 && self.updated() == self.replicas()
    }

    /// Whether exactly the desired pods exist, all of the current template and all ready.
    /// Contracting the schema drops columns that older pods still read, so nothing less will do.
    pub fn is_complete(self) -> bool {
        let desired = self.desired();
        self.is_observed()
            && [self.updated(), self.ready(), self.replicas()]
                .iter()
                .all(|count| *count == desired)
    }

    /// Whether not one pod serves.
    pub fn is_down(self) -> bool {
        self.number("/status/availableReplicas") == 0
    }

    /// Why the roll-out of the current template will not come to an end by itself.
    ///
    /// The old pods of a surge keep `Available` and the ready count up for ever, so a broken image
    /// shows nowhere else.
    pub fn failure(self) -> Option<String> {
        if !self.is_observed() {
            // The conditions still speak of the former template.
            return None;
        }
        let holds = |kind: &str, status: &str| {
            crate::external::condition(self.live, kind)
                .filter(|condition| condition["status"] == status)
        };
        let condition =
            holds("ReplicaFailure", "True").or_else(|| holds("Progressing", "False"))?;
        let text = |field: &str| condition[field].as_str().filter(|text| !text.is_empty());
        text("message")
            .or_else(|| text("reason"))
            .map(str::to_owned)
    }

    /// The fixed sentence, the counts, and the cause when there is one.
    fn sentence(self, fixed: &str, failure: Option<&str>) -> String {
        let mut text = format!(
            "{fixed}: {} of {} ready, {} updated",
            self.ready(),
            self.desired(),
            self.updated()
        );
        let old = self.replicas() - self.updated();
        if old > 0 {
            let _ = write!(text, ", {old} old");
        }
        if !self.is_observed() {
            text.push_str(", new template not yet observed");
        }
        if let Some(failure) = failure {
            text.push_str("; ");
            text.push_str(failure);
        }
        text
    }

    fn desired(self) -> i64 {
        self.live
            .pointer("/spec/replicas")
            .and_then(Value::as_i64)
            .unwrap_or(1)
    }

    fn replicas(self) -> i64 {
        self.number("/status/replicas")
    }

    fn updated(self) -> i64 {
        self.number("/status/updatedReplicas")
    }

    fn ready(self) -> i64 {
        self.number("/status/readyReplicas")
    }

    /// A count that is absent while it is zero.
    fn number(self, pointer: &str) -> i64 {
        self.live
            .pointer(pointer)
            .and_then(Value::as_i64)
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// A Deployment of three with the given counts, observed and available.
    fn live(ready: i64, updated: i64, replicas: i64) -> Value {
        json!({
            "metadata": {"generation": 4},
            "spec": {"replicas": 3},
            "status": {
                "observedGeneration": 4,
                "replicas": replicas,
                "readyReplicas": ready,
                "updatedReplicas": updated,
                "availableReplicas": ready,
                "conditions": [
                    {"type": "Available", "status": "True"},
                    {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"},
                ],
            },
        })
    }

    fn with(mut live: Value, pointer: &str, value: Value) -> Value {
        *live.pointer_mut(pointer).unwrap() = value;
        live
    }

    #[test]
    fn all_new_and_ready_is_ready_converged_and_complete() {
        let live = live(3, 3, 3);
        let rollout = Rollout::of(&live);
        assert!(rollout.is_ready() && rollout.is_converged() && rollout.is_complete());
        assert_eq!(rollout.judge(false), Judgement::Ready);
        assert_eq!(rollout.judge(true), Judgement::UpgradeRolledOut);
    }

    #[test]
    fn a_surging_rollout_stays_ready_but_an_upgrade_does_not_contract_under_old_pods() {
        let live = live(3, 1, 4);
        let rollout = Rollout::of(&live);
        assert!(rollout.is_ready());
        assert!(!rollout.is_converged());
        assert_eq!(rollout.judge(false), Judgement::Ready);
        assert_eq!(
            rollout.judge(true),
            Judgement::UpgradeWaiting(
                "Waiting for the upgraded image to finish rolling out before contracting the database schema: \
                 3 of 3 ready, 1 updated, 3 old"
                    .into()
            )
        );
    }

    #[rstest]
    #[case::not_observed(with(live(3, 3, 3), "/status/observedGeneration", json!(3)), "3 of 3 ready, 3 updated, new template not yet observed")]
    #[case::too_few_ready(live(2, 3, 3), "2 of 3 ready, 3 updated")]
    #[case::not_available(with(live(3, 3, 3), "/status/conditions/0/status", json!("False")), "3 of 3 ready, 3 updated")]
    #[case::nothing_yet(with(live(0, 0, 0), "/status", json!({})), "0 of 3 ready, 0 updated, new template not yet observed")]
    fn not_ready_says_what_is_missing(#[case] live: Value, #[case] counts: &str) {
        let expected = format!("Glance API deployment is not yet available: {counts}");
        assert_eq!(
            Rollout::of(&live).judge(false),
            Judgement::Waiting(expected.clone())
        );
        assert_eq!(Rollout::of(&live).judge(true), Judgement::Waiting(expected));
    }

    #[test]
    fn a_broken_image_does_not_look_ready_behind_its_old_pods() {
        let mut live = live(3, 1, 4);
        live["status"]["conditions"][1] = json!({
            "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
            "message": "ReplicaSet \"glance-7c\" has timed out progressing.",
        });
        assert_eq!(
            Rollout::of(&live).judge(false),
            Judgement::Waiting(
                "Glance API deployment is not yet available: 3 of 3 ready, 1 updated, 3 old; \
                 ReplicaSet \"glance-7c\" has timed out progressing."
                    .into()
            )
        );
        // As soon as the template is corrected the old verdict is history.
        let corrected = with(live, "/metadata/generation", json!(5));
        assert_eq!(Rollout::of(&corrected).failure(), None);
    }

    #[test]
    fn pods_that_cannot_be_created_are_a_failure() {
        let mut live = live(3, 0, 3);
        live["status"]["conditions"]
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}));
        assert_eq!(
            Rollout::of(&live).failure().as_deref(),
            Some("exceeded quota")
        );
    }

    #[test]
    fn a_pending_replica_does_not_block_convergence_but_blocks_completeness() {
        let live = live(2, 3, 3);
        assert!(Rollout::of(&live).is_converged());
        assert!(!Rollout::of(&live).is_complete());
    }

    #[test]
    fn scaled_to_nothing_is_not_converged() {
        assert!(!Rollout::of(&live(0, 0, 0)).is_converged());
        assert!(Rollout::of(&live(0, 0, 0)).is_down());
    }

    #[test]
    fn desired_is_one_when_the_object_does_not_say() {
        let mut live = live(1, 1, 1);
        live["spec"] = json!({});
        assert!(Rollout::of(&live).is_complete());
    }

    #[test]
    fn a_selector_is_the_same_only_if_it_is_equal() {
        let of = |labels: Value| json!({"spec": {"selector": {"matchLabels": labels}}});
        let desired = of(json!({"a": "1", "b": "2"}));
        assert!(!selector_differs(
            &of(json!({"b": "2", "a": "1"})),
            &desired
        ));
        assert!(selector_differs(&of(json!({"a": "1"})), &desired));
    }

    #[test]
    fn recreate_removes_a_rolling_update_nobody_owns() {
        let live = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}}}});
        let recreate = json!({"spec": {"strategy": {"type": "Recreate"}}});
        let rolling = json!({"spec": {"strategy": {"type": "RollingUpdate"}}});
        assert_eq!(
            recreate_patch(&live, &recreate),
            Some(json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}))
        );
        assert_eq!(recreate_patch(&live, &rolling), None);
        assert_eq!(recreate_patch(&recreate, &recreate), None);
    }
}
