//! From one release to the next while the API serves, back again, and what is refused; and the
//! purge that runs every night.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use e2e::{
    audit::Audit,
    bed::run,
    cluster::told,
    doubles::kubelet::Kubelet,
    expect::{Object, Wanted, condition, eventually},
    fleet::Fleet,
    kinds,
    operator::Running,
    patience::seconds,
    scenario::Scenario,
    shape::assert_has,
    site::Site,
    workload::Workload,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{
    ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

const LIMIT: u64 = 60;
const OLD: &str = "registry.example/openstack/glance:2025.2";
const NEW: &str = "registry.example/openstack/glance:2026.1";
const STEP: &str = "2025.2 → 2026.1";

/// One Glance and the nodes that its pods run on.
struct Life<'a> {
    site: &'a Site<'a>,
    scenario: Scenario,
    workload: Workload<'a>,
    kubelet: &'a Kubelet,
}

// === impl Life ===

impl<'a> Life<'a> {
    /// Installs release 2025.2.
    async fn begin(site: &'a Site<'a>, scenario: Scenario) -> Result<Self> {
        site.apply(&scenario).await?;
        site.glance(scenario.name())
            .is_ready(seconds(LIMIT))
            .await?;
        let workload = Workload::of(site, &scenario)?;
        workload.is_rolled_out(seconds(LIMIT)).await?;
        let kubelet = site.fleet().doubles(workload.cluster().name())?.kubelet();
        Ok(Self {
            site,
            scenario,
            workload,
            kubelet,
        })
    }

    fn glance(&self) -> Object<'_> {
        self.site.glance(self.scenario.name())
    }

    fn job(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.scenario.name())
    }

    /// Asks for a release, with the image in lockstep.
    async fn asks_for(&mut self, release: &str) -> Result<()> {
        self.scenario = self.scenario.clone().release(release);
        self.apply().await
    }

    async fn apply(&self) -> Result<()> {
        self.site
            .hub()
            .apply(&self.scenario.glance())
            .await
            .map(drop)
    }

    /// Pods of new templates ask for more than any node has, so a roll-out stops half way; pods
    /// of Jobs ask for nothing.
    fn greedy(&mut self, greedy: bool) {
        let resources = json!({ "requests": { "cpu": "1000" }, "limits": { "cpu": "1000" } });
        let deployment = if greedy {
            json!({ "replicas": 2, "resources": resources })
        } else {
            json!({ "replicas": 2 })
        };
        self.scenario = self.scenario.clone().with("deployment", deployment);
    }

    async fn database(&self, reason: &str, message: &str) -> Result<DynamicObject> {
        let status = if reason == "DatabaseSynced" {
            "True"
        } else {
            "False"
        };
        let wanted = Wanted::of("DatabaseReady")
            .status(status)
            .reason(reason)
            .message(message);
        self.glance().condition(seconds(LIMIT), wanted).await
    }

    async fn event(&self, reason: &str, type_: &str, message: &str) -> Result<Event> {
        let event = self.glance().event(seconds(20), reason).await?;
        assert_eq!(event.type_.as_deref(), Some(type_), "{reason}");
        assert_eq!(event.message.as_deref(), Some(message), "{reason}");
        Ok(event)
    }

    /// Sets a status field as no pass would, and makes the operator look.
    async fn pretend(&self, status: Value) -> Result<()> {
        let api = self.site.hub().any(
            kinds::GLANCE.0,
            kinds::GLANCE.1,
            Some(self.site.namespace()),
        );
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status(self.scenario.name(), &PatchParams::default(), &patch)
            .await
            .map_err(|e| anyhow!(told(&e)))?;
        self.annotate("e2e.c5c3.io/look", Timestamp::now().to_string().as_str())
            .await
    }

    async fn annotate(&self, key: &str, value: &str) -> Result<()> {
        let api = self.site.hub().any(
            kinds::GLANCE.0,
            kinds::GLANCE.1,
            Some(self.site.namespace()),
        );
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { key: value } } }));
        api.patch(self.scenario.name(), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Lets the pod of one held Job succeed.
    async fn ends(&self, suffix: &str) -> Result<()> {
        let pods =
            self.workload
                .cluster()
                .any(kinds::POD.0, kinds::POD.1, Some(self.site.namespace()));
        let of_job = ListParams::default().labels(&format!(
            "batch.kubernetes.io/job-name={}",
            self.job(suffix)
        ));
        let done = json!({ "status": { "phase": "Succeeded" } });
        eventually(seconds(LIMIT), "the pod of the Job", async || {
            let found = pods.list(&of_job).await.map_err(|e| told(&e))?.items;
            let pod = found.first().ok_or("there is none")?;
            let phase = &pod.data["status"]["phase"];
            if phase != "Running" {
                return Err(phase.to_string());
            }
            let patch = Patch::Merge(&done);
            pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch)
                .await
                .map_err(|e| told(&e))
        })
        .await?;
        Ok(())
    }

    async fn purge_is(&self, status: &str, reason: &str, message: &str) -> Result<DynamicObject> {
        let wanted = Wanted::of("DBPurgeReady")
            .status(status)
            .reason(reason)
            .message(message);
        self.glance().condition(seconds(LIMIT), wanted).await
    }

    /// A run as `kubectl create job --from=cronjob/…` makes it, but with one try only.
    async fn run_by_hand(&self, name: &str) -> Result<()> {
        let cron_job = self
            .workload
            .get(kinds::CRON_JOB, &self.job("db-purge"))
            .await?;
        let template = &cron_job["spec"]["jobTemplate"];
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "namespace": self.site.namespace(), "name": name,
                "labels": template["metadata"]["labels"],
                "annotations": { "cronjob.kubernetes.io/instantiate": "manual" },
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": "CronJob", "controller": true,
                    "name": cron_job["metadata"]["name"], "uid": cron_job["metadata"]["uid"],
                }],
            },
            "spec": template["spec"],
        });
        job["spec"]["backoffLimit"] = json!(0);
        self.workload.cluster().create(&job).await?;
        Ok(())
    }

    async fn job_exists(&self, suffix: &str) -> Result<DynamicObject> {
        self.workload
            .object(kinds::JOB, &self.job(suffix))
            .exists(seconds(LIMIT))
            .await
    }
}

