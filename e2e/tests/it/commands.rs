//! The fleet in the hands of people: every verb of the command line, as they type it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use e2e::{
    bed::run,
    charts, children,
    cluster::Cluster,
    commands::{Commands, Output},
    expect::{Object, condition},
    fleet::Fleet,
    kinds,
    patience::seconds,
    registration::{ACCOUNT, LABEL},
    site::Site,
    witness::Witness,
};
use kube::api::{DynamicObject, ListParams, ObjectMeta, TypeMeta};
use serde_json::{Value, json};

/// Registers a target of the fleet for the namespace of a site, by command.
pub(crate) async fn register(
    user: &Commands,
    site: &Site<'_>,
    target: &str,
    more: &[&str],
) -> Result<Output> {
    register_as(user, site, target, target, more).await
}

/// A name that no other test's Glances are placed on.
const MINE: &str = "mine-1";

pub(crate) async fn register_as(
    user: &Commands,
    site: &Site<'_>,
    name: &str,
    context: &str,
    more: &[&str],
) -> Result<Output> {
    let access = site.access_namespace();
    let fixed = [
        "register",
        name,
        "--target-context",
        context,
        "--access-namespace",
        &access,
    ];
    user.clusters(&[&fixed[..], more].concat()).await
}

async fn secrets_of(target: &Cluster, namespace: &str) -> Result<Vec<DynamicObject>> {
    let api = target.any(kinds::SECRET.0, kinds::SECRET.1, Some(namespace));
    Ok(api.list(&ListParams::default()).await?.items)
}

/// What remains on a target of the objects that the command made for a site.
async fn granted(target: &Cluster, site: &Site<'_>) -> Result<Vec<String>> {
    let instance = format!("{}-{ACCOUNT}", site.access_namespace());
    let selector = format!("app.kubernetes.io/instance={instance}");
    let mut found = Vec::new();
    for (version, kind) in [
        ("v1", "ServiceAccount"),
        ("v1", "Secret"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ] {
        let api = target.any(version, kind, None);
        let list = api.list(&ListParams::default().labels(&selector)).await?;
        let names = list.items.into_iter().filter_map(|o| o.metadata.name);
        found.extend(names.map(|name| format!("{kind}/{name}")));
    }
    Ok(found)
}

#[test]
fn one_command_and_one_manifest_take_a_cluster_to_a_ready_glance_and_back() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "cmd").await?;
        let _running = site.operator().await?.start().await?;
        let user = Commands::of(&site).await?;
        let edge = fleet.cluster("edge-1")?;
        let fresh = format!("{}-fresh", site.namespace());
        let namespaces = format!("{},{fresh}", site.namespace());

        // One command.
        let options = ["--namespaces", &namespaces];
        let done = register_as(&user, &site, MINE, "edge-1", &options).await?;
        assert_eq!(done.code, 0, "{done}");
        assert!(done.stdout.contains("mine-1 registered"), "{done}");
        assert!(done.stderr.contains(" s] "), "no clock: {done}");
        ensure!(
            edge.any("v1", "Namespace", None)
                .get_opt(&fresh)
                .await?
                .is_some(),
            "the namespace was not made"
        );
        // And one manifest, with the inputs that live beside a Glance.
        let scenario = site.scenario("images").on(MINE).backend("fast", true);
        scenario.apply(site.hub(), edge).await?;
        let glance = site.glance("images");
        glance.is_ready(seconds(90)).await?;

        // Seen in every form.
        let list = user.clusters_ok(&["list"]).await?;
        let head = list.stdout.lines().next().unwrap_or_default();
        assert!(head.starts_with("NAME     READY"), "{list}");
        assert!(list.stdout.contains("\nmine-1   "), "{list}");
        let rows = user.clusters_ok(&["list", "-o", "json"]).await?.json()?;
        let row = &rows["items"][0];
        assert_eq!(row["name"], MINE);
        assert_eq!(row["ready"], "True", "{row}");
        assert_eq!(row["glances"], 1);
        assert_eq!(row["namespaces"], json!([site.namespace(), fresh]));
        let yaml = user.clusters_ok(&["list", "-o", "yaml"]).await?.yaml()?;
        assert_eq!(yaml[0]["items"][0]["server"], row["server"]);
        let name = user.clusters_ok(&["list", "-o", "name"]).await?.stdout;
        assert_eq!(
            name.trim(),
            "targetcluster.clusters.openstack.c5c3.io/mine-1"
        );
        let wide = user.clusters_ok(&["list", "-o", "wide"]).await?;
        assert!(wide.stdout.contains("SERVER"), "{wide}");

        // Again: nothing changes.
        let again = register_as(&user, &site, MINE, "edge-1", &options).await?;
        assert_eq!(again.code, 0, "{again}");
        assert!(again.stdout.contains("registered again"), "{again}");

        // Not while somebody needs it.
        let refused = user.clusters(&["unregister", MINE]).await?;
        assert_eq!(refused.code, 1, "{refused}");
        let named = format!("{}/images", site.namespace());
        assert!(refused.stderr.contains(&named), "{refused}");
        assert!(refused.stderr.contains("next: "), "{refused}");
        assert_eq!(refused.stdout, "", "{refused}");

        // Gone without a trace but for the namespaces.
        site.hub().delete(&scenario.glance()).await?;
        glance.is_gone(seconds(60)).await?;
        assert!(!granted(edge, &site).await?.is_empty());
        let gone = user
            .clusters_ok(&["unregister", MINE, "--target-context", "edge-1"])
            .await?;
        assert!(gone.stdout.contains("mine-1 unregistered"), "{gone}");
        assert_eq!(granted(edge, &site).await?, Vec::<String>::new());
        assert!(
            edge.any("v1", "Namespace", None)
                .get_opt(&fresh)
                .await?
                .is_some()
        );
        let list = user.clusters_ok(&["list", "-o", "json"]).await?.json()?;
        assert_eq!(list["items"], json!([]));
        Ok(())
    });
}

