//! `clusters unregister`: the hub forgets a cluster, and the target its hub.

use std::fmt::Write as _;

use super::{
    Session,
    access::Access,
    args::UnregisterArgs,
    error::{Doing as _, Error},
    fleet::{Entry, Fleet},
    hub::delete,
    known::{Known, account, look, must_be_registration},
    output::Show,
    target::{Granted, Target},
};
use serde::Serialize;

/// The end of a registration.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Unregistered {
    action: &'static str,
    name: String,
    /// Glances that still name the cluster.
    glances: Vec<String>,
    /// Objects that were deleted on the target.
    revoked: usize,
}

/// Removes a registration.
pub async fn unregister(session: &Session, args: &UnregisterArgs) -> Result<(), Error> {
    let (hub, progress, name) = (&session.hub, &session.progress, &args.name);
    // All of them: others may log in with the same account.
    let all = hub.fleet(&[]).await?;
    let one = hub.fleet(std::slice::from_ref(name)).await?;
    let Some(entry) = one.entries.first() else {
        return Err(hub.not_registered(name));
    };
    must_be_registration(hub, name, entry.secret.as_ref())?;
    if !all.reads_secrets {
        let namespace = &hub.namespace;
        return Err(Error::Api {
            doing: format!("looking for the Secret {namespace}/{name}"),
            text: "listing Secrets is forbidden".to_owned(),
            code: Some(403),
        });
    }
    // A Glance that cannot be seen must not count as one that is not there.
    let placed = match hub.glances().await {
        Err(Error::Api {
            code: Some(404), ..
        }) => Vec::new(),
        placed => placed?,
    };
    let glances: Vec<String> = placed
        .iter()
        .filter(|placed| placed.cluster == *name)
        .map(ToString::to_string)
        .collect();
    if !glances.is_empty() && !args.force {
        return Err(Error::InUse {
            name: name.clone(),
            glances,
        });
    }
    let status = entry
        .target
        .as_ref()
        .and_then(|target| target.status.as_ref());
    let count = status.map_or(0, |status| status.abandoned.len());
    if count > 0 && !args.force {
        return Err(Error::Abandoned {
            name: name.clone(),
            count,
        });
    }

    // Looked up before anything is deleted: a wrong context, or one without rights, must not leave half of it.
    let revoking = if args.target.target_context.is_some() {
        Some(revocation(session, args, entry, &all).await?)
    } else {
        None
    };
    if let Some(secret) = &entry.secret {
        let uid = secret.metadata.uid.clone();
        let deleted = progress.during("removing the registration", async {
            delete(&hub.secrets(), name, uid).await
        });
        deleted
            .await
            .doing(|| format!("deleting the Secret {}/{name}", hub.namespace))?;
    }
    if let Some(target) = &entry.target {
        let uid = target.metadata.uid.clone();
        let deleted = delete(&hub.targets(), name, uid).await;
        deleted.doing(|| format!("deleting the TargetCluster {}/{name}", hub.namespace))?;
    }
    let mut revoked = 0;
    if let Some((target, granted)) = revoking {
        let what = "taking back the access on the target";
        revoked = progress
            .during(what, target.take_back(&granted, false))
            .await?;
    }
    session.show(&Unregistered {
        action: "unregistered",
        name: name.clone(),
        glances,
        revoked,
    })
}

/// The target, and what will be taken back there: nothing where somebody else lives by it.
async fn revocation(
    session: &Session,
    args: &UnregisterArgs,
    entry: &Entry,
    all: &Fleet,
) -> Result<(Target, Vec<Granted>), Error> {
    let (hub, name) = (&session.hub, &args.name);
    let known = Known::of(hub, name, entry.secret.as_ref()).await?;
    let target = Target::connect(session, &args.target, name, None).await?;
    target.must_be(name, known.uid.as_deref())?;
    let (namespace, account) = account(None, None, &known.claims);
    let access = Access {
        namespace,
        account,
        scope: None,
        create_namespaces: false,
        hub: hub.uid().await,
    };
    if let Some(other) = shared_with(name, all, &target, &access).await? {
        session.progress.note(&format!(
            "note: the account {}/{} stays on the target, since {other} logs in with it",
            access.namespace, access.account
        ));
        return Ok((target, Vec::new()));
    }
    let granted = target.granted(&access).await?;
    target.take_back(&granted, true).await?;
    Ok((target, granted))
}

/// Who else logs in with the account.
async fn shared_with(
    name: &str,
    all: &Fleet,
    target: &Target,
    access: &Access,
) -> Result<Option<String>, Error> {
    let account = (access.namespace.clone(), access.account.clone());
    if let Some(other) = all.twin(name, &account, None) {
        return Ok(Some(other));
    }
    // Under another address, and nobody has said which cluster that is: it is asked. Who does not say may be this one.
    for (other, registration) in all.unidentified(name, &account) {
        let found = look(&registration).await.ok().flatten();
        if found.is_none() || target.uid.is_none() || found == target.uid {
            return Ok(Some(other.to_owned()));
        }
    }
    let hub = target.other_hub(access).await?;
    Ok(hub.map(|hub| format!("another hub ({hub})")))
}

// === impl Unregistered ===

impl Show for Unregistered {
    fn human(&self, _: bool) -> String {
        let mut text = format!("{} unregistered", self.name);
        if self.revoked > 0 {
            let _ = write!(text, ", {} objects deleted on the target", self.revoked);
        }
        if !self.glances.is_empty() {
            let _ = write!(text, "; no longer reconciled: {}", self.glances.join(", "));
        }
        text
    }

    fn names(&self) -> Vec<String> {
        vec![format!("secret/{}", self.name)]
    }
}
