//! One pass over one `GlanceBackend`: are its credentials there, and does the parent's Deployment mount its section?
//!
//! Writes status and nothing else; emits no events, has no finalizer. Reads the CR and its parent on the hub,
//! everything else on the parent's cluster (contract: target clusters, `GlanceBackend` controller).

use std::{collections::BTreeSet, sync::Arc};

use glance_api::{
    backend::{GlanceBackend, GlanceBackendStatus},
    conditions::{
        CONFIG_PROJECTED, CREDENTIALS_READY,
        reasons::{
            CONFIG_PROJECTED as PROJECTED, CREDENTIALS_AVAILABLE, RECONCILE_ERROR,
            TARGET_CLUSTER_UNAVAILABLE, WAITING_FOR_CREDENTIALS, WAITING_FOR_PARENT,
            WAITING_FOR_PROJECTION,
        },
    },
    glance::Glance,
};
use kube::{Api, ResourceExt, runtime::controller::Action};
use secrecy::ExposeSecret;
use target_registry::Purpose;

use crate::{
    cluster::{
        Target,
        inputs::{Explanation, Payload},
        kinds::{DEPLOYMENT, SECRET},
        ledger::SecretFacts,
    },
    context::Context,
    glance::{steps::backends::CREDENTIAL_KEYS, workload::volumes},
    oslo::stores::KEY,
    pipeline::{
        conditions::Conditions,
        persist,
        report::{ErrorKind, REQUEUE_SECRETS, Status, StepError, Verdict},
    },
};

/// The conditions `Ready` is made of.
const TYPES: [&str; 2] = [CREDENTIALS_READY, CONFIG_PROJECTED];

/// Verdicts of a pass; an absent one leaves its condition alone.
#[derive(Debug, Default)]
struct Findings {
    credentials: Option<Verdict>,
    projected: Option<Verdict>,
    waiting: bool,
    error: Option<StepError>,
}

/// One pass.
pub async fn reconcile(ctx: &Context, backend: Arc<GlanceBackend>) -> Result<Action, StepError> {
    let backend = ctx.backends.of(backend);
    if backend.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let findings = look(ctx, &backend).await;
    persist_and_act(ctx, &backend, findings).await
}

async fn look(ctx: &Context, backend: &GlanceBackend) -> Findings {
    let namespace = backend.namespace().unwrap_or_default();
    let parent = backend.spec.glance_ref.name.as_str();
    // A list that has not ended shows no parent, and what is said here takes stores out of pods.
    ctx.router.listed().await;
    let Some(glance) = ctx.router.glance(&namespace, parent) else {
        return without_parent(backend, &namespace, parent);
    };
    // Nothing is written there, so a paused cluster is looked at as well.
    match ctx.settled_target(&glance, Purpose::Read).await {
        Ok(target) => {
            let found = credentials(backend, &target).await;
            let lasting = lasting(ctx, backend, CREDENTIALS_READY, found.as_ref().err());
            match found {
                Ok(verdict) if verdict.status == Status::True => {
                    projection(ctx, backend, &glance, &target, verdict).await
                }
                Ok(verdict) => Findings {
                    credentials: Some(verdict),
                    waiting: true,
                    ..Findings::default()
                },
                Err(error) => Findings {
                    credentials: (error.kind == ErrorKind::OutOfScope)
                        .then(|| Verdict::no(WAITING_FOR_CREDENTIALS, error.message.clone()))
                        .or(lasting),
                    error: Some(error),
                    ..Findings::default()
                },
            }
        }
        Err(unresolved) => Findings {
            credentials: Some(Verdict::no(
                TARGET_CLUSTER_UNAVAILABLE,
                unresolved.to_string(),
            )),
            waiting: true,
            ..Findings::default()
        },
    }
}