#[test]
fn a_credential_is_rotated_without_anybody_noticing() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "cmdrot").await?;
        let _running = site.operator().await?.start().await?;
        let user = Commands::of(&site).await?;
        let edge = fleet.cluster("edge-2")?;
        let options = ["--namespaces", site.namespace(), "--wait=false"];
        let done = register(&user, &site, "edge-2", &options).await?;
        assert_eq!(done.code, 0, "{done}");
        let scenario = site.scenario("images").on("edge-2").backend("fast", true);
        site.apply(&scenario).await?;
        site.glance("images").is_ready(seconds(90)).await?;

        let witness = Witness::of(site.hub(), kinds::GLANCE, site.namespace()).await?;
        // Another command may be about to register a token that it has made.
        let tokens = secrets_of(edge, &site.access_namespace()).await?;
        let mut left = tokens
            .into_iter()
            .find(|secret| secret.data["type"] == "kubernetes.io/service-account-token")
            .context("no token")?;
        left.types = Some(TypeMeta {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
        });
        left.metadata = ObjectMeta {
            name: Some(format!("{ACCOUNT}-token-left")),
            namespace: left.metadata.namespace,
            labels: left.metadata.labels,
            annotations: left.metadata.annotations.map(|mut annotations| {
                annotations.remove("kubernetes.io/service-account.uid");
                annotations
            }),
            ..ObjectMeta::default()
        };
        left.data
            .as_object_mut()
            .context("no Secret")?
            .remove("data");
        edge.apply(&serde_json::to_value(&left)?).await?;
        // The context is found by the server that is registered.
        let rotated = user
            .clusters_ok(&["rotate", "edge-2", "--wait=false"])
            .await?;
        assert!(rotated.stdout.contains("-token is deleted"), "{rotated}");
        let tokens = secrets_of(edge, &site.access_namespace()).await?;
        let tokens: Vec<_> = tokens
            .iter()
            .filter(|secret| secret.data["type"] == "kubernetes.io/service-account-token")
            .filter_map(|secret| secret.metadata.name.clone())
            .collect();
        assert_eq!(tokens.len(), 2, "{tokens:?}");
        assert!(
            tokens.contains(&format!("{ACCOUNT}-token-left")),
            "{tokens:?}"
        );
        assert!(!tokens.contains(&format!("{ACCOUNT}-token")), "{tokens:?}");

        // The old one is dead, and work goes on with the new one.
        let deployment = Object::new(edge, kinds::DEPLOYMENT, site.namespace(), "images");
        let before = deployment.exists(seconds(5)).await?;
        edge.delete(&json!({
            "apiVersion": kinds::DEPLOYMENT.0, "kind": kinds::DEPLOYMENT.1,
            "metadata": { "namespace": site.namespace(), "name": "images" },
        }))
        .await?;
        deployment
            .satisfies(seconds(30), "to be made again", |found| {
                let same = found.metadata.uid == before.metadata.uid;
                (!same).then_some(()).ok_or("it is the old one".to_owned())
            })
            .await?;
        for glance in witness.versions()? {
            let reason = condition(&glance, "SecretsReady").unwrap_or_default();
            assert_ne!(reason["reason"], "TargetClusterUnavailable", "{reason}");
        }
        let again = user
            .clusters_ok(&["rotate", "edge-2", "--wait=false", "-o", "json"])
            .await?;
        assert_eq!(again.json()?["action"], "rotated", "{again}");
        Ok(())
    });
}

