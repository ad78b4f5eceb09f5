//! The condition list of a status: set by type, transition times kept, `Ready` aggregated.

use glance_api::{
    common::{Condition, ConditionStatus, Time},
    conditions::{READY, reasons},
};
use jiff::Timestamp;

use super::report::{Status, Verdict};

/// The conditions of one object during a pass.
///
/// `lastTransitionTime` moves only when the final status differs from the stored one: a condition that goes True and
/// False again inside one pass has not changed (contract: conditions).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    stored: Vec<Condition>,
    current: Vec<Condition>,
}

/// The longest message that the schema takes, in characters, less a few: a status with a longer one would be refused
/// whole, and the CR would go on saying what was true before.
const LONGEST_MESSAGE: usize = 32_000;

fn bounded(message: String) -> String {
    match message.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    }
}

// === impl Conditions ===

impl Conditions {
    /// The conditions as they are stored.
    pub fn of(stored: Vec<Condition>) -> Self {
        Self {
            current: stored.clone(),
            stored,
        }
    }

    /// The condition of this type, as it stands now.
    pub fn get(&self, type_: &str) -> Option<&Condition> {
        self.current
            .iter()
            .find(|condition| condition.type_ == type_)
    }

    /// Whether the condition of this type is there and True.
    pub fn is_true(&self, type_: &str) -> bool {
        self.get(type_).is_some_and(Condition::is_true)
    }

    /// Sets the condition of this type; a new one goes to the end of the list.
    pub fn set(&mut self, type_: &str, verdict: Verdict, generation: Option<i64>, now: Timestamp) {
        let status = match verdict.status {
            Status::True => ConditionStatus::True,
            Status::False => ConditionStatus::False,
        };
        // Stored times have whole seconds; anything finer would never compare equal.
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let since = self
            .stored
            .iter()
            .find(|condition| condition.type_ == type_ && condition.status == status)
            .map_or(Time(now), |condition| {
                condition.last_transition_time.clone()
            });
        let condition = Condition {
            type_: type_.to_owned(),
            status,
            reason: verdict.reason.to_owned(),
            message: bounded(verdict.message),
            last_transition_time: since,
            observed_generation: generation,
        };
        match self.current.iter_mut().find(|known| known.type_ == type_) {
            Some(known) => *known = condition,
            None => self.current.push(condition),
        }
    }

    /// Sets `Ready`: True exactly when every one of `types` is there and True.
    pub fn aggregate(&mut self, types: &[&str], generation: Option<i64>, now: Timestamp) {
        let verdict = if types.iter().all(|type_| self.is_true(type_)) {
            Verdict::yes(reasons::ALL_READY, "All sub-conditions are ready")
        } else {
            Verdict::no(
                reasons::NOT_ALL_READY,
                "One or more sub-conditions are not ready",
            )
        };
        self.set(READY, verdict, generation, now);
    }

    /// The list to store.
    pub fn into_list(self) -> Vec<Condition> {
        self.current
    }
}

#[cfg(test)]
mod tests {
    use glance_api::conditions::SUB_CONDITIONS;
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn verdict(holds: bool, message: &str) -> Verdict {
        if holds {
            Verdict::yes("Fine", message)
        } else {
            Verdict::no("Broken", message)
        }
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut conditions = Conditions::default();
        conditions.set("A", verdict(true, "one"), Some(1), at(10));
        let mut conditions = Conditions::of(conditions.into_list());
        conditions.set("A", verdict(true, "two"), Some(2), at(20));
        let a = conditions.get("A").unwrap();
        assert_eq!(a.last_transition_time.0, at(10));
        assert_eq!(
            (a.message.as_str(), a.observed_generation),
            ("two", Some(2))
        );
        conditions.set("A", verdict(false, "three"), Some(2), at(30));
        assert_eq!(conditions.get("A").unwrap().last_transition_time.0, at(30));
    }

    #[test]
    fn a_condition_that_flips_and_flips_back_in_one_pass_has_not_changed() {
        let mut first = Conditions::default();
        first.set("A", verdict(false, "stuck"), Some(1), at(10));
        let stored = first.into_list();
        let mut pass = Conditions::of(stored.clone());
        pass.set("A", verdict(true, ""), Some(1), at(50));
        pass.set("A", verdict(false, "stuck"), Some(1), at(50));
        assert_eq!(pass.into_list(), stored);
    }

    #[test]
    fn a_message_is_never_too_long_for_the_schema() {
        let mut conditions = Conditions::default();
        conditions.set("A", verdict(false, &"é".repeat(100_000)), Some(1), at(1));
        let message = conditions.into_list()[0].message.clone();
        assert_eq!(message.chars().count(), LONGEST_MESSAGE + 1);
        assert!(message.ends_with("é…"));
    }

    #[test]
    fn ready_needs_all_nine_and_ignores_informational_ones() {
        let mut conditions = Conditions::default();
        for type_ in SUB_CONDITIONS {
            conditions.set(type_, verdict(true, ""), Some(1), at(1));
        }
        conditions.set("ExtraConfigHealthy", verdict(false, ""), Some(1), at(1));
        conditions.aggregate(&SUB_CONDITIONS, Some(1), at(1));
        assert!(conditions.is_true(READY));
        for missing in SUB_CONDITIONS {
            let mut one_less = conditions.clone();
            one_less.set(missing, verdict(false, ""), Some(1), at(1));
            one_less.aggregate(&SUB_CONDITIONS, Some(1), at(1));
            assert!(!one_less.is_true(READY), "{missing} does not count");
        }
    }

    proptest! {
        #[test]
        fn setting_the_same_again_changes_nothing(
            steps in prop::collection::vec((0..4usize, any::<bool>()), 1..20)
        ) {
            let types = ["A", "B", "C", "D"];
            let mut conditions = Conditions::default();
            for (second, (type_, holds)) in steps.iter().enumerate() {
                let now = at(i64::try_from(second).unwrap());
                conditions.set(types[*type_], verdict(*holds, "m"), Some(1), now);
            }
            let stored = conditions.into_list();
            let mut again = Conditions::of(stored.clone());
            for condition in &stored {
                again.set(&condition.type_, verdict(condition.is_true(), "m"), Some(1), at(1000));
            }
            prop_assert_eq!(again.into_list(), stored);
        }
    }
}
