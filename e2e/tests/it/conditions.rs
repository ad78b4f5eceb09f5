//! Every reason for which a Glance or a backend is not ready: provoked, read and healed, for a
//! Glance on the hub and for one on a target.

use e2e::{
    bed::run,
    doubles::{glance_api::Answer, status::Behaviour},
    expect::{Object, Wanted},
    fleet::Fleet,
    kinds,
    patience::seconds,
    scenario::{self, Scenario},
    site::Site,
};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

/// One Glance whose surroundings arrive one by one.
struct Walk<'f> {
    site: Site<'f>,
    scenario: Scenario,
}

// === impl Walk ===

impl Walk<'_> {
    fn namespace(&self) -> &str {
        self.site.namespace()
    }

    /// The cluster of the children.
    fn place(&self) -> &'static str {
        match self.scenario.target() {
            Some("edge-1") => "edge-1",
            _ => "hub",
        }
    }

    async fn glance(
        &self,
        type_: &str,
        status: &str,
        reason: &str,
        message: &str,
    ) -> anyhow::Result<()> {
        let wanted = Wanted::of(type_)
            .status(status)
            .reason(reason)
            .message(message);
        self.site
            .glance("images")
            .condition(seconds(60), wanted)
            .await
            .map(drop)
    }

    async fn backend(
        &self,
        type_: &str,
        status: &str,
        reason: &str,
        message: &str,
    ) -> anyhow::Result<()> {
        let wanted = Wanted::of(type_)
            .status(status)
            .reason(reason)
            .message(message);
        self.site
            .backend("fast")
            .condition(seconds(60), wanted)
            .await
            .map(drop)
    }

    async fn patch(&self, spec: Value) -> anyhow::Result<()> {
        let api = self
            .site
            .hub()
            .any(kinds::GLANCE.0, kinds::GLANCE.1, Some(self.namespace()));
        let patch = json!({ "spec": spec });
        api.patch("images", &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    async fn secrets(&self) -> anyhow::Result<()> {
        let cluster = self.site.children(&self.scenario)?;
        let doubles = self.site.fleet().doubles(self.place())?;
        let ns = self.namespace();
        let no = |reason, message| self.glance("SecretsReady", "False", reason, message);

        no("SecretStoreNotReady", "SecretStore \"store\" is not ready").await?;
        doubles
            .mood()
            .set(kinds::SECRET_STORE, ns, Behaviour::Broken);
        cluster.apply(&scenario::secret_store(ns, "store")).await?;
        let store = Object::new(cluster, kinds::SECRET_STORE, ns, "store");
        store
            .condition(seconds(20), Wanted::of("Ready").status("False"))
            .await?;
        no("SecretStoreNotReady", "upstream secret backend unreachable").await?;
        doubles
            .mood()
            .set(kinds::SECRET_STORE, ns, Behaviour::Healthy);

        let absent = format!("ExternalSecret {ns}/images-db not found yet");
        no("WaitingForDBCredentials", &absent).await?;
        doubles
            .mood()
            .set(kinds::EXTERNAL_SECRET, ns, Behaviour::Broken);
        let keys = ["username", "password"];
        cluster
            .apply(&scenario::external_secret(ns, "images-db", &keys))
            .await?;
        no(
            "WaitingForDBCredentials",
            "Waiting for ESO to sync database credentials",
        )
        .await?;
        doubles
            .mood()
            .set(kinds::EXTERNAL_SECRET, ns, Behaviour::Healthy);

        no("WaitingForServiceUserCredentials", "not found yet").await?;
        cluster
            .secret(ns, "images-service-user", &[("other", "x")])
            .await?;
        no("WaitingForServiceUserCredentials", "").await?;
        cluster
            .secret(ns, "images-service-user", &[("password", "x")])
            .await?;
        self.glance("SecretsReady", "True", "SecretsAvailable", "")
            .await
    }

    async fn backends(&self) -> anyhow::Result<()> {
        let cluster = self.site.children(&self.scenario)?;
        let ns = self.namespace();
        self.glance(
            "BackendsReady",
            "False",
            "NoDefaultBackend",
            "exactly one is required",
        )
        .await?;
        self.backend(
            "CredentialsReady",
            "False",
            "WaitingForCredentials",
            "not found yet",
        )
        .await?;
        self.backend("Ready", "False", "NotAllReady", "").await?;
        cluster
            .secret(ns, "fast-credentials", &[("access-key-id", "AKIAEXAMPLE")])
            .await?;
        self.backend("CredentialsReady", "False", "WaitingForCredentials", "")
            .await?;
        let keys = [("access-key-id", "AKIAEXAMPLE"), ("secret-access-key", "s")];
        cluster.secret(ns, "fast-credentials", &keys).await?;
        self.backend(
            "CredentialsReady",
            "True",
            "CredentialsAvailable",
            "fast-credentials",
        )
        .await?;
        // The first gate that waits ends the pass, so this one speaks only now.
        self.backend("ConfigProjected", "False", "WaitingForProjection", "")
            .await?;
        self.glance("BackendsReady", "True", "AllBackendsProjected", "")
            .await?;

        let cold = scenario::backend(ns, "images", "cold", false);
        self.site.hub().apply(&cold).await?;
        let pending = "cold (credentials not ready)";
        self.glance("BackendsReady", "False", "WaitingForBackends", pending)
            .await?;
        self.site.hub().delete(&cold).await?;
        self.glance("BackendsReady", "True", "AllBackendsProjected", "")
            .await
    }

    async fn database(&self) -> anyhow::Result<()> {
        let cluster = self.site.children(&self.scenario)?;
        let doubles = self.site.fleet().doubles(self.place())?;
        let ns = self.namespace();
        let no = |reason, message| self.glance("DatabaseReady", "False", reason, message);
        no(
            "ClusterNotReady",
            "MariaDB cluster \"mariadb\" is not ready",
        )
        .await?;
        doubles.mood().set(kinds::MARIADB, ns, Behaviour::Broken);
        for kind in [kinds::DATABASE, kinds::USER, kinds::GRANT] {
            doubles.mood().set(kind, ns, Behaviour::Silent);
        }
        cluster.apply(&scenario::mariadb(ns, "mariadb")).await?;
        no(
            "ClusterNotReady",
            "MariaDB cluster \"mariadb\" is not ready",
        )
        .await?;
        doubles.mood().set(kinds::MARIADB, ns, Behaviour::Healthy);
        no("WaitingForDatabase", "MariaDB Database CR is not ready").await?;
        doubles.mood().set(kinds::DATABASE, ns, Behaviour::Healthy);
        no(
            "WaitingForDatabase",
            "MariaDB User or Grant CR is not ready",
        )
        .await?;
        let grant = Object::new(cluster, kinds::GRANT, ns, "images");
        assert!(grant.get().await?.is_none(), "a grant needs its user first");
        doubles.mood().set(kinds::USER, ns, Behaviour::Healthy);
        grant.exists(seconds(60)).await?;

        doubles.kubelet().hold_jobs(ns).await?;
        doubles.mood().set(kinds::GRANT, ns, Behaviour::Healthy);
        no("DBSyncInProgress", "db_sync job is running").await?;
        // The job controller pauses minutes between its tries; this makes one enough.
        let jobs = cluster.any(kinds::JOB.0, kinds::JOB.1, Some(ns));
        let once = json!({ "spec": { "backoffLimit": 0 } });
        jobs.patch(
            "images-db-sync",
            &PatchParams::default(),
            &Patch::Merge(&once),
        )
        .await?;
        doubles.kubelet().fail_jobs(ns).await?;
        no("DBSyncFailed", "job has permanently failed").await?;
        self.site
            .glance("images")
            .event(seconds(10), "DBSyncFailed")
            .await?;
        doubles.kubelet().heal(ns).await?;
        jobs.delete("images-db-sync", &DeleteParams::background())
            .await?;
        self.glance("DatabaseReady", "True", "DatabaseSynced", "")
            .await
    }

    async fn workload(&self) -> anyhow::Result<()> {
        let fleet = self.site.fleet();
        let doubles = fleet.doubles(self.place())?;
        let ns = self.namespace();
        self.glance("DeploymentReady", "True", "DeploymentReady", "")
            .await?;
        doubles.kubelet().unready(ns).await?;
        self.glance("DeploymentReady", "False", "WaitingForDeployment", "")
            .await?;
        self.glance("Ready", "False", "NotAllReady", "").await?;
        doubles.kubelet().heal(ns).await?;
        self.glance("DeploymentReady", "True", "DeploymentReady", "")
            .await?;

        let peer = fleet.glance_api();
        self.glance("GlanceAPIReady", "True", "APIHealthy", "")
            .await?;
        peer.set(
            ns,
            "images",
            Answer::Code(503, "the store\nis down".to_owned()),
        );
        self.glance(
            "GlanceAPIReady",
            "False",
            "APIUnhealthy",
            "HTTP 503: the store is down",
        )
        .await?;
        peer.set(ns, "images", Answer::Hang);
        self.glance(
            "GlanceAPIReady",
            "False",
            "HealthCheckTimeout",
            "health check timed out",
        )
        .await?;
        peer.set(ns, "images", Answer::Healthy);
        self.glance("GlanceAPIReady", "True", "APIHealthy", "")
            .await?;

        doubles.mood().set(kinds::HTTP_ROUTE, ns, Behaviour::Broken);
        let parent = json!({ "parentRef": { "name": "public" }, "hostname": "images.example" });
        self.patch(json!({ "gateway": parent })).await?;
        self.glance("HTTPRouteReady", "False", "HTTPRouteNotAccepted", "")
            .await?;
        doubles
            .mood()
            .set(kinds::HTTP_ROUTE, ns, Behaviour::Healthy);
        self.glance("HTTPRouteReady", "True", "HTTPRouteAccepted", "")
            .await?;
        self.patch(json!({ "gateway": null })).await?;
        self.glance("HTTPRouteReady", "True", "HTTPRouteNotRequired", "")
            .await?;
        self.glance("Ready", "True", "AllReady", "").await?;

        self.backend("Ready", "True", "AllReady", "").await
    }
}

fn walk(name: &str, target: Option<&str>) {
    run(async |fleet: &'static Fleet| {
        let site = Site::open(fleet, name).await?;
        let _operator = site.operator().await?.start().await?;
        let mut scenario = site.scenario("images").backend("fast", true).with(
            "secretStoreRef",
            json!({ "kind": "SecretStore", "name": "store" }),
        );
        if let Some(target) = target {
            scenario = scenario.on(target);
        }
        let walk = Walk { site, scenario };
        let hub = walk.site.hub();

        hub.apply(&walk.scenario.backends()[0]).await?;
        let parent = format!("parent Glance {}/images does not exist", walk.namespace());
        walk.backend("CredentialsReady", "False", "WaitingForParent", &parent)
            .await?;
        hub.apply(&walk.scenario.glance()).await?;
        if let Some(target) = target {
            let unknown = "cluster not found";
            let reason = "TargetClusterUnavailable";
            walk.glance("SecretsReady", "False", reason, unknown)
                .await?;
            walk.backend("CredentialsReady", "False", reason, unknown)
                .await?;
            walk.site.register(target).await?;
        }
        walk.secrets().await?;
        walk.backends().await?;
        walk.database().await?;
        walk.workload().await
    });
}

