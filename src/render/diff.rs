//! `render --diff`: what would change in a cluster.
//!
//! The API server itself is asked, by a server-side apply that it does not
//! store: only it knows what its defaults and other people's fields make of an
//! object. Credentials that the files lack are read from the cluster.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context as _;
use glance_api::keys::FIELD_MANAGER;
use glance_api::keys::annotations::SCHEMA_KEY;
use glance_api::{Glance, GlanceBackend};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, Config, ResourceExt};
use secrecy::{ExposeSecret as _, SecretSlice};
use serde_json::{Value, json};
use similar::TextDiff;

use super::children::{self, Child};
use super::input::{Input, Key};
use super::{MASK, Outcome, judge, key, output};
use crate::cli::RenderArgs;
use crate::cluster::kinds::{CHILDREN, DEPLOYMENT};
use crate::glance::workload::volumes;

/// What would happen to one object.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// It would be made.
    Created(String),
    /// It would be changed: a unified diff.
    Changed(String),
    /// It would be deleted and made again.
    Replaced(&'static str),
}

/// Both sides of the hub: where the resources are, and where their children
/// are.
struct Clusters {
    hub: Client,
    target: Client,
}

/// Compares what the manifests ask for with what is there.
pub async fn run(args: &RenderArgs, mut input: Input) -> anyhow::Result<Outcome> {
    let target = client(args.context.as_deref()).await?;
    let hub = match args.hub_context.as_deref() {
        Some(context) => client(Some(context)).await?,
        None => target.clone(),
    };
    let clusters = Clusters { hub, target };
    clusters.complete(&mut input).await?;
    let mut outcome = judge(&mut input);
    if !outcome.is_well {
        return Ok(outcome);
    }
    for glance in &input.glances {
        let rendered = children::render(glance, &input, args.operator_namespace.as_deref());
        outcome.is_well &= rendered.is_complete;
        outcome.notes.extend(rendered.notes);
        for child in &rendered.children {
            let change = clusters.compare(child).await?;
            if let Some(text) = told(&child.object, &change) {
                outcome.is_well = false;
                outcome.text.push_str(&text);
            }
        }
    }
    Ok(outcome)
}

async fn client(context: Option<&str>) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::read().context(
        "no kubeconfig was found: set KUBECONFIG, or leave --diff out to render without a cluster",
    )?;
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .with_context(|| format!("context {:?}", context.unwrap_or("(current)")))?;
    Ok(Client::try_from(config)?)
}

/// One change for people; nothing for none.
fn told(object: &Value, change: &Change) -> Option<String> {
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    let name = format!(
        "{} {}",
        text(&object["kind"]),
        text(&object["metadata"]["name"])
    );
    match change {
        Change::None => None,
        Change::Created(diff) => Some(format!("# {name}: would be created\n{diff}")),
        Change::Changed(diff) => Some(format!("# {name}: would be changed\n{diff}")),
        Change::Replaced(why) => Some(format!("# {name}: would be replaced: {why}\n")),
    }
}

// === impl Clusters ===

impl Clusters {
    /// Adds what the files lack and the clusters know: UIDs, stores,
    /// credentials, rules.
    async fn complete(&self, input: &mut Input) -> anyhow::Result<()> {
        for index in 0..input.glances.len() {
            let (namespace, name) = key(&input.glances[index]);
            let glances: Api<Glance> = Api::namespaced(self.hub.clone(), &namespace);
            if let Some(live) = glances.get_opt(&name).await? {
                let glance = &mut input.glances[index];
                glance.metadata.uid = glance.metadata.uid.take().or_else(|| live.uid());
                glance.status = glance.status.take().or_else(|| live.status.clone());
                input.live.insert((namespace.clone(), name.clone()), live);
            }
            let backends: Api<GlanceBackend> = Api::namespaced(self.hub.clone(), &namespace);
            let given: Vec<String> = input.backends.iter().map(ResourceExt::name_any).collect();
            let live = backends.list(&ListParams::default()).await?;
            let live = live.into_iter().filter(|backend| {
                backend.spec.glance_ref.name == name && !given.contains(&backend.name_any())
            });
            input.live_backends.extend(live);
            self.complete_sources(input, index).await?;
        }
        Ok(())
    }