/// What a condition says of a failure that lasts, by the rule of the pipeline: the third in a row, or one that the next
/// try cannot cure. Counts, and begins anew after a success.
fn lasting(
    ctx: &Context,
    backend: &GlanceBackend,
    type_: &'static str,
    error: Option<&StepError>,
) -> Option<Verdict> {
    let uid = backend.uid().unwrap_or_default();
    let Some(error) = error else {
        ctx.failures.succeeded(&uid, type_);
        return None;
    };
    let failures = ctx.failures.failed(&uid, type_);
    error
        .lasts(failures)
        .then(|| Verdict::no(RECONCILE_ERROR, error.message.clone()))
}

fn without_parent(backend: &GlanceBackend, namespace: &str, parent: &str) -> Findings {
    // A False one is told the new reason too: which of the two the parent's teardown leaves depends on whether its
    // Deployment or the parent itself is seen to go first. What was never judged stays so.
    let was_judged = backend
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .any(|condition| condition.type_ == CONFIG_PROJECTED);
    Findings {
        credentials: Some(Verdict::no(
            WAITING_FOR_PARENT,
            format!(
                "parent Glance {namespace}/{parent} does not exist; the cluster this backend's credentials belong on is unknown"
            ),
        )),
        projected: was_judged.then(|| {
            Verdict::no(
                WAITING_FOR_PROJECTION,
                format!(
                    "parent Glance {namespace}/{parent} does not exist; nothing mounts this backend's rendered store section"
                ),
            )
        }),
        waiting: true,
        error: None,
    }
}

async fn credentials(backend: &GlanceBackend, target: &Target) -> Result<Verdict, StepError> {
    let Some(s3) = &backend.spec.s3 else {
        return Ok(Verdict::no(
            WAITING_FOR_CREDENTIALS,
            "spec.s3 is not set; no S3 credentials to resolve",
        ));
    };
    let name = &s3.credentials_secret_ref.name;
    let facts = target.secret(name).await?;
    if facts
        .as_ref()
        .is_some_and(|facts| facts.missing(&CREDENTIAL_KEYS).is_empty())
    {
        return Ok(Verdict::yes(
            CREDENTIALS_AVAILABLE,
            format!("S3 credentials Secret \"{name}\" carries the required keys"),
        ));
    }
    let explanation = target.explain(name).await?;
    Ok(missing(
        target.namespace(),
        name,
        facts.as_ref(),
        explanation,
    ))
}

fn missing(
    namespace: &str,
    name: &str,
    facts: Option<&SecretFacts>,
    explanation: Explanation,
) -> Verdict {
    let lacking = facts.map(|facts| facts.missing(&CREDENTIAL_KEYS).join(", "));
    let message = match (explanation, lacking) {
        (Explanation::Absent, None) => {
            format!("S3 credentials ExternalSecret {namespace}/{name} not found yet")
        }
        (Explanation::Absent, Some(lacking)) => format!(
            "S3 credentials ExternalSecret {namespace}/{name} not found yet; the Secret exists but lacks a value for: {lacking}"
        ),
        (Explanation::Ready, Some(lacking)) => {
            format!("S3 credentials Secret exists but is missing expected keys: {lacking}")
        }
        (Explanation::Ready, None) => {
            "S3 credentials Secret exists but is missing expected keys".to_owned()
        }
        (Explanation::NotReady, _) => {
            "waiting for the S3 credentials Secret to carry the required keys".to_owned()
        }
    };
    Verdict::no(WAITING_FOR_CREDENTIALS, message)
}

async fn projection(
    ctx: &Context,
    backend: &GlanceBackend,
    glance: &Glance,
    target: &Target,
    credentials: Verdict,
) -> Findings {
    let credentials = Some(credentials);
    let found = is_projected(&backend.name_any(), glance, target).await;
    let lasting = lasting(ctx, backend, CONFIG_PROJECTED, found.as_ref().err());
    match found {
        Ok(true) => Findings {
            credentials,
            projected: Some(Verdict::yes(
                PROJECTED,
                "store section is rendered into the Glance Deployment's backends config",
            )),
            ..Findings::default()
        },
        Ok(false) => Findings {
            credentials,
            projected: Some(Verdict::no(
                WAITING_FOR_PROJECTION,
                "waiting for the Glance Deployment to mount this backend's rendered store section",
            )),
            waiting: true,
            error: None,
        },
        // What could not be read once demotes nothing.
        Err(error) => Findings {
            credentials,
            projected: lasting,
            error: Some(error),
            ..Findings::default()
        },
    }
}

