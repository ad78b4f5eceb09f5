//! `clusters pause` and `clusters resume`.

use serde_json::{Value, json};

use super::{
    Session,
    error::Error,
    list::{Done, Row},
};

/// Stops all writes to a cluster, or lets them go on.
pub async fn pause(session: &Session, name: &str, paused: bool) -> Result<(), Error> {
    let hub = &session.hub;
    if !hub.serves_targets().await? {
        return Err(Error::NoTargetClusters {
            what: "pausing a cluster",
        });
    }
    if hub.target(name).await?.is_some() {
        // Merged, so that whoever else writes the policy keeps the rest of it.
        let value = if paused { json!(true) } else { Value::Null };
        hub.patch_target(name, json!({ "spec": { "paused": value } }))
            .await?;
    } else if hub.secret(name).await?.is_some() {
        hub.write_target(name, json!({ "paused": paused })).await?;
    } else {
        return Err(hub.not_registered(name));
    }
    let fleet = hub.fleet(&[name.to_owned()]).await?;
    let Some(entry) = fleet.entries.first() else {
        return Err(hub.not_registered(name));
    };
    let remark = match (paused, &entry.glances) {
        (true, Some(glances)) if !glances.is_empty() => {
            format!(
                "nothing is written for {} Glances that name it",
                glances.len()
            )
        }
        _ => String::new(),
    };
    session.show(&Done {
        action: if paused { "paused" } else { "resumed" },
        remark,
        cluster: Row::of(entry),
    })
}
