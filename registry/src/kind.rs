//! A kind of object, known at compile time and cheap to copy.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};

/// A kind of Kubernetes object: enough to list and watch it without its Rust type.
///
/// Made to be a constant:
///
/// ```
/// use target_registry::Kind;
///
/// const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");
/// assert_eq!(DEPLOYMENT.api_version(), "apps/v1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// Version within the group, `v1`.
    pub version: &'static str,
    /// Name of the kind, `Deployment`.
    pub kind: &'static str,
    /// Name in URLs, `deployments`.
    pub plural: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

// === impl Kind ===

impl Kind {
    /// A kind whose objects live in namespaces.
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            kind,
            plural,
            namespaced: true,
        }
    }

    /// A kind whose objects live outside namespaces.
    pub const fn cluster_wide(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            kind,
            plural,
            namespaced: false,
        }
    }

    /// `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The same, as kube names it.
    pub fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version: self.api_version(),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }

    /// Typed access to its objects: of one namespace, or everywhere.
    ///
    /// The namespace is ignored for a kind that has none.
    pub fn api(&self, client: Client, namespace: Option<&str>) -> Api<DynamicObject> {
        let resource = self.api_resource();
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }
}

impl std::fmt::Display for Kind {
    /// `Deployment.apps/v1`, `Secret.v1`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.kind, self.api_version())
    }
}
