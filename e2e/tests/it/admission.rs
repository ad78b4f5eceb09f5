//! What an API server with our definitions admits and refuses: the case list of the API
//! crate, on a real one, without webhooks and with them.

use e2e::{
    bed::run,
    cluster::{Cluster, code, told},
    expect::Object,
    fleet::Fleet,
    kinds,
    patience::seconds,
    site::Site,
    webhooks::dry_run,
};
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::cases::{self, Case, Expect, Kind, Layer, Setup};

const NAMESPACE: &str = "admission";

fn kind(case: &Case) -> (&'static str, &'static str) {
    match case.kind {
        Kind::Glance => kinds::GLANCE,
        Kind::GlanceBackend => kinds::BACKEND,
    }
}

fn placed(object: &Value, namespace: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["namespace"] = json!(namespace);
    object
}

/// Plays a case and says what is wrong with its outcome. Leaves nothing behind.
async fn complaint(
    hub: &Cluster,
    namespace: &str,
    reviewed: bool,
    case: &Case,
) -> anyhow::Result<Option<String>> {
    let mut made = Vec::new();
    let mut last = None;
    for earlier in case.given.iter().chain(&case.old) {
        let object = placed(earlier, namespace);
        match hub.create(&object).await {
            Ok(found) => last = Some(found),
            Err(e) => return Ok(Some(format!("not even the beginning: {}", told(&e)))),
        }
        made.push(object);
    }
    let object = placed(&case.new, namespace);
    let (version, kind) = kind(case);
    let api = hub.any(version, kind, Some(namespace));
    let outcome = match (&case.old, last) {
        (Some(_), Some(old)) => {
            let mut new: DynamicObject = serde_json::from_value(object.clone())?;
            new.metadata.resource_version = old.metadata.resource_version;
            let name = old.metadata.name.unwrap_or_default();
            api.replace(&name, &PostParams::default(), &new).await
        }
        // Nothing of it is stored, and it is judged all the same.
        _ if reviewed => dry_run(hub, &object).await,
        _ => {
            let outcome = hub.create(&object).await;
            if outcome.is_ok() {
                made.push(object);
            }
            outcome
        }
    };
    for object in made {
        hub.delete(&object).await?;
        // No finalizer is on them: the operator does not look at this namespace.
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let name = object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let gone = Object::new(hub, (version, &kind), namespace, &name);
        gone.is_gone(seconds(5)).await?;
    }
    Ok(match (&case.expect, outcome) {
        (Expect::Admitted(values), Ok(stored)) => {
            let stored = serde_json::to_value(stored)?;
            let wrong = values
                .iter()
                .find(|(pointer, value)| stored.pointer(pointer).unwrap_or(&Value::Null) != value);
            wrong.map(|(pointer, value)| {
                format!(
                    "{pointer} should be {value}, is {:?}",
                    stored.pointer(pointer)
                )
            })
        }
        // Only a webhook can refuse these.
        (Expect::Refused(Layer::Webhook, _), Ok(_)) if !reviewed => None,
        (Expect::Refused(layer, fragments), Err(e)) => {
            let text = told(&e);
            let by_webhook = text.contains("denied the request");
            let right = (*layer == Layer::Webhook) == by_webhook
                && code(&e) == Some(422)
                && fragments.iter().all(|fragment| text.contains(fragment));
            (!right).then(|| format!("should be refused by {layer:?} with {fragments:?}: {text}"))
        }
        (Expect::Refused(..), Ok(_)) => Some("should be refused".to_owned()),
        (Expect::Admitted(_), Err(e)) => Some(format!("should be admitted: {}", told(&e))),
    })
}

#[test]
fn every_case_ends_as_the_list_says() {
    run(async |fleet: &Fleet| {
        let hub = fleet.hub();
        hub.namespace(NAMESPACE).await?;
        let mut complaints = Vec::new();
        for case in cases::all()
            .iter()
            .filter(|case| case.setup != Setup::WithWebhooks)
        {
            if let Some(complaint) = complaint(hub, NAMESPACE, false, case).await? {
                complaints.push(format!("{}: {complaint}", case.name));
            }
        }
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
        let api = hub.any(kinds::GLANCE.0, kinds::GLANCE.1, Some(NAMESPACE));
        api.delete_collection(&DeleteParams::default(), &kube::api::ListParams::default())
            .await?;
        Ok(())
    });
}

#[test]
fn every_case_ends_as_the_list_says_with_webhooks() {
    run(async |fleet: &Fleet| {
        // The operator acts on the objects of its own namespace: in another one they hold still.
        let Some(reviewed) = Site::reviewed(fleet, "judged").await? else {
            return Ok(());
        };
        let (hub, namespace) = (reviewed.site.hub(), reviewed.namespace.as_str());
        let _operator = reviewed.start().await?;
        let cases = cases::all();
        let cases = cases
            .iter()
            .filter(|case| case.setup != Setup::WithoutWebhooks);
        let mut complaints = Vec::new();
        for case in cases {
            if let Some(complaint) = complaint(hub, namespace, true, case).await? {
                complaints.push(format!("{}: {complaint}", case.name));
            }
        }
        reviewed.webhooks.unregister(hub).await?;
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
        Ok(())
    });
}
