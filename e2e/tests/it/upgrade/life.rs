//! One Glance in the middle of its life, and what a story about its database does to it.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use e2e::{
    bed::run,
    cluster::told,
    doubles::kubelet::Kubelet,
    expect::{Object, Wanted, eventually},
    fleet::Fleet,
    kinds,
    operator::Running,
    patience::seconds,
    scenario::Scenario,
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

pub const LIMIT: u64 = 60;
pub const OLD: &str = "registry.example/openstack/glance:2025.2";
pub const NEW: &str = "registry.example/openstack/glance:2026.1";
pub const STEP: &str = "2025.2 → 2026.1";

/// Tells a story of a Glance on the hub and of one on a target, beside each other under one operator.
#[allow(
    clippy::needless_pass_by_value,
    reason = "a story is told where it is written"
)]
pub fn here_and_there(
    name: &str,
    target: &str,
    story: impl AsyncFn(Life<'_>, &Running) -> Result<()>,
) {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, name).await?;
        site.register(target).await?;
        let running = site.operator().await?.start().await?;
        let here = site.scenario("here").backend("here-s3", true);
        let there = site.scenario("there").backend("there-s3", true).on(target);
        let tell = async |scenario| story(Life::begin(&site, scenario).await?, &running).await;
        let (here, there) = futures::join!(tell(here), tell(there));
        here.context("the Glance on the hub")
            .and(there.context("the Glance on the target"))
    });
}

/// One Glance and the nodes that its pods run on.
pub struct Life<'a> {
    pub site: &'a Site<'a>,
    pub scenario: Scenario,
    pub workload: Workload<'a>,
    pub kubelet: &'a Kubelet,
}

// === impl Life ===

impl<'a> Life<'a> {
    /// Installs release 2025.2.
    pub async fn begin(site: &'a Site<'a>, scenario: Scenario) -> Result<Self> {
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

    pub fn glance(&self) -> Object<'_> {
        self.site.glance(self.scenario.name())
    }

