//! An operator that is killed at moments nobody chose.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use e2e::{bed::run, children, fleet::Fleet, kinds, patience::seconds, site::Site};
use kube::api::{Patch, PatchParams};
use serde_json::json;

/// Pauses that differ from run to run; a failure names the seed.
struct Dice(u64);

// === impl Dice ===

impl Dice {
    fn new() -> Self {
        let seed = std::env::var("E2E_SEED")
            .ok()
            .and_then(|text| text.parse().ok());
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_nanos();
        let seed = seed.unwrap_or(u64::try_from(now % 1_000_000).unwrap());
        eprintln!("E2E_SEED={seed}");
        Self(seed | 1)
    }

    fn pause(&mut self, limit: u64) -> Duration {
        // Xorshift: good enough for pauses, and the same on every machine.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_millis(self.0 % limit)
    }
}

#[test]
fn killed_ten_times_it_still_converges_without_duplicates() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "killed").await?;
        let operator = site.operator().await?;
        site.register("edge-1").await?;
        let scenarios = [
            site.scenario("here")
                .backend("here-a", true)
                .backend("here-b", false),
            site.scenario("there")
                .on("edge-1")
                .backend("there-a", true)
                .backend("there-b", false),
        ];
        let backends = site
            .hub()
            .any(kinds::BACKEND.0, kinds::BACKEND.1, Some(site.namespace()));
        let mut dice = Dice::new();
        for scenario in &scenarios {
            site.apply(scenario).await?;
        }
        let mut default = 'a';
        for round in 0..10 {
            let running = operator.launch()?;
            tokio::time::sleep(Duration::from_millis(200) + dice.pause(1500)).await;
            running.kill()?;
            if round >= 4 {
                // A switch while nobody looks: first none, then the other.
                let (from, to) = if default == 'a' {
                    ('a', 'b')
                } else {
                    ('b', 'a')
                };
                default = to;
                for scenario in &scenarios {
                    for (letter, is_default) in [(from, false), (to, true)] {
                        let patch = json!({ "spec": { "isDefault": is_default } });
                        let name = format!("{}-{letter}", scenario.name());
                        backends
                            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                            .await?;
                    }
                }
            }
        }
        let running = operator.start().await?;
        for scenario in &scenarios {
            site.glance(scenario.name()).is_ready(seconds(90)).await?;
            for letter in ['a', 'b'] {
                site.backend(&format!("{}-{letter}", scenario.name()))
                    .is_ready(seconds(60))
                    .await?;
            }
            let cluster = site.children(scenario)?;
            let all = children::all(cluster, site.namespace()).await?;
            let count = |prefix: String| all.keys().filter(|key| key.starts_with(&prefix)).count();
            let name = scenario.name();
            assert_eq!(count(format!("Job/{name}-db-sync")), 1);
            assert_eq!(count(format!("Deployment/{name}")), 1);
            // One in use and at most three of history.
            assert!(
                count(format!("ConfigMap/{name}-config-")) <= 4,
                "{:?}",
                all.keys()
            );
            assert!(
                count(format!("Secret/{name}-backends-")) <= 4,
                "{:?}",
                all.keys()
            );
        }

        for scenario in &scenarios {
            site.hub().delete(&scenario.glance()).await?;
        }
        let mut running = Some(running);
        for _ in 0..3 {
            tokio::time::sleep(dice.pause(800)).await;
            if let Some(running) = running.take() {
                running.kill()?;
            }
            running = Some(operator.launch()?);
        }
        for scenario in &scenarios {
            site.glance(scenario.name()).is_gone(seconds(90)).await?;
        }
        let left = children::by_labels(fleet.cluster("edge-1")?, site.namespace(), "there").await?;
        let left: Vec<_> = left
            .iter()
            .filter(|(_, object)| object.metadata.deletion_timestamp.is_none())
            .map(|(key, _)| key)
            .collect();
        assert!(left.is_empty(), "{left:?}");
        Ok(())
    });
}