/// Ends a Job as its controller would after the last of its pods.
pub(crate) async fn fail_for_good(job: &Object<'_>, api: kube::Api<DynamicObject>) -> Result<()> {
    job.satisfies(seconds(LIMIT), "to run", |job| {
        let active = job.data["status"]["active"].as_i64();
        (active == Some(1))
            .then_some(())
            .ok_or(format!("{active:?} active"))
    })
    .await?;
    let name = job.get().await?.context("the Job")?.name_any();
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |type_: &str| {
        json!({ "type": type_, "status": "True", "reason": "BackoffLimitExceeded", "message": "as the test says",
            "lastTransitionTime": now, "lastProbeTime": now })
    };
    let patch = json!({ "status": {
        "conditions": [condition("FailureTarget"), condition("Failed")],
        "active": 0, "ready": 0, "terminating": 0, "failed": 5,
    } });
    eventually(seconds(20), "the Job to be marked", async || {
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .map_err(|e| told(&e))
    })
    .await?;
    Ok(())
}

fn status(glance: &DynamicObject) -> &Value {
    &glance.data["status"]
}

async fn reasons_in_order(glance: &Object<'_>, wanted: &[&str]) -> Result<()> {
    // Events are written after the status that they go with.
    let events = eventually(seconds(20), "all events", async || {
        let mut events = glance.events().await?;
        events.retain(|e| wanted.contains(&e.reason.as_deref().unwrap_or_default()));
        if events.len() < wanted.len() {
            return Err(anyhow!("{} of {}", events.len(), wanted.len()));
        }
        events.sort_by_key(|e| e.first_timestamp.as_ref().map(|t| t.0));
        Ok(events)
    })
    .await?;
    let found: Vec<_> = events.iter().filter_map(|e| e.reason.as_deref()).collect();
    assert_eq!(found, wanted);
    assert!(events.iter().all(|e| e.count == Some(1)), "{events:#?}");
    Ok(())
}

