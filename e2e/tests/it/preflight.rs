//! What a target lacks is said before it hurts, with what to do.

use std::time::Instant;

use e2e::{
    bed::run,
    expect::Wanted,
    fleet::Fleet,
    kinds,
    patience::seconds,
    registration::{self, ACCOUNT},
    site::Site,
};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

fn missing(object: &DynamicObject) -> Vec<String> {
    let all = object.data.pointer("/status/missingPermissions");
    let text = |m: &Value, key: &str| m[key].as_str().unwrap_or("*").to_owned();
    all.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|m| {
            let parts = ["verb", "group", "resource", "namespace"].map(|key| text(m, key));
            parts.join(" ")
        })
        .collect()
}

#[test]
fn a_right_that_is_missing_is_named_and_found_when_it_is_granted() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "rights").await?;
        let (ns, clusters) = (site.namespace(), site.clusters_namespace());
        let edge = fleet.cluster("edge-1")?;
        let kubeconfig = site.kubeconfig(edge).await?;
        let api = edge.any("rbac.authorization.k8s.io/v1", "Role", Some(ns));
        let role = format!("{}-{ACCOUNT}", site.access_namespace());
        let whole = api.get(&role).await?;
        let rules = whole.data["rules"].as_array().cloned().unwrap_or_default();
        let set = async |rules: Vec<Value>| {
            let patch = Patch::Merge(json!({ "rules": rules }));
            api.patch(&role, &PatchParams::default(), &patch).await
        };
        let mut less = rules.clone();
        for rule in &mut less {
            if rule["resources"][0] == "deployments" {
                rule["verbs"] = json!(["get", "list", "watch", "create", "update", "patch"]);
            }
        }
        less.retain(|rule| rule["resources"][0] != "services/proxy");
        set(less).await?;
        let scope = Some(ns);
        registration::register(site.hub(), &clusters, "edge-1", &kubeconfig, scope).await?;
        let running = site.operator().await?.start().await?;
        let object = site.target_cluster(&clusters, "edge-1");
        let wanted = Wanted::of("Permitted")
            .status("False")
            .reason("MissingPermissions")
            .message("delete deployments.apps");
        let seen = object.condition(seconds(20), wanted).await?;
        assert_eq!(
            missing(&seen),
            [
                format!("delete apps deployments {ns}"),
                format!("get  services/proxy {ns}")
            ]
        );
        let served = seen.data.pointer("/status/capabilities").cloned();
        let served: Vec<String> = serde_json::from_value(served.unwrap_or_default())?;
        for kind in ["Database", "ExternalSecret", "HTTPRoute"] {
            assert!(served.iter().any(|s| s == kind), "{kind}: {served:?}");
        }
        let is = async |state: &str| {
            let labels = [("cluster", "edge-1"), ("state", state)];
            let name = "glance_operator_target_cluster_state";
            running
                .metric_becomes(seconds(10), (name, &labels), |value| value > 0.5)
                .await
        };
        is("Degraded").await?;
        set(rules).await?;
        let seen = object
            .condition(seconds(60), Wanted::of("Permitted").status("True"))
            .await?;
        assert!(missing(&seen).is_empty());
        object
            .condition(seconds(5), Wanted::of("Ready").status("True"))
            .await?;
        is("Connected").await?;
        Ok(())
    });
}

#[test]
fn a_namespace_that_is_missing_on_the_target_is_named_with_the_command_and_seen_when_it_appears() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "absent").await?;
        let clusters = site.clusters_namespace();
        let edge = fleet.cluster("edge-1")?;
        // On the hub there is a second one; the target knows nothing of it.
        let other = format!("{}-late", site.namespace());
        site.hub().namespace(&other).await?;
        let kubeconfig = site.kubeconfig(edge).await?;
        let scope = format!("{},{other}", site.namespace());
        registration::register(site.hub(), &clusters, "edge-1", &kubeconfig, Some(&scope)).await?;
        let operator = site.operator().await?.arg(&format!("--namespace={other}"));
        let _running = operator.start().await?;
        let command = format!("kubectl create namespace {other}");
        let wanted = Wanted::of("Permitted")
            .reason("NamespaceMissing")
            .message(&command);
        let object = site.target_cluster(&clusters, "edge-1");
        object.condition(seconds(20), wanted).await?;

        let scenario = e2e::scenario::Scenario::new(&other, "images")
            .on("edge-1")
            .backend("fast", true);
        scenario.apply_resources(site.hub()).await?;
        let glance = e2e::expect::Object::glance(site.hub(), &other, "images");
        let wanted = Wanted::of("SecretsReady")
            .reason("TargetClusterUnavailable")
            .message(&command);
        let seen = glance.condition(seconds(20), wanted).await?;
        assert_eq!(seen.metadata.finalizers, None, "nothing was begun");

        // Created, with the rights in it: seen without a nudge, and without a poll.
        let created = Instant::now();
        let both = [site.namespace(), &other];
        registration::grant(edge, &site.access_namespace(), &both, &Value::Null).await?;
        let granted = Wanted::of("Permitted").status("True");
        object.condition(seconds(15), granted).await?;
        scenario.apply(site.hub(), edge).await?;
        glance.is_ready(seconds(60)).await?;
        assert!(created.elapsed() < seconds(60), "{:?}", created.elapsed());

        // Taken away with everything in it: nothing is left to delete there.
        edge.any("v1", "Namespace", None)
            .delete(&other, &DeleteParams::default())
            .await?;
        let gone = e2e::expect::Object::new(edge, kinds::DEPLOYMENT, &other, "images");
        gone.is_gone(seconds(30)).await?;
        site.hub().delete(&scenario.glance()).await?;
        glance.is_gone(seconds(60)).await?;
        Ok(())
    });
}

#[test]
fn the_end_of_a_credential_is_seen_ahead() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "expiry").await?;
        let clusters = site.clusters_namespace();
        let edge = fleet.cluster("edge-1")?;
        // The token in the Secret of the access chart has no end, this one has.
        site.kubeconfig(edge).await?;
        let kubeconfig = edge
            .kubeconfig_of(&site.access_namespace(), ACCOUNT)
            .await?;
        let scope = Some(site.namespace());
        registration::register(site.hub(), &clusters, "edge-1", &kubeconfig, scope).await?;
        let running = site.operator().await?.start().await?;
        let object = site.target_cluster(&clusters, "edge-1");
        let seen = object
            .condition(seconds(20), Wanted::of("Ready").status("True"))
            .await?;
        let expires = seen.data.pointer("/status/credential/expiresAt").cloned();
        let expires: jiff::Timestamp = serde_json::from_value(expires.unwrap_or_default())?;
        let event = object.event(seconds(10), "CredentialExpiring").await?;
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        let name = "glance_operator_target_credential_expiry_timestamp_seconds";
        let metric = running.metric(name, &[("cluster", "edge-1")]).await?;
        #[allow(clippy::cast_precision_loss, reason = "a date")]
        let second = expires.as_second() as f64;
        assert_eq!(metric, Some(second));
        site.rotate("edge-1").await?;
        object
            .satisfies(seconds(20), "to know no end", |found| {
                match found.data.pointer("/status/credential/expiresAt") {
                    None => Ok(()),
                    Some(end) => Err(end.to_string()),
                }
            })
            .await?;
        assert_eq!(running.metric(name, &[]).await?, None);
        Ok(())
    });
}
