//! What an API server with our definitions admits and what it refuses: one
//! list, run without a server by this crate's tests and on real API servers,
//! with and without webhooks, by the end-to-end tests.
//!
//! A case stands alone: whoever runs it gives it an empty namespace, or
//! removes its objects before the next one.

mod backend;
mod bounds;
mod corpus;
mod judged;
mod policy;
mod required;
mod rules;
mod shapes;
mod stored;
mod texts;

use serde_json::{Map, Value, json};

/// The kind a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `Glance`.
    Glance,
    /// `GlanceBackend`.
    GlanceBackend,
}

/// Who refuses, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The schema: types, bounds, patterns.
    Schema,
    /// A CEL rule of the schema.
    Cel,
    /// The validating webhook. Without webhooks the object is admitted.
    Webhook,
}

/// With which installations a case makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// With and without webhooks alike.
    Any,
    /// Only without: the defaulting webhook would repair the object.
    WithoutWebhooks,
    /// Only with: the schema alone would refuse, or not default.
    WithWebhooks,
}

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Expect {
    /// The object is admitted, and the value at each JSON pointer is then
    /// this one; null stands for "absent".
    Admitted(Vec<(&'static str, Value)>),
    /// The object is refused with an error that contains each fragment.
    Refused(Layer, Vec<&'static str>),
}

/// One request and its outcome.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is being shown; unique.
    pub name: String,
    /// The kind of `old` and `new`.
    pub kind: Kind,
    /// With which installations it makes sense.
    pub setup: Setup,
    /// Objects that exist before, all of them admitted.
    pub given: Vec<Value>,
    /// For an update: the object that was admitted before.
    pub old: Option<Value>,
    /// The object that is sent, without a namespace.
    pub new: Value,
    /// What happens.
    pub expect: Expect,
}

/// Every case.
pub fn all() -> Vec<Case> {
    [
        rules::cases(),
        required::cases(),
        bounds::cases(),
        texts::cases(),
        stored::cases(),
        shapes::cases(),
        backend::cases(),
        corpus::cases(),
        judged::cases(),
        policy::cases(),
    ]
    .concat()
}

/// A case in the making; starts as a valid object.
#[derive(Clone)]
struct Draft {
    case: Case,
}

/// A valid Glance.
fn glance(name: impl Into<String>) -> Draft {
    draft(name, Kind::Glance, glance_object())
}

/// A valid Glance with every optional block, so that a leaf can be put
/// anywhere without its neighbours getting in the way.
fn full(name: impl Into<String>) -> Draft {
    glance(name)
        .with("/spec/database/tls/caBundleSecretRef/name", json!("db-ca"))
        .with("/spec/database/tls/mode", json!("verify-full"))
        .with(
            "/spec/database/tls/clientCertSecretRef/name",
            json!("db-client"),
        )
        .with(
            "/spec/database/tls/clientCertSecretRef/key",
            json!("tls.crt"),
        )
        .with(
            "/spec/autoscaling",
            json!({ "maxReplicas": 100, "targetCPUUtilization": 80 }),
        )
        .with("/spec/gateway/parentRef/name", json!("public"))
        .with("/spec/gateway/hostname", json!("images.example.org"))
        .with("/spec/secretStoreRef/name", json!("openbao"))
        .with("/spec/targetClusterRef/name", json!("edge-1"))
        .with(
            "/spec/importPlugins/injectMetadata/properties",
            json!({ "k": "v" }),
        )
}

/// A valid `GlanceBackend`.
fn backend(name: impl Into<String>) -> Draft {
    draft(name, Kind::GlanceBackend, backend_object("garage-a"))
}

fn draft(name: impl Into<String>, kind: Kind, new: Value) -> Draft {
    Draft {
        case: Case {
            name: name.into(),
            kind,
            setup: Setup::Any,
            given: Vec::new(),
            old: None,
            new,
            expect: Expect::Admitted(Vec::new()),
        },
    }
}

fn glance_object() -> Value {
    json!({
        "apiVersion": "glance.openstack.c5c3.io/v1alpha1",
        "kind": "Glance",
        "metadata": { "name": "images" },
        "spec": {
            "openStackRelease": "2025.2",
            "deployment": { "replicas": 1 },
            "image": { "repository": "registry.example.org/openstack/glance", "tag": "2025.2" },
            "database": {
                "clusterRef": { "name": "mariadb" },
                "database": "glance",
                "secretRef": { "name": "glance-db" },
            },
            "cache": {
                "backend": "dogpile.cache.pymemcache",
                "clusterRef": { "name": "memcached" },
            },
            "keystoneEndpoint": "http://keystone.openstack.svc:5000/v3",
            "serviceUser": { "secretRef": { "name": "glance-service-user" } },
        },
    })
}

fn backend_object(name: &str) -> Value {
    json!({
        "apiVersion": "glance.openstack.c5c3.io/v1alpha1",
        "kind": "GlanceBackend",
        "metadata": { "name": name },
        "spec": {
            "glanceRef": { "name": "images" },
            "type": "S3",
            "s3": {
                "host": "https://s3.example.org",
                "bucket": "glance-images",
                "credentialsSecretRef": { "name": "s3-credentials" },
            },
        },
    })
}

// === impl Draft ===

impl Draft {
    /// Sets the value at a JSON pointer; missing objects on the way are made.
    fn with(mut self, pointer: &str, value: Value) -> Self {
        let mut at = &mut self.case.new;
        let steps: Vec<String> = pointer
            .split('/')
            .skip(1)
            .map(|step| step.replace("~1", "/").replace("~0", "~"))
            .collect();
        for step in steps {
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            at = &mut at[step];
        }
        *at = value;
        self
    }

    /// Removes the value at a JSON pointer.
    fn without(mut self, pointer: &str) -> Self {
        let (parent, key) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        if let Some(Value::Object(members)) = self.case.new.pointer_mut(parent) {
            members.remove(key);
        }
        self
    }

    /// Takes the object as it is now for the one that exists; further changes
    /// make the update.
    fn then(mut self) -> Self {
        self.case.old = Some(self.case.new.clone());
        self
    }

    /// Another object that exists before.
    fn given(mut self, object: Value) -> Self {
        self.case.given.push(object);
        self
    }

    fn named(self, name: &str) -> Self {
        self.with("/metadata/name", json!(name))
    }

    fn without_webhooks(mut self) -> Self {
        self.case.setup = Setup::WithoutWebhooks;
        self
    }

    fn with_webhooks(mut self) -> Self {
        self.case.setup = Setup::WithWebhooks;
        self
    }

    fn admitted(self) -> Case {
        self.stored(Vec::new())
    }

    fn stored(mut self, values: Vec<(&'static str, Value)>) -> Case {
        self.case.expect = Expect::Admitted(values);
        self.case
    }

    fn refused(mut self, layer: Layer, fragments: &[&'static str]) -> Case {
        self.case.expect = Expect::Refused(layer, fragments.to_vec());
        self.case
    }
}
