//! Features switched on, changed and switched off: the rendered files are exactly right, the pods
//! are replaced exactly when something that they run with has changed, and nothing of a feature
//! outlives it.

use anyhow::{Context as _, Result};
use data_encoding::HEXLOWER;
use e2e::{
    bed::run,
    expect::{Object, Wanted, eventually},
    fleet::Fleet,
    kinds,
    patience::seconds,
    scenario::Scenario,
    shape::assert_has,
    site::Site,
    workload::{Files, Rollout, Workload},
};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const LIMIT: u64 = 60;
const CONF: &str = "glance-api.conf";
const PASTE: &str = "glance-api-paste.ini";

/// One Glance whose spec changes step by step.
struct Story<'a> {
    site: &'a Site<'a>,
    scenario: Scenario,
    workload: Workload<'a>,
    last: Rollout,
}

// === impl Story ===

impl<'a> Story<'a> {
    async fn begin(site: &'a Site<'a>, scenario: Scenario) -> Result<Self> {
        site.apply(&scenario).await?;
        site.glance(scenario.name())
            .is_ready(seconds(LIMIT))
            .await?;
        let workload = Workload::of(site, &scenario)?;
        let last = workload.is_rolled_out(seconds(LIMIT)).await?;
        Ok(Self {
            site,
            scenario,
            workload,
            last,
        })
    }

    fn glance(&self) -> Object<'_> {
        self.site.glance(self.scenario.name())
    }

    /// Sets a field of the spec (`null` removes it); the pods must be replaced that often.
    async fn change(&mut self, field: &str, value: Value, rolls: u64) -> Result<Files> {
        self.scenario = self.scenario.clone().with(field, value.clone());
        self.write().await?;
        self.settles(&format!("{field}: {value}"), rolls).await
    }

    /// Writes the spec as an editor does. A server-side apply that empties a block makes the server
    /// store `null` there, which no schema without `nullable` takes.
    async fn write(&self) -> Result<()> {
        let api = self.site.hub().any(
            kinds::GLANCE.0,
            kinds::GLANCE.1,
            Some(self.site.namespace()),
        );
        eventually(seconds(20), "the spec to be written", async || {
            let mut live = api.get(self.scenario.name()).await?;
            live.data["spec"] = self.scenario.glance()["spec"].clone();
            api.replace(self.scenario.name(), &PostParams::default(), &live)
                .await
        })
        .await?;
        Ok(())
    }

    /// Waits for everything to come to rest; the pods must have been replaced that often.
    async fn settles(&mut self, what: &str, rolls: u64) -> Result<Files> {
        // A condition of the newest generation tells that a pass has seen all of it.
        self.glance()
            .is_ready(seconds(LIMIT))
            .await
            .with_context(|| what.to_owned())?;
        let wanted = self.last.revision + rolls;
        let revision = async || {
            let now = self.workload.is_rolled_out(seconds(LIMIT)).await?;
            if now.revision >= wanted {
                Ok(now)
            } else {
                Err(anyhow::anyhow!("revision {}", now.revision))
            }
        };
        let now = eventually(seconds(LIMIT), &format!("the roll after {what}"), revision).await?;
        self.glance().is_ready(seconds(LIMIT)).await?;
        assert_eq!(now.revision, wanted, "{what}: rolls");
        if rolls == 0 {
            assert_eq!(now, self.last, "{what} is nothing to the pods");
        } else {
            assert_ne!(now.template, self.last.template, "{what}");
            assert_eq!(
                now.generation,
                self.last.generation + 1,
                "{what}: one write"
            );
        }
        self.last = now;
        self.workload.files().await
    }

    fn volumes(&self) -> Vec<&str> {
        names(&self.last.template["spec"]["volumes"])
    }

    fn containers(&self) -> Vec<&str> {
        names(&self.last.template["spec"]["containers"])
    }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["name"].as_str())
        .collect()
}

fn sha256(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text.as_bytes()))
}

