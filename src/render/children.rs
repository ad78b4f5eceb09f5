//! Every child of one Glance, in the order in which a pass writes them.

use std::collections::BTreeSet;

use glance_api::{Glance, GlanceBackend, defaults};
use kube::ResourceExt as _;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use super::MASK;
use super::input::{Input, Key};
use crate::cluster::kinds::{CONFIG_MAP, SECRET};
use crate::cluster::ownership::{Owner, Placement};
use crate::glance::database::jobs::{JobInputs, Migration, migration_job};
use crate::glance::database::mariadb::provisioning;
use crate::glance::database::purge::cron_job;
use crate::glance::revisions::{self, Revision};
use crate::glance::steps::db_connection;
use crate::glance::workload::Identity;
use crate::glance::workload::deployment::{LiveReplicas, deployment, replicas};
use crate::glance::workload::environment::SecretKeyRef;
use crate::glance::workload::hpa::horizontal_pod_autoscaler;
use crate::glance::workload::http_route::http_route;
use crate::glance::workload::network_policy::{PolicyInputs, network_policies};
use crate::glance::workload::pdb::pod_disruption_budget;
use crate::glance::workload::pod::PodInputs;
use crate::glance::workload::service::{Selection, service};
use crate::hash::{ContentHash, salted_digest};
use crate::names::{self, Family};
use crate::oslo::escape::environment_value;
use crate::oslo::stores::{self, Backends, Credentials, SecretPlace, Section, StoreFault};
use crate::oslo::{self, Projection};

/// The UID of a resource that no server has seen yet.
const UNKNOWN_UID: &str = "00000000-0000-0000-0000-000000000000";

/// One object that the operator would write.
#[derive(Debug)]
pub struct Child {
    /// The object, the values of a Secret masked.
    pub object: Value,
    /// The one value of a Secret whose name does not come from its content.
    pub value: Option<SecretString>,
}

/// What the operator would write for one Glance.
#[derive(Debug, Default)]
pub struct Rendered {
    /// The objects.
    pub children: Vec<Child>,
    /// What is worth knowing about them.
    pub notes: Vec<String>,
    /// Whether they are all: some wait for what the files lack.
    pub is_complete: bool,
}

/// The stores of a Glance, rendered.
struct Stores {
    projection: Projection,
    secret: String,
    hosts: Vec<String>,
}

struct Renderer<'a> {
    glance: &'a Glance,
    id: Identity<'a>,
    input: &'a Input,
    owner: Owner,
    missing: BTreeSet<&'a str>,
    out: Rendered,
}

/// Renders the children. `operator_namespace` opens the network policy for the
/// operator's probe.
pub fn render(glance: &Glance, input: &Input, operator_namespace: Option<&str>) -> Rendered {
    let id = Identity::of(glance);
    let placement = match &glance.spec.target_cluster_ref {
        Some(_) => Placement::Remote,
        None => Placement::Local,
    };
    let mut renderer = Renderer {
        glance,
        id,
        input,
        owner: Owner {
            name: id.name.to_owned(),
            namespace: id.namespace.to_owned(),
            uid: glance.uid().unwrap_or_else(|| UNKNOWN_UID.to_owned()),
            placement,
            hub_uid: None,
            adopts_from: None,
        },
        missing: BTreeSet::new(),
        out: Rendered::default(),
    };
    match renderer.all(operator_namespace) {
        Ok(()) => renderer.out.is_complete = true,
        Err(waiting) => renderer.note(&waiting),
    }
    for name in std::mem::take(&mut renderer.missing) {
        renderer.note(&format!(
            "Secret {name} is not given: values are made up, and names and digests that come from it differ in the cluster"
        ));
    }
    renderer.out
}

// === impl Renderer ===

