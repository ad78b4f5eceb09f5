//! Registrations that change under a living Glance.

use std::time::Duration;

use e2e::{
    audit::Request,
    bed::run,
    children,
    expect::{Wanted, condition, eventually},
    fleet::Fleet,
    kinds,
    patience::seconds,
    registration,
    site::Site,
};
use kube::api::{Patch, PatchParams};
use serde_json::json;

#[test]
fn a_label_taken_away_is_a_deregistration_and_back_again_a_registration() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "label").await?;
        let _operator = site.operator().await?.start().await?;
        site.register("edge-1").await?;
        let scenario = site.scenario("images").on("edge-1").backend("fast", true);
        site.apply(&scenario).await?;
        let glance = site.glance("images");
        glance.is_ready(seconds(60)).await?;
        let secret = site.clusters_namespace();
        for value in [None, Some("false")] {
            registration::label(site.hub(), &secret, "edge-1", value).await?;
            let lost = Wanted::of("SecretsReady")
                .status("False")
                .reason("TargetClusterUnavailable");
            glance.condition(seconds(10), lost).await?;
            let there = children::by_labels(fleet.cluster("edge-1")?, site.namespace(), "images");
            assert!(
                there.await?.contains_key("Deployment/images"),
                "what runs goes on running"
            );
            registration::label(site.hub(), &secret, "edge-1", Some("true")).await?;
            glance.is_ready(seconds(20)).await?;
        }
        Ok(())
    });
}

#[test]
fn a_rotated_registration_is_not_noticed_by_a_glance_that_is_being_edited() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "rotate").await?;
        let _operator = site.operator().await?.start().await?;
        site.register("edge-1").await?;
        let scenario = site.scenario("images").on("edge-1").backend("fast", true);
        site.apply(&scenario).await?;
        let glance = site.glance("images");
        glance.is_ready(seconds(60)).await?;
        let edge = fleet.cluster("edge-1")?;
        let mark = edge.audit().map(e2e::audit::Audit::mark).transpose()?;

        let api = site
            .hub()
            .any(kinds::GLANCE.0, kinds::GLANCE.1, Some(site.namespace()));
        let edits = async {
            for round in 0..40 {
                let patch = json!({ "spec": { "region": format!("region-{round}") } });
                api.patch("images", &PatchParams::default(), &Patch::Merge(&patch))
                    .await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
                let seen = glance
                    .get()
                    .await?
                    .and_then(|g| condition(&g, "SecretsReady"));
                let reason = seen.map(|c| c["reason"].clone());
                anyhow::ensure!(reason == Some(json!("SecretsAvailable")), "{reason:?}");
            }
            Ok::<_, anyhow::Error>(())
        };
        let rotation = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            site.rotate("edge-1").await
        };
        tokio::try_join!(edits, rotation)?;
        glance.is_ready(seconds(60)).await?;

        // Everything that came after the rotation came with a token that the server knows,
        // and each leg was listed at most once more.
        if let (Some(audit), Some(mark)) = (edge.audit(), mark) {
            let requests = audit.requests_by(&site.user_on_targets(), mark)?;
            let mut lists = std::collections::BTreeMap::new();
            // A leg pages through what it lists; other lists are look-ups of one pass.
            let of_a_leg = |r: &&Request| r.verb == "list" && r.uri.contains("limit=");
            for request in requests.iter().filter(of_a_leg) {
                *lists.entry(request.uri.as_str()).or_insert(0) += 1;
            }
            assert!(lists.values().all(|n| *n <= 1), "{lists:?}");
            let refused = audit
                .requests(mark)?
                .into_iter()
                .filter(|r| r.code == 401 && r.uri.contains(site.namespace()));
            let refused: Vec<_> = refused.collect();
            assert!(refused.len() <= 1, "{refused:#?}");
        }
        Ok(())
    });
}

