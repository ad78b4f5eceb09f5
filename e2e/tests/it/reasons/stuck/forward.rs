//! The way out of a migration that cannot start: the release after it.

use e2e::{bed::run, fleet::Fleet, kinds};
use serde_json::json;

use super::another;
use crate::reasons::stage::{Stage, later};

/// An image that nobody can pull, and the release after it: the way out is forward.
#[test]
fn a_migration_that_never_started_makes_way_for_an_upgrade() {
    run(async |fleet: &'static Fleet| {
        let stage = Stage::open(fleet, "way", "hub").await?;
        let (glance, ns) = (stage.glance("images"), stage.namespace());
        let kubelet = stage.doubles()?.kubelet();
        let scenario = stage.scenario("images").backend("store", true);
        stage.site.apply(&scenario).await?;
        glance.is_ready(later()).await?;
        let sync = stage.live(kinds::JOB, "images-db-sync").await?;
        kubelet.hold(ns).await?;
        let image =
            json!({ "repository": "registry.example/openstack/glance", "tag": "2025.2-p9" });
        stage
            .hub()
            .apply(&scenario.clone().with("image", image).glance())
            .await?;
        another(&stage, &sync).await?;
        stage
            .hub()
            .apply(&scenario.release("2026.1").glance())
            .await?;
        stage
            .child(kinds::JOB, "images-db-expand")?
            .exists(later())
            .await?;
        assert!(
            stage
                .child(kinds::JOB, "images-db-sync")?
                .get()
                .await?
                .is_none()
        );
        kubelet.release(ns).await?;
        glance.event(later(), "UpgradeComplete").await?;
        glance.is_ready(later()).await?;
        Ok(())
    });
}