impl<'a> Renderer<'a> {
    /// All of them, or what the operator would wait for.
    fn all(&mut self, operator_namespace: Option<&str>) -> Result<(), String> {
        let (password, password_digest) = self.password();
        let dsn_digest = self.connection()?;
        let stores = self.stores()?;
        let config_map = self.config(&stores.projection)?;
        let inputs = PolicyInputs {
            s3_hosts: &stores.hosts,
            operator_namespace: operator_namespace
                .filter(|_| self.owner.placement == Placement::Local),
            api_server_cidrs: &[],
        };
        let policies =
            network_policies(self.glance, self.id, inputs).map_err(|error| error.to_string())?;
        for policy in policies {
            self.push(policy);
        }
        self.database(&config_map, &dsn_digest);
        let pod = PodInputs {
            config_map: &config_map,
            backends_secret: &stores.secret,
            dsn_digest: &dsn_digest,
            password_digest: &password_digest,
            authtoken_secret: &password,
        };
        let count = replicas(self.glance, LiveReplicas::Absent);
        self.push(deployment(self.glance, self.id, pod, count));
        // As it is once all pods run.
        self.push(service(self.id, Selection::Narrow));
        self.push(pod_disruption_budget(self.glance, self.id));
        let optional = [
            horizontal_pod_autoscaler(self.glance, self.id),
            http_route(self.glance, self.id),
        ];
        for object in optional.into_iter().flatten() {
            self.push(object);
        }
        self.push(cron_job(self.glance, self.id, &config_map));
        Ok(())
    }

    /// Where the service user's password stands, and its digest.
    fn password(&mut self) -> (SecretKeyRef, String) {
        let user = defaults::service_user(&self.glance.spec.service_user);
        let reference = &self.glance.spec.service_user.secret_ref.name;
        let password = self.text(reference, &user.secret_key);
        let digest = salted_digest(&self.owner.uid, &password);
        let escaped = environment_value(password.expose_secret());
        if escaped == password.expose_secret() {
            let place = SecretKeyRef {
                name: user.secret_name,
                key: user.secret_key,
            };
            return (place, digest);
        }
        let place = SecretKeyRef {
            name: names::authtoken(self.id.name),
            key: "password".to_owned(),
        };
        let value = SecretString::from(escaped.into_owned());
        self.push_secret(
            db_connection::secret(&place.name, &place.key, &masked()),
            value,
        );
        (place, digest)
    }

    /// The Secret with the database URL; its digest.
    fn connection(&mut self) -> Result<String, String> {
        let glance = self.glance;
        let upstream = &glance.spec.database.secret_ref.name;
        let lacks = |key: &str| format!("Secret {upstream} lacks the key {key:?}");
        let namespace = self.id.namespace;
        let url = db_connection::url(glance, namespace, |key| Some(self.text(upstream, key)))
            .map_err(lacks)?;
        let shown = db_connection::url(glance, namespace, |_| Some(masked())).map_err(lacks)?;
        let digest = salted_digest(&self.owner.uid, &url);
        let name = names::db_connection(self.id.name);
        self.push_secret(
            db_connection::secret(&name, db_connection::KEY, &shown),
            url,
        );
        Ok(digest)
    }

    fn stores(&mut self) -> Result<Stores, String> {
        let input = self.input;
        let mut attached = input.backends_of(self.id.namespace);
        attached.retain(|backend| backend.spec.glance_ref.name == self.id.name);
        let marked: Vec<String> = attached
            .iter()
            .filter(|backend| defaults::is_default(&backend.spec))
            .map(|backend| backend.name_any())
            .collect();
        let [default] = marked.as_slice() else {
            return Err(format!(
                "{} GlanceBackends of it are marked isDefault ({}); the operator waits until exactly one is, and writes nothing further",
                marked.len(),
                marked.join(", ")
            ));
        };
        let (mut real, mut shown) = (Vec::new(), Vec::new());
        for backend in &attached {
            match self.section(backend) {
                Ok((section, masked_section)) => {
                    real.push(section);
                    shown.push(masked_section);
                }
                Err(fault) => {
                    let name = backend.name_any();
                    self.note(&format!("Skipping backend {name}: {fault}"));
                    if name == *default {
                        return Err(
                            "the default backend is skipped; the operator writes nothing further"
                                .to_owned(),
                        );
                    }
                }
            }
        }
        let (real, shown) = (Backends::new(real), Backends::new(shown));
        let revision = Revision {
            kind: &SECRET,
            family: Family::backends(self.id.name),
            hash: ContentHash::of_secret(&real.data),
            data: Value::Null,
        };
        let secret = revision.family.revision(&revision.hash);
        let mut object = revisions::object(&revision, &secret);
        if let Some(members) = object.as_object_mut() {
            let texts = shown.data.iter();
            let texts: Map<String, Value> = texts
                .map(|(key, text)| (key.clone(), text.expose_secret().into()))
                .collect();
            members.remove("data");
            members.insert("stringData".to_owned(), texts.into());
        }
        self.push(object);
        let hosts: BTreeSet<String> = attached
            .iter()
            .filter_map(|backend| Some(backend.spec.s3.as_ref()?.host.clone()))
            .collect();
        Ok(Stores {
            projection: Projection {
                enabled_backends: real.enabled,
                default_backend: default.clone(),
            },
            secret,
            hosts: hosts.into_iter().collect(),
        })
    }

