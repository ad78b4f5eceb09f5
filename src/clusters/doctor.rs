//! `clusters doctor`: every check with its result, and for each fault the command that cures it.
//!
//! Three sources are asked, each about what it knows best: the registration on the hub, the target
//! itself by the registered credential, and the operator by what it wrote into the `TargetCluster`.
//! Nothing is changed anywhere.

mod hub;
mod remedy;
mod report;
mod rights;
mod target;

use jiff::Timestamp;
use target_registry::Registration;

use self::{
    remedy::Remedies,
    report::{Diagnosis, Reports},
};
use super::{
    Session,
    args::{DoctorArgs, TargetArgs},
    error::Error,
    fleet::{Entry, Fleet},
};

/// Examines some clusters, or all.
pub async fn doctor(session: &Session, args: &DoctorArgs) -> Result<(), Error> {
    let fleet = session.hub.fleet(&[]).await?;
    let named = session.hub.fleet(&args.names).await?;
    if named.entries.is_empty() {
        let namespace = &session.hub.namespace;
        session.progress.note(&format!(
            "No cluster is registered in the namespace {namespace}."
        ));
    }
    let mut items = Vec::new();
    for entry in &named.entries {
        items.push(diagnose(session, &fleet, entry, &args.target).await);
    }
    let reports = Reports { items };
    session.show(&reports)?;
    match reports.findings() {
        0 => Ok(()),
        1 => Err(Error::Unwell("there is 1 thing to do".to_owned())),
        n => Err(Error::Unwell(format!("there are {n} things to do"))),
    }
}

/// Says on standard error what is missing for a cluster to be ready; for commands that waited in
/// vain.
pub async fn explain(session: &Session, name: &str, target: &TargetArgs) {
    let Ok(fleet) = session.hub.fleet(&[]).await else {
        return;
    };
    for entry in fleet.entries.iter().filter(|entry| entry.name == name) {
        let diagnosis = diagnose(session, &fleet, entry, target).await;
        session.progress.note(&diagnosis.findings_for_people());
    }
}

async fn diagnose(
    session: &Session,
    fleet: &Fleet,
    entry: &Entry,
    target: &TargetArgs,
) -> Diagnosis {
    let name = &entry.name;
    let registration = entry.in_use();
    let server = registration.as_ref().map(Registration::server);
    let status = entry
        .target
        .as_ref()
        .and_then(|target| target.status.as_ref());
    let server = server.or_else(|| status.and_then(|status| status.server.clone()));
    let remedies = Remedies::new(session, name, target, server.as_deref());
    let mut checks = hub::registration(entry, fleet, &remedies, Timestamp::now());
    checks.extend(hub::policy(session, entry, &remedies).await);
    if let Some(registration) = &registration {
        let what = format!("examining {name}");
        let seen = target::examine(registration, entry, fleet, &remedies);
        checks.extend(session.progress.during(&what, seen).await);
    }
    checks.push(hub::operator(entry, fleet));
    Diagnosis {
        name: name.clone(),
        checks,
    }
}
