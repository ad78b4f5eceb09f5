//! The admission webhooks as people meet them: what is filled in, what an outage holds up and what it does not, and
//! objects from before the rules.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    bed::run,
    cluster::{Cluster, code, told},
    expect::{Object, eventually},
    fleet::Fleet,
    kinds,
    patience::seconds,
    scenario::backend,
    site::Site,
    webhooks::{dry_run, warnings},
};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

async fn merge(
    hub: &Cluster,
    (kind, ns, name): ((&str, &str), &str, &str),
    patch: Value,
) -> Result<Value, kube::Error> {
    let api = hub.any(kind.0, kind.1, Some(ns));
    let patched = api
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    serde_json::to_value(patched).map_err(kube::Error::SerdeError)
}

/// The text of a refusal, and its code.
fn refusal<T>(outcome: Result<T, kube::Error>) -> (Option<u16>, String) {
    match outcome {
        Ok(_) => (None, "admitted".to_owned()),
        Err(error) => (code(&error), told(&error)),
    }
}

#[test]
fn defaults_are_stored_once_and_explicit_values_survive_every_later_write() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "filled").await?;
        let Some(webhooks) = site.webhooks()? else {
            return Ok(());
        };
        let (hub, ns) = (site.hub(), site.namespace());
        let _operator = webhooks.on(site.operator().await?).start().await?;
        webhooks.register(hub).await?;
        let scenario = site
            .scenario("images")
            .with("logging", Value::Null)
            .with("deployment", json!({ "topologySpreadConstraints": [] }))
            .with(
                "importFiltering",
                json!({ "allowedSchemes": [], "disallowedSchemes": ["http"] }),
            )
            .with(
                "serviceUser",
                json!({ "secretRef": { "name": "images-service-user" } }),
            )
            .with(
                "cache",
                json!({ "backend": "", "clusterRef": { "name": "memcached" } }),
            )
            .backend("fast", true);

        // Nothing of a dry run is kept, and its answer is the whole truth.
        let tried = dry_run(hub, &scenario.glance()).await?;
        ensure!(tried.data["spec"]["cache"]["backend"] == "dogpile.cache.pymemcache");
        ensure!(site.glance("images").get().await?.is_none());

        site.apply(&scenario).await?;
        // The operator has written its finalizer and its status by then.
        let ready = site.glance("images").is_ready(seconds(90)).await?;
        let spec = &ready.data["spec"];
        for (pointer, value) in [
            ("/deployment/topologySpreadConstraints", json!([])),
            ("/deployment/replicas", json!(3)),
            ("/deployment/resources/limits/memory", json!("1Gi")),
            ("/importFiltering/allowedSchemes", json!([])),
            ("/importFiltering/allowedPorts", Value::Null),
            ("/cache/backend", json!("dogpile.cache.pymemcache")),
            (
                "/logging",
                json!({ "format": "text", "level": "INFO", "debug": false }),
            ),
            ("/serviceUser/username", json!("glance")),
            ("/serviceUser/projectName", json!("service")),
            ("/serviceUser/userDomainName", json!("Default")),
            ("/serviceUser/projectDomainName", json!("Default")),
            ("/serviceUser/secretRef/key", json!("password")),
        ] {
            let found = spec.pointer(pointer).unwrap_or(&Value::Null);
            ensure!(*found == value, "{pointer}: {found}");
        }
        let generation = ready.metadata.generation;
        let label = json!({ "metadata": { "labels": { "a": "b" } } });
        let labelled = merge(hub, (kinds::GLANCE, ns, "images"), label).await?;
        ensure!(
            labelled["metadata"]["generation"] == json!(generation),
            "nothing is filled in twice"
        );

        // Deletion passes the finalizers' removal, which is an update.
        let glance = site.glance("images");
        hub.any(kinds::GLANCE.0, kinds::GLANCE.1, Some(ns))
            .delete("images", &DeleteParams::default())
            .await?;
        glance.is_gone(seconds(60)).await?;
        webhooks.unregister(hub).await
    });
}