#[test]
fn a_release_follows_the_next_while_the_api_serves() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "upgrade").await?;
        site.register("edge-1").await?;
        let operator = site.operator().await?;
        let running = operator.start().await?;
        let here = site.scenario("here").backend("here-s3", true);
        let there = site
            .scenario("there")
            .backend("there-s3", true)
            .on("edge-1");
        let (here, there) = futures::join!(
            upgrade(&site, here, &running),
            upgrade(&site, there, &running)
        );
        here.and(there)
    });
}

async fn upgrade(site: &Site<'_>, scenario: Scenario, running: &Running) -> Result<()> {
    let mut life = Life::begin(site, scenario).await?;
    let glance = life.glance().get().await?.context("the Glance")?;
    assert_eq!(status(&glance)["installedRelease"], "2025.2");
    assert_eq!(status(&glance)["upgradePhase"], Value::Null);
    let config_map = expands(&mut life).await?;
    rolls(&life, &config_map).await?;
    completes(&mut life).await?;
    is_settled(&life, running).await
}

/// Returns the name of the configuration that the phases run on.
async fn expands(life: &mut Life<'_>) -> Result<Value> {
    let ns = life.site.namespace();
    let before = life.workload.rollout().await?;
    // Expand runs on the new image while the old pods go on as they are.
    life.kubelet.hold_jobs(ns).await?;
    life.greedy(true);
    life.asks_for("2026.1").await?;
    let glance = life
        .database("ExpandInProgress", &format!("Expand phase running: {STEP}"))
        .await?;
    assert_eq!(status(&glance)["upgradePhase"], "Expanding");
    assert_eq!(status(&glance)["targetRelease"], "2026.1");
    assert_eq!(status(&glance)["installedRelease"], "2025.2");
    let config_map = {
        let expand = life
            .workload
            .get(kinds::JOB, &life.job("db-expand"))
            .await?;
        phase_job(&expand, "expand", life.scenario.name());
        expand["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"].clone()
    };
    assert_eq!(life.workload.rollout().await?, before, "the API serves on");
    assert_ne!(
        config_map,
        before.template["spec"]["volumes"][0]["configMap"]["name"]
    );
    assert!(
        life.workload
            .object(kinds::JOB, &life.job("db-migrate"))
            .get()
            .await?
            .is_none()
    );
    Ok(config_map)
}

async fn rolls(life: &Life<'_>, config_map: &Value) -> Result<()> {
    let ns = life.site.namespace();
    // Expand and migrate end; new pods do not get up; contract must not run under the old ones.
    life.kubelet.heal(ns).await?;
    life.database(
        "UpgradeRollingUpdate",
        &format!("Waiting for Deployment rollout: {STEP}"),
    )
    .await?;
    let waiting = Wanted::of("DeploymentReady").status("False").reason("WaitingForDeployment").message(
        "Waiting for the upgraded image to finish rolling out before contracting the database schema",
    );
    let glance = life.glance().condition(seconds(LIMIT), waiting).await?;
    assert_eq!(status(&glance)["upgradePhase"], "RollingUpdate");
    assert!(
        life.workload
            .object(kinds::JOB, &life.job("db-contract"))
            .get()
            .await?
            .is_none()
    );
    let deployment = life.workload.deployment().await?;
    let api = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        (&api["image"], &api["command"][0]),
        (&json!(NEW), &json!("uwsgi"))
    );
    assert_eq!(
        deployment["status"]["readyReplicas"], 2,
        "the old pods serve on"
    );
    let mounted = &deployment["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"];
    assert_eq!(
        mounted, config_map,
        "the phases ran on the configuration that is rolled out"
    );
    Ok(())
}

