//! **Backends**: the store sections of the attached, credential-ready backends in one immutable Secret.
//!
//! Condition `BackendsReady`: `AllBackendsProjected`, `WaitingForBackends`, `NoDefaultBackend`. Never ends the pass by
//! waiting: a first install proceeds, and a backend's status flip wakes the Glance. One bad backend never keeps its
//! siblings out; without exactly one usable default nothing is rendered (contract: configuration, Backends step).

use std::{collections::BTreeSet, sync::Arc};

use glance_api::{
    backend::GlanceBackend,
    conditions::{
        BACKENDS_READY,
        reasons::{ALL_BACKENDS_PROJECTED, WAITING_FOR_BACKENDS},
    },
    glance::Glance,
    keys::events,
};
use kube::ResourceExt;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    cluster::{
        Target,
        kinds::{CONFIG_MAP, DEPLOYMENT, SECRET},
        ledger,
    },
    context::Context,
    glance::{
        revisions::{self, Revision},
        workload::volumes,
    },
    hash::ContentHash,
    names::Family,
    oslo::stores::{ACCESS_KEY_ID, Backends, SECRET_ACCESS_KEY},
    pipeline::{
        notice::Notice,
        report::{ErrorKind, Report, StepError, Verdict},
    },
};

mod detached;
mod section;
mod standing;

use detached::{detached, going, mounted_sections};
use section::{Fault, section};
use standing::is_unreadable;
pub use standing::{is_credential_ready, is_undetermined};

/// The data keys of a credentials Secret, fixed by contract.
pub const CREDENTIAL_KEYS: [&str; 2] = [ACCESS_KEY_ID, SECRET_ACCESS_KEY];
const STEP: &str = "Backends";
/// What of the stores that go was told.
const DETACHED: &str = "BackendsDetached";

/// What the configuration needs to know of the backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projection {
    /// The rendered stores; `None` when there is no usable default, and the last good configuration stays.
    pub rendered: Option<Rendered>,
    /// S3 hosts of all attached backends, ready or not.
    pub hosts: Vec<String>,
}

/// A valid projection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendered {
    /// The value of `enabled_backends`.
    pub enabled: String,
    /// The one default among them.
    pub default: String,
    /// The Secret that holds their sections.
    pub secret: String,
}

/// What a pass found, kept between passes while nothing it depends on changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Outcome {
    rendered: Option<Rendered>,
    pending: Vec<String>,
    faults: Vec<(String, String)>,
    /// A store that pods have and whose credentials may not be read at the moment: none is taken out for that.
    withheld: bool,
}

/// Aggregates the backends.
pub async fn reconcile(
    ctx: &Context,
    glance: &Glance,
    target: &Target,
) -> Result<Report<Projection>, StepError> {
    let attached: Vec<_> = ctx
        .router
        .attached(target.namespace(), &target.owner.name)
        .into_iter()
        .filter(|backend| backend.metadata.deletion_timestamp.is_none())
        .collect();
    let hosts: BTreeSet<_> = attached
        .iter()
        .filter_map(|backend| Some(backend.spec.s3.as_ref()?.host.clone()))
        .collect();
    let hosts: Vec<_> = hosts.into_iter().collect();
    if let Some(unknown) = undetermined(target, &attached).await? {
        // No store is taken out of the pods for that.
        let projection = Projection {
            rendered: None,
            hosts,
        };
        let verdict = kept(target, standing::unknown(unknown)).await?;
        return Ok(Report::with(verdict, projection));
    }
    let defaults: Vec<_> = attached
        .iter()
        .filter(|backend| backend.spec.is_default == Some(true) && is_credential_ready(backend))
        .map(|backend| backend.name_any())
        .collect();
    let [default] = defaults.as_slice() else {
        let projection = Projection {
            rendered: None,
            hosts,
        };
        let verdict = kept(target, standing::no_default(&defaults)).await?;
        return Ok(Report::with(verdict, projection));
    };
    let (outcome, news) = project(glance, target, &attached, default).await?;
    if let Some(rendered) = &outcome.rendered {
        let family = Family::backends(&target.owner.name);
        revisions::prune(target, &SECRET, &family, &rendered.secret)
            .await
            .map_err(|error| error.context("pruning backends Secrets"))?;
    }
    let mut verdict = judge(&outcome);
    if outcome.rendered.is_none() {
        verdict = kept(target, verdict).await?;
    }
    let skipped = skipped(glance, &verdict, &outcome.faults);
    Ok(Report::with(
        verdict,
        Projection {
            rendered: outcome.rendered,
            hosts,
        },
    )
    .notices(skipped)
    .notices(news))
}