#[test]
fn a_paused_cluster_is_left_alone_until_it_is_resumed() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "cmdpause").await?;
        let user = Commands::of(&site).await?;
        let options = ["--namespaces", site.namespace(), "--wait=false"];
        let done = register(&user, &site, "edge-1", &options).await?;
        assert_eq!(done.code, 0, "{done}");
        let target = ("clusters.openstack.c5c3.io/v1alpha1", "TargetCluster");
        let namespace = site.clusters_namespace();
        let object = Object::new(site.hub(), target, &namespace, "edge-1");
        for (verb, paused) in [("pause", json!(true)), ("resume", Value::Null)] {
            let done = user.clusters_ok(&[verb, "edge-1", "-o", "json"]).await?;
            assert_eq!(done.json()?["paused"], json!(verb == "pause"), "{done}");
            let found = object.get().await?.context("no TargetCluster")?;
            assert_eq!(found.data["spec"]["paused"], paused);
        }
        // The identity that was pinned at the registration is still there.
        let found = object.get().await?.context("no TargetCluster")?;
        assert!(
            found.data["spec"]["identity"].is_string(),
            "{:?}",
            found.data
        );
        let ghosts = user.clusters_ok(&["abandoned", "-o", "json"]).await?;
        assert_eq!(ghosts.json()?, json!({ "items": [] }));
        let nothing = user.clusters_ok(&["reclaim", "edge-1"]).await?;
        assert!(
            nothing.stderr.contains("Nothing was left behind"),
            "{nothing}"
        );
        Ok(())
    });
}

#[test]
fn registering_again_opens_nothing_that_was_closed() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "cmdagain").await?;
        let user = Commands::of(&site).await?;
        let ns = site.namespace();
        let options = [
            "--namespaces",
            ns,
            "--allowed-namespaces",
            ns,
            "--wait=false",
        ];
        for options in [&options[..], &["--wait=false"]] {
            let done = register(&user, &site, "edge-1", options).await?;
            assert_eq!(done.code, 0, "{done}");
            let namespace = site.clusters_namespace();
            let target = ("clusters.openstack.c5c3.io/v1alpha1", "TargetCluster");
            let object = Object::new(site.hub(), target, &namespace, "edge-1");
            let found = object.get().await?.context("no TargetCluster")?;
            let names = &found.data["spec"]["allowedNamespaces"]["names"];
            assert_eq!(names, &json!([ns]));
            let rows = user.clusters_ok(&["list", "-o", "json"]).await?.json()?;
            assert_eq!(rows["items"][0]["namespaces"], json!([ns]), "{rows}");
        }
        Ok(())
    });
}