/// The common inputs of the contract's test vectors.
pub fn vector(site: &Site<'_>, name: &str, release: &str) -> Scenario {
    site.scenario(name)
        .release(release)
        .backend(&format!("{name}-s3"), true)
        .with("keystoneEndpoint", json!("http://keystone.openstack.svc.cluster.local:5000/v3"))
        .with("cache", json!({ "backend": "dogpile.cache.pymemcache", "clusterRef": { "name": "openstack-memcached" } }))
        .with(
            "serviceUser",
            json!({
                "username": "admin", "projectName": "admin", "userDomainName": "Default", "projectDomainName": "Default",
                "secretRef": { "name": format!("{name}-service-user"), "key": "password" },
            }),
        )
}

/// The sections of the imports and of local space, on a local Glance.
#[test]
fn imports_and_staging_follow_the_spec_and_leave_nothing_behind() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "imports").await?;
        let operator = site.operator().await?;
        let _running = operator.start().await?;
        let mut story =
            Story::begin(&site, vector(&site, "glance-import-plugins", "2025.2")).await?;
        let plain = story.workload.files().await?;
        import_plugins(&mut story, &plain).await?;
        import_filtering(&mut story, &plain).await?;
        staging(&mut story, &plain).await
    });
}

async fn import_plugins(story: &mut Story<'_>, plain: &Files) -> Result<()> {
    plain.assert_line(CONF, "image_import_opts", "image_import_plugins = []");
    let all = json!({
        "injectMetadata": {
            "properties": { "tier": "gold", "cost-center": "images" }, "ignoreUserRoles": ["admin", "service"],
        },
        "conversion": { "outputFormat": "qcow2" },
        "decompression": {},
    });
    let files = story.change("importPlugins", all.clone(), 1).await?;
    // The contract's vector for exactly this resource.
    assert_eq!(
        sha256(files.text(CONF)),
        "3e334af1fe575b13b35b82650917f8e3c24fc5cfb480f16b5728130f860072fd",
        "{}",
        files.text(CONF)
    );
    assert_eq!(files.config_map, "glance-import-plugins-config-c2080277");
    for (section, line) in [
        (
            "image_import_opts",
            "image_import_plugins = [image_decompression,image_conversion,inject_image_metadata]",
        ),
        ("image_conversion", "output_format = qcow2"),
        (
            "inject_metadata_properties",
            "inject = cost-center:images,tier:gold",
        ),
        (
            "inject_metadata_properties",
            "ignore_user_roles = admin,service",
        ),
    ] {
        files.assert_line(CONF, section, line);
    }

    let mut fewer = all;
    fewer["conversion"] = json!({});
    fewer["injectMetadata"]["ignoreUserRoles"] = json!([]);
    let files = story.change("importPlugins", fewer, 1).await?;
    files.assert_line(CONF, "image_conversion", "output_format = raw");
    // An empty list is a value: inject for every role.
    files.assert_line(CONF, "inject_metadata_properties", "ignore_user_roles = ");

    let files = story.change("importPlugins", Value::Null, 1).await?;
    assert_eq!(&files, plain, "back to the very same files");
    Ok(())
}

async fn import_filtering(story: &mut Story<'_>, plain: &Files) -> Result<()> {
    let baseline = "localhost,127.0.0.1,0.0.0.0,::1,169.254.169.254,kubernetes,kubernetes.default,\
                    kubernetes.default.svc,kubernetes.default.svc.cluster.local";
    let lines = |schemes: &str, hosts: &str, denied: &str, ports: &str| {
        vec![
            format!("allowed_hosts = [{hosts}]"),
            format!("allowed_ports = [{ports}]"),
            format!("allowed_schemes = [{schemes}]"),
            format!("disallowed_hosts = [{denied}]"),
            "disallowed_ports = []".to_owned(),
            "disallowed_schemes = []".to_owned(),
        ]
    };
    let section = "import_filtering_opts";
    assert_eq!(
        plain.section(CONF, section),
        lines("https", "", baseline, "443")
    );

    // A block that says nothing renders what no block renders.
    let files = story.change("importFiltering", json!({}), 0).await?;
    assert_eq!(&files, plain);
    let denied = json!({ "disallowedHosts": ["db.internal", "localhost"] });
    let files = story.change("importFiltering", denied, 1).await?;
    assert_eq!(
        files.section(CONF, section),
        lines("https", "", &format!("{baseline},db.internal"), "443")
    );
    let allowed = json!({
        "allowedHosts": ["mirror.example.org"], "allowedSchemes": ["http", "https"], "allowedPorts": [443, 80],
    });
    let files = story.change("importFiltering", allowed, 1).await?;
    assert_eq!(
        files.section(CONF, section),
        lines("http,https", "mirror.example.org", "", "443,80")
    );
    // Empty lists are the documented way out of the defaults, and must survive in the stored resource.
    let open = json!({ "allowedSchemes": [], "allowedPorts": [], "disallowedHosts": [] });
    let files = story.change("importFiltering", open.clone(), 1).await?;
    assert_eq!(files.section(CONF, section), lines("", "", "", ""));
    let stored = story.glance().get().await?.context("the Glance")?;
    assert_eq!(stored.data["spec"]["importFiltering"], open);
    let files = story.change("importFiltering", Value::Null, 1).await?;
    assert_eq!(&files, plain);
    Ok(())
}

