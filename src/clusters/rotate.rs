//! `clusters rotate`: another credential for a registration, without a gap.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use target_registry::NAMESPACES_KEY;

use super::{
    Session,
    access::Access,
    args::RotateArgs,
    doctor,
    error::Error,
    fleet::Fleet,
    known::{Known, account},
    list::{Done, Row},
    register::{await_ready, judge, warn_of_loopback},
    target::Target,
    wait,
};

/// What an operator gets to change to a token whose use nobody can see.
const SETTLE: Duration = Duration::from_secs(5);

/// Makes a new token, registers it, and ends the old one when the new one is in use.
pub async fn rotate(session: &Session, args: &RotateArgs) -> Result<(), Error> {
    let (hub, progress, name) = (&session.hub, &session.progress, &args.name);
    let Some(secret) = hub.secret(name).await? else {
        return Err(hub.not_registered(name));
    };
    let known = Known::of(hub, name, Some(&secret)).await?;
    let target = Target::connect(session, &args.target, name, known.server.as_deref()).await?;
    target.must_be(name, known.uid.as_deref())?;
    let raw = secret
        .data
        .as_ref()
        .and_then(|data| data.get(NAMESPACES_KEY));
    let raw = raw.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned());
    let access = access(args, &known, raw.as_deref(), hub.uid().await);
    if target.account(&access).await?.is_none() {
        // Taken away with everything else, as by an uninstalled chart.
        let mut objects = access.namespaces();
        objects.extend(access.rights());
        let applied = target.apply(&objects, false);
        progress
            .during("granting access on the target again", applied)
            .await?;
    }

    let (token, fresh) = if let Some(lifetime) = args.account.token_lifetime {
        (target.request_token(&access, lifetime).await?, None)
    } else {
        let now = Timestamp::now().as_millisecond();
        let fresh = format!("{}-{now:x}", access.token_secret());
        target.apply(&[access.token(&fresh)], false).await?;
        let token = target.token(session, &access, &fresh).await?;
        (token, Some(fresh))
    };
    let server = target
        .server(args.account.server.as_deref(), &access)
        .await?;
    warn_of_loopback(session, &server);
    let kubeconfig = server.kubeconfig(name, &token)?;
    let registration = judge(name, &kubeconfig, raw.as_deref())?;
    let document = kubeconfig.expose_secret().as_bytes();
    hub.write_registration(name, document, raw.as_deref(), &access)
        .await?;

    await_use(session, &target, &access, fresh.as_deref()).await?;
    if args.wait && hub.serves_targets().await? {
        let ready = await_ready(session, name, &registration).await;
        if let Err(Error::Timeout { .. }) = ready {
            doctor::explain(session, name, &args.target).await;
        }
        ready?;
    }
    let all = hub.fleet(&[]).await?;
    let Some(entry) = all.entries.iter().find(|entry| entry.name == *name) else {
        return Err(hub.not_registered(name));
    };
    let remark = end_others(&all, name, &target, &access, fresh.as_deref(), &known).await?;
    session.show(&Done {
        action: "rotated",
        remark: format!("{remark} ({:.1} s)", progress.seconds()),
        cluster: Row::of(entry),
    })
}

/// Ends the tokens that the new one is for: the one from before, and those of earlier rotations that did not come to their
/// end, unless somebody may log in with those whom nothing here tells of. What came of it, in words.
async fn end_others(
    all: &Fleet,
    name: &str,
    target: &Target,
    access: &Access,
    fresh: Option<&str>,
    known: &Known,
) -> Result<String, Error> {
    let account = (access.namespace.clone(), access.account.clone());
    let is_clear = all.reads_secrets && all.unidentified(name, &account).next().is_none();
    let mut stale = if is_clear {
        target.old_tokens(access).await?
    } else {
        BTreeSet::new()
    };
    stale.extend(known.claims.secret.clone());
    let mut deleted = Vec::new();
    let mut words = Vec::new();
    for old in stale {
        if Some(old.as_str()) == fresh {
            continue;
        }
        match all.twin(name, &account, Some(&old)) {
            Some(other) => words.push(format!(
                "the old token {old} stays, since {other} logs in with it"
            )),
            None if target.revoke(access, &old).await? => deleted.push(old),
            None => {}
        }
    }
    match deleted.as_slice() {
        [] if words.is_empty() => words.push("there was no old token to delete".to_owned()),
        [] => {}
        [one] => words.insert(0, format!("the old token {one} is deleted")),
        several => {
            let several = several.join(", ");
            words.insert(0, format!("the old tokens {several} are deleted"));
        }
    }
    Ok(words.join("; "))
}

/// The account and its rights as far as the registration tells of them.
fn access(
    args: &RotateArgs,
    known: &Known,
    namespaces: Option<&str>,
    hub: Option<String>,
) -> Access {
    let (namespace, account) = account(
        args.account.access_namespace.as_deref(),
        args.account.service_account.as_deref(),
        &known.claims,
    );
    let scope = namespaces.map(|raw| {
        let entries = raw.split(',').map(|entry| entry.trim().to_owned());
        let entries = entries.filter(|entry| !entry.is_empty());
        entries.collect::<BTreeSet<_>>()
    });
    Access {
        namespace,
        account,
        scope,
        create_namespaces: false,
        hub,
    }
}

/// Waits until the operator logs in with the new token. Not from here: a login of ours would look
/// like the operator's.
async fn await_use(
    session: &Session,
    target: &Target,
    access: &Access,
    fresh: Option<&str>,
) -> Result<(), Error> {
    let Some(fresh) = fresh else {
        let pause = tokio::time::sleep(SETTLE);
        let what = "letting the operator change over";
        session.progress.during(what, pause).await;
        return Ok(());
    };
    let what = "waiting for the operator to log in with the new token";
    let used = wait::until(session, what, async || {
        let used = target.was_used(access, fresh).await?;
        Ok(used.then_some(()).ok_or_else(String::new))
    });
    used.await.map_err(|error| match error {
        Error::Timeout { seconds, .. } => Error::Unused { seconds },
        other => other,
    })
}
