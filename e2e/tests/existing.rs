//! The tests on clusters that exist already, as `E2E_HUB_KUBECONFIG` and `E2E_TARGET_KUBECONFIGS` name them: two control
//! planes of which the bed knows no more than their kubeconfigs.

#[cfg(test)]
mod tests {
    use anyhow::Result;
    use e2e::{
        assets::Assets,
        bed::block_on,
        chainsaw,
        control_plane::ControlPlane,
        expect::Object,
        fleet::{Fleet, Shape},
        patience::seconds,
        progress::Progress,
        site::Site,
    };

    #[test]
    fn clusters_that_exist_serve_as_well() {
        if let Err(error) = block_on(try_it()) {
            panic!("{error:#}");
        }
    }

    async fn try_it() -> Result<()> {
        let scratch = tempfile::tempdir()?;
        let assets =
            tokio::task::spawn_blocking(|| Assets::find_or_build(&Progress::start())).await??;
        let start = |name| ControlPlane::start(name, scratch.path().join(name), assets.clone());
        let (hub, target) = tokio::try_join!(start("a"), start("b"))?;
        let shape = Shape {
            patience: seconds(600),
            ..Shape::targets(1)
        };
        let targets = [target.cluster().kubeconfig().to_owned()];
        let fleet = Fleet::existing(hub.cluster().kubeconfig(), &targets, shape).await?;

        let site = Site::open(&fleet, "existing").await?;
        let _operator = site.operator().await?.start().await?;
        site.register("edge-1").await?;
        for scenario in [
            site.scenario("here").backend("near", true),
            site.scenario("there").on("edge-1").backend("far", true),
        ] {
            site.apply(&scenario).await?;
            Object::glance(fleet.hub(), scenario.namespace(), scenario.name())
                .is_ready(seconds(60))
                .await?;
        }
        // What people run on kind: the suites, which know nothing but a kubeconfig.
        let suites = ["s3-multistore", "deletion-cleanup"];
        let report = chainsaw::run(
            fleet.hub(),
            site.namespace(),
            &suites,
            fleet.assets(),
            scratch.path(),
        )
        .await?;
        for suite in suites {
            assert!(
                report.contains(&format!("--- PASS: chainsaw/{suite}")),
                "{report}"
            );
        }
        Ok(())
    }
}