/// Deployment, volume, Secret, section: any missing link is an authoritative no.
async fn is_projected(store: &str, glance: &Glance, target: &Target) -> Result<bool, StepError> {
    let Some(deployment) = target.child(&DEPLOYMENT, &glance.name_any()).await? else {
        return Ok(false);
    };
    let (_, Some(secret)) = volumes::mounted(&deployment.data) else {
        return Ok(false);
    };
    let Some(live) = target.child(&SECRET, secret).await? else {
        return Ok(false);
    };
    let uid = live.metadata.uid.clone().unwrap_or_default();
    if let Some(sections) = target.view.ledger.sections(&uid) {
        return Ok(sections.contains(store));
    }
    let Some(payload) = target.payload(secret).await? else {
        return Ok(false);
    };
    let sections = sections(&payload);
    let found = sections.contains(store);
    target
        .view
        .ledger
        .learn_sections(&payload.version.uid, sections);
    Ok(found)
}

/// The section names of a rendered document: whole lines in brackets.
fn sections(payload: &Payload) -> BTreeSet<String> {
    let Some(document) = payload.get(KEY) else {
        return BTreeSet::new();
    };
    document
        .expose_secret()
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let name = line.strip_prefix(b"[")?.strip_suffix(b"]")?;
            std::str::from_utf8(name).ok().map(str::to_owned)
        })
        .collect()
}

async fn persist_and_act(
    ctx: &Context,
    backend: &Arc<GlanceBackend>,
    findings: Findings,
) -> Result<Action, StepError> {
    let generation = backend.metadata.generation;
    let now = ctx.now();
    let mut status = backend.status.clone().unwrap_or_default();
    let mut conditions = Conditions::of(status.conditions);
    for (type_, verdict) in [
        (CREDENTIALS_READY, findings.credentials),
        (CONFIG_PROJECTED, findings.projected),
    ] {
        if let Some(verdict) = verdict {
            conditions.set(type_, verdict, generation, now);
        }
    }
    conditions.aggregate(&TYPES, generation, now);
    status.conditions = conditions.into_list();
    status.observed_generation = generation;
    let api: Api<GlanceBackend> =
        Api::namespaced(ctx.hub.client(), &backend.namespace().unwrap_or_default());
    let stored = persist::value(backend.status.as_ref());
    let wanted = persist::value(Some(&status));
    match persist::status(&api, backend.as_ref(), &stored, &wanted).await {
        Ok(Some(written)) => ctx.backends.learn(Arc::new(written)),
        Ok(None) => {}
        Err(conflict) => {
            // Whatever we believed to be newest is not.
            ctx.backends.forget(&backend.uid().unwrap_or_default());
            return Err(findings.error.unwrap_or(conflict));
        }
    }
    show(ctx, backend, &status);
    match findings.error {
        Some(error) => Err(error),
        None if findings.waiting => Ok(Action::requeue(REQUEUE_SECRETS)),
        None => Ok(Action::requeue(ctx.settings.resync.of(backend.as_ref()))),
    }
}

/// What the status says, as metrics. Of one that went meanwhile nothing would take the series away again.
fn show(ctx: &Context, backend: &GlanceBackend, status: &GlanceBackendStatus) {
    let (name, namespace) = (backend.name_any(), backend.namespace().unwrap_or_default());
    if ctx.router.backend(&namespace, &name).is_none() {
        return;
    }
    for condition in &status.conditions {
        ctx.metrics
            .backend_condition(&name, &namespace, &condition.type_, condition.is_true());
    }
}
