//! Whether the API server's definitions of our kinds know every field that this version knows.
//!
//! Helm installs definitions the first time only. After an upgrade of the operator alone the API server goes on with the
//! old ones and drops new fields of whoever writes them, without a word to him: so the operator says it, in its log and
//! as a metric. The published `OpenAPI` documents tell without any right beyond those of every account.

use std::{collections::BTreeMap, time::Duration};

use glance_api::schema::{self, SchemaError};
use kube::{Client, CustomResourceExt as _};
use serde_json::Value;
use target_registry::TargetCluster;

use crate::metrics::Metrics;

/// How soon it is asked again while fields are missing or nobody answers.
const AGAIN: Duration = Duration::from_secs(10);
/// How soon it is asked again where nothing is missing: definitions can be put back later.
const LATER: Duration = Duration::from_hours(1);
/// How many fields are named.
const NAMED: usize = 5;
/// What cures it.
const REMEDY: &str = "apply the definitions of this version: kubectl apply --server-side --force-conflicts -f charts/glance-operator/crds/";

/// A definition as this version ships it.
#[derive(Debug)]
struct Known {
    group: String,
    version: String,
    kind: String,
    schema: Value,
}

/// Fields that the API server drops, by kind. A kind that is not served is not in it.
type Missing = BTreeMap<String, Vec<String>>;

/// Asks, says what is missing, and goes on asking.
pub async fn check(client: Client, metrics: Metrics) {
    let known = match known() {
        Ok(known) => known,
        Err(error) => {
            tracing::error!(%error, "the definitions of this version cannot be read");
            return;
        }
    };
    while until_complete(&client, &known, &metrics).await {
        tokio::time::sleep(LATER).await;
    }
}

