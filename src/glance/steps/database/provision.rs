//! The database, the user and its rights, through the MariaDB operator; nothing in brownfield.

use glance_api::{
    conditions::reasons::{CLUSTER_NOT_READY, WAITING_FOR_DATABASE},
    glance::Glance,
};
use kube::ResourceExt;
use target_registry::{Kind, Readiness};

use crate::{
    cluster::{
        Target,
        inputs::{InputState, is_ready},
        kinds::{DATABASE, GRANT, MARIADB, USER},
    },
    glance::{
        database::mariadb::{Place, other_place, provisioning},
        steps::deployment::identity,
    },
    pipeline::report::{ErrorKind, REQUEUE_DATABASE, REQUEUE_NOW, Report, StepError, Verdict},
};

const NOT_READY: &str = "MariaDB Database CR is not ready";

/// How far a database is.
pub enum Provisioned {
    /// It is there; told apart from others that may have its name, where it is ours.
    Ready(Option<String>),
    /// Something is waited for.
    Waiting(Box<Report<()>>),
}

/// Applies what is missing.
pub async fn reconcile(glance: &Glance, target: &Target) -> Result<Provisioned, StepError> {
    let Some(wanted) = provisioning(glance, identity(target)) else {
        return Ok(Provisioned::Ready(None));
    };
    let not_ready = format!("MariaDB cluster \"{}\" is not ready", wanted.cluster);
    let missing = not_served(target, wanted.login.is_some()).await;
    if !missing.is_empty() {
        let message = format!(
            "{not_ready}: cluster {} does not serve {}; install the MariaDB operator there",
            target.cluster.name(),
            missing.join(", ")
        );
        return Ok(waiting(CLUSTER_NOT_READY, message));
    }
    let live = target.child(&DATABASE, &target.owner.name).await?;
    let elsewhere = live.and_then(|live| other_place(&live.data, &glance.spec.database));
    let state = target
        .input_state(&MARIADB, Some(target.namespace()), &wanted.cluster)
        .await?;
    if state != InputState::Ready {
        let message = match &elsewhere {
            Some(place) => format!("{not_ready}: {}", set_back(place)),
            None => not_ready,
        };
        return Ok(waiting(CLUSTER_NOT_READY, message));
    }
    // The user does not need the database, only the grant needs both: one wait instead of two.
    let applied = target.apply(&DATABASE, wanted.database).await;
    let database = applied.map_err(|error| match &elsewhere {
        Some(place) => error.context(&set_back(place)),
        None => error,
    })?;
    if let Some(place) = other_place(&database.data, &glance.spec.database) {
        // Accepted, and put back by somebody.
        return Err(StepError::new(ErrorKind::Refused, set_back(&place)));
    }
    if elsewhere.is_some() {
        // It did move. The URL is still that of the old place.
        let verdict = Verdict::no(WAITING_FOR_DATABASE, NOT_READY);
        return Ok(Provisioned::Waiting(Box::new(Report::waiting(
            verdict,
            REQUEUE_NOW,
        ))));
    }
    let (user, grant) = match wanted.login {
        Some(login) => (
            Some(target.apply(&USER, login.user).await?),
            Some(login.grant),
        ),
        None => (None, None),
    };
    if !is_ready(&database) {
        return Ok(waiting(WAITING_FOR_DATABASE, NOT_READY));
    }
    let login = "MariaDB User or Grant CR is not ready";
    if user.is_some_and(|user| !is_ready(&user)) {
        return Ok(waiting(WAITING_FOR_DATABASE, login));
    }
    if let Some(grant) = grant
        && !is_ready(&*target.apply(&GRANT, grant).await?)
    {
        return Ok(waiting(WAITING_FOR_DATABASE, login));
    }
    let server = target
        .input(&MARIADB, Some(target.namespace()), &wanted.cluster)
        .await?;
    let server = server.and_then(|server| server.uid()).unwrap_or_default();
    let database = database.uid().unwrap_or_default();
    Ok(Provisioned::Ready(Some(format!("{server}/{database}"))))
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

/// What is said while the spec is not where the database is.
fn set_back(place: &Place) -> String {
    format!(
        "the database is {:?} on MariaDB {:?} and pods stay with it; set spec.database back",
        place.database, place.cluster
    )
}

fn waiting(reason: &'static str, message: impl Into<String>) -> Provisioned {
    let verdict = Verdict::no(reason, message);
    Provisioned::Waiting(Box::new(Report::waiting(verdict, REQUEUE_DATABASE)))
}