async fn staging(story: &mut Story<'_>, plain: &Files) -> Result<()> {
    let limits = |story: &Story<'_>| {
        let volumes = story.last.template["spec"]["volumes"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        ["staging", "tasks-work"].map(|name| {
            volumes
                .iter()
                .find(|v| v["name"] == name)
                .map_or(Value::Null, |v| v["emptyDir"].clone())
        })
    };
    let bound = |limit: &str| [json!({ "sizeLimit": limit }), json!({ "sizeLimit": limit })];
    assert_eq!(limits(story), bound("10Gi"));
    story.change("staging", json!({}), 0).await?;
    let files = story
        .change("staging", json!({ "sizeLimit": "20Gi" }), 1)
        .await?;
    assert_eq!(limits(story), bound("20Gi"));
    assert_eq!(&files, plain, "no file knows of the bound");
    // The same amount in other words.
    story
        .change("staging", json!({ "sizeLimit": "20480Mi" }), 0)
        .await?;
    story
        .change("staging", json!({ "unbounded": true }), 1)
        .await?;
    assert_eq!(limits(story), [json!({}), json!({})]);
    story.change("staging", Value::Null, 1).await?;
    assert_eq!(limits(story), bound("10Gi"));
    Ok(())
}

/// On a target: the sidecar, the volume and the files come and go together.
#[test]
fn the_image_cache_comes_with_its_keeper_and_goes_with_it() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "cache").await?;
        site.register("edge-1").await?;
        let operator = site.operator().await?;
        let _running = operator.start().await?;
        let rules = [
            "add_image",
            "get_image",
            "get_images",
            "upload_image",
            "download_image",
            "delete_image",
            "modify_image",
        ];
        let rules: serde_json::Map<_, _> = rules
            .map(|rule| (rule.to_owned(), json!("@")))
            .into_iter()
            .collect();
        let scenario = vector(&site, "glance-cache", "2026.1")
            .on("edge-1")
            .with("extraConfig", json!({ "DEFAULT": { "allow_anonymous_access": "true" } }))
            .with("middleware", json!([{
                "name": "unauthenticated-context", "position": "after",
                "filterFactory": "glance.api.middleware.context:UnauthenticatedContextMiddleware.factory",
            }]))
            .with("policyOverrides", json!({ "rules": rules }));
        let mut story = Story::begin(&site, scenario).await?;
        let plain = story.workload.files().await?;
        let (template, volumes) = (
            story.last.template.clone(),
            ["config", "backends", "staging", "tasks-work"],
        );
        assert_eq!(story.volumes(), volumes);
        assert_eq!(story.containers(), ["glance-api"]);
        assert!(!plain.text(CONF).contains("image_cache"));

        let files = story
            .change("imageCache", json!({ "sizeLimit": "256Mi" }), 1)
            .await?;
        // The contract's vector for exactly this resource, file by file.
        for (file, digest) in [
            (
                CONF,
                "7f1189be0c1d5a8ac02a2cd537f68df1a8e029dc5044ecef49806805f264fbbf",
            ),
            (
                PASTE,
                "bd13ae19cda3c7c0f073e454816de79853a54d9511f1b97cbb5a4e19de3b2d58",
            ),
            (
                "policy.yaml",
                "cf6b4ae9b4f53673d04b761283b18b90e83d4ebc45e5583e010d6121cd5a942a",
            ),
        ] {
            assert_eq!(
                sha256(files.text(file)),
                digest,
                "{file}:\n{}",
                files.text(file)
            );
        }
        assert_eq!(files.config_map, "glance-cache-config-428f0743");
        for line in [
            "image_cache_dir = /var/lib/glance/image-cache",
            "image_cache_driver = sqlite",
            "image_cache_max_size = 214748360",
        ] {
            files.assert_line(CONF, "DEFAULT", line);
        }
        files.assert_line(PASTE, "pipeline:api", "pipeline = cors http_proxy_to_wsgi versionnegotiation authtoken context unauthenticated-context cache rootapp");
        assert_eq!(story.volumes(), [&volumes[..], &["image-cache"]].concat());
        assert_eq!(story.containers(), ["glance-api", "cache-maintenance"]);
        sidecar(&story, 300, 209_715);

        let faster = json!({ "sizeLimit": "256Mi", "maintenanceInterval": "1m0s" });
        let same = story.change("imageCache", faster.clone(), 1).await?;
        assert_eq!(same, files, "only the keeper knows of the interval");
        sidecar(&story, 60, 209_715);
        story
            .change(
                "imageCache",
                json!({ "sizeLimit": "256Mi", "maintenanceInterval": "60s" }),
                0,
            )
            .await?;
        let files = story.change("imageCache", json!({}), 1).await?;
        files.assert_line(CONF, "DEFAULT", "image_cache_max_size = 8589934592");
        sidecar(&story, 300, 8_388_608);

        let files = story.change("imageCache", Value::Null, 1).await?;
        assert_eq!(files, plain);
        assert_eq!(
            story.last.template, template,
            "as if the feature did not exist"
        );
        Ok(())
    });
}

