//! Which kinds a cluster serves: asked once, remembered for a while.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use kube::Client;
use moka::{Expiry, future::Cache};

use crate::{
    Kind,
    failure::{error_code, error_text},
};

/// How long "served" is believed.
const SERVED_FOR: Duration = Duration::from_mins(10);

/// How long "not served" is believed: somebody may be installing it right now.
const NOT_SERVED_FOR: Duration = Duration::from_secs(10);

/// Groups and versions remembered per cluster; far more than anybody asks for.
const CAPACITY: u64 = 256;

/// It could not be found out whether a kind is served. This is never the same as "not served":
/// whoever would delete or skip something on a "no" must not do so on this.
#[derive(Clone, Debug, thiserror::Error)]
#[error("asking for {group_version}: {reason}")]
pub struct CapabilityError {
    /// What was asked for.
    pub group_version: String,
    /// Why there was no answer.
    pub reason: String,
    /// HTTP status, if the server gave one.
    pub code: Option<u16>,
}

/// The answers of one cluster, by group and version: one request tells about all kinds of it, and
/// a broken API of another group is not even noticed.
pub(crate) struct Capabilities {
    cache: Cache<(&'static str, &'static str), Arc<Answer>>,
}

struct Answer {
    kinds: BTreeSet<String>,
    asked: Instant,
}

struct Life;

// === impl Capabilities ===

impl Capabilities {
    pub(crate) fn new() -> Self {
        Self {
            cache: Cache::builder()
                .max_capacity(CAPACITY)
                .expire_after(Life)
                .build(),
        }
    }

    /// Whether `kind` is served. Any number of simultaneous askers cost one request.
    pub(crate) async fn serves(
        &self,
        client: &Client,
        kind: &Kind,
    ) -> Result<bool, CapabilityError> {
        let key = (kind.group, kind.version);
        let mut answer = self.ask(client, kind).await?;
        if !answer.kinds.contains(kind.kind) && answer.asked.elapsed() >= NOT_SERVED_FOR {
            // The group is known and the kind was not in it then: that "no" is too old. Only the
            // answer we saw may go, somebody may have asked anew already.
            let seen = answer.clone();
            if self
                .cache
                .get(&key)
                .await
                .is_some_and(|now| Arc::ptr_eq(&now, &seen))
            {
                self.cache.invalidate(&key).await;
            }
            answer = self.ask(client, kind).await?;
        }
        Ok(answer.kinds.contains(kind.kind))
    }

    /// Forgets what was said about the group and version of `kind`.
    pub(crate) async fn forget(&self, kind: &Kind) {
        self.cache.invalidate(&(kind.group, kind.version)).await;
    }

    async fn ask(&self, client: &Client, kind: &Kind) -> Result<Arc<Answer>, CapabilityError> {
        self.cache
            .try_get_with((kind.group, kind.version), discover(client, kind))
            .await
            .map_err(Arc::unwrap_or_clone)
    }
}

async fn discover(client: &Client, kind: &Kind) -> Result<Arc<Answer>, CapabilityError> {
    let group_version = kind.api_version();
    let answer = if kind.group.is_empty() {
        client.list_core_api_resources(&group_version).await
    } else {
        client.list_api_group_resources(&group_version).await
    };
    let kinds = match answer {
        Ok(list) => list
            .resources
            .into_iter()
            .filter(|resource| !resource.name.contains('/'))
            .map(|resource| resource.kind)
            .collect(),
        // The one code that means "no such group and version".
        Err(error) if error_code(&error) == Some(404) => BTreeSet::new(),
        Err(error) => {
            return Err(CapabilityError {
                group_version,
                reason: error_text(&error),
                code: error_code(&error),
            });
        }
    };
    Ok(Arc::new(Answer {
        kinds,
        asked: Instant::now(),
    }))
}

// === impl Life ===

impl Expiry<(&'static str, &'static str), Arc<Answer>> for Life {
    fn expire_after_create(
        &self,
        _key: &(&'static str, &'static str),
        answer: &Arc<Answer>,
        _created_at: Instant,
    ) -> Option<Duration> {
        Some(if answer.kinds.is_empty() {
            NOT_SERVED_FOR
        } else {
            SERVED_FOR
        })
    }
}
