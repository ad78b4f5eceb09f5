//! What a backend's own controller has found out about its credentials.

use glance_api::{
    backend::GlanceBackend,
    common::Condition,
    conditions::{
        CREDENTIALS_READY,
        reasons::{
            NO_DEFAULT_BACKEND, RECONCILE_ERROR, TARGET_CLUSTER_UNAVAILABLE, WAITING_FOR_BACKENDS,
            WAITING_FOR_PARENT,
        },
    },
};

use kube::ResourceExt;

use crate::pipeline::report::Verdict;

/// Whether a backend may be rendered: its `CredentialsReady` holds. Never its `Ready`, which waits for the rendering.
pub fn is_credential_ready(backend: &GlanceBackend) -> bool {
    backend
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .any(|condition| condition.type_ == CREDENTIALS_READY && condition.is_true())
}

/// Whether the newest word on a backend's credentials is that they could not be looked at: neither a yes nor a no.
pub fn is_undetermined(backend: &GlanceBackend) -> bool {
    backend
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .any(|condition| {
            condition.type_ == CREDENTIALS_READY
                && !condition.is_true()
                && [
                    TARGET_CLUSTER_UNAVAILABLE,
                    WAITING_FOR_PARENT,
                    RECONCILE_ERROR,
                ]
                .contains(&condition.reason.as_str())
        })
}

/// Whether looking at them failed.
pub fn is_unreadable(backend: &GlanceBackend) -> bool {
    failed(backend).is_some()
}

fn failed(backend: &GlanceBackend) -> Option<&Condition> {
    backend
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .find(|condition| {
            condition.type_ == CREDENTIALS_READY && condition.reason == RECONCILE_ERROR
        })
}

/// The condition while a backend could not be looked at; its controller does so again, at the latest when the cluster
/// is there.
pub fn unknown(backend: &GlanceBackend) -> Verdict {
    let why = failed(backend).map_or(
        "not looked at while its cluster or this Glance was out of reach",
        |condition| condition.message.as_str(),
    );
    Verdict::no(
        WAITING_FOR_BACKENDS,
        format!(
            "Waiting for backends: {} ({why}); the last good configuration stays",
            backend.name_any()
        ),
    )
}

/// What there is to add while running pods keep the last good configuration; `gone` is what of it nobody has any more.
pub fn kept(gone: &[String]) -> String {
    let mut text = "; until then changes of the configuration in the spec wait".to_owned();
    if !gone.is_empty() {
        text.push_str("; of the last good configuration there is no more ");
        text.push_str(&gone.join(" and no more "));
        text.push_str(", so pods that start anew do not get up");
    }
    text
}

/// The condition when not exactly one of the usable backends is the default.
pub fn no_default(defaults: &[String]) -> Verdict {
    let message = if defaults.is_empty() {
        "No attached, credential-ready backend is marked isDefault; exactly one is required"
            .to_owned()
    } else {
        format!(
            "More than one attached, credential-ready backend is marked isDefault ({}); exactly one is required",
            defaults.join(", ")
        )
    };
    Verdict::no(NO_DEFAULT_BACKEND, message)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::usable("True", "CredentialsAvailable", true, false)]
    #[case::missing("False", "WaitingForCredentials", false, false)]
    #[case::cluster_out_of_reach("False", "TargetClusterUnavailable", false, true)]
    #[case::parent_unseen("False", "WaitingForParent", false, true)]
    #[case::unreadable("False", "ReconcileError", false, true)]
    fn what_could_not_be_looked_at_is_neither_usable_nor_missing(
        #[case] status: &str,
        #[case] reason: &str,
        #[case] ready: bool,
        #[case] undetermined: bool,
    ) {
        let backend: GlanceBackend = serde_json::from_value(json!({
            "apiVersion": "glance.openstack.c5c3.io/v1alpha1", "kind": "GlanceBackend",
            "metadata": {"name": "store", "namespace": "tenant"},
            "spec": {"glanceRef": {"name": "images"}, "type": "S3"},
            "status": {"conditions": [{
                "type": "CredentialsReady", "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        }))
        .unwrap();
        assert_eq!(is_credential_ready(&backend), ready);
        assert_eq!(is_undetermined(&backend), undetermined);
    }
}
