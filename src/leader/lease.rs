//! What a Lease says and what a candidate does about it; no clock and no network here.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};

/// What a look at a lease leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is ours: say that we are alive.
    Renew,
    /// Nobody holds it any more: it is ours if the write succeeds.
    Take,
    /// Somebody else holds it.
    Wait {
        /// Who.
        holder: String,
    },
}

/// Decides about a lease that this process has seen unchanged for `unchanged`.
pub fn decide(lease: &Lease, identity: &str, unchanged: Duration, default: Duration) -> Decision {
    let spec = lease.spec.as_ref();
    let holder = spec
        .and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default();
    if holder == identity {
        return Decision::Renew;
    }
    let duration = spec
        .and_then(|spec| spec.lease_duration_seconds)
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(default, Duration::from_secs);
    if holder.is_empty() || unchanged >= duration {
        return Decision::Take;
    }
    let holder = holder.to_owned();
    Decision::Wait { holder }
}

/// The lease as we write it: `old` renewed, taken over, or a new one.
pub fn held_by(
    identity: &str,
    old: Option<&Lease>,
    name: &str,
    namespace: &str,
    duration: Duration,
    epoch: i32,
) -> Lease {
    let now = MicroTime(Timestamp::now());
    let mut lease = old.cloned().unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    lease.metadata.managed_fields = None;
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    if spec.holder_identity.as_deref() != Some(identity) {
        spec.holder_identity = Some(identity.to_owned());
        spec.acquire_time = Some(now.clone());
        spec.lease_transitions = Some(epoch);
    }
    spec.lease_duration_seconds = i32::try_from(duration.as_secs()).ok();
    spec.renew_time = Some(now);
    lease
}

/// How often this lease changed hands.
pub fn transitions(lease: &Lease) -> i32 {
    lease
        .spec
        .as_ref()
        .and_then(|spec| spec.lease_transitions)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn lease(holder: Option<&str>, seconds: Option<i32>) -> Lease {
        let spec = LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: seconds,
            lease_transitions: Some(4),
            ..LeaseSpec::default()
        };
        Lease {
            spec: Some(spec),
            ..Lease::default()
        }
    }

    #[rstest]
    #[case::ours(Some("me"), Some(15), 0, Decision::Renew)]
    #[case::ours_however_old(Some("me"), Some(15), 999, Decision::Renew)]
    #[case::released(Some(""), Some(1), 0, Decision::Take)]
    #[case::never_held(None, None, 0, Decision::Take)]
    #[case::fresh(Some("other"), Some(15), 14, Decision::Wait { holder: "other".into() })]
    #[case::expired(Some("other"), Some(15), 15, Decision::Take)]
    #[case::their_duration_counts(Some("other"), Some(60), 20, Decision::Wait { holder: "other".into() })]
    #[case::ours_where_theirs_is_absent(Some("other"), None, 15, Decision::Take)]
    fn decisions(
        #[case] holder: Option<&str>,
        #[case] seconds: Option<i32>,
        #[case] unchanged: u64,
        #[case] expected: Decision,
    ) {
        let default = Duration::from_secs(15);
        let unchanged = Duration::from_secs(unchanged);
        assert_eq!(
            decide(&lease(holder, seconds), "me", unchanged, default),
            expected
        );
    }

    #[test]
    fn a_renewal_keeps_what_a_take_over_sets() {
        let duration = Duration::from_secs(15);
        let taken = held_by(
            "me",
            Some(&lease(Some("other"), Some(60))),
            "l",
            "n",
            duration,
            5,
        );
        let spec = taken.spec.clone().unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("me"));
        assert_eq!(spec.lease_duration_seconds, Some(15));
        assert_eq!(spec.lease_transitions, Some(5));
        let renewed = held_by("me", Some(&taken), "l", "n", duration, 9)
            .spec
            .unwrap();
        assert_eq!(renewed.acquire_time, spec.acquire_time);
        assert_eq!(renewed.lease_transitions, Some(5));
        assert!(renewed.renew_time.unwrap().0 >= spec.renew_time.unwrap().0);
    }
}
