//! The label sets of serving objects, and which of them selects what.
//!
//! | Set | Keys | Used by |
//! | --- | --- | --- |
//! | selector | name, instance | selectors; the Deployment's never changes, so it never gets a third key |
//! | common | + managed-by | every object |
//! | component | + component | the Deployment and the pods |
//! | API selector | selector + component `api` | the Service, once all pods carry the component |

use glance_api::keys::labels::{COMPONENT, INSTANCE, MANAGED_BY, NAME};
use glance_api::keys::{self, APP_NAME, components};
use serde_json::{Value, json};

/// Label of the pods of db-sync and phase Jobs, with the Glance's name as value.
///
/// A key of its own: whoever looks for "the API pod" asks for the instance label alone, and
/// finished migration pods stay around.
pub const MIGRATION_OF: &str = "glance.openstack.c5c3.io/migration-of";

/// What a pod of ours does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// Serves the API.
    Api,
    /// Deletes what has been soft-deleted long enough.
    DbPurge,
}

/// Selects every pod of the Glance called `name` but those of migrations.
pub fn selector(name: &str) -> Value {
    json!({ (NAME): APP_NAME, (INSTANCE): name })
}

/// Labels of every object made for the Glance called `name`.
pub fn common(name: &str) -> Value {
    json!({ (NAME): APP_NAME, (INSTANCE): name, (MANAGED_BY): keys::MANAGED_BY })
}

/// Labels of the pods that do `component`'s work.
pub fn component(name: &str, component: Component) -> Value {
    json!({
        (NAME): APP_NAME,
        (INSTANCE): name,
        (MANAGED_BY): keys::MANAGED_BY,
        (COMPONENT): component.as_str(),
    })
}

/// Selects the API pods and nothing else.
pub fn api_selector(name: &str) -> Value {
    json!({
        (NAME): APP_NAME,
        (INSTANCE): name,
        (COMPONENT): Component::Api.as_str(),
    })
}

/// Labels of migration pods, and what selects them.
pub fn migration(name: &str) -> Value {
    json!({ (MIGRATION_OF): name })
}

// === impl Component ===

impl Component {
    /// Value of the component label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Api => components::API,
            Self::DbPurge => components::DB_PURGE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migration_pods_are_nobody_elses() {
        // Whoever looks for API pods by instance alone must not find them.
        let migration = migration("pictures");
        for selector in [selector("pictures"), api_selector("pictures")] {
            for key in selector.as_object().unwrap().keys() {
                assert!(migration.get(key).is_none());
            }
        }
    }

    #[test]
    fn purge_pods_are_selected_with_the_rest_but_not_as_api() {
        let purge = component("pictures", Component::DbPurge);
        let selects = |selector: &Value| {
            selector
                .as_object()
                .unwrap()
                .iter()
                .all(|(key, value)| purge.get(key) == Some(value))
        };
        assert!(selects(&selector("pictures")));
        assert!(!selects(&api_selector("pictures")));
    }
}
