//! The Chainsaw suites, under the names that the documentation of backends gives them.

use e2e::{bed::run, chainsaw, fleet::Fleet, site::Site};

const SUITES: [&str; 4] = [
    "s3-multistore",
    "default-backend-switch",
    "deletion-cleanup",
    "invalid-glancebackend-cr",
];

#[test]
fn the_chainsaw_suites_pass() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "suites").await?;
        let Some(webhooks) = site.webhooks()? else {
            return Ok(());
        };
        let _operator = webhooks.on(site.operator().await?).start().await?;
        let scratch = tempfile::tempdir()?;
        let hub = site.hub();
        webhooks.register(hub).await?;
        let report = chainsaw::run(
            hub,
            site.namespace(),
            &SUITES,
            fleet.assets(),
            scratch.path(),
        )
        .await?;
        for suite in SUITES {
            assert!(
                report.contains(&format!("--- PASS: chainsaw/{suite}")),
                "{suite}: {report}"
            );
        }
        webhooks.unregister(hub).await
    });
}