fn sidecar(story: &Story<'_>, interval: u32, high_water: u64) {
    let keeper = &story.last.template["spec"]["containers"][1];
    assert_has(
        keeper,
        &json!({
            "name": "cache-maintenance", "image": "registry.example/openstack/glance:2026.1",
            "resources": { "requests": { "cpu": "25m", "memory": "64Mi" }, "limits": { "memory": "256Mi", "cpu": null } },
            "volumeMounts": [
                { "name": "config", "mountPath": "/etc/glance/glance-api.conf.d/", "readOnly": true },
                { "name": "image-cache", "mountPath": "/var/lib/glance/image-cache", "readOnly": null },
            ],
            "env": null, "ports": null, "lifecycle": null,
            "startupProbe": null, "livenessProbe": null, "readinessProbe": null,
            "securityContext": { "readOnlyRootFilesystem": true, "runAsUser": 42424 },
        }),
    );
    let command: Vec<_> = keeper["command"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(command[..3], ["/bin/sh", "-eu", "-c"]);
    let assignments: Vec<_> = command[3].lines().take(5).collect();
    assert_eq!(
        assignments,
        [
            format!("interval={interval}"),
            "poll=30".to_owned(),
            format!("high_water_kib={high_water}"),
            "dir=/var/lib/glance/image-cache".to_owned(),
            "conf=/etc/glance/glance-api.conf.d/".to_owned(),
        ]
    );
    let volume = story.last.template["spec"]["volumes"]
        .as_array()
        .and_then(|v| v.last())
        .cloned()
        .unwrap_or_default();
    let limit = if high_water == 8_388_608 {
        "10Gi"
    } else {
        "256Mi"
    };
    assert_eq!(
        volume,
        json!({ "name": "image-cache", "emptyDir": { "sizeLimit": limit } })
    );
}

const TASKS: &str = "tasks_api_access: '!'\n";
const JSON_LOG: &str = "[loggers]\nkeys = root\n\n[handlers]\nkeys = stderr\n\n[formatters]\nkeys = json\n\n\
    [logger_root]\nlevel = INFO\nhandlers = stderr\n\n[handler_stderr]\nclass = StreamHandler\nargs = (sys.stderr,)\n\
    level = NOTSET\nformatter = json\n\n[formatter_json]\nclass = oslo_log.formatters.JSONFormatter\n";

#[test]
fn policy_and_logging_follow_the_spec_and_the_policy_s_config_map() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "policy").await?;
        site.register("edge-2").await?;
        let operator = site.operator().await?;
        let _running = operator.start().await?;
        let local = vector(&site, "here", "2025.2");
        let placed = vector(&site, "there", "2025.2").on("edge-2");
        let (here, there) = futures::join!(
            async {
                let mut story = Story::begin(&site, local).await?;
                policy(&mut story).await?;
                logging(&mut story).await
            },
            async { policy(&mut Story::begin(&site, placed).await?).await },
        );
        here.and(there)
    });
}