/// A backend that could not be looked at, where running pods may have its store.
async fn undetermined<'a>(
    target: &Target,
    attached: &'a [Arc<GlanceBackend>],
) -> Result<Option<&'a GlanceBackend>, StepError> {
    let mut unknown = attached.iter().filter(|backend| is_undetermined(backend));
    let Some(first) = unknown.next() else {
        return Ok(None);
    };
    let deployment = target.child(&DEPLOYMENT, &target.owner.name).await?;
    if deployment.is_none() {
        return Ok(None);
    }
    let mounted = mounted_sections(target).await?;
    // A store that pods never had is no reason to hold up all others; without a word on what they have, any may be theirs.
    let holds = |backend: &&Arc<GlanceBackend>| {
        !is_unreadable(backend) || mounted.is_empty() || mounted.contains(&backend.name_any())
    };
    let found = std::iter::once(first).chain(unknown).find(holds);
    Ok(found.map(Arc::as_ref))
}

/// Adds what a projection that renders nothing means for pods that run already.
async fn kept(target: &Target, mut verdict: Verdict) -> Result<Verdict, StepError> {
    let Some(live) = target.child(&DEPLOYMENT, &target.owner.name).await? else {
        return Ok(verdict);
    };
    let (config_map, secret) = volumes::mounted(&live.data);
    let mut gone = Vec::new();
    for (kind, name) in [(&CONFIG_MAP, config_map), (&SECRET, secret)] {
        if let Some(name) = name
            && target.child(kind, name).await?.is_none()
        {
            gone.push(format!("{} {name}", kind.kind));
        }
    }
    verdict.message.push_str(&standing::kept(&gone));
    Ok(verdict)
}

fn judge(outcome: &Outcome) -> Verdict {
    if outcome.pending.is_empty() && outcome.rendered.is_some() {
        return Verdict::yes(
            ALL_BACKENDS_PROJECTED,
            "All attached backends are projected",
        );
    }
    let mut message = format!("Waiting for backends: {}", outcome.pending.join("; "));
    if outcome.withheld {
        message.push_str("; the last good configuration stays");
    } else if outcome.rendered.is_none() {
        message
            .push_str("; the default backend is among them, so the last good configuration stays");
    }
    Verdict::no(WAITING_FOR_BACKENDS, message)
}

/// Events for backends that are left out, when that is news.
fn skipped(glance: &Glance, verdict: &Verdict, faults: &[(String, String)]) -> Vec<Notice> {
    let known = glance
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .any(|condition| condition.type_ == BACKENDS_READY && condition.message == verdict.message);
    if known {
        return Vec::new();
    }
    faults
        .iter()
        .map(|(name, fault)| {
            Notice::warning(
                events::GLANCE_BACKEND_SKIPPED,
                format!("Skipping backend {name}: {fault}"),
            )
        })
        .collect()
}