    async fn complete_sources(&self, input: &mut Input, index: usize) -> anyhow::Result<()> {
        let glance = &input.glances[index];
        let (namespace, name) = key(glance);
        let spec = &glance.spec;
        let mut secrets = vec![
            spec.database.secret_ref.name.clone(),
            spec.service_user.secret_ref.name.clone(),
        ];
        let mut attached = input.backends_of(&namespace);
        attached.retain(|backend| backend.spec.glance_ref.name == name);
        let stores = attached
            .iter()
            .filter_map(|backend| backend.spec.s3.as_ref());
        secrets.extend(stores.map(|s3| s3.credentials_secret_ref.name.clone()));
        let policy = spec.policy_overrides.as_ref();
        let rules = policy.and_then(|policy| Some(policy.config_map_ref.as_ref()?.name.clone()));
        for secret in secrets {
            let key = (namespace.clone(), secret);
            if !input.secrets.contains_key(&key)
                && let Some(data) = self.secret(&key).await?
            {
                input.secrets.insert(key, data);
            }
        }
        if let Some(rules) = rules {
            let key = (namespace, rules);
            let api: Api<ConfigMap> = Api::namespaced(self.target.clone(), &key.0);
            if !input.config_maps.contains_key(&key)
                && let Some(live) = api.get_opt(&key.1).await?
            {
                input.config_maps.insert(key, live.data.unwrap_or_default());
            }
        }
        Ok(())
    }

    async fn secret(
        &self,
        (namespace, name): &Key,
    ) -> anyhow::Result<Option<BTreeMap<String, SecretSlice<u8>>>> {
        let api: Api<Secret> = Api::namespaced(self.target.clone(), namespace);
        let live = api
            .get_opt(name)
            .await
            .with_context(|| format!("Secret {namespace}/{name}; give it with -f instead"))?;
        Ok(live.map(|live| {
            let data = live.data.unwrap_or_default().into_iter();
            data.map(|(key, value)| (key, SecretSlice::from(value.0)))
                .collect()
        }))
    }

    async fn compare(&self, child: &Child) -> anyhow::Result<Change> {
        let object = &child.object;
        let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
        let Some(api) = self.api(kind, text(object, "/metadata/namespace")) else {
            anyhow::bail!("{kind} is no kind of child");
        };
        let live = match api.get_opt(name).await {
            // The cluster does not serve the kind: nothing is there.
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            live => live.with_context(|| format!("{kind} {name}"))?,
        };
        let Some(live) = live else {
            return self.created(object).await;
        };
        let live_value = serde_json::to_value(&live)?;
        match kind {
            // Immutable, and named after its content.
            "ConfigMap" => Ok(Change::None),
            "Secret" => Ok(compare_secret(child, &live_value)),
            "Job" => Ok(compare_job(object, &live_value)),
            _ => {
                let mut desired = object.clone();
                keep_marks(&mut desired, &live_value);
                let params = PatchParams::apply(FIELD_MANAGER).force().dry_run();
                let changed = api
                    .patch(name, &params, &Patch::Apply(&desired))
                    .await
                    .with_context(|| format!("{kind} {name}"))?;
                let changed = serde_json::to_value(&changed)?;
                let text = unified(
                    &output::yaml(&bare(&live_value))?,
                    &output::yaml(&bare(&changed))?,
                );
                Ok(text.map_or(Change::None, Change::Changed))
            }
        }
    }

    /// A new object; a new `ConfigMap` as a change of the one that the pods
    /// mount.
    async fn created(&self, object: &Value) -> anyhow::Result<Change> {
        let mut before = String::new();
        if text(object, "/kind") == "ConfigMap" {
            let namespace = text(object, "/metadata/namespace");
            before = self
                .mounted(namespace, text(object, "/metadata/name"))
                .await?;
        }
        let after = if before.is_empty() {
            output::yaml(object)?
        } else {
            output::yaml(&object["data"])?
        };
        Ok(Change::Created(
            unified(&before, &after).unwrap_or_default(),
        ))
    }

    /// The data of the mounted `ConfigMap` of the family of `name`.
    async fn mounted(&self, namespace: &str, name: &str) -> anyhow::Result<String> {
        let glance = name
            .rsplit_once("-config-")
            .map_or("", |(glance, _)| glance);
        let Some(deployments) = self.api(DEPLOYMENT.kind, namespace) else {
            return Ok(String::new());
        };
        let Some(deployment) = deployments.get_opt(glance).await? else {
            return Ok(String::new());
        };
        let (Some(mounted), _) = volumes::mounted(&deployment.data) else {
            return Ok(String::new());
        };
        let api: Api<ConfigMap> = Api::namespaced(self.target.clone(), namespace);
        match api.get_opt(mounted).await? {
            Some(live) => output::yaml(&json!(live.data)),
            None => Ok(String::new()),
        }
    }

