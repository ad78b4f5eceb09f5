//! `clusters register`: from an administrator's context to a cluster that Glances can be placed on.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde_json::{Value, json};
use target_registry::{
    KUBECONFIG_KEY, NAMESPACES_KEY, Registration, RegistrationError, TargetCluster,
};

use super::{
    Session,
    access::Access,
    args::RegisterArgs,
    doctor,
    error::Error,
    known::{Known, account, look},
    kubeconfig::Server,
    list::{Done, Row},
    output::{Format, Show, show, yaml},
    target::{Target, joined},
    wait,
};

/// What `register --dry-run` prints.
#[derive(Serialize)]
#[serde(transparent)]
struct Manifests(Vec<Value>);

/// Prints what a registration creates on the target. Needs no cluster.
pub fn dry_run(args: &RegisterArgs, format: Format) -> Result<(), Error> {
    let access = access(args, &Known::default(), None)?;
    let manifests = Manifests(access.objects());
    if format == Format::Yaml {
        // One document each, as kubectl applies them.
        let documents = manifests
            .0
            .iter()
            .map(yaml)
            .collect::<Result<Vec<_>, _>>()?;
        let text = documents.join("---\n");
        return super::output::write(&text).map_err(|error| Error::Print(error.to_string()));
    }
    show(format, &manifests)
}

/// Registers a cluster, or brings its registration up to date.
pub async fn register(session: &Session, args: &RegisterArgs) -> Result<(), Error> {
    let (hub, progress, name) = (&session.hub, &session.progress, &args.name);
    if args.target.target_context.is_none() {
        return Err(Error::NoTargetContext { name: name.clone() });
    }
    let before = hub.secret(name).await?;
    let known = Known::of(hub, name, before.as_ref()).await?;
    let target = Target::connect(session, &args.target, name, None).await?;
    target.must_be(name, known.uid.as_deref())?;
    let hub_uid = hub.uid().await;
    if target.uid.is_some() && hub_uid == target.uid {
        progress.note(&format!(
            "warning: {name} is the hub itself under another name"
        ));
    }
    let Grant {
        access,
        kubeconfig,
        scope,
        registration,
    } = grant(session, args, &known, &target, hub_uid).await?;
    let seen = progress.during(
        "logging in to the target as the hub will",
        look(&registration),
    );
    let seen = seen.await;

    let serves_targets = hub.serves_targets().await?;
    if serves_targets {
        // The policy first: at no time is the cluster open to more than it is meant to be.
        let policy = policy(args, target.uid.as_deref());
        if known.has_target {
            // Merged: what this command does not say stays, whoever has said it.
            hub.patch_target(name, json!({ "spec": policy })).await?;
        } else {
            hub.write_target(name, policy).await?;
        }
    }
    let document = kubeconfig.expose_secret().as_bytes();
    hub.write_registration(name, document, scope.as_deref(), &access)
        .await?;
    if !serves_targets {
        progress.note(
            "note: the hub does not serve TargetClusters, so the operator's own word is not known; \
             the registration was tried from here",
        );
        seen.map_err(|text| Error::Silent {
            name: name.clone(),
            text,
        })?;
    } else if args.wait {
        if let Err(text) = seen {
            progress.note(&format!(
                "warning: the target does not answer from here: {text}"
            ));
        }
        let ready = await_ready(session, name, &registration).await;
        if let Err(Error::Timeout { .. }) = ready {
            doctor::explain(session, name, &args.target).await;
        }
        ready?;
    }
    let fleet = hub.fleet(std::slice::from_ref(name)).await?;
    let Some(entry) = fleet.entries.first() else {
        return Err(hub.not_registered(name));
    };
    let action = if before.is_some() {
        "registered again"
    } else {
        "registered"
    };
    let scope = scope.map(|scope| format!(" of {scope}"));
    session.show(&Done {
        action,
        remark: format!(
            "name it in spec.targetClusterRef of a Glance{} ({:.1} s)",
            scope.unwrap_or_default(),
            progress.seconds()
        ),
        cluster: Row::of(entry),
    })
}

/// What the target's administrator gave, as it will be registered.
struct Grant {
    access: Access,
    kubeconfig: SecretString,
    scope: Option<String>,
    registration: Registration,
}

/// Grants access on the target, unless it is there already, and makes the kubeconfig of it.
async fn grant(
    session: &Session,
    args: &RegisterArgs,
    known: &Known,
    target: &Target,
    hub: Option<String>,
) -> Result<Grant, Error> {
    let (progress, name) = (&session.progress, &args.name);
    let access = access(args, known, hub)?;
    if access.scope.is_none() {
        progress.note(
            "warning: without --namespaces the hub may read and write every Secret of the target",
        );
    }
    // A rotated token lies in a Secret of another name; it is as good.
    let secret = match known.claims.secret.clone() {
        Some(rotated) if target.has_secret(&access, &rotated).await? => rotated,
        _ => access.token_secret(),
    };
    let lifetime = args.account.token_lifetime;
    if !args.use_existing_access {
        spare_others(session, name, target, &access).await?;
        if !args.force_conflicts
            && let Some(hub) = target.other_hub(&access).await?
        {
            let account = format!("{}/{}", access.namespace, access.account);
            return Err(Error::OtherHub { account, hub });
        }
        let mut objects = access.namespaces();
        objects.extend(access.rights());
        if lifetime.is_none() {
            objects.push(access.token(&secret));
        }
        let applied = target.apply(&objects, args.force_conflicts);
        progress
            .during("granting access on the target", applied)
            .await?;
    }
    let token = match lifetime {
        Some(lifetime) => target.request_token(&access, lifetime).await?,
        None => target.token(session, &access, &secret).await?,
    };
    let server = target
        .server(args.account.server.as_deref(), &access)
        .await?;
    warn_of_loopback(session, &server);
    let kubeconfig = server.kubeconfig(name, &token)?;
    let scope = access.scope.as_ref().map(joined);
    let registration = judge(name, &kubeconfig, scope.as_deref())?;
    Ok(Grant {
        access,
        kubeconfig,
        scope,
        registration,
    })
}