/// Asks until nothing is missing; false where the account may not know.
async fn until_complete(client: &Client, known: &[Known], metrics: &Metrics) -> bool {
    let mut told = Missing::new();
    loop {
        match missing(client, known).await {
            Ok(found) => {
                for (kind, fields) in &found {
                    metrics.definition(kind, fields.len());
                }
                say(&told, &found);
                if found.values().all(Vec::is_empty) {
                    return true;
                }
                told = found;
            }
            Err(kube::Error::Api(status)) if status.code == 403 => {
                tracing::info!("the API server does not tell this account which fields it knows");
                return false;
            }
            Err(error) => tracing::debug!(%error, "the API server does not tell its definitions"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Each change once.
fn say(told: &Missing, found: &Missing) {
    for (kind, fields) in found {
        match (told.get(kind), fields.as_slice()) {
            (Some(before), now) if before == now => {}
            (None, []) => {}
            (Some(_), []) => tracing::info!(kind, "the definition knows every field now"),
            (_, now) => tracing::warn!(
                kind,
                missing = now.len(),
                fields = now
                    .iter()
                    .take(NAMED)
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(", "),
                "the API server's definition of {kind} is older than this operator and drops fields that are set: {REMEDY}"
            ),
        }
    }
}

fn known() -> Result<Vec<Known>, SchemaError> {
    let definitions = [
        schema::glance()?,
        schema::glance_backend()?,
        schema::shipped(&TargetCluster::crd())?,
    ];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let known = definitions.iter().map(|definition| {
        let spec = &definition["spec"];
        let newest = &spec["versions"][0];
        Known {
            group: text(&spec["group"]),
            version: text(&newest["name"]),
            kind: text(&spec["names"]["kind"]),
            schema: newest["schema"]["openAPIV3Schema"].clone(),
        }
    });
    Ok(known.collect())
}

async fn missing(client: &Client, known: &[Known]) -> kube::Result<Missing> {
    let mut documents: BTreeMap<String, Option<Value>> = BTreeMap::new();
    let mut missing = Missing::new();
    for known in known {
        let path = format!("/openapi/v3/apis/{}/{}", known.group, known.version);
        if !documents.contains_key(&path) {
            let document = document(client, &path).await?;
            documents.insert(path.clone(), document);
        }
        let document = documents.get(&path).and_then(Option::as_ref);
        if let Some(served) = document.and_then(|document| schema_of(document, known)) {
            let mut fields = Vec::new();
            compare(&known.schema, served, "", &mut fields);
            missing.insert(known.kind.clone(), fields);
        }
    }
    Ok(missing)
}

/// A group that is not served has none.
async fn document(client: &Client, path: &str) -> kube::Result<Option<Value>> {
    let request = http::Request::get(path).body(Vec::new());
    let request = request.map_err(kube::Error::HttpError)?;
    match client.request(request).await {
        Ok(document) => Ok(Some(document)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

fn schema_of<'a>(document: &'a Value, known: &Known) -> Option<&'a Value> {
    let schemas = document["components"]["schemas"].as_object()?;
    schemas.values().find(|schema| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.into_iter().flatten().any(|kind| {
            kind["group"] == known.group.as_str()
                && kind["version"] == known.version.as_str()
                && kind["kind"] == known.kind.as_str()
        })
    })
}

/// Collects the paths below `path` that only `known` has; of what is missing as a whole the top alone.
fn compare(known: &Value, served: &Value, path: &str, missing: &mut Vec<String>) {
    if served["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for (name, known) in known["properties"].as_object().into_iter().flatten() {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        match served["properties"].get(name) {
            Some(served) => compare(known, served, &path, missing),
            None => missing.push(path),
        }
    }
    for (part, mark) in [("items", "[]"), ("additionalProperties", ".*")] {
        if known[part].is_object() {
            compare(
                &known[part],
                &served[part],
                &format!("{path}{mark}"),
                missing,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// The document that an API server publishes for the definitions of `known` in one group.
    fn published(known: &[Known], group: &str) -> Value {
        let of = known.iter().filter(|known| known.group == group);
        let schemas = of.map(|known| {
            let mut schema = known.schema.clone();
            schema["x-kubernetes-group-version-kind"] =
                json!([{ "group": group, "version": known.version, "kind": known.kind }]);
            (format!("x.{}", known.kind), schema)
        });
        json!({ "components": { "schemas": schemas.collect::<serde_json::Map<_, _>>() } })
    }

    /// An API server with these definitions; of an empty list it serves nothing.
    fn server(served: Vec<Known>) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let path = request.uri().path();
            let group = path.split('/').nth(4).unwrap_or_default();
            let document = published(&served, group);
            let is_empty = document["components"]["schemas"]
                .as_object()
                .is_none_or(serde_json::Map::is_empty);
            let (code, body) = if is_empty {
                let status = json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "" });
                (404, status)
            } else {
                (200, document)
            };
            async move {
                http::Response::builder()
                    .status(code)
                    .body(Body::from(body.to_string().into_bytes()))
            }
        });
        Client::new(service, "default")
    }

    fn old(change: impl Fn(&mut Value)) -> Vec<Known> {
        let mut all = known().unwrap();
        change(&mut all[0].schema);
        all
    }

    async fn told(served: Vec<Known>) -> Missing {
        missing(&server(served), &known().unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn definitions_of_this_version_lack_nothing() {
        let found = told(known().unwrap()).await;
        let kinds: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(kinds, ["Glance", "GlanceBackend", "TargetCluster"]);
        assert!(found.values().all(Vec::is_empty), "{found:?}");
    }

    #[tokio::test]
    async fn a_field_that_an_older_definition_drops_is_named_wherever_it_is() {
        let served = old(|schema| {
            let spec = schema["properties"]["spec"]["properties"]
                .as_object_mut()
                .unwrap();
            spec.remove("targetClusterRef").unwrap();
            let deployment = spec["deployment"]["properties"].as_object_mut().unwrap();
            deployment.remove("replicas").unwrap();
            let status = schema["properties"]["status"]["properties"]
                .as_object_mut()
                .unwrap();
            let condition = status["conditions"]["items"]["properties"]
                .as_object_mut()
                .unwrap();
            condition.remove("reason").unwrap();
        });
        let found = told(served).await;
        assert_eq!(
            found["Glance"],
            [
                "spec.deployment.replicas",
                "spec.targetClusterRef",
                "status.conditions[].reason"
            ]
        );
        assert!(found["GlanceBackend"].is_empty());
    }

    #[tokio::test]
    async fn a_definition_that_keeps_what_it_does_not_know_drops_nothing() {
        let served = old(|schema| {
            schema["properties"]["spec"] = json!({ "x-kubernetes-preserve-unknown-fields": true });
        });
        assert!(told(served).await["Glance"].is_empty());
    }

    #[tokio::test]
    async fn a_kind_that_is_not_installed_is_not_old() {
        assert!(told(Vec::new()).await.is_empty());
        let mut served = known().unwrap();
        served.retain(|known| known.kind != "TargetCluster");
        let found = told(served).await;
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_is_counted_until_the_definition_is_replaced() {
        let metrics = Metrics::new().unwrap();
        let stale = server(old(|schema| {
            let spec = schema["properties"]["spec"]["properties"].as_object_mut();
            spec.unwrap().remove("image").unwrap();
        }));
        let known = known().unwrap();
        let watching = until_complete(&stale, &known, &metrics);
        assert!(
            tokio::time::timeout(AGAIN * 3, watching).await.is_err(),
            "it asks again"
        );
        let page = metrics.encode();
        let series = "glance_operator_definition_missing_fields{kind=\"Glance\"} 1";
        assert!(page.contains(series), "{page}");
        let current = server(self::known().unwrap());
        assert!(until_complete(&current, &known, &metrics).await);
        let page = metrics.encode();
        let series = "glance_operator_definition_missing_fields{kind=\"Glance\"} 0";
        assert!(page.contains(series), "{page}");
    }
}
