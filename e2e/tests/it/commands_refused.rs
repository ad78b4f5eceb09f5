//! Commands that cannot be done: what is wrong in one line, the way out in the next, and no result.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use e2e::{
    bed::run,
    cluster::Cluster,
    commands::{Commands, Output},
    fleet::Fleet,
    patience::seconds,
    registration::ACCOUNT,
    site::Site,
};
use glance_api::keys::annotations::HUB_UID;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::commands::register_as;

/// A name that no other test's Glances are placed on.
const NAME: &str = "mine-2";

/// An error in one line, a way out in the next if there has to be one, and nothing that looks like a result.
fn is_plain(output: &Output, words: &str, way_out: &str) -> Result<()> {
    ensure!(output.code != 0, "it succeeded: {output}");
    ensure!(output.stdout.is_empty(), "it printed a result: {output}");
    ensure!(!output.stderr.contains("panicked"), "{output}");
    let lines: Vec<_> = output.stderr.lines().collect();
    let errors = lines
        .iter()
        .filter(|line| line.starts_with("error: "))
        .count();
    ensure!(errors == 1, "{errors} errors: {output}");
    ensure!(
        output.stderr.contains(words),
        "{words:?} is not said: {output}"
    );
    ensure!(
        output.stderr.contains(way_out),
        "{way_out:?} is not said: {output}"
    );
    Ok(())
}

/// The file of somebody who may log in to a cluster and do nothing there.
async fn powerless(cluster: &Cluster, namespace: &str, folder: PathBuf) -> Result<String> {
    cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "namespace": namespace, "name": "nobody" },
        }))
        .await?;
    let file = folder.join(format!("nobody-{namespace}-{}.kubeconfig", cluster.name()));
    std::fs::write(&file, cluster.kubeconfig_of(namespace, "nobody").await?)?;
    Ok(file.display().to_string())
}

#[test]
fn who_may_not_is_told_what_is_forbidden_and_to_ask_for_it() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "cmdno").await?;
        let user = Commands::of(&site).await?;
        let done = register_as(
            &user,
            &site,
            NAME,
            "edge-1",
            &["--namespaces", site.namespace(), "--wait=false"],
        )
        .await?;
        ensure!(done.code == 0, "{done}");
        let folder = fleet.folder().path().to_owned();
        let on_hub = powerless(site.hub(), site.namespace(), folder.clone()).await?;
        let edge = fleet.cluster("edge-1")?;
        let on_target = powerless(edge, site.namespace(), folder).await?;
        let clusters = site.clusters_namespace();
        let as_nobody = ["--kubeconfig", &on_hub, "-n", &clusters];
        let administrator = edge.kubeconfig().display().to_string();
        let to_target = [
            "--target-kubeconfig",
            &administrator,
            "--target-context",
            "edge-1",
        ];
        for verb in [
            &["list"][..],
            &["list", NAME],
            &["doctor"],
            &["doctor", NAME],
            &["pause", NAME],
            &["resume", NAME],
            &["abandoned"],
            &["reclaim", NAME],
            &["unregister", NAME],
            &[&["unregister", NAME, "--force"][..], &to_target].concat(),
            &[&["rotate", NAME][..], &to_target].concat(),
            &[
                &["register", NAME, "--namespaces", site.namespace()][..],
                &to_target,
            ]
            .concat(),
        ] {
            let args = [&["clusters"], verb, &as_nobody].concat();
            let output = user.run("glance-operator", &args).await?;
            is_plain(&output, "forbidden", "next: ask for this right")
                .map_err(|error| error.context(format!("{verb:?}")))?;
        }
        // Nothing of it was done on the way.
        let rows = user.clusters_ok(&["list", "-o", "json"]).await?.json()?;
        ensure!(rows["items"][0]["name"] == NAME, "{rows}");
        ensure!(rows["items"][0]["registered"] == true, "{rows}");

        // All rights on the hub, none on the target.
        let nobody = format!("{}-nobody", edge.name());
        let to_target = [
            "--target-kubeconfig",
            &on_target,
            "--target-context",
            &nobody,
        ];
        let access = site.access_namespace();
        for verb in [
            &["rotate", NAME][..],
            &["register", NAME, "--access-namespace", &access],
            &["unregister", NAME],
        ] {
            let output = user.clusters(&[verb, &to_target].concat()).await?;
            is_plain(&output, "forbidden", "next: ask for this right")
                .map_err(|error| error.context(format!("{verb:?}")))?;
        }
        let known = e2e::expect::Object::new(site.hub(), e2e::kinds::SECRET, &clusters, NAME);
        known.exists(seconds(1)).await?;

        // Who may see there what was granted, and not take it back.
        let role = format!("{}-looker", site.namespace());
        let (api, everything) = ("rbac.authorization.k8s.io", ["*"]);
        edge.apply(&json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": { "name": role },
            "rules": [{ "apiGroups": everything, "resources": everything, "verbs": ["get", "list"] }],
        }))
        .await?;
        edge.apply(&json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": role },
            "roleRef": { "apiGroup": api, "kind": "ClusterRole", "name": role },
            "subjects": [{ "kind": "ServiceAccount", "namespace": site.namespace(), "name": "nobody" }],
        }))
        .await?;
        let output = user
            .clusters(&[&["unregister", NAME][..], &to_target].concat())
            .await?;
        is_plain(
            &output,
            "cannot delete resource",
            "next: ask for this right",
        )?;
        known.exists(seconds(1)).await?;
        for kind in ["ClusterRoleBinding", "ClusterRole"] {
            edge.delete(&json!({
                "apiVersion": format!("{api}/v1"), "kind": kind, "metadata": { "name": role },
            }))
            .await?;
        }
        Ok(())
    });
}

