//! Policy and logging follow the spec and the `ConfigMap` of the policy.

use anyhow::Result;
use e2e::{
    bed::run,
    expect::{Object, Wanted},
    fleet::Fleet,
    kinds,
    patience::seconds,
    site::Site,
};
use serde_json::{Value, json};

use super::{CONF, LIMIT, Story, sha256, vector};

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