    pub fn job(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.scenario.name())
    }

    /// Asks for a release, with the image in lockstep.
    pub async fn asks_for(&mut self, release: &str) -> Result<()> {
        self.scenario = self.scenario.clone().release(release);
        self.apply().await
    }

    pub async fn apply(&self) -> Result<()> {
        self.site
            .hub()
            .apply(&self.scenario.glance())
            .await
            .map(drop)
    }

    /// Pods of new templates ask for more than any node has, so a roll-out stops half way; pods
    /// of Jobs ask for nothing.
    pub fn greedy(&mut self, greedy: bool) {
        let resources = json!({ "requests": { "cpu": "1000" }, "limits": { "cpu": "1000" } });
        let deployment = if greedy {
            json!({ "replicas": 2, "resources": resources })
        } else {
            json!({ "replicas": 2 })
        };
        self.scenario = self.scenario.clone().with("deployment", deployment);
    }

    pub async fn database(&self, reason: &str, message: &str) -> Result<DynamicObject> {
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

    pub async fn event(&self, reason: &str, type_: &str, message: &str) -> Result<Event> {
        let event = self.glance().event(seconds(20), reason).await?;
        assert_eq!(event.type_.as_deref(), Some(type_), "{reason}");
        assert_eq!(event.message.as_deref(), Some(message), "{reason}");
        Ok(event)
    }

    /// Sets a status field as no pass would, and makes the operator look.
    pub async fn pretend(&self, status: Value) -> Result<()> {
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

    pub async fn annotate(&self, key: &str, value: &str) -> Result<()> {
        self.merge(&json!({ "metadata": { "annotations": { key: value } } }))
            .await
    }

    /// Changes the Glance as `kubectl patch` does.
    pub async fn merge(&self, patch: &Value) -> Result<()> {
        let api = self.site.hub().any(
            kinds::GLANCE.0,
            kinds::GLANCE.1,
            Some(self.site.namespace()),
        );
        let name = self.scenario.name();
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(|e| anyhow!(told(&e)))?;
        Ok(())
    }

    /// Lets the pod of one held Job succeed.
    pub async fn ends(&self, suffix: &str) -> Result<()> {
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

    pub async fn job_exists(&self, suffix: &str) -> Result<DynamicObject> {
        self.workload
            .object(kinds::JOB, &self.job(suffix))
            .exists(seconds(LIMIT))
            .await
    }

    /// Waits for another Job than that with this UID.
    pub async fn another_job(
        &self,
        suffix: &str,
        than: Option<&str>,
        limit: Duration,
    ) -> Result<DynamicObject> {
        self.workload
            .object(kinds::JOB, &self.job(suffix))
            .satisfies(limit, "to be another one", |job| {
                (job.metadata.uid.as_deref() != than)
                    .then_some(())
                    .ok_or_else(|| "it is the old one".to_owned())
            })
            .await
    }

    /// Fails unless there is no such Job.
    pub async fn no_job(&self, suffix: &str) -> Result<()> {
        let found = self
            .workload
            .object(kinds::JOB, &self.job(suffix))
            .get()
            .await?;
        anyhow::ensure!(found.is_none(), "there is a Job {suffix}");
        Ok(())
    }

    /// The pods of a Job.
    pub fn pods(&self) -> kube::Api<DynamicObject> {
        self.workload
            .cluster()
            .any(kinds::POD.0, kinds::POD.1, Some(self.site.namespace()))
    }

    /// Ends a Job as its controller would after the last of its pods.
    pub async fn fails_for_good(&self, suffix: &str) -> Result<()> {
        self.failed_for_good(suffix, Duration::ZERO).await
    }

    /// The same as if it had happened some time ago.
    pub async fn failed_for_good(&self, suffix: &str, ago: Duration) -> Result<()> {
        let name = self.job(suffix);
        let job = self.workload.object(kinds::JOB, &name);
        let jobs =
            self.workload
                .cluster()
                .any(kinds::JOB.0, kinds::JOB.1, Some(self.site.namespace()));
        failed_for_good(&job, jobs, ago).await?;
        let of_job = format!("batch.kubernetes.io/job-name={name}");
        let patch = json!({ "status": { "phase": "Failed" } });
        for pod in self
            .pods()
            .list(&ListParams::default().labels(&of_job))
            .await?
            .items
        {
            self.pods()
                .patch_status(
                    &pod.name_any(),
                    &PatchParams::default(),
                    &Patch::Merge(&patch),
                )
                .await
                .map_err(|e| anyhow!(told(&e)))?;
        }
        Ok(())
    }

    /// How often something has been told, by reason.
    pub async fn count(&self, reason: &str) -> Result<i32> {
        let events = self.glance().events().await?;
        Ok(events
            .iter()
            .filter(|event| event.reason.as_deref() == Some(reason))
            .map(|event| event.count.unwrap_or(1))
            .sum())
    }
}

/// Ends a Job as its controller would have done some time ago, after the last of its pods.
pub async fn failed_for_good(
    job: &Object<'_>,
    api: kube::Api<DynamicObject>,
    ago: Duration,
) -> Result<()> {
    job.satisfies(seconds(LIMIT), "to run", |job| {
        let active = job.data["status"]["active"].as_i64();
        (active == Some(1))
            .then_some(())
            .ok_or(format!("{active:?} active"))
    })
    .await?;
    let name = job.get().await?.context("the Job")?.name_any();
    let then = Timestamp::now() - ago;
    let then = then.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |type_: &str| {
        json!({ "type": type_, "status": "True", "reason": "BackoffLimitExceeded", "message": "as the test says",
            "lastTransitionTime": then, "lastProbeTime": then })
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

pub fn status(glance: &DynamicObject) -> &Value {
    &glance.data["status"]
}

pub async fn reasons_in_order(glance: &Object<'_>, wanted: &[&str]) -> Result<()> {
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
