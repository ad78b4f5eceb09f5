//! The bed itself: what the other tests take for granted.

use std::time::{Duration, Instant};

use e2e::{
    assets::{Assets, Neighbour},
    audit,
    bed::{block_on, run},
    cluster::{code, told},
    control_plane::ControlPlane,
    doubles::{glance_api::Answer, status::Behaviour},
    expect::{Object, Wanted, eventually},
    fleet::Fleet,
    kinds,
    patience::seconds,
    progress::Progress,
    site::Site,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

/// The limit for a hub and two targets, on a machine that has its cores for itself.
const FLEET_LIMIT: Duration = Duration::from_secs(30);

async fn client_of(kubeconfig: &str) -> anyhow::Result<Client> {
    let parsed = Kubeconfig::from_yaml(kubeconfig)?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(parsed, &options).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// What other work costs us: the run queue per core, at least one.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = text
        .split(' ')
        .next()
        .and_then(|l| l.parse().ok())
        .unwrap_or(1.0);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (load / f64::from(u32::try_from(cores).unwrap_or(1))).max(1.0)
}

/// What the namespaces of the bed demand of a pod.
fn confined_pod() -> Value {
    json!({ "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" } })
}

/// The same of a container.
fn confined_container() -> Value {
    json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } })
}

fn deployment(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "namespace": namespace, "name": name },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "securityContext": confined_pod(), "containers": [{
                    "name": "api", "image": "registry.example/api:1",
                    "ports": [{ "containerPort": 9292 }],
                    "securityContext": confined_container(),
                }] },
            },
        },
    })
}

fn service(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "namespace": namespace, "name": name },
        "spec": { "selector": { "app": name }, "ports": [{ "port": 9292, "targetPort": 9292 }] },
    })
}

fn job(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "namespace": namespace, "name": name },
        "spec": {
            "backoffLimit": 0,
            "template": { "spec": {
                "restartPolicy": "Never",
                "securityContext": confined_pod(),
                "containers": [{
                    "name": "job", "image": "registry.example/job:1",
                    "securityContext": confined_container(),
                }],
            } },
        },
    })
}

#[test]
fn a_killed_test_leaves_no_process_and_no_folder() {
    // A fleet in a process of its own, which is then killed as roughly as can be.
    let exe = std::env::current_exe().unwrap();
    let out = tempfile::NamedTempFile::new().unwrap();
    let mut victim = std::process::Command::new(exe)
        .args(["--exact", "bed::victim", "--ignored", "--nocapture"])
        .stdout(out.reopen().unwrap())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + seconds(240);
    let line = loop {
        let text = std::fs::read_to_string(out.path()).unwrap();
        if let Some(line) = text
            .lines()
            .find_map(|l| l.split_once("victim ").map(|l| l.1))
        {
            break line.to_owned();
        }
        assert!(
            victim.try_wait().unwrap().is_none(),
            "the victim ended early: {text}"
        );
        assert!(
            Instant::now() < deadline,
            "the victim did not come up: {text}"
        );
        std::thread::sleep(Duration::from_millis(100));
    };
    let mut words = line.split(' ');
    let took: f64 = words.next().unwrap().parse().unwrap();
    let folder = words.next().unwrap().to_owned();
    let pids: Vec<&str> = words.collect();
    assert_eq!(pids.len(), 5, "components of one control plane: {line}");
    assert!(running(&folder) >= 5, "the components name their folder");
    victim.kill().unwrap();
    victim.wait().unwrap();
    let deadline = Instant::now() + seconds(30);
    while running(&folder) > 0 || std::path::Path::new(&folder).exists() {
        assert!(
            Instant::now() < deadline,
            "{} processes of {folder} are left",
            running(&folder)
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    eprintln!("one control plane was up after {took:.1} s");
}

/// Processes whose command line names the folder.
fn running(folder: &str) -> usize {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains(folder) && !line.contains("janitor")
        })
        .count()
}

#[test]
#[ignore = "started by the test above, which kills it"]
fn victim() {
    block_on(async {
        let started = Instant::now();
        let assets = Assets::find_or_build(&Progress::silent()).unwrap();
        let folder = e2e::workdir::Workdir::create().unwrap();
        let mut plane = ControlPlane::start("victim", folder.path().join("victim"), assets)
            .await
            .unwrap();
        plane
            .cluster()
            .install(&Neighbour::Kwok.crds().unwrap())
            .await
            .unwrap();
        plane.start_nodes("192.0.2.1").unwrap();
        let pids: Vec<_> = plane
            .process_ids()
            .iter()
            .map(ToString::to_string)
            .collect();
        let took = started.elapsed().as_secs_f64();
        println!(
            "victim {took} {} {}",
            folder.path().display(),
            pids.join(" ")
        );
        std::future::pending::<()>().await;
    });
}

