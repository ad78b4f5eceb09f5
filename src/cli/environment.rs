//! What the process learns from its surroundings instead of its flags (contract:
//! operations, environment and files).

use std::path::Path;

/// Where a pod finds the namespace of its service account.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The namespace the operator itself runs in: `POD_NAMESPACE`, else the mounted
/// service account. `None` outside a cluster; then no rule that names it is rendered.
pub fn operator_namespace() -> Option<String> {
    let variable = std::env::var("POD_NAMESPACE").ok();
    namespace_from(variable.as_deref(), Path::new(NAMESPACE_FILE))
}

/// This machine's name; in a pod the pod's name.
pub fn hostname() -> String {
    let from_kernel = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    std::env::var("HOSTNAME")
        .ok()
        .or_else(from_kernel)
        .and_then(|name| not_blank(&name))
        .unwrap_or_else(|| "localhost".to_owned())
}

fn namespace_from(variable: Option<&str>, file: &Path) -> Option<String> {
    let from_file = || {
        std::fs::read_to_string(file)
            .ok()
            .and_then(|text| not_blank(&text))
    };
    variable.and_then(not_blank).or_else(from_file)
}

fn not_blank(text: &str) -> Option<String> {
    Some(text.trim())
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_wins_over_the_file_unless_it_is_blank() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("namespace");
        assert_eq!(namespace_from(None, &file), None);
        std::fs::write(&file, "glance-system\n").unwrap();
        assert_eq!(
            namespace_from(None, &file).as_deref(),
            Some("glance-system")
        );
        assert_eq!(
            namespace_from(Some(" \n"), &file).as_deref(),
            Some("glance-system")
        );
        assert_eq!(
            namespace_from(Some(" other "), &file).as_deref(),
            Some("other")
        );
        std::fs::write(&file, " \n").unwrap();
        assert_eq!(namespace_from(None, &file), None);
    }
}