#[test]
fn a_name_never_comes_to_mean_another_cluster() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "cmdname").await?;
        let user = Commands::of(&site).await?;
        let options = ["--namespaces", site.namespace(), "--wait=false"];
        let done = register(&user, &site, "edge-1", &options).await?;
        assert_eq!(done.code, 0, "{done}");
        let mut args = vec!["register", "edge-1", "--target-context", "edge-2"];
        args.extend(options);
        let refused = user.clusters(&args).await?;
        assert_eq!(refused.code, 1, "{refused}");
        assert!(
            refused.stderr.contains("registered for another cluster"),
            "{refused}"
        );
        let refused = user
            .clusters(&["rotate", "edge-1", "--target-context", "edge-2"])
            .await?;
        assert!(
            refused.stderr.contains("registered for another cluster"),
            "{refused}"
        );
        Ok(())
    });
}

#[test]
fn mistakes_end_with_the_next_step_and_without_a_result() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "cmdmiss").await?;
        let user = Commands::of(&site).await?;
        for (args, error, next) in [
            (
                &["rotate", "nobody"][..],
                "no cluster is registered",
                "clusters list",
            ),
            (
                &["unregister", "nobody"],
                "no cluster is registered",
                "clusters register nobody",
            ),
            (
                &["pause", "nobody"],
                "no cluster is registered",
                "clusters register nobody",
            ),
            (
                &["doctor", "nobody"],
                "no cluster is registered",
                "clusters list",
            ),
            (
                &["register", "edge-1", "--target-context", "egde-1"],
                "there is no context \"egde-1\" in the kubeconfig; it has hub, edge-1, edge-2",
                "--kubeconfig",
            ),
            (
                &[
                    "register",
                    "edge-1",
                    "--target-context",
                    "edge-1",
                    "--namespaces",
                    "a,,b",
                ],
                "is not a valid namespace name",
                "",
            ),
            (
                &["register", "edge-1"],
                "which context leads to",
                "--target-context",
            ),
        ] {
            let output = user.clusters(args).await?;
            assert_eq!(output.code, 1, "{args:?}: {output}");
            assert_eq!(output.stdout, "", "{args:?}: {output}");
            assert!(output.stderr.contains(error), "{args:?}: {output}");
            assert!(output.stderr.contains(next), "{args:?}: {output}");
        }
        let list = user.clusters_ok(&["list"]).await?;
        assert_eq!(list.stdout, "", "{list}");
        assert!(list.stderr.contains("No cluster is registered"), "{list}");
        Ok(())
    });
}

#[test]
fn it_is_a_plugin_of_kubectl_and_completes_itself() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "cmdplug").await?;
        let user = Commands::of(&site).await?;
        let namespace = site.clusters_namespace();
        let args = [
            "glance",
            "clusters",
            "list",
            "--context",
            "hub",
            "-n",
            &namespace,
        ];
        let listed = user
            .run("kubectl", &[&args[..], &["-o", "json"]].concat())
            .await?;
        assert_eq!(listed.code, 0, "{listed}");
        assert_eq!(listed.json()?, json!({ "items": [] }));
        let args = ["glance", "clusters", "rotate", "edge-1", "--context", "hub"];
        let failed = user.run("kubectl", &args).await?;
        assert_eq!(failed.code, 1, "{failed}");
        assert!(
            failed.stderr.contains("`kubectl glance clusters list"),
            "{failed}"
        );
        let bare = user.run("kubectl", &["glance"]).await?;
        assert_ne!(bare.code, 0, "{bare}");
        assert!(bare.stderr.contains("Usage: kubectl glance"), "{bare}");

        for shell in ["bash", "zsh", "fish"] {
            let script = user.run("glance-operator", &["completion", shell]).await?;
            assert_eq!(script.code, 0, "{script}");
            assert!(script.stdout.contains("unregister"), "{shell}");
        }
        let help = user
            .run("glance-operator", &["clusters", "register", "--help"])
            .await?;
        assert_eq!(help.code, 0, "{help}");
        assert!(
            help.stdout.contains("Examples:") || help.stderr.contains("Examples:"),
            "{help}"
        );
        // A reader that has seen enough is no failure.
        let piped = user
            .paste("glance-operator crds | head -n 1; echo $?")
            .await?;
        assert!(piped.stderr.is_empty(), "{piped}");
        Ok(())
    });
}