#[test]
fn what_is_somebody_elses_is_neither_deleted_nor_narrowed() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "cmdforeign").await?;
        let user = Commands::of(&site).await?;
        let clusters = site.clusters_namespace();
        site.hub()
            .apply(&json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": { "namespace": clusters, "name": "pull-secret" },
                "stringData": { "password": "p" },
            }))
            .await?;
        let output = user.clusters(&["unregister", "pull-secret"]).await?;
        is_plain(
            &output,
            "something else than a registration",
            "another name",
        )?;
        let theirs =
            e2e::expect::Object::new(site.hub(), e2e::kinds::SECRET, &clusters, "pull-secret");
        theirs.exists(seconds(1)).await?;

        // The account on the target as another hub would have made it.
        let options = ["--namespaces", site.namespace(), "--wait=false"];
        let done = register_as(&user, &site, "mine-3", "edge-1", &options).await?;
        ensure!(done.code == 0, "{done}");
        let edge = fleet.cluster("edge-1")?;
        let access = site.access_namespace();
        let account = edge.any("v1", "ServiceAccount", Some(&access));
        let mark = json!({ "metadata": { "annotations": { HUB_UID: "another" } } });
        account
            .patch(ACCOUNT, &PatchParams::default(), &Patch::Merge(&mark))
            .await?;
        let refused = register_as(&user, &site, "mine-3", "edge-1", &options).await?;
        is_plain(
            &refused,
            "was made for another hub (another)",
            "--access-namespace",
        )?;
        let gone = user
            .clusters_ok(&["unregister", "mine-3", "--target-context", "edge-1"])
            .await?;
        ensure!(
            gone.stderr
                .contains("another hub (another) logs in with it"),
            "{gone}"
        );
        ensure!(
            account.get_opt(ACCOUNT).await?.is_some(),
            "it was taken away"
        );
        let forced = [&options[..], &["--force-conflicts"]].concat();
        let done = register_as(&user, &site, "mine-3", "edge-1", &forced).await?;
        ensure!(done.code == 0, "{done}");
        Ok(())
    });
}

/// Kubeconfigs that are of no use.
struct Files {
    missing: String,
    garbage: String,
    empty: String,
    nonsense: String,
    closed: String,
    stranger: String,
}

/// Arguments, words of the error and of the way out.
type Case<'f> = (Vec<&'f str>, &'static str, &'static str);