#[test]
fn the_fleet_comes_up_quickly() {
    run(async |fleet: &Fleet| {
        let limit = FLEET_LIMIT.mul_f64(load());
        eprintln!(
            "up in {:.1} s, limit {:.0} s",
            fleet.took().as_secs_f64(),
            limit.as_secs_f64()
        );
        assert!(
            fleet.took() < limit,
            "{:?} is more than {limit:?}",
            fleet.took()
        );
        assert_eq!(fleet.targets().count(), 2);
        Ok(())
    });
}

#[test]
fn whoever_is_not_the_administrator_gets_what_roles_give_him() {
    run(async |fleet: &Fleet| {
        let hub = fleet.hub();
        hub.namespace("bed-rbac").await?;
        for manifest in [
            json!({ "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": { "namespace": "bed-rbac", "name": "reader" } }),
            json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": { "namespace": "bed-rbac", "name": "reader" },
                "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"] }] }),
            json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": { "namespace": "bed-rbac", "name": "reader" },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" },
                "subjects": [{ "kind": "ServiceAccount", "namespace": "bed-rbac", "name": "reader" }] }),
        ] {
            hub.apply(&manifest).await?;
        }
        let client = client_of(&hub.kubeconfig_of("bed-rbac", "reader").await?).await?;
        let mark = hub.audit().map(audit::Audit::mark).transpose()?;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "bed-rbac");
        eventually(seconds(20), "the role to count", async || {
            maps.list(&ListParams::default())
                .await
                .map_err(|e| told(&e))
        })
        .await?;
        let secrets: Api<Secret> = Api::namespaced(client, "bed-rbac");
        let refused = secrets.list(&ListParams::default()).await.unwrap_err();
        assert_eq!(code(&refused), Some(403), "{refused}");

        // The same two requests, where they arrived.
        if let (Some(audit), Some(mark)) = (hub.audit(), mark) {
            let user = audit::account("bed-rbac", "reader");
            let seen: Vec<_> = audit.requests_by(&user, mark)?;
            let last = &seen[seen.len() - 2..];
            let brief: Vec<_> = last
                .iter()
                .map(|r| (r.verb.as_str(), r.resource.as_str(), r.code))
                .collect();
            assert_eq!(
                brief,
                [("list", "configmaps", 200), ("list", "secrets", 403)]
            );
            assert!(audit.requests_by("nobody", mark)?.is_empty());
        }
        Ok(())
    });
}

#[test]
fn the_service_proxy_reaches_the_glance_api() {
    run(async |fleet: &Fleet| {
        let edge = fleet.cluster("edge-1")?;
        edge.namespace("bed-proxy").await?;
        edge.apply(&deployment("bed-proxy", "api")).await?;
        edge.apply(&service("bed-proxy", "api")).await?;
        let client = edge.client();
        let probe = async || {
            let path = "/api/v1/namespaces/bed-proxy/services/http:api:9292/proxy/healthcheck";
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            client.request_text(request).await.map_err(|e| told(&e))
        };
        let body = eventually(seconds(60), "the proxy", probe).await?;
        assert_eq!(body, "OK");

        let peer = fleet.glance_api();
        assert!(peer.asked("bed-proxy", "api") >= 1);
        peer.set(
            "bed-proxy",
            "api",
            Answer::Code(503, "the store is down".to_owned()),
        );
        let refusal = probe().await.unwrap_err();
        assert!(refusal.contains("the store is down"), "{refusal}");
        peer.set("bed-proxy", "api", Answer::Close);
        let refusal = probe().await.unwrap_err();
        assert!(!refusal.contains("the store is down"), "{refusal}");
        peer.set("bed-proxy", "api", Answer::Hang);
        let hung = tokio::time::timeout(Duration::from_secs(2), probe()).await;
        assert!(hung.is_err(), "{hung:?}");
        peer.set("bed-proxy", "api", Answer::Healthy);
        assert_eq!(probe().await.unwrap(), "OK");
        Ok(())
    });
}