async fn completes(life: &mut Life<'_>) -> Result<()> {
    life.greedy(false);
    life.apply().await?;
    let glance = life.glance().is_ready(seconds(LIMIT)).await?;
    assert_eq!(status(&glance)["installedRelease"], "2026.1");
    assert_eq!(status(&glance)["upgradePhase"], Value::Null);
    assert_eq!(status(&glance)["targetRelease"], Value::Null);
    reasons_in_order(
        &life.glance(),
        &[
            "UpgradeInitiated",
            "ExpandComplete",
            "MigrateComplete",
            "DeploymentRolloutComplete",
            "UpgradeComplete",
        ],
    )
    .await?;
    for (reason, message) in [
        ("UpgradeInitiated", format!("Upgrade initiated: {STEP}")),
        ("ExpandComplete", format!("Expand phase complete: {STEP}")),
        ("MigrateComplete", format!("Migrate phase complete: {STEP}")),
        (
            "DeploymentRolloutComplete",
            format!("Deployment rollout complete during upgrade {STEP}"),
        ),
        ("UpgradeComplete", format!("Upgrade complete: {STEP}")),
    ] {
        life.event(reason, "Normal", &message).await?;
    }
    Ok(())
}

async fn is_settled(life: &Life<'_>, running: &Running) -> Result<()> {
    let ns = life.site.namespace();
    // The sync of the new release comes last; the phase Jobs stay where they are.
    let sync = life.job("db-sync");
    life.workload
        .object(kinds::JOB, &sync)
        .satisfies(seconds(LIMIT), "to run on the new image", |job| {
            let image = &job.data["spec"]["template"]["spec"]["containers"][0]["image"];
            let succeeded = &job.data["status"]["succeeded"];
            (image == NEW && succeeded == 1)
                .then_some(())
                .ok_or(format!("{image} {succeeded}"))
        })
        .await?;
    let glance = life.glance().is_ready(seconds(LIMIT)).await?;
    assert_eq!(
        life.workload.is_rolled_out(seconds(LIMIT)).await?.template["spec"]["containers"][0]["image"],
        NEW
    );
    for (phase, suffix) in [
        ("expand", "db-expand"),
        ("migrate", "db-migrate"),
        ("contract", "db-contract"),
    ] {
        let job = life.workload.get(kinds::JOB, &life.job(suffix)).await?;
        phase_job(&job, phase, life.scenario.name());
        let counted = &glance.annotations()[&format!("cobaltcore.c5c3.io/last-{suffix}-job-uid")];
        assert_eq!(job["metadata"]["uid"], json!(counted), "{suffix}");
    }
    let purge = life
        .workload
        .get(kinds::CRON_JOB, &life.job("db-purge"))
        .await?;
    assert_eq!(
        purge["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"],
        NEW
    );

    // Two syncs and three phases, each counted once.
    let labels = [
        ("glance", life.scenario.name()),
        ("namespace", ns),
        ("result", "succeeded"),
    ];
    let counter = ("glance_operator_db_sync_total", &labels[..]);
    running
        .metric_becomes(seconds(20), counter, |n| (n - 5.0).abs() < 0.1)
        .await?;
    let failed = [("glance", life.scenario.name()), ("result", "failed")];
    assert!(
        running
            .metric("glance_operator_db_sync_total", &failed)
            .await?
            .unwrap_or(0.0)
            < 0.1
    );
    Ok(())
}

fn phase_job(job: &Value, phase: &str, name: &str) {
    assert_has(
        job,
        &json!({ "spec": {
            "backoffLimit": 4, "ttlSecondsAfterFinished": null, "activeDeadlineSeconds": null,
            "template": { "metadata": { "labels": { "app.kubernetes.io/instance": null } }, "spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": format!("db-{phase}"), "image": NEW,
                    "command": ["glance-manage", "--config-dir", "/etc/glance/glance-api.conf.d/", "db", phase],
                    "env": [
                        { "name": "OS_DATABASE__CONNECTION", "valueFrom": { "secretKeyRef": {
                            "name": format!("{name}-db-connection"), "key": "connection" } } },
                        { "name": "OS_DATABASE__MAX_RETRIES", "value": "1" },
                    ],
                }],
            } },
        } }),
    );
}

