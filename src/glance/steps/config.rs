//! **Config**: the configuration files in one immutable `ConfigMap`.
//!
//! Reports through `SecretsReady`, with `ConfigError` when something cannot be rendered, and keeps the informational
//! `ExtraConfigHealthy`. While the projection of the backends is invalid nothing is rendered and the pods keep what
//! they mount (contract: configuration, Config step, last-good retention).

use glance_api::{
    conditions::{
        EXTRA_CONFIG_HEALTHY,
        reasons::{CONFIG_ERROR, NO_OWNED_KEYS_OVERRIDDEN, OWNED_KEYS_OVERRIDDEN},
    },
    glance::Glance,
    keys::events,
};
use serde_json::json;

use super::backends::{Projection, Rendered};
use crate::{
    cluster::{
        Target,
        kinds::{CONFIG_MAP, DEPLOYMENT},
        ledger,
    },
    glance::{
        revisions::{self, Revision},
        workload::volumes,
    },
    names::Family,
    oslo::{self, RenderError, policy::PolicyError},
    pipeline::{
        notice::Notice,
        report::{ErrorKind, Report, Status, StepError, Verdict, describe},
    },
    policy::ownership,
};

const STEP: &str = "Config";

/// What the pods mount; empty before the first valid projection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Artefacts {
    /// The `ConfigMap`.
    pub config_map: Option<String>,
    /// The Secret of the stores.
    pub backends_secret: Option<String>,
}

// === impl Artefacts ===

impl Artefacts {
    /// Both names, when there are both.
    pub fn both(&self) -> Option<(&str, &str)> {
        self.config_map
            .as_deref()
            .zip(self.backends_secret.as_deref())
    }
}

/// Renders, or keeps the last good.
pub async fn reconcile(
    glance: &Glance,
    target: &Target,
    projection: &Projection,
) -> Result<Report<Artefacts>, StepError> {
    let health = health(glance, projection.rendered.as_ref());
    let notice = override_notice(glance, &health);
    let outcome = match &projection.rendered {
        None => last_good(target).await,
        Some(rendered) => render(glance, target, rendered).await,
    };
    match outcome {
        Ok(artefacts) => Ok(Report::done(artefacts)
            .extra(EXTRA_CONFIG_HEALTHY, health)
            .notices(notice)),
        Err(error) => {
            let error = error.extra(EXTRA_CONFIG_HEALTHY, health);
            Err(notice.into_iter().fold(error, StepError::notice))
        }
    }
}

/// The condition about owned keys that the spec overrides.
fn health(glance: &Glance, rendered: Option<&Rendered>) -> Verdict {
    let stores = rendered.map(stores);
    let overrides = ownership::overridden_keys(&glance.spec, stores.as_ref());
    let message = ownership::message(&overrides);
    if overrides.is_empty() {
        Verdict::yes(NO_OWNED_KEYS_OVERRIDDEN, message)
    } else {
        Verdict::no(OWNED_KEYS_OVERRIDDEN, message)
    }
}

/// One event on entering the state, and one more whenever the set of keys changes.
fn override_notice(glance: &Glance, health: &Verdict) -> Option<Notice> {
    if health.status == Status::True {
        return None;
    }
    let known = glance
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .any(|condition| {
            condition.type_ == EXTRA_CONFIG_HEALTHY
                && !condition.is_true()
                && condition.message == health.message
        });
    (!known).then(|| {
        Notice::warning(
            events::EXTRA_CONFIG_OWNED_KEY_OVERRIDE,
            health.message.clone(),
        )
    })
}

/// The names the live Deployment mounts.
async fn last_good(target: &Target) -> Result<Artefacts, StepError> {
    let live = target.child(&DEPLOYMENT, &target.owner.name).await?;
    let Some(live) = live else {
        return Ok(Artefacts::default());
    };
    let (config_map, backends_secret) = volumes::mounted(&live.data);
    Ok(Artefacts {
        config_map: config_map.map(str::to_owned),
        backends_secret: backends_secret.map(str::to_owned),
    })
}

async fn render(
    glance: &Glance,
    target: &Target,
    rendered: &Rendered,
) -> Result<Artefacts, StepError> {
    let name = config_map(glance, target, rendered).await?;
    let family = Family::config(&target.owner.name);
    revisions::prune(target, &CONFIG_MAP, &family, &name)
        .await
        .map_err(|error| shown(error, "pruning config ConfigMaps"))?;
    Ok(Artefacts {
        config_map: Some(name),
        backends_secret: Some(rendered.secret.clone()),
    })
}

/// The name of the `ConfigMap` with the current configuration, which exists then.
async fn config_map(
    glance: &Glance,
    target: &Target,
    rendered: &Rendered,
) -> Result<String, StepError> {
    let policy = policy_document(glance, target).await?;
    let inputs = format!("{} {rendered:?} {policy:?}", ledger::of_json(&glance.spec));
    let family = Family::config(&target.owner.name);
    if let Some(name) = target.view.ledger.output(&target.owner.uid, STEP, &inputs)
        && revisions::is_intact(target, &CONFIG_MAP, &family, &name).await?
    {
        return Ok(name);
    }
    let config = oslo::render(glance, &stores(rendered), policy.as_deref())
        .map_err(|error| config_error(&error))?;
    let revision = Revision {
        kind: &CONFIG_MAP,
        family,
        hash: config.hash(),
        data: json!(config.data),
    };
    let name = revisions::ensure(target, &revision)
        .await
        .map_err(|error| shown(error, "creating config ConfigMap"))?;
    target
        .view
        .ledger
        .learn_output(&target.owner.uid, STEP, inputs, name.clone());
    Ok(name)
}

fn stores(rendered: &Rendered) -> oslo::Projection {
    oslo::Projection {
        enabled_backends: rendered.enabled.clone(),
        default_backend: rendered.default.clone(),
    }
}

/// The document of the referenced policy `ConfigMap`, if there is a reference.
async fn policy_document(glance: &Glance, target: &Target) -> Result<Option<String>, StepError> {
    let reference = glance
        .spec
        .policy_overrides
        .as_ref()
        .and_then(|policy| policy.config_map_ref.as_ref());
    let Some(reference) = reference else {
        return Ok(None);
    };
    let (namespace, name) = (target.namespace().to_owned(), reference.name.clone());
    let failed = |error: PolicyError| Err(config_error(&RenderError::Policy(error)));
    let cause = match target.config_map(&name).await {
        Ok(Some(mut data)) => {
            return match data.remove(oslo::policy::KEY) {
                Some(document) => Ok(Some(document)),
                None => failed(PolicyError::MissingKey { namespace, name }),
            };
        }
        Ok(None) => format!("configmaps \"{name}\" not found"),
        Err(error) => describe(&error),
    };
    failed(PolicyError::Unreadable {
        namespace,
        name,
        cause,
    })
}

/// A failure to render: the condition shows the bare text, the log also what was being done.
fn config_error(error: &RenderError) -> StepError {
    StepError::new(ErrorKind::Render, error.logged())
        .verdict(Verdict::no(CONFIG_ERROR, error.to_string()))
}

/// A failure of the API that the condition shows like a failure to render.
fn shown(error: StepError, context: &str) -> StepError {
    let verdict = Verdict::no(CONFIG_ERROR, error.message.clone());
    error.verdict(verdict).context(context)
}