async fn project(
    glance: &Glance,
    target: &Target,
    attached: &[Arc<GlanceBackend>],
    default: &str,
) -> Result<(Outcome, Vec<Notice>), StepError> {
    let inputs = inputs(glance, target, attached).await?;
    if let Some(outcome) = remembered(target, &inputs).await? {
        return Ok((outcome, Vec::new()));
    }
    let mut outcome = Outcome {
        rendered: None,
        pending: Vec::new(),
        faults: Vec::new(),
        withheld: false,
    };
    let before = mounted_sections(target).await?;
    let mut sections = Vec::new();
    for backend in attached {
        let name = backend.name_any();
        if !is_credential_ready(backend) {
            outcome
                .pending
                .push(format!("{name} (credentials not ready)"));
            continue;
        }
        match section(glance, target, backend).await? {
            Ok(section) => sections.push((name, section)),
            Err(Fault::Unreadable(why)) if before.contains(&name) => {
                outcome.pending.push(format!("{name} ({why})"));
                outcome.withheld = true;
            }
            Err(Fault::Unreadable(fault) | Fault::Wrong(fault)) => {
                outcome.pending.push(format!("{name} ({fault})"));
                outcome.faults.push((name, fault));
            }
        }
    }
    let mut news = Vec::new();
    let names: BTreeSet<_> = sections.iter().map(|(name, _)| name.clone()).collect();
    if names.contains(default) && !outcome.withheld {
        let backends = Backends::new(sections.into_iter().map(|(_, section)| section));
        let secret = write(target, &backends, names).await?;
        // Also when this very set was rendered before: its Secret is still there, yet the store goes.
        let (ledger, owner) = (&target.view.ledger, &target.owner.uid);
        let told = ledger.output(owner, DETACHED, "").unwrap_or_default();
        let going = going(&before, attached);
        news = detached(&going, &told);
        // Pods that are long in going must not have it told with every other change meanwhile.
        ledger.learn_output(owner, DETACHED, String::new(), going.join("\n"));
        outcome.rendered = Some(Rendered {
            enabled: backends.enabled,
            default: default.to_owned(),
            secret,
        });
    }
    if let Ok(text) = serde_json::to_string(&outcome) {
        target
            .view
            .ledger
            .learn_output(&target.owner.uid, STEP, inputs, text);
    }
    Ok((outcome, news))
}

/// Everything the document depends on, versions standing for content.
async fn inputs(
    glance: &Glance,
    target: &Target,
    attached: &[Arc<GlanceBackend>],
) -> Result<String, StepError> {
    let mut parts = vec![glance.spec.open_stack_release.clone()];
    for backend in attached {
        let secret = backend
            .spec
            .s3
            .as_ref()
            .map(|s3| &s3.credentials_secret_ref.name);
        let version = match secret {
            Some(name) if is_credential_ready(backend) => match target.secret(name).await {
                Ok(facts) => format!("{:?}", facts.map(|facts| facts.version)),
                Err(error) if error.kind == ErrorKind::Forbidden => error.message,
                Err(error) => return Err(error),
            },
            _ => String::new(),
        };
        parts.push(format!(
            "{} {} {} {version}",
            backend.name_any(),
            ledger::of_json(&backend.spec),
            is_credential_ready(backend)
        ));
    }
    Ok(parts.join("\n"))
}

/// The outcome of an earlier pass, if it still holds and its Secret is still there.
async fn remembered(target: &Target, inputs: &str) -> Result<Option<Outcome>, StepError> {
    let known = target.view.ledger.output(&target.owner.uid, STEP, inputs);
    let Some(outcome) = known.and_then(|text| serde_json::from_str::<Outcome>(&text).ok()) else {
        return Ok(None);
    };
    let Some(rendered) = &outcome.rendered else {
        return Ok(Some(outcome));
    };
    let family = Family::backends(&target.owner.name);
    let intact = revisions::is_intact(target, &SECRET, &family, &rendered.secret).await?;
    Ok(intact.then_some(outcome))
}

async fn write(
    target: &Target,
    backends: &Backends,
    sections: BTreeSet<String>,
) -> Result<String, StepError> {
    let data: serde_json::Map<_, _> = backends
        .data
        .iter()
        .map(|(key, value)| {
            let encoded = data_encoding::BASE64.encode(value.expose_secret().as_bytes());
            (key.clone(), json!(encoded))
        })
        .collect();
    let revision = Revision {
        kind: &SECRET,
        family: Family::backends(&target.owner.name),
        hash: ContentHash::of_secret(&backends.data),
        data: data.into(),
    };
    let name = revisions::ensure(target, &revision)
        .await
        .map_err(|error| error.context("creating backends Secret"))?;
    if let Some(live) = target.child(&SECRET, &name).await? {
        target
            .view
            .ledger
            .learn_sections(&live.uid().unwrap_or_default(), sections);
    }
    Ok(name)
}