#[test]
fn pods_and_jobs_do_as_they_are_told() {
    run(async |fleet: &Fleet| {
        let (edge, kubelet) = (fleet.cluster("edge-2")?, fleet.doubles("edge-2")?.kubelet());
        edge.namespace("bed-pods").await?;
        let available = |wanted: i64| {
            move |o: &kube::api::DynamicObject| {
                let n = o
                    .data
                    .pointer("/status/availableReplicas")
                    .and_then(Value::as_i64);
                let n = n.unwrap_or(0);
                (n == wanted)
                    .then_some(())
                    .ok_or(format!("{n} replicas are available"))
            }
        };
        let api = Object::new(edge, kinds::DEPLOYMENT, "bed-pods", "api");
        kubelet.hold("bed-pods").await?;
        edge.apply(&deployment("bed-pods", "api")).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        api.satisfies(seconds(1), "to wait", available(0)).await?;
        kubelet.heal("bed-pods").await?;
        api.satisfies(seconds(30), "to run", available(2)).await?;
        kubelet.unready("bed-pods").await?;
        api.satisfies(seconds(30), "to lose its pods", available(0))
            .await?;
        kubelet.heal("bed-pods").await?;
        api.satisfies(seconds(30), "to recover", available(2))
            .await?;

        for (name, mood, condition) in [
            ("good", "heal", "Complete"),
            ("bad", "fail", "Failed"),
            ("slow", "hold", "Complete"),
        ] {
            match mood {
                "fail" => kubelet.fail_jobs("bed-pods").await?,
                "hold" => kubelet.hold_jobs("bed-pods").await?,
                _ => {}
            }
            edge.apply(&job("bed-pods", name)).await?;
            let job = Object::new(edge, kinds::JOB, "bed-pods", name);
            if mood == "hold" {
                job.satisfies(seconds(30), "to run", |o| {
                    let active = o.data.pointer("/status/active").and_then(Value::as_i64);
                    (active == Some(1))
                        .then_some(())
                        .ok_or(format!("{active:?} active"))
                })
                .await?;
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert!(e2e::expect::conditions(&job.get().await?.unwrap()).is_empty());
                kubelet.heal("bed-pods").await?;
            }
            job.condition(seconds(30), Wanted::of(condition).status("True"))
                .await?;
            kubelet.heal("bed-pods").await?;
        }
        Ok(())
    });
}

#[test]
fn the_operators_of_others_break_and_heal() {
    run(async |fleet: &Fleet| {
        let edge = fleet.cluster("edge-1")?;
        let doubles = fleet.doubles("edge-1")?;
        let namespace = "bed-doubles";
        edge.namespace(namespace).await?;
        let meta = |name: &str| json!({ "namespace": namespace, "name": name });
        let database = json!({ "apiVersion": "k8s.mariadb.com/v1alpha1", "kind": "Database",
            "metadata": meta("db"), "spec": { "mariaDbRef": { "name": "m" }, "name": "glance" } });
        let object = Object::new(edge, kinds::DATABASE, namespace, "db");
        let ready = |status| Wanted::of("Ready").status(status);

        doubles
            .mood()
            .set(kinds::DATABASE, namespace, Behaviour::Silent);
        edge.apply(&database).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(e2e::expect::conditions(&object.get().await?.unwrap()).is_empty());
        doubles
            .mood()
            .set(kinds::DATABASE, namespace, Behaviour::Healthy);
        object.condition(seconds(20), ready("True")).await?;
        doubles
            .mood()
            .set(kinds::DATABASE, namespace, Behaviour::Broken);
        object.condition(seconds(20), ready("False")).await?;
        // A broken operator does not let go.
        edge.delete(&database).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(
            object
                .get()
                .await?
                .unwrap()
                .metadata
                .deletion_timestamp
                .is_some()
        );
        doubles
            .mood()
            .set(kinds::DATABASE, namespace, Behaviour::Healthy);
        object.is_gone(seconds(20)).await?;

        edge.apply(&e2e::scenario::secret_store(namespace, "store"))
            .await?;
        Object::new(edge, kinds::SECRET_STORE, namespace, "store")
            .condition(seconds(20), ready("True"))
            .await?;
        doubles
            .vault()
            .put(namespace, "login", &[("password", "open sesame")]);
        edge.apply(
            &json!({ "apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret",
            "metadata": meta("login"), "spec": {
                "secretStoreRef": { "kind": "SecretStore", "name": "store" },
                "data": [
                    { "secretKey": "username", "remoteRef": { "key": "a" } },
                    { "secretKey": "password", "remoteRef": { "key": "b" } },
                ] } }),
        )
        .await?;
        Object::new(edge, kinds::EXTERNAL_SECRET, namespace, "login")
            .condition(seconds(20), ready("True"))
            .await?;
        let secret = edge.api::<Secret>(namespace).get("login").await?;
        let data = secret.data.unwrap_or_default();
        assert_eq!(data["password"].0, b"open sesame");
        assert_eq!(data["username"].0, b"username-of-login-in-bed-doubles");

        edge.apply(
            &json!({ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": meta("route"), "spec": { "parentRefs": [{ "name": "gw" }] } }),
        )
        .await?;
        let route = Object::new(edge, kinds::HTTP_ROUTE, namespace, "route");
        let accepted = |wanted: &'static str| {
            move |o: &kube::api::DynamicObject| {
                let c = o.data.pointer("/status/parents/0/conditions/0/status");
                (c == Some(&json!(wanted)))
                    .then_some(())
                    .ok_or(format!("Accepted={c:?}"))
            }
        };
        route
            .satisfies(seconds(20), "to be accepted", accepted("True"))
            .await?;
        doubles
            .mood()
            .set(kinds::HTTP_ROUTE, namespace, Behaviour::Broken);
        route
            .satisfies(seconds(20), "to be refused", accepted("False"))
            .await?;
        Ok(())
    });
}

#[test]
fn a_registered_account_may_what_its_chart_grants_and_no_more() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "rights").await?;
        site.register("edge-1").await?;
        let registered = site
            .hub()
            .api::<Secret>(&site.clusters_namespace())
            .get("edge-1")
            .await?;
        let kubeconfig =
            String::from_utf8(registered.data.unwrap_or_default()["kubeconfig"].0.clone())?;
        let client = client_of(&kubeconfig).await?;
        let list = async |client: &Client, namespace: &str| {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
            secrets
                .list(&ListParams::default())
                .await
                .map(drop)
                .map_err(|e| code(&e))
        };
        eventually(seconds(20), "the role to count", async || {
            list(&client, site.namespace())
                .await
                .map_err(|e| format!("{e:?}"))
        })
        .await?;
        assert_eq!(list(&client, "kube-system").await, Err(Some(403)));

        // A new token is a new login, and the old one is none any more.
        site.rotate("edge-1").await?;
        eventually(
            seconds(30),
            "the old token to be refused",
            async || match list(&client, site.namespace()).await {
                Err(Some(401)) => Ok(()),
                other => Err(format!("{other:?}")),
            },
        )
        .await?;
        site.deregister("edge-1").await?;
        let registrations = site.hub().api::<Secret>(&site.clusters_namespace());
        assert!(registrations.get_opt("edge-1").await?.is_none());
        Ok(())
    });
}