#[test]
fn an_upgrade_survives_the_operator() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "crash").await?;
        site.register("edge-1").await?;
        let operator = site.operator().await?;
        let mut running = operator.start().await?;
        let scenario = site
            .scenario("images")
            .backend("images-s3", true)
            .on("edge-1");
        let mut life = Life::begin(&site, scenario).await?;
        let audit = life.workload.cluster().audit();
        let mark = audit.map(Audit::mark).transpose()?;

        // Jobs end only after the operator was killed over each of them.
        let phases = [
            ("Expanding", "db-expand"),
            ("Migrating", "db-migrate"),
            ("Contracting", "db-contract"),
        ];
        life.kubelet.hold_jobs(site.namespace()).await?;
        life.asks_for("2026.1").await?;
        for (phase, suffix) in phases {
            let there = |glance: &DynamicObject| {
                let now = &status(glance)["upgradePhase"];
                (now == phase).then_some(()).ok_or(now.to_string())
            };
            life.glance()
                .satisfies(seconds(LIMIT), phase, there)
                .await?;
            life.job_exists(suffix).await?;
            running.kill()?;
            running = operator.start().await?;
            life.ends(suffix).await?;
        }
        life.kubelet.heal(site.namespace()).await?;
        life.database("DatabaseSynced", "revision verified").await?;
        let glance = life.glance().is_ready(seconds(LIMIT)).await?;
        assert_eq!(status(&glance)["installedRelease"], "2026.1");
        assert_eq!(status(&glance)["upgradePhase"], Value::Null);

        // Each phase ran once, and the sync of the new release after them.
        let (Some(audit), Some(mark)) = (audit, mark) else {
            return Ok(());
        };
        let created: Vec<_> = audit
            .requests_by(&site.user_on_targets(), mark)?
            .into_iter()
            .filter(|r| (r.verb.as_str(), r.resource.as_str(), r.code) == ("create", "jobs", 201))
            .map(|r| r.name)
            .collect();
        let wanted =
            ["db-expand", "db-migrate", "db-contract", "db-sync"].map(|suffix| life.job(suffix));
        assert_eq!(created, wanted);
        Ok(())
    });
}

#[test]
fn an_upgrade_can_be_called_off_until_it_is_too_late() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "abort").await?;
        site.register("edge-2").await?;
        let operator = site.operator().await?;
        let _running = operator.start().await?;
        let here = site.scenario("here").backend("here-s3", true);
        let there = site
            .scenario("there")
            .backend("there-s3", true)
            .on("edge-2");
        let (here, there) = futures::join!(called_off(&site, here), called_off(&site, there));
        here.and(there)
    });
}

async fn called_off(site: &Site<'_>, scenario: Scenario) -> Result<()> {
    let mut life = Life::begin(site, scenario).await?;
    in_time(&mut life).await?;
    too_late(&mut life).await
}

async fn in_time(life: &mut Life<'_>) -> Result<()> {
    let ns = life.site.namespace();
    let before = life.workload.rollout().await?;
    life.kubelet.hold_jobs(ns).await?;
    life.asks_for("2026.1").await?;
    life.database("ExpandInProgress", "Expand phase running")
        .await?;

    // A third release is refused, and what goes on goes on.
    life.asks_for("2026.2").await?;
    let text = format!("Spec release changed to 2026.2 during active upgrade {STEP}");
    let glance = life
        .database(
            "UpgradeTargetChanged",
            &format!("{text}; complete or roll back the current upgrade first"),
        )
        .await?;
    assert_eq!(status(&glance)["upgradePhase"], "Expanding");
    let refused = life.event("UpgradeTargetChanged", "Warning", &text).await?;
    assert_eq!(refused.count, Some(1));

    // Back to the installed release, before the image is: the way out must not need both at once.
    life.scenario = life
        .scenario
        .clone()
        .with("openStackRelease", json!("2025.2"));
    life.apply().await?;
    let aborted =
        format!("Upgrade {STEP} aborted: spec release reverted to installed release 2025.2");
    life.event("UpgradeAborted", "Normal", &aborted).await?;
    let mismatch = "spec.image.tag \"2026.2\" names OpenStack release 2026.2 but spec.openStackRelease is \"2025.2\"; \
                    bump spec.image in lockstep with spec.openStackRelease";
    let glance = life.database("ImageReleaseMismatch", mismatch).await?;
    assert_eq!(status(&glance)["upgradePhase"], Value::Null);
    assert_eq!(status(&glance)["targetRelease"], Value::Null);
    life.event("ImageReleaseMismatch", "Warning", mismatch)
        .await?;
    assert!(
        life.workload
            .object(kinds::JOB, &life.job("db-expand"))
            .get()
            .await?
            .is_none()
    );
    life.asks_for("2025.2").await?;
    life.glance().is_ready(seconds(LIMIT)).await?;
    assert_eq!(
        life.workload.rollout().await?,
        before,
        "the API never noticed"
    );
    Ok(())
}

