//! Name and cluster: what a Glance can never change.

use glance_api::Glance;
use glance_api::glance::GlanceSpec;

use crate::policy::path::Path;
use crate::policy::review::Findings;

/// Longest name whose purge `CronJob` has a legal name.
const NAME_LIMIT: usize = 43;

/// The name, on create only: it never changes, and an update rule would block
/// the removal of finalizers from what an older version admitted.
pub(super) fn name(glance: &Glance, findings: &mut Findings) {
    let path = Path::new("metadata.name");
    let Some(name) = &glance.metadata.name else {
        return;
    };
    if name.chars().count() > NAME_LIMIT {
        findings.invalid(
            &path,
            name.as_str(),
            "name must be at most 43 characters: the db-purge CronJob appends \"-db-purge\" and Kubernetes caps CronJob names at 52 characters",
        );
    }
    if name.contains('.') {
        findings.invalid(
            &path,
            name.as_str(),
            "name must not contain a dot: the Service has the same name, and a Service name takes none",
        );
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        findings.warn(
            "metadata.name starts with a digit, and so does the name of the Service: only clusters with relaxed Service names take it",
        );
    }
}

/// The named cluster, as far as the object alone tells.
pub(super) fn target(spec: &GlanceSpec, at: &Path, findings: &mut Findings) {
    if spec
        .target_cluster_ref
        .as_ref()
        .is_some_and(|target| target.name.is_empty())
    {
        findings.required(
            &at.child("targetClusterRef.name"),
            "target cluster name must be set",
        );
    }
}

/// The children exist on the cluster that was named first.
pub(super) fn target_cluster(old: &Glance, new: &Glance, findings: &mut Findings) {
    let path = Path::new("spec.targetClusterRef");
    match (&old.spec.target_cluster_ref, &new.spec.target_cluster_ref) {
        (None, None) => {}
        (Some(old), Some(new)) if old.name == new.name => {}
        (Some(_), Some(new)) => findings.invalid(
            &path.child("name"),
            new.name.as_str(),
            "targetClusterRef is immutable (the children already exist on the previously named cluster)",
        ),
        (_, new) => {
            let value = new
                .as_ref()
                .and_then(|target| serde_json::to_value(target).ok())
                .unwrap_or_default();
            findings.invalid(
                &path,
                value,
                "targetClusterRef is immutable (adding or removing it after creation is not permitted)",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::oslo::fixture::glance;
    use crate::policy::{Cause, glance_create, glance_update};

    fn texts(causes: &[Cause]) -> Vec<String> {
        causes.iter().map(Cause::to_string).collect()
    }

    #[test]
    fn a_name_too_long_for_the_purge_is_refused_at_create_and_never_later() {
        let long = glance(&"a".repeat(44), &json!({}));
        let created = texts(&glance_create(&long).causes);
        assert_eq!(created.len(), 1);
        assert!(created[0].contains("name must be at most 43 characters"));
        assert!(glance_update(&long, &long).is_allowed());
        assert!(glance_create(&glance(&"a".repeat(43), &json!({}))).is_allowed());
    }

    #[test]
    fn another_cluster_is_refused_even_while_the_glance_is_deleted() {
        let here = glance("g", &json!({}));
        let on = |name: &str| glance("g", &json!({"targetClusterRef": {"name": name}}));
        let mut gone = on("b");
        gone.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(
            texts(&glance_update(&on("a"), &gone).causes),
            [
                r#"spec.targetClusterRef.name: Invalid value: "b": targetClusterRef is immutable (the children already exist on the previously named cluster)"#
            ]
        );
        for (old, new) in [(&here, &on("a")), (&on("a"), &here)] {
            let causes = glance_update(old, new).causes;
            assert_eq!(causes.len(), 1);
            assert_eq!(causes[0].field, "spec.targetClusterRef");
        }
        assert!(glance_update(&on("a"), &on("a")).is_allowed());
    }
}