async fn policy(story: &mut Story<'_>) -> Result<()> {
    let plain = story.workload.files().await?;
    assert_eq!(plain.text("policy.yaml"), TASKS);
    plain.assert_line(
        CONF,
        "oslo_policy",
        "policy_file = /etc/glance/glance-api.conf.d/policy.yaml",
    );

    let rules = json!({ "add_image": "role:admin", "get_image": "@" });
    let files = story
        .change("policyOverrides", json!({ "rules": rules }), 1)
        .await?;
    assert_eq!(
        files.text("policy.yaml"),
        format!("add_image: role:admin\nget_image: '@'\n{TASKS}")
    );
    assert_eq!(files.text(CONF), plain.text(CONF));

    // The document of the ConfigMap is read where the pods are, and the rules in the resource win over it.
    let name = format!("{}-policy", story.scenario.name());
    let document = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "namespace": story.site.namespace(), "name": name },
            "data": { "policy.yaml": text },
        })
    };
    let (first, second, broken, third) = (
        document("add_image: '!'\ndelete_image: role:admin\n"),
        document("add_image: '!'\ndelete_image: '@'\n"),
        document("delete_image: [role:admin]\n"),
        document("# nothing else\ntasks_api_access: role:admin\n"),
    );
    let cluster = story.workload.cluster();
    cluster.apply(&first).await?;
    let both = json!({ "rules": { "add_image": "role:admin" }, "configMapRef": { "name": name } });
    let files = story.change("policyOverrides", both, 1).await?;
    assert_eq!(
        files.text("policy.yaml"),
        format!("add_image: role:admin\ndelete_image: role:admin\n{TASKS}")
    );

    // An edit of the ConfigMap alone is followed.
    cluster.apply(&second).await?;
    let files = story.settles("an edit of the ConfigMap", 1).await?;
    assert_eq!(
        files.text("policy.yaml"),
        format!("add_image: role:admin\ndelete_image: '@'\n{TASKS}")
    );
    cluster.apply(&broken).await?;
    let wanted = Wanted::of("SecretsReady")
        .status("False")
        .reason("ConfigError")
        .message("parsing policy.yaml from ConfigMap");
    story.glance().condition(seconds(LIMIT), wanted).await?;
    cluster.apply(&second).await?;
    story.glance().is_ready(seconds(LIMIT)).await?;
    let same = story.settles("a mistake that was taken back", 0).await?;
    assert_eq!(same, files);
    cluster.apply(&third).await?;
    let files = story
        .settles("a rule of the user for the tasks API", 1)
        .await?;
    assert_eq!(
        files.text("policy.yaml"),
        "add_image: role:admin\ntasks_api_access: role:admin\n"
    );

    let files = story.change("policyOverrides", Value::Null, 1).await?;
    assert_eq!(files, plain);
    // It is the user's own.
    let theirs = Object::new(cluster, kinds::CONFIG_MAP, story.site.namespace(), &name);
    assert!(theirs.get().await?.is_some());
    Ok(())
}

async fn logging(story: &mut Story<'_>) -> Result<()> {
    let plain = story.workload.files().await?;
    assert!(!plain.config.contains_key("logging.conf"));
    // What is the default anyway changes nothing.
    story
        .change(
            "logging",
            json!({ "format": "text", "level": "INFO", "debug": false }),
            0,
        )
        .await?;
    let files = story
        .change("logging", json!({ "format": "json" }), 1)
        .await?;
    assert_eq!(files.text("logging.conf"), JSON_LOG);
    assert_eq!(
        sha256(JSON_LOG),
        "9c02e4cb2310ca3e10b9897d104c92bd0b13806ce12301f458df569f6490f034"
    );
    files.assert_line(
        CONF,
        "DEFAULT",
        "log_config_append = /etc/glance/glance-api.conf.d/logging.conf",
    );

    let loud = json!({ "format": "json", "level": "WARNING", "perLoggerLevels": { "glance.store": "DEBUG" } });
    let files = story.change("logging", loud, 1).await?;
    files.assert_line("logging.conf", "logger_root", "level = WARNING");
    files.assert_line("logging.conf", "loggers", "keys = root,l0");
    assert_eq!(
        files.section("logging.conf", "logger_l0"),
        [
            "level = DEBUG",
            "handlers = stderr",
            "qualname = glance.store",
            "propagate = 0"
        ]
    );
    files.assert_line(CONF, "DEFAULT", "default_log_levels = glance.store=DEBUG");
    let files = story.change("logging", json!({ "debug": true }), 1).await?;
    assert!(
        !files.config.contains_key("logging.conf"),
        "plain text at INFO needs no document"
    );
    files.assert_line(CONF, "DEFAULT", "debug = true");
    let files = story.change("logging", Value::Null, 1).await?;
    assert_eq!(files, plain);
    Ok(())
}