/// A kubeconfig with one thing in it that no registration may have.
fn hostile(fine: &str, change: &str) -> String {
    match change {
        "exec" => fine.replace("    token:", "    exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/touch, args: [/tmp/e2e-must-not-exist]}\n    x:"),
        "auth-provider" => fine.replace("    token:", "    auth-provider: {name: gcp}\n    x:"),
        "tokenFile" => fine.replace("    token:", "    tokenFile: /tmp/e2e-must-not-exist\n    x:"),
        "insecure" => fine.replace("    certificate-authority-data:", "    insecure-skip-tls-verify: true\n    x:"),
        "http" => fine.replace("https://", "http://"),
        "a hostile neighbour" => fine.replace(
            "users:\n",
            "users:\n- name: other\n  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/touch}}\n",
        ),
        "garbage" => "not a kubeconfig".to_owned(),
        "empty" => String::new(),
        other => panic!("{other}"),
    }
}

#[test]
fn a_refused_kubeconfig_never_engages_and_its_correction_does() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "refused").await?;
        let operator = site.operator().await?;
        let _running = operator.start().await?;
        let edge = fleet.cluster("edge-1")?;
        let fine = site.kubeconfig(edge).await?;
        let scenario = site.scenario("images").on("edge-1").backend("fast", true);
        site.apply(&scenario).await?;
        let glance = site.glance("images");
        let secret = site.clusters_namespace();
        for (change, words) in [
            (
                "exec",
                "exec and auth-provider credentials are not supported",
            ),
            (
                "auth-provider",
                "exec and auth-provider credentials are not supported",
            ),
            ("tokenFile", "file-backed credentials"),
            (
                "a hostile neighbour",
                "exec and auth-provider credentials are not supported",
            ),
            ("insecure", "insecure-skip-tls-verify"),
            ("http", "http"),
            ("garbage", "edge-1"),
            ("empty", "edge-1"),
        ] {
            let before = operator.output().len();
            let kubeconfig = hostile(&fine, change);
            let scope = Some(site.namespace());
            registration::register(site.hub(), &secret, "edge-1", &kubeconfig, scope).await?;
            eventually(
                seconds(15),
                &format!("the refusal of {change}"),
                async || {
                    let news = operator.output().split_off(before);
                    if news.contains(words) {
                        Ok(())
                    } else {
                        Err(news)
                    }
                },
            )
            .await?;
            let lost = Wanted::of("SecretsReady")
                .status("False")
                .reason("TargetClusterUnavailable")
                .message("cluster not found");
            glance.condition(seconds(20), lost).await?;
        }
        assert!(!std::path::Path::new("/tmp/e2e-must-not-exist").exists());
        let there = children::by_labels(edge, site.namespace(), "images").await?;
        assert!(there.is_empty(), "{:?}", there.keys());
        let scope = Some(site.namespace());
        registration::register(site.hub(), &secret, "edge-1", &fine, scope).await?;
        glance.is_ready(seconds(60)).await?;
        Ok(())
    });
}

#[test]
fn the_gateway_api_may_come_and_go_on_a_target() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "gateway").await?;
        let _operator = site.operator().await?.start().await?;
        let bare = fleet.another("bare", false).await?;
        site.register_as("bare", bare.cluster()).await?;
        let scenario = site
            .scenario("images")
            .on("bare")
            .backend("fast", true)
            .with(
                "gateway",
                json!({ "parentRef": { "name": "public" }, "hostname": "images.example" }),
            );
        scenario.apply(site.hub(), bare.cluster()).await?;
        let glance = site.glance("images");
        let missing = Wanted::of("HTTPRouteReady")
            .status("False")
            .reason("GatewayAPINotInstalled")
            .message("target cluster");
        glance.condition(seconds(60), missing).await?;

        let gateway_api = e2e::assets::Neighbour::GatewayApi.crds()?;
        bare.cluster().install(&gateway_api).await?;
        glance
            .condition(seconds(60), Wanted::of("HTTPRouteReady").status("True"))
            .await?;
        glance.is_ready(seconds(60)).await?;

        bare.cluster().uninstall(&gateway_api).await?;
        glance.condition(seconds(60), missing).await?;
        Ok(())
    });
}
