//! The database, the user and its rights, through the MariaDB operator; nothing in brownfield.

use glance_api::{
    conditions::reasons::{CLUSTER_NOT_READY, WAITING_FOR_DATABASE},
    glance::Glance,
};

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
    let state = target
        .input_state(&MARIADB, Some(target.namespace()), &wanted.cluster)
        .await?;
    if state != InputState::Ready {
        let mut message = format!("MariaDB cluster \"{}\" is not ready", wanted.cluster);
        if state == InputState::NotServed {
            message = format!(
                "{message}: cluster {} does not serve mariadbs.k8s.mariadb.com; install the MariaDB operator there",
                target.cluster.name()
            );
        }
        return Ok(Some(waiting(CLUSTER_NOT_READY, message)));
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

fn waiting(reason: &'static str, message: impl Into<String>) -> Report<()> {
    Report::waiting(Verdict::no(reason, message), REQUEUE_DATABASE)
}