#[test]
fn our_definitions_are_served_everywhere() {
    run(async |fleet: &Fleet| {
        assert!(
            e2e::definitions::ours()?.len() >= 2,
            "crds/ holds the generated definitions"
        );
        for member in fleet.members() {
            let client = member.cluster().client();
            let group = client
                .list_api_group_resources("glance.openstack.c5c3.io/v1alpha1")
                .await?;
            let kinds: Vec<_> = group.resources.iter().map(|r| r.name.as_str()).collect();
            assert!(
                kinds.contains(&"glances") && kinds.contains(&"glancebackends"),
                "{kinds:?}"
            );
        }
        Ok(())
    });
}

#[test]
fn one_more_cluster_can_come_and_go_and_its_api_server_can_stop() {
    run(async |fleet: &Fleet| {
        let extra = fleet.another("extra", false).await?;
        let client = extra.cluster().client();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        assert!(namespaces.get_opt("default").await?.is_some());
        let groups = client.list_api_groups().await?;
        assert!(
            !groups
                .groups
                .iter()
                .any(|g| g.name == "gateway.networking.k8s.io")
        );
        let gateway_api = Neighbour::GatewayApi.crds()?;
        extra.cluster().install(&gateway_api).await?;
        extra.cluster().uninstall(&gateway_api).await?;
        if let Some(plane) = extra.plane() {
            use e2e::assets::Component::ApiServer;
            plane.stop(ApiServer)?;
            assert!(namespaces.get_opt("default").await.is_err());
            plane.run(ApiServer)?;
            plane.ready().await?;
            assert!(namespaces.get_opt("default").await?.is_some());
            plane.freeze(ApiServer);
            let frozen =
                tokio::time::timeout(Duration::from_secs(2), namespaces.get_opt("default")).await;
            assert!(frozen.is_err());
            plane.thaw(ApiServer);
            eventually(seconds(20), "the thaw", async || {
                namespaces.get("default").await.map_err(|e| told(&e))
            })
            .await?;
        }
        // Garbage collection and the token controller work on every cluster of ours.
        extra.cluster().namespace("bed-gc").await?;
        let maps: Api<ConfigMap> = extra.cluster().api("bed-gc");
        let owner: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "owner" } }))?;
        let owner = maps.create(&PostParams::default(), &owner).await?;
        let dependent: ConfigMap = serde_json::from_value(json!({ "metadata": {
            "name": "dependent",
            "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
                "uid": owner.metadata.uid }],
        } }))?;
        maps.create(&PostParams::default(), &dependent).await?;
        maps.delete("owner", &kube::api::DeleteParams::default())
            .await?;
        Object::new(extra.cluster(), kinds::CONFIG_MAP, "bed-gc", "dependent")
            .is_gone(seconds(60))
            .await?;
        Ok(())
    });
}