/// Refuses to narrow rights that another registration lives by: roles are replaced, not added to.
async fn spare_others(
    session: &Session,
    name: &str,
    target: &Target,
    access: &Access,
) -> Result<(), Error> {
    let (Some(uid), Some(_)) = (target.uid.as_deref(), &access.scope) else {
        return Ok(());
    };
    let fleet = session.hub.fleet(&[]).await?;
    let account = (access.namespace.clone(), access.account.clone());
    match fleet.at_home(name, uid, &account) {
        None => Ok(()),
        Some(other) => Err(Error::SharedAccount {
            other,
            account: format!("{}/{}", account.0, account.1),
        }),
    }
}

/// What is granted for a registration. Without namespaces on the command line those that are
/// declared stay: nobody means to open a whole cluster by leaving something out.
fn access(args: &RegisterArgs, known: &Known, hub: Option<String>) -> Result<Access, Error> {
    let scope: BTreeSet<String> = args
        .namespaces
        .iter()
        .map(|n| n.trim().to_owned())
        .collect();
    let given = (!scope.is_empty()).then_some(scope);
    let scope = given.or_else(|| known.namespaces.clone());
    let key = scope.as_ref().map(joined);
    // By the words of the operator itself.
    match judge(&args.name, &SecretString::from("-"), key.as_deref()) {
        Err(Error::Invalid(text)) if !text.contains("kubeconfig") => {
            return Err(Error::Invalid(text));
        }
        _ => {}
    }
    let (namespace, account) = account(
        args.account.access_namespace.as_deref(),
        args.account.service_account.as_deref(),
        &known.claims,
    );
    Ok(Access {
        namespace,
        account,
        scope,
        create_namespaces: args.create_namespaces,
        hub,
    })
}

/// A registration as the operator will read it.
pub fn judge(
    name: &str,
    kubeconfig: &SecretString,
    namespaces: Option<&str>,
) -> Result<Registration, Error> {
    let mut secret = Secret::default();
    secret.metadata.name = Some(name.to_owned());
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let mut data = BTreeMap::new();
    data.insert(KUBECONFIG_KEY.to_owned(), bytes(kubeconfig.expose_secret()));
    if let Some(namespaces) = namespaces {
        data.insert(NAMESPACES_KEY.to_owned(), bytes(namespaces));
    }
    secret.data = Some(data);
    Registration::from_secret(&secret, false)
        .map_err(|error: RegistrationError| Error::Invalid(error.to_string()))
}

/// The part of the policy that the command says; the rest stays as it is.
fn policy(args: &RegisterArgs, uid: Option<&str>) -> Value {
    let mut spec = json!({});
    if let Some(uid) = uid {
        spec["identity"] = json!(uid);
    }
    if !args.allowed_namespaces.is_empty() {
        let names: BTreeSet<_> = args
            .allowed_namespaces
            .iter()
            .map(|name| name.trim())
            .collect();
        spec["allowedNamespaces"] = json!({ "names": names });
    }
    spec
}

/// Waits until the operator says that the cluster is ready by what was registered.
pub async fn await_ready(
    session: &Session,
    name: &str,
    registration: &Registration,
) -> Result<(), Error> {
    let what = format!("waiting for the operator to say that {name} is ready");
    wait::until(session, &what, async || {
        let target = session.hub.target(name).await?;
        Ok(readiness(target.as_ref(), registration))
    })
    .await
}

fn readiness(target: Option<&TargetCluster>, registration: &Registration) -> Result<(), String> {
    let Some(target) = target else {
        return Err("it has not seen the registration yet".to_owned());
    };
    let Some(status) = &target.status else {
        return Err("it has not reported yet".to_owned());
    };
    let declared = registration.namespaces().into_iter().flatten();
    // A token that the operator renewed expires later than the one that was written.
    let credential = target.spec.renew_credentials == Some(true)
        || status.credential.as_ref() == Some(registration.credential());
    let current = status.observed_generation >= target.metadata.generation
        && status.server.as_deref() == Some(registration.server().as_str())
        && status.namespaces.iter().eq(declared)
        && credential;
    match status.condition("Ready") {
        Some(ready) if ready.is_true() && current => Ok(()),
        Some(ready) if !ready.is_true() => {
            let words = format!("{}: {}", ready.reason, ready.message);
            Err(words.trim_end_matches([':', ' ']).to_owned())
        }
        _ => Err("it has not reported on what was written".to_owned()),
    }
}

/// Says that a pod reaches itself under such an address, and nobody else.
pub fn warn_of_loopback(session: &Session, server: &Server) {
    if server.is_loopback() {
        session.progress.note(&format!(
            "warning: {} is an address of this machine; an operator that runs in a pod needs another, see --server",
            server.url()
        ));
    }
}

// === impl Manifests ===

impl Show for Manifests {
    fn human(&self, _: bool) -> String {
        self.names().join("\n")
    }

    fn names(&self) -> Vec<String> {
        let name = |object: &Value| {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
            let kind = text("/kind").unwrap_or_default().to_lowercase();
            let namespace = text("/metadata/namespace").map(|n| format!("{n}/"));
            let name = text("/metadata/name").unwrap_or_default();
            format!("{kind}/{}{name}", namespace.unwrap_or_default())
        };
        self.0.iter().map(name).collect()
    }
}
