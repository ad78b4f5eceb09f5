//! Glances of two releases on two clusters at once, each launched its own way.

use std::collections::BTreeMap;

use anyhow::Result;
use e2e::{
    bed::run,
    fleet::Fleet,
    patience::seconds,
    scenario::Scenario,
    site::Site,
    workload::{Files, Workload, traces},
};
use serde_json::{Value, json};

use super::{READY, fields::EVENTLET, sha256};

const PASTE: &str = "glance-api-paste.ini";
const CONF: &str = "glance-api.conf";

/// The argument list of uWSGI with everything at its default.
fn uwsgi() -> Vec<&'static str> {
    vec![
        "uwsgi",
        "--http",
        ":9292",
        "--http-auto-chunked",
        "--http-chunked-input",
        "--http-keepalive",
        "--log-master",
        "--log-format",
        "%(method) %(uri) => generated %(rsize) bytes in %(msecs) msecs (%(proto) %(status))",
        "--wsgi-file",
        "/var/lib/openstack/bin/glance-wsgi-api",
        "--master",
        "--lazy-apps",
        "--need-app",
        "--processes",
        "2",
        "--threads",
        "1",
        "--pyargv",
        "--config-dir /etc/glance/glance-api.conf.d/ --config-dir /etc/glance/backends.conf.d/",
    ]
}