/// An object without what only Helm, or only we, say about who made it.
fn plain(object: &Value) -> (String, Value) {
    let mut object = object.clone();
    if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
        for label in [
            "helm.sh/chart",
            "app.kubernetes.io/version",
            "app.kubernetes.io/managed-by",
        ] {
            labels.remove(label);
        }
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let key = format!(
        "{} {}/{}",
        text(&object["kind"]),
        text(&metadata["namespace"]),
        text(&metadata["name"])
    );
    (key, object)
}

#[test]
fn the_command_grants_on_a_target_what_the_chart_grants() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "cmdchart").await?;
        let user = Commands::of(&site).await?;
        let cases = [
            (
                &["--namespaces", "b,a"][..],
                json!({ "namespaces": ["a", "b"] }),
            ),
            (&[], json!({ "clusterWide": true })),
            (
                &[
                    "--namespaces",
                    "a",
                    "--create-namespaces=false",
                    "--service-account",
                    "hub",
                ],
                json!({
                    "namespaces": ["a"], "createNamespaces": false,
                    "serviceAccount": { "name": "hub" },
                }),
            ),
        ];
        for (options, values) in cases {
            let args = ["clusters", "register", "edge-1", "--dry-run", "-o", "yaml"];
            let args = [&args[..], options].concat();
            let printed = user.run("glance-operator", &args).await?;
            assert_eq!(printed.code, 0, "{printed}");
            let ours: BTreeMap<_, _> = printed
                .yaml()?
                .iter()
                .map(plain)
                // Helm makes the namespace of a release itself.
                .filter(|(key, _)| key != "Namespace /c5c3-access")
                .collect();
            // Another account is another release.
            let release = match values["serviceAccount"]["name"].as_str() {
                Some(account) => format!("{account}-{ACCOUNT}"),
                None => ACCOUNT.to_owned(),
            };
            let chart = charts::render(ACCOUNT, &release, "c5c3-access", &values).await?;
            let chart: BTreeMap<_, _> = chart.iter().map(plain).collect();
            assert_eq!(ours, chart, "{options:?}");
        }
        Ok(())
    });
}

#[test]
fn the_marks_of_a_registration_are_those_that_the_operator_reads() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "cmdmark").await?;
        let user = Commands::of(&site).await?;
        let options = ["--namespaces", site.namespace(), "--wait=false"];
        let done = register(&user, &site, "edge-2", &options).await?;
        assert_eq!(done.code, 0, "{done}");
        let secrets = secrets_of(site.hub(), &site.clusters_namespace()).await?;
        let secret = secrets
            .iter()
            .find(|secret| secret.metadata.name.as_deref() == Some("edge-2"))
            .context("no registration")?;
        let labels = secret.metadata.labels.clone().unwrap_or_default();
        assert_eq!(labels.get(LABEL).map(String::as_str), Some("true"));
        let there = children::all(fleet.cluster("edge-2")?, &site.access_namespace()).await?;
        let token = format!("Secret/{ACCOUNT}-token");
        assert!(there.contains_key(&token), "{:?}", there.keys());
        // Whoever prints everything there is prints no token.
        let encoded = there[&token].data["data"]["token"]
            .as_str()
            .unwrap_or_default();
        let token = String::from_utf8(data_encoding::BASE64.decode(encoded.as_bytes())?)?;
        ensure!(token.len() > 100, "no token");
        for verb in ["list", "doctor"] {
            for form in ["wide", "json", "yaml"] {
                let shown = user.clusters(&[verb, "-o", form]).await?;
                assert!(!shown.to_string().contains(&token), "{verb} {form}");
                let middle = token.split('.').nth(1).unwrap_or_default();
                assert!(!shown.to_string().contains(middle), "{verb} {form}");
            }
        }
        Ok(())
    });
}
