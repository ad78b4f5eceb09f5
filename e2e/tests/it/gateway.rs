//! The Gateway API comes and goes, and each cluster answers for itself.

use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::{
    assets::Neighbour,
    audit::account,
    bed::run,
    cluster::Cluster,
    expect::{Object, Wanted, condition},
    fleet::Fleet,
    kinds,
    operator::{Operator, Running},
    patience::seconds,
    registration,
    scenario::Scenario,
    site::Site,
};
use kube::api::DynamicObject;
use serde_json::{Value, json};

fn with_gateway(scenario: Scenario) -> Scenario {
    let gateway = json!({ "parentRef": { "name": "edge" }, "hostname": "images.example.org" });
    let store = format!("{}-store", scenario.name());
    scenario.with("gateway", gateway).backend(&store, true)
}

fn not_installed() -> Wanted<'static> {
    Wanted::of("HTTPRouteReady")
        .status("False")
        .reason("GatewayAPINotInstalled")
}

fn accepted() -> Wanted<'static> {
    Wanted::of("HTTPRouteReady")
        .status("True")
        .reason("HTTPRouteAccepted")
}

fn words(object: &DynamicObject) -> String {
    let found = condition(object, "HTTPRouteReady").unwrap_or_default();
    found["message"].as_str().unwrap_or_default().to_owned()
}

/// An operator whose hub is a cluster that is none of the fleet's hubs.
struct Elsewhere<'a> {
    hub: &'a Cluster,
    namespace: &'a str,
}

// === impl Elsewhere ===

impl Elsewhere<'_> {
    fn clusters(&self) -> String {
        format!("{}-clusters", self.namespace)
    }

    async fn operator(&self, fleet: &Fleet) -> Result<Operator> {
        self.hub.namespace(&self.clusters()).await?;
        let folder = fleet.folder().path();
        let operator = Operator::install(self.hub, self.namespace, folder).await?;
        Ok(operator
            .arg(&format!("--namespace={}", self.namespace))
            .arg(&format!("--clusters-namespace={}", self.clusters())))
    }

    async fn register(&self, target: &Cluster) -> Result<()> {
        let access = format!("{}-access", self.namespace);
        target.namespace(self.namespace).await?;
        let kubeconfig =
            registration::grant(target, &access, &[self.namespace], &Value::Null).await?;
        let scope = Some(self.namespace);
        let name = target.name();
        registration::register(self.hub, &self.clusters(), name, &kubeconfig, scope).await
    }

    fn glance<'n>(&'n self, name: &'n str) -> Object<'n> {
        Object::glance(self.hub, self.namespace, name)
    }
}

/// The kind is served, and the account may not read it.
async fn lacks_the_right(site: &Site<'_>, glance: &Object<'_>) -> Result<()> {
    let seen = glance
        .condition(
            seconds(30),
            Wanted::of("HTTPRouteReady").reason("ReconcileError"),
        )
        .await?;
    let text = words(&seen);
    assert!(
        text.contains("httproutes") && text.contains("forbidden"),
        "{text}"
    );
    let clusters = site.clusters_namespace();
    let object = site.target_cluster(&clusters, "bare");
    let lacks = Wanted::of("Permitted").reason("MissingPermissions");
    let seen = object.condition(seconds(30), lacks).await?;
    let missing = seen.data["status"]["missingPermissions"].to_string();
    assert!(missing.contains("httproutes"), "{missing}");
    Ok(())
}

/// Failed passes and steps.
async fn errors(running: &Running) -> Result<f64> {
    let name = "controller_runtime_reconcile_errors_total";
    Ok(running.metric(name, &[]).await?.unwrap_or(0.0))
}

