//! The image cache on a target: sidecar, volume and files come and go together.

use e2e::{bed::run, fleet::Fleet, shape::assert_has, site::Site};
use serde_json::{Value, json};

use super::{CONF, PASTE, Story, sha256, vector};

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