impl Files {
    fn write(site: &Site<'_>) -> Result<Self> {
        let folder = site.fleet().folder().path();
        let file = |name: &str, text: &str| -> Result<String> {
            let path = folder.join(name);
            std::fs::write(&path, text)?;
            Ok(path.display().to_string())
        };
        let garbage = file("garbage.kubeconfig", "not: [a kubeconfig")?;
        let empty = file("empty.kubeconfig", "")?;
        let context = |server: &str, user: &str| {
            format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                 clusters: [{{name: k, cluster: {{server: '{server}'}}}}]\n\
                 users: [{{name: u, user: {user}}}]\n\
                 contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
            )
        };
        let closed = file(
            "closed.kubeconfig",
            &context("https://127.0.0.1:1", "{token: t}"),
        )?;
        let nonsense = file("nonsense.kubeconfig", &context("::nowhere::", "{token: t}"))?;
        let missing = folder.join("missing.kubeconfig").display().to_string();
        let stranger = {
            let admin = std::fs::read_to_string(site.hub().kubeconfig())?;
            let kept = admin
                .lines()
                .filter(|line| !line.trim_start().starts_with("client-"));
            let text = kept.collect::<Vec<_>>().join("\n");
            file(
                "stranger.kubeconfig",
                &text.replace("user:\n", "user:\n    token: wrong\n"),
            )?
        };
        Ok(Self {
            missing,
            garbage,
            empty,
            nonsense,
            closed,
            stranger,
        })
    }

    fn cases(&self) -> Vec<Case<'_>> {
        let files = self;
        let use_it = "next: name a kubeconfig by --kubeconfig";
        let reach = "next: check that the server in the context can be reached";
        let log_in = "next: log in to that cluster again";
        vec![
            (
                vec!["list", "--kubeconfig", &files.missing],
                "missing.kubeconfig",
                use_it,
            ),
            (
                vec!["list", "--kubeconfig", &files.garbage],
                "the kubeconfig cannot be used",
                use_it,
            ),
            (vec!["list", "--kubeconfig", &files.empty], "", ""),
            (vec!["list", "--kubeconfig", &files.nonsense], "", ""),
            (
                vec!["list", "--kubeconfig", &files.closed, "--timeout", "5s"],
                "",
                reach,
            ),
            (vec!["list", "--kubeconfig", &files.stranger], "", log_in),
            (
                vec!["list", "--context", "hubb"],
                "no context \"hubb\"",
                "next: take one of these",
            ),
            (vec!["lst"], "unrecognized subcommand", "tip: "),
            (vec!["list", "-o", "toml"], "possible values", ""),
            (vec!["list", "--timeout", "0s"], "--timeout", ""),
            (vec!["list", "--timeout", "soon"], "--timeout", ""),
            (vec!["pause"], "<NAME>", "Usage: "),
            (vec!["pause", "Edge_1"], "lower case letters", ""),
            (
                vec!["pause", "edge-1", "edge-2"],
                "unexpected argument",
                "Usage: ",
            ),
            (vec!["rotate", "edge-1", "--wait=perhaps"], "--wait", ""),
            (
                vec!["rotate", "edge-1", "--token-lifetime", "0s"],
                "--token-lifetime",
                "",
            ),
            (
                vec![
                    "register",
                    "local",
                    "--target-context",
                    "edge-1",
                    "--namespaces",
                    "a",
                ],
                "means the hub itself",
                "",
            ),
            (
                vec![
                    "register",
                    "e",
                    "--target-context",
                    "edge-1",
                    "--namespaces",
                    "A",
                ],
                "not a valid namespace name",
                "",
            ),
            (
                vec![
                    "register",
                    "e",
                    "--target-context",
                    "edge-1",
                    "--namespaces",
                    "a",
                    "--server",
                    "http://x",
                ],
                "not an https URL",
                "",
            ),
            (vec!["reclaim", "--all"], "unexpected argument", "Usage: "),
        ]
    }
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_asked() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "cmdbad").await?;
        let user = Commands::of(&site).await?;
        let files = Files::write(&site)?;
        for (args, words, way_out) in files.cases() {
            let given = args
                .iter()
                .any(|arg| *arg == "--kubeconfig" || *arg == "--context");
            let fixed = ["--context", "hub", "-n", "t-nothing"];
            let fixed = if given { &fixed[2..] } else { &fixed[..] };
            let args = [&["clusters"][..], &args, fixed].concat();
            let output = user.run("glance-operator", &args).await?;
            is_plain(&output, words, way_out)
                .map_err(|error| error.context(format!("{args:?}")))?;
        }
        let bare = user.run("glance-operator", &["clusters"]).await?;
        ensure!(bare.code != 0 && bare.stderr.contains("Usage: "), "{bare}");
        Ok(())
    });
}

#[test]
fn a_second_name_for_a_cluster_takes_neither_rights_nor_tokens_from_the_first() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "cmdtwins").await?;
        let _running = site.operator().await?.start().await?;
        let user = Commands::of(&site).await?;
        let first = register_as(&user, &site, "twin-1", "edge-1", &[]).await?;
        ensure!(first.code == 0, "{first}");

        // The roles of one account are replaced, not added to.
        let scope = ["--namespaces", site.namespace()];
        let refused = register_as(&user, &site, "twin-2", "edge-1", &scope).await?;
        is_plain(&refused, "twin-1 works in all of", "--service-account")?;
        // With the same rights both may have it, and the token of both outlives a rotation of one.
        let second = register_as(&user, &site, "twin-2", "edge-1", &[]).await?;
        ensure!(second.code == 0, "{second}");
        let rotated = user.clusters_ok(&["rotate", "twin-1"]).await?;
        let words = "stays, since twin-2 logs in with it";
        ensure!(rotated.stdout.contains(words), "{rotated}");
        let doctor = user.clusters(&["doctor", "twin-2"]).await?;
        let mut rows = doctor.stdout.lines();
        let logs_in = rows.any(|row| row.starts_with("login ") && row.contains(" ok "));
        ensure!(logs_in, "{doctor}");
        Ok(())
    });
}