async fn too_late(life: &mut Life<'_>) -> Result<()> {
    let ns = life.site.namespace();
    // Once the contract Job exists, going back may leave a schema that the old release cannot read.
    life.kubelet.heal(ns).await?;
    life.greedy(true);
    life.asks_for("2026.1").await?;
    life.database("UpgradeRollingUpdate", "Waiting for Deployment rollout")
        .await?;
    life.kubelet.hold_jobs(ns).await?;
    life.greedy(false);
    life.apply().await?;
    life.database(
        "ContractInProgress",
        &format!("Contract phase running: {STEP}"),
    )
    .await?;
    life.job_exists("db-contract").await?;
    life.asks_for("2025.2").await?;
    let glance = life
        .database("ContractInProgress", "the contract Job of the upgrade")
        .await?;
    assert_eq!(status(&glance)["upgradePhase"], "Contracting");
    let refused = life
        .glance()
        .event(seconds(20), "UpgradeAbortRefused")
        .await?;
    assert_eq!(
        (refused.type_.as_deref(), refused.count),
        (Some("Warning"), Some(1))
    );
    life.job_exists("db-contract").await?;

    // Whoever has restored the database may insist.
    life.annotate("glance.openstack.c5c3.io/allow-unsafe-abort", "true")
        .await?;
    let gone = |glance: &DynamicObject| {
        let phase = &glance.data["status"]["upgradePhase"];
        phase.is_null().then_some(()).ok_or(phase.to_string())
    };
    life.glance()
        .satisfies(seconds(LIMIT), "to be back", gone)
        .await?;
    life.kubelet.heal(ns).await?;
    let glance = life.glance().is_ready(seconds(LIMIT)).await?;
    assert_eq!(status(&glance)["installedRelease"], "2025.2");
    for suffix in ["db-expand", "db-migrate", "db-contract"] {
        assert!(
            life.workload
                .object(kinds::JOB, &life.job(suffix))
                .get()
                .await?
                .is_none(),
            "{suffix}"
        );
    }
    let api = &life.workload.is_rolled_out(seconds(LIMIT)).await?.template["spec"]["containers"][0];
    assert_eq!(
        (&api["image"], &api["command"][0]),
        (&json!(OLD), &json!("glance-api"))
    );
    Ok(())
}

#[test]
fn releases_that_do_not_follow_each_other_are_refused() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "refuse").await?;
        site.register("edge-1").await?;
        let operator = site.operator().await?;
        let _running = operator.start().await?;
        let here = site.scenario("here").backend("here-s3", true);
        let there = site
            .scenario("there")
            .backend("there-s3", true)
            .on("edge-1");
        let (here, there) = futures::join!(refused(&site, here), refused(&site, there));
        here.and(there)
    });
}

