//! The stores that pods have, and those that go.

use std::{collections::BTreeSet, sync::Arc};

use glance_api::{backend::GlanceBackend, keys::events};
use kube::ResourceExt;

use crate::{
    cluster::{
        Target,
        kinds::{DEPLOYMENT, SECRET},
    },
    glance::workload::volumes,
    pipeline::{notice::Notice, report::StepError},
};

/// The stores the running pods have, as far as we know.
pub async fn mounted_sections(target: &Target) -> Result<BTreeSet<String>, StepError> {
    let Some(deployment) = target.child(&DEPLOYMENT, &target.owner.name).await? else {
        return Ok(BTreeSet::new());
    };
    let (_, Some(secret)) = volumes::mounted(&deployment.data) else {
        return Ok(BTreeSet::new());
    };
    let live = target.child(&SECRET, secret).await?;
    Ok(live
        .and_then(|live| target.view.ledger.sections(&live.uid()?))
        .unwrap_or_default())
}

/// The stores that pods still have and that no backend stands for any more.
pub fn going(before: &BTreeSet<String>, attached: &[Arc<GlanceBackend>]) -> Vec<String> {
    before
        .iter()
        .filter(|store| !attached.iter().any(|backend| backend.name_any() == **store))
        .cloned()
        .collect()
}

/// Images of a store that goes away answer errors: worth one event. `told` has those that had theirs, by line.
pub fn detached(going: &[String], told: &str) -> Vec<Notice> {
    going
        .iter()
        .filter(|store| !told.lines().any(|known| known == *store))
        .map(|store| {
            Notice::warning(
                events::GLANCE_BACKEND_DETACHED,
                format!(
                    "Backend {store} is no longer attached; images that are only in this store cannot be downloaded until a backend of the same name is attached again"
                ),
            )
            .unrepeatable()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_goes_is_told_once_however_long_its_pods_take() {
        let before = BTreeSet::from(["first".to_owned(), "second".to_owned()]);
        let going = going(&before, &[]);
        assert_eq!(going, ["first", "second"]);
        assert_eq!(detached(&going, "").len(), 2);
        let told = going[..1].join("\n");
        let news = detached(&going, &told);
        assert_eq!(news.len(), 1);
        assert!(news[0].message.starts_with("Backend second is no longer"));
        assert!(detached(&going, &going.join("\n")).is_empty());
        // Its name may come to life again, and go again.
        assert_eq!(detached(&going, "").len(), 2);
    }
}
