use rstest::rstest;

use super::*;

fn state(state: State, cause: Option<Cause>, uid: Option<&str>) -> ClusterState {
    ClusterState {
        state,
        cause,
        detail: if cause.is_some() {
            "the reason".into()
        } else {
            String::new()
        },
        uid: uid.map(str::to_owned),
        identified: uid.is_some(),
        ..ClusterState::pending("blue")
    }
}

fn facts(state: Option<&ClusterState>) -> Facts<'_> {
    Facts {
        state,
        twins: Vec::new(),
        findings: Some(Arc::new(Findings::default())),
        dependents: Some(2),
        abandoned: Vec::new(),
    }
}

fn shown(status: &TargetClusterStatus) -> Vec<String> {
    status
        .conditions
        .iter()
        .map(|c| format!("{}={:?}/{}", c.type_, c.status, c.reason))
        .collect()
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

#[rstest]
#[case::connected(
    Some(state(State::Connected, None, Some("u"))),
    ["Registered=True/Registered", "Reachable=True/Connected", "Identified=True/Identified",
     "Permitted=True/Permitted", "Ready=True/AllReady"]
)]
#[case::nobody_knows_who_answers(
    Some(state(State::Connected, None, None)),
    ["Registered=True/Registered", "Reachable=True/Connected", "Identified=Unknown/IdentityUnreadable",
     "Permitted=True/Permitted", "Ready=True/AllReady"]
)]
#[case::who_answered_before_is_known_and_who_answers_now_is_not(
    Some(ClusterState { identified: false, ..state(State::Connected, None, Some("u")) }),
    ["Registered=True/Registered", "Reachable=True/Connected", "Identified=Unknown/IdentityUnreadable",
     "Permitted=True/Permitted", "Ready=True/AllReady"]
)]
#[case::lost_before_it_said_who_it_is(
    Some(ClusterState { identified: false, ..state(State::Lost, Some(Cause::Timeout), Some("u")) }),
    ["Registered=True/Registered", "Reachable=False/Timeout", "Identified=Unknown/NotConnected",
     "Permitted=True/Permitted", "Ready=False/Timeout"]
)]
#[case::lost(
    Some(state(State::Lost, Some(Cause::Timeout), Some("u"))),
    ["Registered=True/Registered", "Reachable=False/Timeout", "Identified=True/Identified",
     "Permitted=True/Permitted", "Ready=False/Timeout"]
)]
#[case::garbage_beside_a_good_connection(
    Some(state(State::Degraded, Some(Cause::KubeconfigInvalid), Some("u"))),
    ["Registered=False/KubeconfigInvalid", "Reachable=True/Degraded", "Identified=True/Identified",
     "Permitted=True/Permitted", "Ready=False/KubeconfigInvalid"]
)]
#[case::a_credential_that_ends_soon(
    Some(state(State::Degraded, Some(Cause::CredentialExpiring), Some("u"))),
    ["Registered=True/Registered", "Reachable=True/Connected", "Identified=True/Identified",
     "Permitted=True/Permitted", "Ready=True/AllReady"]
)]
#[case::refused(
    Some(state(State::Rejected, Some(Cause::CredentialsRefused), None)),
    ["Registered=False/CredentialsRefused", "Reachable=Unknown/NotTried", "Identified=Unknown/NotConnected",
     "Permitted=Unknown/NotChecked", "Ready=False/CredentialsRefused"]
)]
#[case::another_cluster(
    Some(state(State::Rejected, Some(Cause::IdentityChanged), Some("u"))),
    ["Registered=True/Registered", "Reachable=True/Connected", "Identified=False/IdentityChanged",
     "Permitted=True/Permitted", "Ready=False/IdentityChanged"]
)]
#[case::deregistered(
    None,
    ["Registered=False/NotRegistered", "Reachable=Unknown/NotRegistered", "Identified=Unknown/NotRegistered",
     "Permitted=Unknown/NotChecked", "Ready=False/NotRegistered"]
)]
fn the_first_condition_that_does_not_hold_says_why(
    #[case] state: Option<ClusterState>,
    #[case] expected: [&str; 5],
) {
    let status = facts(state.as_ref()).status(None, Some(1), now());
    assert_eq!(shown(&status), expected);
    assert_eq!(status.dependents, Some(2));
}

#[test]
fn two_names_of_one_cluster_name_each_other_and_both_work() {
    let state = state(State::Connected, None, Some("u"));
    let mut facts = facts(Some(&state));
    facts.twins = vec!["green".into()];
    let status = facts.status(None, None, now());
    let identified = status.condition("Identified").unwrap();
    assert_eq!(identified.reason, "DuplicateIdentity");
    assert!(identified.message.ends_with("green"));
    assert!(status.condition("Ready").unwrap().is_true());
}

#[test]
fn what_is_not_granted_is_named_with_its_place() {
    let state = state(State::Connected, None, Some("u"));
    let missing = |resource: &str, group: &str, namespace: Option<&str>| MissingPermission {
        verb: "list".into(),
        group: group.into(),
        resource: resource.into(),
        namespace: namespace.map(str::to_owned),
    };
    let mut facts = facts(Some(&state));
    facts.findings = Some(Arc::new(Findings {
        missing: vec![
            missing("secrets", "", Some("tenant")),
            missing("clustersecretstores", "external-secrets.io", None),
        ],
        ..Findings::default()
    }));
    let status = facts.status(None, None, now());
    assert_eq!(status.missing_permissions.len(), 2);
    let ready = status.condition("Ready").unwrap();
    assert_eq!(ready.reason, "MissingPermissions");
    assert_eq!(
        ready.message,
        "the credential may not list secrets in namespace tenant, list clustersecretstores.external-secrets.io"
    );
}

#[test]
fn where_a_name_led_is_not_forgotten_while_it_is_away() {
    let connected = state(State::Connected, None, Some("u"));
    let before = facts(Some(&connected)).status(None, Some(1), now());
    // As a process knows it that has not seen it answer.
    let lost = state(State::Lost, Some(Cause::Timeout), None);
    let status = facts(Some(&lost)).status(Some(&before), Some(1), now());
    assert_eq!(status.cluster_uid.as_deref(), Some("u"));
    let gone = facts(None).status(Some(&before), Some(1), now());
    assert_eq!(
        gone.cluster_uid, None,
        "whoever registers it next is trusted anew"
    );
}

#[test]
fn a_restart_says_nothing_new() {
    let connected = state(State::Connected, None, Some("u"));
    let before = facts(Some(&connected)).status(None, Some(1), now());
    let mut after = facts(Some(&connected));
    after.findings = None;
    after.dependents = None;
    let later = now() + jiff::SignedDuration::from_secs(60);
    assert_eq!(after.status(Some(&before), Some(1), later), before);
}

#[test]
fn a_condition_keeps_the_time_of_its_last_turn() {
    let connected = state(State::Connected, None, Some("u"));
    let before = facts(Some(&connected)).status(None, Some(1), now());
    let lost = state(State::Lost, Some(Cause::Timeout), Some("u"));
    let later = now() + jiff::SignedDuration::from_secs(60);
    let after = facts(Some(&lost)).status(Some(&before), Some(1), later);
    let since = |status: &TargetClusterStatus, type_: &str| {
        status.condition(type_).unwrap().last_transition_time.0
    };
    assert_eq!(since(&after, "Registered"), now());
    assert_eq!(since(&after, "Reachable"), later);
}
