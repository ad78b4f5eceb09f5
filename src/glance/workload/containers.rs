//! The API container, and what every container of ours has in common.

use glance_api::defaults;
use glance_api::glance::{GlanceSpec, ImageSpec};
use serde_json::{Value, json};

use super::environment::{self, SecretKeyRef};
use super::{API_PORT, command, probes, volumes};

/// User and group `openstack` of the images.
pub const OPENSTACK_ID: u32 = 42424;

/// Name of the API container.
pub const API_CONTAINER: &str = "glance-api";

/// The reference of an image: by digest when there is one, else by tag.
pub fn image(image: &ImageSpec) -> String {
    match (&image.digest, &image.tag) {
        (Some(digest), _) if !digest.is_empty() => format!("{}@{digest}", image.repository),
        (_, tag) => format!(
            "{}:{}",
            image.repository,
            tag.as_deref().unwrap_or_default()
        ),
    }
}

/// The security context that a namespace enforcing the `restricted` profile admits.
pub fn restricted() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "runAsNonRoot": true,
        "runAsUser": OPENSTACK_ID,
        "runAsGroup": OPENSTACK_ID,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
        "seccompProfile": { "type": "RuntimeDefault" },
    })
}

/// The container that serves the API.
pub fn api(spec: &GlanceSpec, name: &str, password: &SecretKeyRef) -> Value {
    let pause = defaults::pre_stop_sleep_seconds(spec);
    json!({
        "name": API_CONTAINER,
        "image": image(&spec.image),
        "command": command::argv(spec),
        "env": environment::api(name, spec, password),
        "ports": [{ "name": API_CONTAINER, "containerPort": API_PORT }],
        "resources": defaults::resources(spec),
        "volumeMounts": volumes::api_mounts(spec),
        "startupProbe": probes::startup(),
        "livenessProbe": probes::liveness(),
        "readinessProbe": probes::readiness(),
        // The endpoint has to be gone everywhere before the server stops taking requests.
        "lifecycle": { "preStop": { "exec": { "command": ["/bin/sh", "-c", format!("sleep {pause}")] } } },
        "securityContext": restricted(),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::tag(Some("2025.2"), None, "registry:5000/glance:2025.2")]
    #[case::digest(None, Some("sha256:ab"), "registry:5000/glance@sha256:ab")]
    #[case::both(Some("2025.2"), Some("sha256:ab"), "registry:5000/glance@sha256:ab")]
    #[case::empty_digest(Some("2025.2"), Some(""), "registry:5000/glance:2025.2")]
    fn a_digest_outranks_a_tag(
        #[case] tag: Option<&str>,
        #[case] digest: Option<&str>,
        #[case] expected: &str,
    ) {
        let spec = ImageSpec {
            repository: "registry:5000/glance".into(),
            tag: tag.map(Into::into),
            digest: digest.map(Into::into),
        };
        assert_eq!(image(&spec), expected);
    }
}
