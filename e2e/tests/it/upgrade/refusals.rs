//! Releases that do not follow each other.

use std::time::Duration;

use e2e::{expect::condition, patience::seconds};
use serde_json::{Value, json};

use super::life::{LIMIT, here_and_there, status};

#[test]
fn releases_that_do_not_follow_each_other_are_refused() {
    here_and_there("refuse", "edge-1", async |mut life, _| {
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
        life.no_job("db-expand").await?;
        assert_eq!(life.workload.rollout().await?, before);
        life.asks_for("2025.2").await?;
        life.glance().is_ready(seconds(LIMIT)).await?;

        life.pretend(json!({ "installedRelease": "latest" }))
            .await?;
        let error = "parse installed release \"latest\": invalid release format \"latest\": expected YYYY.N";
        life.database("VersionParseError", &format!("failed to {error}"))
            .await?;
        life.event(
            "VersionParseError",
            "Warning",
            &format!("Failed to {error}"),
        )
        .await?;
        // Told once, however often it is tried.
        tokio::time::sleep(Duration::from_secs(2)).await;
        for reason in [
            "UpgradePathInvalid",
            "DowngradeNotSupported",
            "VersionParseError",
        ] {
            assert_eq!(life.count(reason).await?, 1, "{reason}");
        }
        life.pretend(json!({ "installedRelease": "2025.2" }))
            .await?;
        life.glance().is_ready(seconds(LIMIT)).await?;
        Ok(())
    });
}