#[test]
fn scaling_and_isolation_touch_no_pod_and_exposure_only_what_it_must() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "isolate").await?;
        site.register("edge-2").await?;
        let operator = site.operator().await?;
        let _running = operator.start().await?;
        for scenario in [
            vector(&site, "here", "2025.2"),
            vector(&site, "there", "2026.1").on("edge-2"),
        ] {
            let mut story = Story::begin(&site, scenario).await?;
            network_policy(&mut story).await?;
            autoscaling(&mut story).await?;
            exposure(&mut story).await?;
        }
        Ok(())
    });
}

async fn network_policy(story: &mut Story<'_>) -> Result<()> {
    let name = story.scenario.name().to_owned();
    let source = |team: &str| json!({ "namespaceSelector": { "matchLabels": { "team": team } } });
    let one = json!({ "ingress": [source("compute")], "additionalEgress": [{ "ports": [{ "protocol": "TCP", "port": 8443 }] }] });
    story.change("networkPolicy", one, 0).await?;
    let ready = |reason| {
        Wanted::of("NetworkPolicyReady")
            .status("True")
            .reason(reason)
    };
    story
        .glance()
        .condition(seconds(LIMIT), ready("NetworkPolicyReady"))
        .await?;
    let spec = story.workload.get(kinds::NETWORK_POLICY, &name).await?["spec"].clone();
    let peers = spec["ingress"][0]["from"].as_array().map_or(0, Vec::len);
    let ports = spec["egress"].as_array().map_or(0, Vec::len);
    assert_eq!(ports, 5, "{spec:#}");

    let two = json!({ "ingress": [source("compute"), source("network")] });
    story.change("networkPolicy", two, 0).await?;
    let spec = story.workload.get(kinds::NETWORK_POLICY, &name).await?["spec"].clone();
    assert_eq!(
        spec["ingress"][0]["from"].as_array().map_or(0, Vec::len),
        peers + 1
    );
    assert_eq!(spec["egress"].as_array().map_or(0, Vec::len), 4, "{spec:#}");

    story.change("networkPolicy", Value::Null, 0).await?;
    story
        .glance()
        .condition(seconds(LIMIT), ready("NetworkPolicyNotRequired"))
        .await?;
    for policy in [
        name.clone(),
        format!("{name}-keystone-egress"),
        format!("{name}-jobs-egress"),
    ] {
        story
            .workload
            .object(kinds::NETWORK_POLICY, &policy)
            .is_gone(seconds(LIMIT))
            .await?;
    }
    Ok(())
}

