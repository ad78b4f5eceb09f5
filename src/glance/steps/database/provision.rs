//! The database, the user and its rights, through the MariaDB operator; nothing in brownfield.

use glance_api::{
    conditions::reasons::{CLUSTER_NOT_READY, WAITING_FOR_DATABASE},
    glance::Glance,
};
use target_registry::{Kind, Readiness};

use crate::{
    cluster::{
        Target,
        inputs::{InputState, is_ready},
        kinds::{DATABASE, GRANT, MARIADB, USER},
    },
    glance::{database::mariadb::provisioning, steps::deployment::identity},
    pipeline::report::{REQUEUE_DATABASE, Report, StepError, Verdict},
};

/// Applies what is missing. The report of what is waited for, if anything is.
pub async fn reconcile(glance: &Glance, target: &Target) -> Result<Option<Report<()>>, StepError> {
    let Some(wanted) = provisioning(glance, identity(target)) else {
        return Ok(None);
    };
    let not_ready = format!("MariaDB cluster \"{}\" is not ready", wanted.cluster);
    let missing = not_served(target, wanted.login.is_some()).await;
    if !missing.is_empty() {
        let message = format!(
            "{not_ready}: cluster {} does not serve {}; install the MariaDB operator there",
            target.cluster.name(),
            missing.join(", ")
        );
        return Ok(Some(waiting(CLUSTER_NOT_READY, message)));
    }
    let state = target
        .input_state(&MARIADB, Some(target.namespace()), &wanted.cluster)
        .await?;
    if state != InputState::Ready {
        return Ok(Some(waiting(CLUSTER_NOT_READY, not_ready)));
    }
    // The user does not need the database, only the grant needs both: one wait instead of two.
    let database = target.apply(&DATABASE, wanted.database).await?;
    let (user, grant) = match wanted.login {
        Some(login) => (
            Some(target.apply(&USER, login.user).await?),
            Some(login.grant),
        ),
        None => (None, None),
    };
    if !is_ready(&database) {
        return Ok(Some(waiting(
            WAITING_FOR_DATABASE,
            "MariaDB Database CR is not ready",
        )));
    }
    let login = "MariaDB User or Grant CR is not ready";
    if user.is_some_and(|user| !is_ready(&user)) {
        return Ok(Some(waiting(WAITING_FOR_DATABASE, login)));
    }
    if let Some(grant) = grant
        && !is_ready(&*target.apply(&GRANT, grant).await?)
    {
        return Ok(Some(waiting(WAITING_FOR_DATABASE, login)));
    }
    Ok(None)
}

/// The kinds of the MariaDB operator that the cluster lacks, of those that are needed.
async fn not_served(target: &Target, login: bool) -> Vec<String> {
    let kinds: &[&Kind] = if login {
        &[&MARIADB, &DATABASE, &USER, &GRANT]
    } else {
        &[&MARIADB, &DATABASE]
    };
    let mut missing = Vec::new();
    for kind in kinds {
        let readiness = target.view.readiness(kind, Some(target.namespace())).await;
        if readiness == Readiness::NotServed {
            missing.push(format!("{}.{}", kind.plural, kind.group));
        }
    }
    missing
}

fn waiting(reason: &'static str, message: impl Into<String>) -> Report<()> {
    Report::waiting(Verdict::no(reason, message), REQUEUE_DATABASE)
}