#[test]
fn each_reason_is_shown_and_healed_for_a_local_glance() {
    walk("walk-hub", None);
}

#[test]
fn each_reason_is_shown_and_healed_for_a_placed_glance() {
    walk("walk-edge", Some("edge-1"));
}

#[test]
fn a_direct_probe_says_what_keeps_it_from_the_service() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "direct").await?;
        let operator = site.operator().await?.arg("--local-probe=direct");
        let scenario = site.scenario("images").backend("fast", true);
        site.apply(&scenario).await?;
        let no = async |reason: &str| {
            let wanted = Wanted::of("GlanceAPIReady").status("False").reason(reason);
            site.glance("images").condition(seconds(60), wanted).await
        };
        // This machine does not know the names of the cluster.
        let running = operator.start().await?;
        no("EndpointNotReady").await?;
        running.stop()?;

        let closed = e2e::ports::free()?;
        let proxy = format!("http://127.0.0.1:{closed}");
        let running = operator.clone().env("HTTP_PROXY", &proxy).start().await?;
        no("ConnectionFailed").await?;
        running.stop()?;

        // The double answers whatever it is asked for.
        let proxy = format!("http://{}:9292", fleet.glance_api().address());
        let _running = operator.env("HTTP_PROXY", &proxy).start().await?;
        site.glance("images").is_ready(seconds(60)).await?;
        Ok(())
    });
}