async fn refused(site: &Site<'_>, scenario: Scenario) -> Result<()> {
    let mut life = Life::begin(site, scenario).await?;
    let before = life.workload.rollout().await?;
    for (release, reason, message, told) in [
        (
            "2026.2",
            "UpgradePathInvalid",
            "upgrade from 2025.2 to 2026.2 is not sequential; only sequential upgrades are supported",
            "Upgrade from 2025.2 to 2026.2 is not sequential",
        ),
        (
            "2025.1",
            "DowngradeNotSupported",
            "downgrade from 2025.2 to 2025.1 is not supported",
            "Downgrade from 2025.2 to 2025.1 is not supported",
        ),
    ] {
        life.asks_for(release).await?;
        let glance = life.database(reason, message).await?;
        assert_eq!(
            condition(&glance, "Ready").map(|c| c["status"].clone()),
            Some(json!("False"))
        );
        assert_eq!(status(&glance)["upgradePhase"], Value::Null);
        assert_eq!(status(&glance)["installedRelease"], "2025.2");
        life.event(reason, "Warning", told).await?;
    }
    // Told once, however often it is tried.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for reason in ["UpgradePathInvalid", "DowngradeNotSupported"] {
        assert_eq!(
            life.glance().event(seconds(1), reason).await?.count,
            Some(1),
            "{reason}"
        );
    }
    assert!(
        life.workload
            .object(kinds::JOB, &life.job("db-expand"))
            .get()
            .await?
            .is_none()
    );
    assert_eq!(life.workload.rollout().await?, before);

    life.asks_for("2025.2").await?;
    life.glance().is_ready(seconds(LIMIT)).await?;
    life.pretend(json!({ "installedRelease": "latest" }))
        .await?;
    let error = "invalid release format \"latest\": expected YYYY.N";
    life.database(
        "VersionParseError",
        &format!("failed to parse installed release \"latest\": {error}"),
    )
    .await?;
    life.event(
        "VersionParseError",
        "Warning",
        &format!("Failed to parse installed release \"latest\": {error}"),
    )
    .await?;
    life.pretend(json!({ "installedRelease": "2025.2" }))
        .await?;
    life.glance().is_ready(seconds(LIMIT)).await?;

    // A phase that fails for good says so, once, and a button runs it again.
    life.kubelet.hold_jobs(site.namespace()).await?;
    life.asks_for("2026.1").await?;
    let (name, ns) = (life.job("db-expand"), site.namespace());
    let jobs = life
        .workload
        .cluster()
        .any(kinds::JOB.0, kinds::JOB.1, Some(ns));
    let job = life.workload.object(kinds::JOB, &name);
    fail_for_good(&job, jobs).await?;
    let text = format!("Expand job {name} failed: job has permanently failed: {ns}/{name}");
    let glance = life.database("ExpandFailed", &text).await?;
    assert_eq!(status(&glance)["upgradePhase"], "Expanding");
    life.event("ExpandFailed", "Warning", &text).await?;
    life.kubelet.heal(ns).await?;
    life.annotate("glance.openstack.c5c3.io/retry-job", "1")
        .await?;
    let glance = life.glance().is_ready(seconds(LIMIT)).await?;
    assert_eq!(status(&glance)["installedRelease"], "2026.1");
    assert_eq!(
        life.glance().event(seconds(1), "ExpandFailed").await?.count,
        Some(1)
    );
    Ok(())
}

#[test]
fn a_purge_that_fails_is_seen_and_one_that_succeeds_heals_it() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "purge").await?;
        site.register("edge-2").await?;
        let operator = site.operator().await?;
        let running = operator.start().await?;
        let here = site.scenario("here").backend("here-s3", true);
        let there = site
            .scenario("there")
            .backend("there-s3", true)
            .on("edge-2");
        let (here, there) =
            futures::join!(purge(&site, here, &running), purge(&site, there, &running));
        here.and(there)
    });
}

async fn purge(site: &Site<'_>, scenario: Scenario, running: &Running) -> Result<()> {
    let mut life = Life::begin(site, scenario).await?;
    is_scheduled(&mut life).await?;
    let run = fails(&life).await?;
    pauses(&mut life, &run).await?;
    is_healed(&life, running).await
}

const WEEKLY: &str =
    "Database purge scheduled \"@daily\", hard-deleting rows soft-deleted more than 7 days ago";

async fn is_scheduled(life: &mut Life<'_>) -> Result<()> {
    let plain = "Database purge scheduled \"1 0 * * *\", hard-deleting rows soft-deleted more than 30 days ago";
    life.purge_is("True", "DBPurgeScheduled", plain).await?;

    life.scenario = life.scenario.clone().with(
        "dbPurge",
        json!({ "schedule": "@daily", "retentionDays": 7, "purgeImagesTable": true }),
    );
    life.apply().await?;
    life.purge_is("True", "DBPurgeScheduled", WEEKLY).await?;
    let cron_job = life
        .workload
        .get(kinds::CRON_JOB, &life.job("db-purge"))
        .await?;
    assert_has(
        &cron_job,
        &json!({ "spec": { "schedule": "@daily", "suspend": false, "concurrencyPolicy": "Forbid" } }),
    );
    let container = &cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0];
    let script = container["command"][3].as_str().unwrap_or_default();
    let (rows, images) = (
        script.find("db purge --age_in_days 7 --max_rows 1000"),
        script.find("db purge_images_table --age_in_days 7 --max_rows 1000"),
    );
    assert!(rows.is_some() && rows < images, "{script}");
    Ok(())
}

