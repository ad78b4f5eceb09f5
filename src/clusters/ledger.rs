//! `clusters abandoned` and `clusters reclaim`: what deleted Glances had to leave behind.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use target_registry::target_cluster::{Abandoned, GROUP, RECLAIM_ANNOTATION};

use super::{
    Session,
    error::Error,
    fleet::Fleet,
    output::{Show, distance, table},
    wait,
};

/// What one deleted Glance left on one cluster.
#[derive(Clone, Debug, Serialize)]
struct Ghost {
    cluster: String,
    #[serde(flatten)]
    left: Abandoned,
}

/// Everything that was left.
#[derive(Clone, Debug, Serialize)]
struct Ghosts {
    items: Vec<Ghost>,
    #[serde(skip)]
    now: Timestamp,
}

/// The end of a reclaim.
#[derive(Clone, Debug, Serialize)]
struct Reclaimed {
    cluster: String,
    /// Deleted Glances whose children are gone now.
    reclaimed: usize,
}

/// `clusters abandoned`.
pub async fn abandoned(session: &Session, names: &[String]) -> Result<(), Error> {
    if !session.hub.serves_targets().await? {
        return Err(Error::NoTargetClusters {
            what: "the ledger of what was abandoned",
        });
    }
    let ghosts = Ghosts::of(&session.hub.fleet(names).await?, Timestamp::now());
    if ghosts.items.is_empty() {
        session.progress.note("Nothing was left behind.");
    }
    session.show(&ghosts)
}

/// `clusters reclaim`.
pub async fn reclaim(session: &Session, name: &str) -> Result<(), Error> {
    if !session.hub.serves_targets().await? {
        return Err(Error::NoTargetClusters {
            what: "the ledger of what was abandoned",
        });
    }
    let fleet = session.hub.fleet(&[name.to_owned()]).await?;
    let reclaimed = Ghosts::of(&fleet, Timestamp::now()).items.len();
    let done = Reclaimed {
        cluster: name.to_owned(),
        reclaimed,
    };
    if reclaimed == 0 {
        session.progress.note("Nothing was left behind.");
        return session.show(&done);
    }
    if fleet
        .entries
        .iter()
        .all(|entry| entry.registration().is_none())
    {
        return Err(session.hub.not_registered(name));
    }
    let patch = json!({ "metadata": { "annotations": { RECLAIM_ANNOTATION: "true" } } });
    session.hub.patch_target(name, patch).await?;
    let what = format!("deleting what was left behind on {name}");
    wait::until(session, &what, async || {
        let target = session.hub.target(name).await?;
        let left = target
            .and_then(|target| target.status)
            .map(|status| status.abandoned);
        let left = left.unwrap_or_default();
        Ok(if left.is_empty() {
            Ok(())
        } else {
            let names: Vec<_> = left.iter().map(title).collect();
            Err(format!("left: {}", names.join(", ")))
        })
    })
    .await?;
    session.show(&done)
}

fn title(left: &Abandoned) -> String {
    format!("{}/{}", left.namespace, left.name)
}

// === impl Ghosts ===

impl Ghosts {
    fn of(fleet: &Fleet, now: Timestamp) -> Self {
        let ghosts = fleet.entries.iter().flat_map(|entry| {
            let status = entry
                .target
                .as_ref()
                .and_then(|target| target.status.as_ref());
            let left = status
                .map(|status| status.abandoned.clone())
                .unwrap_or_default();
            left.into_iter().map(|left| Ghost {
                cluster: entry.name.clone(),
                left,
            })
        });
        Self {
            items: ghosts.collect(),
            now,
        }
    }
}

impl Show for Ghosts {
    fn human(&self, wide: bool) -> String {
        if self.items.is_empty() {
            return String::new();
        }
        let mut head = vec!["CLUSTER", "GLANCE", "SINCE", "OBJECTS"];
        if wide {
            head.extend(["UID", "CLUSTER UID"]);
        }
        let rows = self.items.iter().map(|ghost| {
            let left = &ghost.left;
            let mut cells = vec![
                ghost.cluster.clone(),
                title(left),
                distance(left.abandoned_at.0, self.now),
                left.objects.join(","),
            ];
            if wide {
                cells.push(left.uid.clone());
                cells.push(left.cluster_uid.clone().unwrap_or_default());
            }
            cells
        });
        table(&head, &rows.collect::<Vec<_>>())
    }

    fn names(&self) -> Vec<String> {
        let name = |ghost: &Ghost| format!("{}/{}", ghost.cluster, title(&ghost.left));
        self.items.iter().map(name).collect()
    }
}

// === impl Reclaimed ===

impl Show for Reclaimed {
    fn human(&self, _: bool) -> String {
        format!(
            "targetcluster.{GROUP}/{} reclaimed: the children of {} deleted Glances are gone",
            self.cluster, self.reclaimed
        )
    }

    fn names(&self) -> Vec<String> {
        vec![format!("targetcluster.{GROUP}/{}", self.cluster)]
    }
}
