//! The sections of the imports and of local space, on a local Glance.

use anyhow::{Context as _, Result};
use e2e::{bed::run, fleet::Fleet, site::Site, workload::Files};
use serde_json::{Value, json};

use super::{CONF, Story, sha256, vector};

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