    /// The section of a store as it is, and as it is shown.
    fn section(&mut self, backend: &'a GlanceBackend) -> Result<(Section, Section), StoreFault> {
        let s3 = backend.spec.s3.as_ref().ok_or(StoreFault::NoS3)?;
        let name = s3.credentials_secret_ref.name.as_str();
        let place = SecretPlace {
            namespace: self.id.namespace,
            name,
        };
        let given = self.input.secrets.get(&self.key(name));
        if given.is_none() {
            self.missing.insert(name);
        }
        let made_up = |key: &str| (key != stores::CA_BUNDLE).then_some(MASK.as_bytes());
        let real = Credentials::read(place, |key| match given {
            Some(data) => data.get(key).map(ExposeSecret::expose_secret),
            None => made_up(key),
        })?;
        let shown = Credentials::read(place, |key| match given {
            Some(data) => data.contains_key(key).then_some(MASK.as_bytes()),
            None => made_up(key),
        })?;
        let store = backend.name_any();
        let release = &self.glance.spec.open_stack_release;
        let section = |credentials| {
            stores::section(
                &store,
                &backend.spec,
                self.id.namespace,
                credentials,
                release,
            )
        };
        Ok((section(&real)?, section(&shown)?))
    }

    /// The `ConfigMap`; its name.
    fn config(&mut self, projection: &Projection) -> Result<String, String> {
        let overrides = self.glance.spec.policy_overrides.as_ref();
        let reference = overrides.and_then(|policy| policy.config_map_ref.as_ref());
        let document = reference.map(|reference| {
            let data = self.input.config_maps.get(&self.key(&reference.name));
            let text = data.and_then(|data| data.get(oslo::policy::KEY));
            if text.is_none() {
                self.note(&format!(
                    "ConfigMap {} with the key {} is not given: its rules are left out, and the name of the rendered ConfigMap differs in the cluster",
                    reference.name,
                    oslo::policy::KEY
                ));
            }
            text.map_or_else(|| "{}".to_owned(), Clone::clone)
        });
        let config = oslo::render(self.glance, projection, document.as_deref())
            .map_err(|error| error.logged())?;
        let revision = Revision {
            kind: &CONFIG_MAP,
            family: Family::config(self.id.name),
            hash: config.hash(),
            data: json!(config.data),
        };
        let name = revision.family.revision(&revision.hash);
        self.push(revisions::object(&revision, &name));
        Ok(name)
    }

    fn database(&mut self, config_map: &str, dsn_digest: &str) {
        if let Some(wanted) = provisioning(self.glance, self.id) {
            self.push(wanted.database);
            if let Some(login) = wanted.login {
                self.push(login.user);
                self.push(login.grant);
            }
        }
        let inputs = JobInputs {
            config_map,
            dsn_digest,
            database: None,
        };
        let job = migration_job(self.glance, self.id, Migration::Sync, inputs);
        self.push(job.object(1));
    }

    /// A value of a Secret; made up when the Secret is not given.
    fn text(&mut self, secret: &'a str, key: &str) -> SecretString {
        let given = self.input.secrets.get(&self.key(secret));
        let value = given.and_then(|data| data.get(key));
        let text = value.and_then(|value| std::str::from_utf8(value.expose_secret()).ok());
        if let Some(text) = text {
            return SecretString::from(text);
        }
        if given.is_some() {
            self.note(&format!(
                "Secret {secret} has no text under the key {key:?}"
            ));
        }
        self.missing.insert(secret);
        masked()
    }

    fn key(&self, name: &str) -> Key {
        (self.id.namespace.to_owned(), name.to_owned())
    }

    fn push(&mut self, mut object: Value) {
        self.owner.stamp(&mut object);
        self.out.children.push(Child {
            object,
            value: None,
        });
    }

    fn push_secret(&mut self, mut object: Value, value: SecretString) {
        self.owner.stamp(&mut object);
        self.out.children.push(Child {
            object,
            value: Some(value),
        });
    }

    fn note(&mut self, text: &str) {
        let name = self.id.name;
        self.out.notes.push(format!("note: Glance {name}: {text}"));
    }
}

fn masked() -> SecretString {
    SecretString::from(MASK)
}