#[test]
fn an_outage_holds_up_writes_of_our_specs_and_nothing_else() {
    run(async |fleet: &Fleet| {
        let Some(reviewed) = Site::reviewed(fleet, "outage").await? else {
            return Ok(());
        };
        let (hub, ns) = (reviewed.site.hub(), reviewed.namespace.as_str());
        let running = reviewed.start().await?;
        hub.apply(&backend(ns, "images", "fast", true)).await?;
        hub.apply(&backend(ns, "images", "going", false)).await?;
        let held = json!({ "metadata": { "finalizers": ["example.org/held"] } });
        merge(hub, (kinds::BACKEND, ns, "going"), held).await?;
        running.kill()?;

        let (code, text) = refusal(dry_run(hub, &backend(ns, "images", "new", false)).await);
        ensure!(
            code == Some(500) && text.contains("failed calling webhook"),
            "{code:?} {text}"
        );
        let bucket = json!({ "spec": { "s3": { "bucket": "other" } } });
        let (code, text) = refusal(merge(hub, (kinds::BACKEND, ns, "fast"), bucket).await);
        ensure!(
            code == Some(500) && text.contains("failed calling webhook"),
            "{code:?} {text}"
        );

        // Status, deletion with and without a finalizer, and the objects of others go on.
        let api = hub.any(kinds::BACKEND.0, kinds::BACKEND.1, Some(ns));
        let status = json!({ "status": { "observedGeneration": 7 } });
        api.patch_status("fast", &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        for name in ["fast", "going"] {
            api.delete(name, &DeleteParams::default()).await?;
        }
        let freed = json!({ "metadata": { "finalizers": null } });
        merge(hub, (kinds::BACKEND, ns, "going"), freed).await?;
        for name in ["fast", "going"] {
            Object::backend(hub, ns, name).is_gone(seconds(10)).await?;
        }
        hub.secret(ns, "not-ours", &[("a", "b")]).await?;
        hub.apply(&backend(
            reviewed.site.namespace(),
            "images",
            "elsewhere",
            false,
        ))
        .await?;

        // And when somebody answers again, so do the writes.
        let _running = reviewed.start().await?;
        eventually(seconds(30), "a write to pass", async || {
            dry_run(hub, &backend(ns, "images", "new", false)).await
        })
        .await?;
        reviewed.webhooks.unregister(hub).await
    });
}

#[test]
fn an_object_from_before_the_rules_can_be_changed_elsewhere_and_deleted() {
    run(async |fleet: &Fleet| {
        let Some(reviewed) = Site::reviewed(fleet, "before").await? else {
            return Ok(());
        };
        let (hub, ns) = (reviewed.site.hub(), reviewed.namespace.as_str());
        let name = "n".repeat(44);
        let mut old = e2e::scenario::Scenario::new(ns, &name)
            .with(
                "deployment",
                json!({ "replicas": 1, "priorityClassName": "nobody-knows" }),
            )
            .with("dbPurge", json!({ "schedule": "never" }))
            .glance();
        old["metadata"]["finalizers"] = json!(["example.org/held"]);
        hub.create(&old).await?;
        let mut first = backend(ns, "images", "first", true);
        first["spec"]["extraOptions"] = json!({ "s3_store_host": "elsewhere" });
        hub.create(&first).await?;
        hub.create(&backend(ns, "images", "second", true)).await?;

        let _running = reviewed.start().await?;
        let glance = (kinds::GLANCE, ns, name.as_str());
        merge(
            hub,
            glance,
            json!({ "metadata": { "labels": { "a": "b" } } }),
        )
        .await?;
        merge(
            hub,
            glance,
            json!({ "spec": { "deployment": { "replicas": 2 } } }),
        )
        .await?;
        let worse = json!({ "spec": { "dbPurge": { "schedule": "always" } } });
        let (code, text) = refusal(merge(hub, glance, worse).await);
        ensure!(
            code == Some(422) && text.contains("invalid cron expression"),
            "{code:?} {text}"
        );
        for store in ["first", "second"] {
            let region = json!({ "spec": { "s3": { "region": "garage" } } });
            merge(hub, (kinds::BACKEND, ns, store), region).await?;
        }
        // The way out of two defaults, and not back.
        let plain = json!({ "spec": { "isDefault": false } });
        merge(hub, (kinds::BACKEND, ns, "second"), plain).await?;
        let marked = json!({ "spec": { "isDefault": true } });
        let (code, text) = refusal(merge(hub, (kinds::BACKEND, ns, "second"), marked).await);
        ensure!(
            code == Some(422) && text.contains("exactly one default store is allowed"),
            "{code:?} {text}"
        );

        let api = hub.any(kinds::GLANCE.0, kinds::GLANCE.1, Some(ns));
        api.delete(&name, &DeleteParams::default()).await?;
        merge(hub, glance, json!({ "metadata": { "finalizers": null } })).await?;
        Object::glance(hub, ns, &name).is_gone(seconds(10)).await?;
        reviewed.webhooks.unregister(hub).await
    });
}

#[test]
fn a_managed_database_has_one_name_for_life_and_a_second_glance_in_it_is_told_so() {
    run(async |fleet: &Fleet| {
        let Some(reviewed) = Site::reviewed(fleet, "database").await? else {
            return Ok(());
        };
        let (hub, ns) = (reviewed.site.hub(), reviewed.namespace.as_str());
        let _running = reviewed.start().await?;
        let glance = |name: &str| e2e::scenario::Scenario::new(ns, name);
        hub.create(&glance("first").glance()).await?;
        let shared = warnings(hub, &glance("second").glance()).await?;
        let told = "Glance \"first\" has the same database on the same MariaDB";
        ensure!(shared.iter().any(|text| text.contains(told)), "{shared:?}");
        let mut own = glance("second").glance();
        own["spec"]["database"]["database"] = json!("glance_2");
        let apart = warnings(hub, &own).await?;
        ensure!(apart.is_empty(), "{apart:?}");

        // Until something is made of it, a name can be corrected.
        let first = (kinds::GLANCE, ns, "first");
        let named = |name: &str| json!({ "spec": { "database": { "database": name } } });
        merge(hub, first, named("glance_1")).await?;
        let status = json!({ "status": { "conditions": [{
            "type": "DatabaseReady", "status": "True", "reason": "DatabaseSynced", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] } });
        hub.any(kinds::GLANCE.0, kinds::GLANCE.1, Some(ns))
            .patch_status("first", &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        let (code, text) = refusal(merge(hub, first, named("other")).await);
        ensure!(
            code == Some(422) && text.contains("database is immutable"),
            "{code:?} {text}"
        );
        reviewed.webhooks.unregister(hub).await
    });
}

#[test]
fn a_refusal_has_code_reason_and_causes_for_tools_to_read() {
    run(async |fleet: &Fleet| {
        let Some(reviewed) = Site::reviewed(fleet, "causes").await? else {
            return Ok(());
        };
        let (hub, ns) = (reviewed.site.hub(), reviewed.namespace.as_str());
        let running = reviewed.start().await?;
        let mut bad = backend(ns, "images", "default", false);
        bad["spec"]["extraOptions"] = json!({ "s3_store_host": "x", "a-b": "y" });
        let error = dry_run(hub, &bad).await.err().context("admitted")?;
        let kube::Error::Api(status) = error else {
            anyhow::bail!("{error}");
        };
        ensure!(
            (status.code, status.reason.as_str()) == (422, "Invalid"),
            "{status:?}"
        );
        let begin = "admission webhook \"vglancebackend.kb.io\" denied the request: \
            GlanceBackend.glance.openstack.c5c3.io \"default\" is invalid: [";
        ensure!(status.message.starts_with(begin), "{}", status.message);
        let details = status.details.context("no details")?;
        let fields: Vec<_> = details
            .causes
            .iter()
            .map(|cause| cause.field.as_str())
            .collect();
        ensure!(
            fields
                == [
                    "metadata.name",
                    "spec.extraOptions[a-b]",
                    "spec.extraOptions[s3_store_host]"
                ],
            "{fields:?}"
        );
        ensure!((details.kind.as_str(), details.name.as_str()) == ("GlanceBackend", "default"));
        // What is seen of it from outside.
        let path = "/validate-glance-openstack-c5c3-io-v1alpha1-glancebackend";
        let denied = running
            .metric(
                "glance_operator_admission_reviews_total",
                &[("webhook", path), ("result", "denied")],
            )
            .await?;
        ensure!(denied >= Some(2.0), "{denied:?}");
        ensure!(running.health("/readyz/webhook").await? == "ok");
        reviewed.webhooks.unregister(hub).await
    });
}

#[test]
fn an_operator_without_a_certificate_ends_and_says_what_to_do() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "naked").await?;
        let folder = tempfile::tempdir()?;
        let operator = site
            .operator()
            .await?
            .arg("--enable-webhooks")
            .arg("--webhook-bind-address=127.0.0.1:0")
            .arg(&format!("--webhook-cert-dir={}", folder.path().display()));
        let mut running = operator.launch()?;
        let status = eventually(seconds(20), "the operator to end", async || {
            running.exited().context("it still runs")
        })
        .await?;
        ensure!(status.code() == Some(1), "{status}");
        let log = operator.output();
        ensure!(
            log.contains("tls.crt") && log.contains("--enable-webhooks=false"),
            "{log}"
        );
        Ok(())
    });
}