    fn api(&self, kind: &str, namespace: &str) -> Option<Api<DynamicObject>> {
        let kind = CHILDREN.iter().find(|child| child.kind.kind == kind)?.kind;
        let names = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&names, kind.plural);
        Some(Api::namespaced_with(
            self.target.clone(),
            namespace,
            &resource,
        ))
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let text = object.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default()
}

/// Secrets named after their content are as they were made; of the others the
/// one value is compared and not shown.
fn compare_secret(child: &Child, live: &Value) -> Change {
    let Some(value) = &child.value else {
        return Change::None;
    };
    let wanted = data_encoding::BASE64.encode(value.expose_secret().as_bytes());
    let keys = child.object["stringData"].as_object();
    let same = keys
        .into_iter()
        .flatten()
        .all(|(key, _)| live["data"][key] == wanted.as_str());
    if same {
        Change::None
    } else {
        Change::Changed(format!("  its value differs ({MASK})\n"))
    }
}

/// A Job cannot be changed, and one that finished stays while it stands for the
/// same schema.
fn compare_job(wanted: &Value, live: &Value) -> Change {
    let key = |job: &Value| job["metadata"]["annotations"][SCHEMA_KEY].clone();
    let succeeded = live["status"]["succeeded"].as_i64().unwrap_or_default() > 0;
    if key(wanted) == key(live) || (succeeded && key(live).is_null()) {
        Change::None
    } else {
        Change::Replaced("it stands for another image or database")
    }
}

/// Marks of ownership are not what is being compared: the files may not know
/// them.
fn keep_marks(desired: &mut Value, live: &Value) {
    let references = &live["metadata"]["ownerReferences"];
    if !references.is_null() {
        desired["metadata"]["ownerReferences"] = references.clone();
    }
    for field in ["labels", "annotations"] {
        let live = live["metadata"][field].as_object().into_iter().flatten();
        for (key, value) in live.filter(|(key, _)| key.starts_with("openstack.c5c3.io/")) {
            desired["metadata"][field][key] = value.clone();
        }
    }
}

/// An object without what the server keeps for itself.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(members) = object.as_object_mut() {
        members.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in [
            "creationTimestamp",
            "generation",
            "managedFields",
            "resourceVersion",
            "uid",
        ] {
            metadata.remove(field);
        }
    }
    object
}

/// The lines that differ, with three around them; nothing when none does.
fn unified(before: &str, after: &str) -> Option<String> {
    let diff = TextDiff::from_lines(before, after);
    let mut text = String::new();
    for hunk in diff.unified_diff().context_radius(3).iter_hunks() {
        // Writing to a String does not fail.
        let _ = write!(text, "{hunk}");
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown() {
        assert_eq!(unified("a\nb\n", "a\nb\n"), None);
        let text = unified("a\nb\n", "a\nc\n").unwrap();
        assert!(text.contains("-b\n+c\n"), "{text}");
    }

    #[test]
    fn a_secret_is_compared_and_never_shown() {
        let child = Child {
            object: json!({ "stringData": { "connection": "masked" } }),
            value: Some("s3cr3t".into()),
        };
        let live = |text: &str| json!({ "data": { "connection": data_encoding::BASE64.encode(text.as_bytes()) } });
        assert_eq!(compare_secret(&child, &live("s3cr3t")), Change::None);
        let Change::Changed(text) = compare_secret(&child, &live("other")) else {
            panic!("a difference is told");
        };
        assert!(!text.contains("s3cr3t") && !text.contains("other"));
    }

    #[test]
    fn a_finished_migration_of_the_same_schema_stays() {
        let job = |key: &str| json!({ "metadata": { "annotations": { (SCHEMA_KEY): key } } });
        assert_eq!(compare_job(&job("a"), &job("a")), Change::None);
        assert!(matches!(
            compare_job(&job("a"), &job("b")),
            Change::Replaced(_)
        ));
    }

    #[test]
    fn marks_and_the_server_s_own_fields_are_no_difference() {
        let live = json!({
            "metadata": {
                "name": "x", "uid": "u", "generation": 3,
                "ownerReferences": [{ "uid": "real" }],
                "labels": { "openstack.c5c3.io/owner-name": "x", "other": "y" },
            },
            "status": {},
        });
        let mut desired =
            json!({ "metadata": { "name": "x", "ownerReferences": [{ "uid": "0" }] } });
        keep_marks(&mut desired, &live);
        assert_eq!(
            desired["metadata"],
            json!({
                "name": "x", "ownerReferences": [{ "uid": "real" }],
                "labels": { "openstack.c5c3.io/owner-name": "x" },
            })
        );
        let bare = bare(&live);
        assert!(bare.get("status").is_none() && bare["metadata"].get("uid").is_none());
    }
}