/// Returns the name of the run that failed.
async fn fails(life: &Life<'_>) -> Result<String> {
    life.kubelet.fail_jobs(life.site.namespace()).await?;
    let first = life.job("by-hand-1");
    life.run_by_hand(&first).await?;
    let failed = format!(
        "Database purge Job {first} failed; the soft-deleted backlog is no longer shrinking"
    );
    let glance = life.purge_is("False", "DBPurgeJobFailed", &failed).await?;
    assert_eq!(
        condition(&glance, "Ready").map(|c| c["status"].clone()),
        Some(json!("False"))
    );
    let told = format!(
        "Database purge Job {first} failed; inspect its pod logs — the soft-deleted image and task rows keep accumulating until a run succeeds"
    );
    let event = life.event("DBPurgeJobFailed", "Warning", &told).await?;
    assert_eq!(event.count, Some(1));
    let uid = life.workload.get(kinds::JOB, &first).await?["metadata"]["uid"].clone();
    let counted = "cobaltcore.c5c3.io/last-db-purge-job-uid";
    let glance = life.glance().get().await?.context("the Glance")?;
    assert_eq!(
        glance.annotations().get(counted).map(|u| json!(u)),
        Some(uid)
    );
    Ok(first)
}

async fn pauses(life: &mut Life<'_>, first: &str) -> Result<()> {
    // A pause outranks the failure and remembers it.
    let mut purge = life.scenario.glance()["spec"]["dbPurge"].clone();
    purge["suspend"] = json!(true);
    life.scenario = life.scenario.clone().with("dbPurge", purge);
    life.apply().await?;
    let paused = format!(
        "Database purge CronJob suspended via spec.dbPurge.suspend; no rows are being hard-deleted and the soft-deleted backlog \
         keeps growing (schedule \"@daily\", retention 7 days when resumed); the last run (Job {first}) failed before the pause"
    );
    life.purge_is("True", "DBPurgeSuspended", &paused).await?;
    life.glance().is_ready(seconds(LIMIT)).await?;
    let suspended = life
        .workload
        .get(kinds::CRON_JOB, &life.job("db-purge"))
        .await?;
    assert_eq!(suspended["spec"]["suspend"], true);
    life.scenario = life.scenario.clone().with(
        "dbPurge",
        json!({ "schedule": "@daily", "retentionDays": 7 }),
    );
    life.apply().await?;
    life.purge_is("False", "DBPurgeJobFailed", "").await?;
    Ok(())
}

async fn is_healed(life: &Life<'_>, running: &Running) -> Result<()> {
    life.kubelet.heal(life.site.namespace()).await?;
    let second = life.job("by-hand-2");
    life.run_by_hand(&second).await?;
    life.purge_is("True", "DBPurgeScheduled", WEEKLY).await?;
    life.glance().is_ready(seconds(LIMIT)).await?;
    for (result, wanted) in [("failed", 1.0), ("succeeded", 1.0)] {
        let labels = [
            ("glance", life.scenario.name()),
            ("namespace", life.site.namespace()),
            ("result", result),
        ];
        let purges = ("glance_operator_db_purge_total", &labels[..]);
        running
            .metric_becomes(seconds(20), purges, |n: f64| (n - wanted).abs() < 0.1)
            .await?;
    }
    // The same Jobs are not counted again, and the failure is not told again but for the resumption.
    life.annotate("e2e.c5c3.io/look", "again").await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let all = [("glance", life.scenario.name())];
    let total = running
        .metric("glance_operator_db_purge_total", &all)
        .await?;
    assert!(total.is_some_and(|n| (n - 2.0).abs() < 0.1), "{total:?}");
    let events = life.glance().events().await?;
    let failures: Vec<_> = events
        .iter()
        .filter(|e| e.reason.as_deref() == Some("DBPurgeJobFailed"))
        .collect();
    assert_eq!(failures.len(), 1, "{failures:#?}");
    Ok(())
}