async fn autoscaling(story: &mut Story<'_>) -> Result<()> {
    let name = story.scenario.name().to_owned();
    let scale = |min: u32, max: u32| json!({ "minReplicas": min, "maxReplicas": max, "targetCPUUtilization": 80 });
    story.change("autoscaling", scale(2, 4), 0).await?;
    let ready = |reason| Wanted::of("HPAReady").status("True").reason(reason);
    story
        .glance()
        .condition(seconds(LIMIT), ready("HPAReady"))
        .await?;
    let autoscaler = story.workload.get(kinds::AUTOSCALER, &name).await?;
    assert_has(
        &autoscaler,
        &json!({ "spec": { "minReplicas": 2, "maxReplicas": 4 } }),
    );

    // Whoever scales now is not fought over the number of replicas.
    let cluster = story.workload.cluster();
    let deployments = cluster.any(
        kinds::DEPLOYMENT.0,
        kinds::DEPLOYMENT.1,
        Some(story.site.namespace()),
    );
    let three = json!({ "spec": { "replicas": 3 } });
    let params = PatchParams {
        field_manager: Some("autoscaler".to_owned()),
        ..PatchParams::default()
    };
    deployments
        .patch_scale(&name, &params, &Patch::Merge(&three))
        .await?;
    story.last = story.workload.is_rolled_out(seconds(LIMIT)).await?;
    story.change("autoscaling", scale(1, 5), 0).await?;
    assert_eq!(story.workload.deployment().await?["spec"]["replicas"], 3);
    assert_has(
        &story.workload.get(kinds::AUTOSCALER, &name).await?,
        &json!({ "spec": { "minReplicas": 1, "maxReplicas": 5 } }),
    );
    // One pod may be all there is, and a budget that keeps one would block every drain.
    let budget = story.workload.get(kinds::DISRUPTION_BUDGET, &name).await?;
    assert_has(
        &budget,
        &json!({ "spec": { "minAvailable": null, "maxUnavailable": 1 } }),
    );

    let before = story.last.clone();
    story.scenario = story.scenario.clone().with("autoscaling", Value::Null);
    story.write().await?;
    story
        .glance()
        .condition(seconds(LIMIT), ready("HPANotRequired"))
        .await?;
    story
        .workload
        .object(kinds::AUTOSCALER, &name)
        .is_gone(seconds(LIMIT))
        .await?;
    let now = story.workload.is_rolled_out(seconds(LIMIT)).await?;
    assert_eq!(
        (now.revision, &now.template),
        (before.revision, &before.template)
    );
    assert_eq!(
        story.workload.deployment().await?["spec"]["replicas"],
        2,
        "the number is ours again"
    );
    let budget = story.workload.get(kinds::DISRUPTION_BUDGET, &name).await?;
    assert_has(
        &budget,
        &json!({ "spec": { "minAvailable": 1, "maxUnavailable": null } }),
    );
    story.last = now;
    Ok(())
}

async fn exposure(story: &mut Story<'_>) -> Result<()> {
    let name = story.scenario.name().to_owned();
    let plain = story.workload.files().await?;
    let endpoint = async |story: &Story<'_>| {
        let glance = story.glance().get().await?.context("the Glance")?;
        Ok::<_, anyhow::Error>(glance.data["status"]["endpoint"].clone())
    };
    let inside = endpoint(story).await?;
    let route = |path: &str| json!({ "parentRef": { "name": "gw" }, "hostname": "images.example.org", "path": path });
    // The API must believe the headers of the gateway, which is a matter of its configuration.
    let files = story.change("gateway", route("/"), 1).await?;
    files.assert_line(
        CONF,
        "oslo_middleware",
        "enable_proxy_headers_parsing = true",
    );
    let accepted = |reason| Wanted::of("HTTPRouteReady").status("True").reason(reason);
    story
        .glance()
        .condition(seconds(LIMIT), accepted("HTTPRouteAccepted"))
        .await?;
    assert_eq!(endpoint(story).await?, "https://images.example.org/");

    // The rest is the gateway's business.
    story.change("gateway", route("image"), 0).await?;
    let object = story.workload.get(kinds::HTTP_ROUTE, &name).await?;
    let rewrite = json!({ "type": "URLRewrite", "urlRewrite": { "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/" } } });
    assert_has(
        &object,
        &json!({ "spec": { "rules": [{
            "matches": [{ "path": { "type": "PathPrefix", "value": "/image" } }], "filters": [rewrite],
        }] } }),
    );
    let outside = endpoint(story).await?;
    assert!(
        outside
            .as_str()
            .is_some_and(|e| e.starts_with("https://images.example.org/image")),
        "{outside}"
    );

    let files = story.change("gateway", Value::Null, 1).await?;
    assert_eq!(files, plain);
    story
        .glance()
        .condition(seconds(LIMIT), accepted("HTTPRouteNotRequired"))
        .await?;
    story
        .workload
        .object(kinds::HTTP_ROUTE, &name)
        .is_gone(seconds(LIMIT))
        .await?;
    assert_eq!(endpoint(story).await?, inside);
    Ok(())
}