#[test]
fn a_route_follows_the_gateway_api_of_its_own_cluster() {
    run(async |fleet: &Fleet| {
        // A cluster without the Gateway API: the hub of one operator, a target of another, whose
        // other clusters have it.
        let bare = fleet.another("bare", false).await?;
        let bare = bare.cluster();
        let here = Elsewhere {
            hub: bare,
            namespace: "t-gateway-here",
        };
        let mine = here.operator(fleet).await?;
        let my_process = mine.start().await?;
        here.register(fleet.cluster("edge-1")?).await?;
        let site = Site::open(fleet, "gateway").await?;
        let other = site.operator().await?;
        let other_process = other.start().await?;
        site.register_as("bare", bare).await?;

        let local = with_gateway(Scenario::new(here.namespace, "local"));
        local.apply(bare, bare).await?;
        let placed = with_gateway(Scenario::new(here.namespace, "placed").on("edge-1"));
        placed.apply(bare, fleet.cluster("edge-1")?).await?;
        let far = with_gateway(site.scenario("far").on("bare"));
        far.apply(site.hub(), bare).await?;

        let local = here.glance("local");
        let placed = here.glance("placed");
        let far = site.glance("far");
        let seen = local.condition(seconds(60), not_installed()).await?;
        let text = words(&seen);
        assert!(
            text.contains("gateway.networking.k8s.io/v1 HTTPRoute CRD"),
            "{text}"
        );
        assert!(text.contains("in this cluster"), "{text}");
        assert!(text.contains("install Gateway API"), "{text}");
        let seen = far.condition(seconds(60), not_installed()).await?;
        let text = words(&seen);
        assert!(text.contains("target cluster does not serve"), "{text}");
        assert!(!text.contains("restart"), "{text}");
        // The hub has none, and its placed Glance is none the worse for it.
        placed.condition(seconds(60), accepted()).await?;
        placed.is_ready(seconds(30)).await?;
        let edge = fleet.cluster("edge-1")?;
        Object::new(edge, kinds::HTTP_ROUTE, here.namespace, "placed")
            .exists(seconds(5))
            .await?;

        // Installed: noticed without a restart and without a rotation. Where the right to it is missing, that is said.
        let (access, ns) = (site.access_namespace(), site.namespace());
        let group = "gateway.networking.k8s.io";
        registration::withhold(bare, &access, ns, group, &["get", "list", "watch"]).await?;
        let engaged = || other.output().matches("cluster engaged").count();
        let before = engaged();
        let definitions = tokio::task::spawn_blocking(|| Neighbour::GatewayApi.crds()).await??;
        bare.install(&definitions).await?;
        let installed = Instant::now();
        local.condition(seconds(20), accepted()).await?;
        lacks_the_right(&site, &far).await?;
        site.kubeconfig(bare).await?;
        far.condition(seconds(60), accepted()).await?;
        eprintln!("routes after {:.1} s", installed.elapsed().as_secs_f64());
        for (namespace, name) in [(here.namespace, "local"), (site.namespace(), "far")] {
            Object::new(bare, kinds::HTTP_ROUTE, namespace, name)
                .exists(seconds(1))
                .await?;
        }
        assert_eq!(engaged(), before, "the registration was not touched");
        local.is_ready(seconds(20)).await?;
        far.is_ready(seconds(20)).await?;

        // Taken away: said, and looked for at leisure.
        bare.uninstall(&definitions).await?;
        local.condition(seconds(20), not_installed()).await?;
        far.condition(seconds(20), not_installed()).await?;
        let Some(audit) = bare.audit() else {
            return Ok(());
        };
        // The watches of what is gone end within moments.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let settled = (errors(&my_process).await?, errors(&other_process).await?);
        let mark = audit.mark()?;
        let time = Duration::from_secs(12);
        tokio::time::sleep(time).await;
        let access = account(&site.access_namespace(), registration::ACCOUNT);
        for user in [mine.user(), access] {
            let mut asked = audit.requests_by(&user, mark)?;
            // A watch that began before is in the log again when it ends.
            asked.retain(|r| r.uri.contains("gateway.networking.k8s.io") && r.verb != "watch");
            assert!(asked.len() <= 4, "{user} in {time:?}: {asked:#?}");
            assert!(
                asked.iter().all(|r| r.resource.is_empty()),
                "only the question whether: {asked:#?}"
            );
        }
        let later = (errors(&my_process).await?, errors(&other_process).await?);
        assert_eq!(later, settled, "{}", other_process.tail(10));
        placed.is_ready(seconds(5)).await?;
        Ok(())
    });
}