/// The variables behind the two that come from Secrets.
fn plain_variables(pod: &Value) -> BTreeMap<String, String> {
    let env = pod["spec"]["containers"][0]["env"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let from: Vec<_> = env
        .iter()
        .take(2)
        .filter_map(|v| v["name"].as_str())
        .collect();
    assert_eq!(
        from,
        ["OS_DATABASE__CONNECTION", "OS_KEYSTONE_AUTHTOKEN__PASSWORD"]
    );
    env.iter()
        .skip(2)
        .map(|v| {
            [&v["name"], &v["value"]]
                .map(|text| text.as_str().unwrap_or_default().to_owned())
                .into()
        })
        .collect()
}

fn volume_names(pod: &Value) -> Vec<&str> {
    let volumes = pod["spec"]["volumes"].as_array();
    volumes
        .into_iter()
        .flatten()
        .filter_map(|v| v["name"].as_str())
        .collect()
}

/// The first vector of the contract.
async fn apply_basic(site: &Site<'_>, old: &Scenario) -> Result<()> {
    old.apply_surroundings(site.hub()).await?;
    old.apply_credentials(site.hub()).await?;
    site.hub()
        .secret(
            site.namespace(),
            "glance-basic-s3-credentials",
            &[
                ("access-key-id", "AKIAEXAMPLE"),
                ("secret-access-key", "example-secret"),
            ],
        )
        .await?;
    let mut backend = old.backends().remove(0);
    backend["spec"]["s3"]["host"] = json!("http://garage.shared-services.svc.cluster.local:3900");
    backend["spec"]["s3"]["bucket"] = json!("glance-images");
    backend["spec"]["s3"]["region"] = json!("garage");
    site.hub().apply(&backend).await?;
    site.hub().apply(&old.glance()).await?;
    Ok(())
}

/// The first vector, byte for byte.
fn check_basic(conf: &Files) {
    for (file, digest) in [
        (
            CONF,
            "80faf6acf007dec3c8824e3aa1fbb13627735eb101164b86b4a83ac626ffb467",
        ),
        (
            PASTE,
            "3abc8008eac3833c46d02ef5c121cad5461f5be6fc34219d2cc60ab188b5cc76",
        ),
        (
            "policy.yaml",
            "ce11df0577cd6ecc9e7d44794c465ade372218ab1b31ad28dce5e730318e03ed",
        ),
    ] {
        assert_eq!(
            sha256(conf.text(file)),
            digest,
            "{file}:\n{}",
            conf.text(file)
        );
    }
    assert_eq!(conf.config_map, "glance-basic-config-40a668e9");
    assert_eq!(
        sha256(&conf.backends),
        "cb52bd05f62a46633727c5a0c6b2cfa7c6979b1648616c9ea9e9a905f534382c"
    );
    assert_eq!(conf.secret, "glance-basic-backends-8b6eaadb");
    conf.assert_line(CONF, "DEFAULT", "workers = 2");
}

fn check_variables(pod: &Value) {
    // Grace less pause less five.
    assert_eq!(
        plain_variables(pod),
        [
            (
                "UWSGI_HOOK_MASTER_START",
                "unix_signal:15 gracefully_kill_them_all"
            ),
            ("UWSGI_WORKER_RELOAD_MERCY", "105"),
            ("UWSGI_BINARY_PATH", "/var/lib/openstack/bin/python3"),
            ("UWSGI_CHUNKED_INPUT_LIMIT", "67108864"),
            ("UWSGI_BUFFER_SIZE", "65535"),
            ("UWSGI_HTTP_TIMEOUT", "14400"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into()
    );
}

#[test]
fn releases_and_clusters_mix_and_each_glance_is_launched_its_own_way() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "mixed").await?;
        site.register("edge-1").await?;
        site.register("edge-2").await?;
        let operator = site.operator().await?;
        let _running = operator.start().await?;

        let old = crate::features::vector(&site, "glance-basic", "2025.2");
        let new = site.scenario("newer").release("2026.1").backend("newer-s3", true).on("edge-1").with(
            "deployment",
            json!({ "replicas": 1, "terminationGracePeriodSeconds": 120, "preStopSleepSeconds": 10 }),
        );
        let tuned = site.scenario("tuned").release("2026.1").backend("tuned-s3", true).on("edge-2").with(
            "apiServer",
            json!({ "workers": 7, "uwsgi": { "processes": 4, "threads": 8, "harakiri": 20, "httpKeepAliveTimeout": 65 } }),
        );
        apply_basic(&site, &old).await?;
        futures::try_join!(site.apply(&new), site.apply(&tuned))?;
        let mut pods = BTreeMap::new();
        let mut files = BTreeMap::new();
        for scenario in [&old, &new, &tuned] {
            site.glance(scenario.name())
                .is_ready(seconds(READY))
                .await?;
            let workload = Workload::of(&site, scenario)?;
            let rollout = workload.is_rolled_out(seconds(READY)).await?;
            pods.insert(scenario.name().to_owned(), rollout.template);
            files.insert(scenario.name().to_owned(), workload.files().await?);
        }
        let command = |name: &str| pods[name]["spec"]["containers"][0]["command"].clone();

        assert_eq!(command("glance-basic"), json!(EVENTLET));
        check_basic(&files["glance-basic"]);
        assert_eq!(command("newer"), json!(uwsgi()));
        let text = files["newer"].text(CONF);
        assert!(
            !text.contains("workers ="),
            "uWSGI counts its own processes:\n{text}"
        );
        check_variables(&pods["newer"]);
        let mut wanted = uwsgi();
        wanted.splice(6..6, ["--http-keepalive-timeout", "65"]);
        wanted[17] = "4";
        wanted[19] = "8";
        wanted.extend(["--harakiri", "20"]);
        assert_eq!(command("tuned"), json!(wanted));
        files["tuned"].assert_line(CONF, "DEFAULT", "workers = 7");
        for name in ["newer", "tuned"] {
            let sections = files[name].section(PASTE, "composite:glance-api-keystone");
            assert_eq!(
                sections,
                files["glance-basic"].section(PASTE, "composite:glance-api-keystone")
            );
            files[name].assert_line(
                CONF,
                "glance_store",
                &format!("default_backend = {name}-s3"),
            );
            assert!(!files[name].backends.contains("garage"));
        }
        for (name, image) in [
            ("glance-basic", "2025.2"),
            ("newer", "2026.1"),
            ("tuned", "2026.1"),
        ] {
            let pod = &pods[name];
            assert_eq!(
                pod["spec"]["containers"][0]["image"],
                format!("registry.example/openstack/glance:{image}")
            );
            assert_eq!(
                volume_names(pod),
                ["config", "backends", "staging", "tasks-work"]
            );
            assert_eq!(
                pod["spec"]["volumes"][0]["configMap"]["name"],
                json!(files[name].config_map)
            );
        }
        assert_eq!(pods["newer"]["spec"]["terminationGracePeriodSeconds"], 120);

        // Each cluster has the children of its own Glance and of no other.
        for (cluster, name) in [
            ("hub", "glance-basic"),
            ("edge-1", "newer"),
            ("edge-2", "tuned"),
        ] {
            let found = traces(fleet.cluster(cluster)?, site.namespace()).await?;
            assert_eq!(found.len(), 11, "{cluster}: {found:?}");
            assert!(
                found.iter().all(|t| t.contains(&format!(" {name}"))),
                "{cluster}: {found:?}"
            );
        }
        Ok(())
    });
}
