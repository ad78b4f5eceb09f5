//! Renews the token of a registration before it expires, through a token request on its own cluster.
//!
//! The renewed token is kept in a Secret of its own, which names the registration content it stands
//! for: a registration that is written anew goes before it. The registration itself is never changed.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use data_encoding::HEXLOWER;
use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{Secret, ServiceAccount},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::{
    Claims, Cluster, Registration,
    failure::{error_code, error_text},
    target_cluster::MANAGED_BY_LABEL,
};

/// Label of a Secret with a renewed token; its value is the name of the registration, or the
/// beginning of it where that is longer than the value of a label may be.
pub const RENEWAL_LABEL: &str = "clusters.openstack.c5c3.io/renews";

/// Data key of the name of the registration.
const NAME: &str = "name";

/// Longest value of a label.
const LONGEST_LABEL: usize = 63;

/// Data key of the token.
const TOKEN: &str = "token";

/// Data key of the hash of the registration the token stands in for.
const STANDS_FOR: &str = "registration";

/// Longest pause between two looks at the clock.
const LOOK: Duration = Duration::from_mins(5);

/// The shortest pause between two renewals for one name: a cluster may grant tokens that it does not accept, or that end
/// at once.
pub(crate) const SHORTEST_PAUSE: Duration = Duration::from_mins(1);

/// The shortest life a cluster grants.
const SHORTEST_LIFE: i64 = 600;

/// A renewed token, as its Secret says.
#[derive(Clone)]
pub(crate) struct Renewed {
    pub(crate) name: String,
    /// Hash of the content of the registration.
    pub(crate) stands_for: String,
    pub(crate) header: HeaderValue,
}

/// The life of a token that can be renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    namespace: String,
    account: String,
    issued: Timestamp,
    expires: Timestamp,
}

/// Where renewed tokens are written.
#[derive(Clone)]
pub(crate) struct Shelf {
    pub(crate) hub: Client,
    pub(crate) namespace: String,
    pub(crate) program: String,
}

// === impl Renewed ===

impl Renewed {
    /// Reads a Secret; `None` when it is none of these.
    pub(crate) fn read(secret: &Secret) -> Option<Self> {
        let labels = secret.metadata.labels.as_ref()?;
        let label = labels.get(RENEWAL_LABEL)?;
        let data = secret.data.as_ref()?;
        let text = |key| std::str::from_utf8(&data.get(key)?.0).ok();
        // Earlier versions wrote it into the label alone.
        let name = text(NAME).unwrap_or(label).to_owned();
        let mut header = HeaderValue::from_str(&format!("Bearer {}", text(TOKEN)?)).ok()?;
        header.set_sensitive(true);
        Some(Self {
            name,
            stands_for: text(STANDS_FOR)?.to_owned(),
            header,
        })
    }

    /// `registration` with this token, if it stands for that and is the better one: it has not ended,
    /// and is no older one that is told of late.
    pub(crate) fn stand_in(&self, registration: &Registration) -> Option<Registration> {
        let is_of_it = self.name == registration.name()
            && self.stands_for == registration.content_hash().to_string()
            && registration.access.credential.as_ref() != Some(&self.header);
        if !is_of_it {
            return None;
        }
        let next = registration.renewed(self.header.clone());
        let end = |r: &Registration| r.credential().expires_at.as_ref().map(|time| time.0);
        match (end(&next), end(registration)) {
            (Some(end), _) if end <= Timestamp::now() => None,
            (Some(end), Some(present)) if end <= present => None,
            _ => Some(next),
        }
    }

    /// Whether the Secret is labelled as one of these.
    pub(crate) fn is_labelled(metadata: &ObjectMeta) -> bool {
        let labels = metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(RENEWAL_LABEL))
    }
}

// === impl Life ===

impl Life {
    /// `None` for a token that does not end, or does not say whose it is and since when.
    pub(crate) fn of(claims: Claims) -> Option<Self> {
        let (namespace, account) = claims.account?;
        Some(Self {
            namespace,
            account,
            issued: claims.issued?,
            expires: claims.expires?,
        })
    }

    fn seconds(&self) -> i64 {
        (self.expires.as_second() - self.issued.as_second()).max(0)
    }

    /// When the token is renewed: after half of its life at the earliest and four fifths at the
    /// latest, so that a fleet of one age does not come at once.
    fn due(&self, share: f64) -> Timestamp {
        let fraction = 0.5 + 0.3 * share;
        #[allow(clippy::cast_precision_loss, reason = "lives are far shorter")]
        let wait =
            Duration::try_from_secs_f64(self.seconds() as f64 * fraction).unwrap_or_default();
        self.issued.saturating_add(wait).unwrap_or(self.expires)
    }

    /// How near the end is worth a state: the token should have been renewed after four fifths.
    pub(crate) fn last_tenth(&self) -> SignedDuration {
        self.expires.duration_since(self.issued) / 10
    }

    /// When a failed renewal is tried again: after a tenth of what is left, within reason.
    fn retry(&self, now: Timestamp) -> Duration {
        let left = Duration::try_from(self.expires.duration_since(now)).unwrap_or_default();
        (left / 10).clamp(Duration::from_secs(1), Duration::from_mins(5))
    }
}

/// Renews one token, not before a time, and however often that has to be tried, until it is stopped: the new one arrives with
/// its Secret, and takes the place of this one. `failed` is told of every try that brings none.
pub(crate) async fn run(
    shelf: Shelf,
    cluster: Weak<Cluster>,
    registration: Arc<Registration>,
    not_before: Option<Instant>,
    failed: impl Fn(String) + Send,
) {
    let Some(life) = Life::of(registration.claims()) else {
        return;
    };
    let due = life.due(share(registration.name()));
    // By the clock on the wall: a machine that sleeps does not count the time.
    while let Some(left) = left(due, Timestamp::now()) {
        tokio::time::sleep(left.min(LOOK)).await;
    }
    if let Some(not_before) = not_before {
        tokio::time::sleep_until(not_before).await;
    }
    loop {
        let Some(present) = cluster.upgrade() else {
            return;
        };
        let name = present.name().to_owned();
        let pause = life.retry(Timestamp::now());
        let pause = match renew(&shelf, &present, &registration, &life).await {
            Ok(()) => {
                tracing::info!(cluster = name, "renewed the token");
                pause.max(SHORTEST_PAUSE)
            }
            Err(error) => {
                let text = error_text(&error);
                tracing::warn!(cluster = name, error = text, "cannot renew the token");
                failed(text);
                pause
            }
        };
        drop(present);
        tokio::time::sleep(pause).await;
    }
}

async fn renew(
    shelf: &Shelf,
    cluster: &Cluster,
    registration: &Registration,
    life: &Life,
) -> Result<(), kube::Error> {
    let secrets: Api<Secret> = Api::namespaced(shelf.hub.clone(), &shelf.namespace);
    let name = secret_name(registration.name());
    let known = match secrets.get_metadata(&name).await {
        Ok(known) => Some(known.metadata),
        Err(error) if error_code(&error) == Some(404) => None,
        Err(error) => return Err(error),
    };
    if known
        .as_ref()
        .is_some_and(|known| !is_renewal_of(known, registration.name()))
    {
        let text = format!(
            "the Secret {}/{name}, where the renewed token is to be kept, is something else: give it another name",
            shelf.namespace
        );
        return Err(kube::Error::Service(text.into()));
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), &life.namespace);
    let wish = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(life.seconds().max(SHORTEST_LIFE)),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(&life.account, &PostParams::default(), &wish)
        .await?;
    let Some(status) = answer.status else {
        return Err(kube::Error::Service("the cluster gave no token".into()));
    };
    if status.expiration_timestamp.0 <= life.expires {
        let text = format!(
            "the cluster gave a token that ends no later than the present one, at {}",
            status.expiration_timestamp.0
        );
        return Err(kube::Error::Service(text.into()));
    }
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(shelf.namespace.clone()),
            // What took its place since it was looked at is not written over.
            resource_version: known.and_then(|known| known.resource_version),
            labels: Some(
                [
                    (RENEWAL_LABEL.to_owned(), label(registration.name())),
                    (MANAGED_BY_LABEL.to_owned(), shelf.program.clone()),
                ]
                .into(),
            ),
            // It goes with its registration.
            owner_references: registration.uid().map(|uid| {
                vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Secret".to_owned(),
                    name: registration.name().to_owned(),
                    uid: uid.to_owned(),
                    ..OwnerReference::default()
                }]
            }),
            ..ObjectMeta::default()
        },
        data: Some(
            [
                (NAME.to_owned(), ByteString(registration.name().into())),
                (TOKEN.to_owned(), ByteString(status.token.into_bytes())),
                (
                    STANDS_FOR.to_owned(),
                    ByteString(registration.content_hash().to_string().into_bytes()),
                ),
            ]
            .into(),
        ),
        ..Secret::default()
    };
    let params = PatchParams::apply(&shelf.program).force();
    secrets
        .patch(&name, &params, &Patch::Apply(&secret))
        .await?;
    Ok(())
}

/// The name of the Secret for the renewed token of a registration; another one for each.
fn secret_name(registration: &str) -> String {
    const SUFFIX: &str = "-renewed-token";
    if registration.len() + SUFFIX.len() <= 253 {
        return format!("{registration}{SUFFIX}");
    }
    let hash = HEXLOWER.encode(&Sha256::digest(registration.as_bytes())[..8]);
    let room = 253 - SUFFIX.len() - 1 - hash.len();
    format!("{}-{hash}{SUFFIX}", beginning(registration, room))
}

/// Whether a Secret of the right name is the renewed token of a registration, and not one that somebody named so.
fn is_renewal_of(metadata: &ObjectMeta, registration: &str) -> bool {
    let labels = metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(RENEWAL_LABEL)) == Some(&label(registration))
}

/// A name as the value of a label.
fn label(registration: &str) -> String {
    beginning(registration, LONGEST_LABEL).to_owned()
}

/// The beginning of a name that is a name itself.
fn beginning(name: &str, longest: usize) -> &str {
    let end = name.floor_char_boundary(longest);
    name[..end].trim_end_matches(['.', '-'])
}

/// How long it is until then, if it is not past.
fn left(then: Timestamp, now: Timestamp) -> Option<Duration> {
    let left = Duration::try_from(then.duration_since(now)).ok()?;
    (!left.is_zero()).then_some(left)
}

/// A number from 0 to 1 that is the same for one name always.
fn share(name: &str) -> f64 {
    let hash = Sha256::digest(name.as_bytes());
    let text = HEXLOWER.encode(&hash[..2]);
    f64::from(u16::from_str_radix(&text, 16).unwrap_or_default()) / f64::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(seconds: i64) -> Life {
        let issued = Timestamp::from_second(1_800_000_000).unwrap();
        Life {
            namespace: "access".into(),
            account: "hub".into(),
            issued,
            expires: issued + SignedDuration::from_secs(seconds),
        }
    }

    #[test]
    fn a_token_is_renewed_well_before_its_end_and_not_all_at_once() {
        let life = life(1000);
        let after = |share| life.due(share).as_second() - life.issued.as_second();
        assert_eq!(after(0.0), 500);
        assert_eq!(after(1.0), 800);
        let shares: std::collections::BTreeSet<_> = ["edge-1", "edge-2", "edge-3"]
            .map(|name| after(share(name)))
            .into();
        assert_eq!(shares.len(), 3);
    }

    #[test]
    fn a_renewal_that_fails_is_tried_again_before_the_end() {
        let life = life(1000);
        let at = |second| life.issued + SignedDuration::from_secs(second);
        assert_eq!(life.retry(at(800)), Duration::from_secs(20));
        assert_eq!(life.retry(at(1200)), Duration::from_secs(1));
    }

    #[test]
    fn a_registration_of_any_name_has_a_secret_of_its_own() {
        assert_eq!(secret_name("blue"), "blue-renewed-token");
        assert_eq!(label("blue"), "blue");
        let long = |end: &str| format!("{}.{}{end}", "a".repeat(62), "b".repeat(180));
        let (one, two) = (secret_name(&long("1")), secret_name(&long("2")));
        assert!(one.len() <= 253 && two.len() <= 253 && one != two);
        let cut_at_a_dot = format!("{}.{}", "a".repeat(62), "b");
        assert_eq!(label(&cut_at_a_dot), "a".repeat(62));
    }

    #[test]
    fn a_renewed_token_names_what_it_stands_for() {
        let secret = |label: &str| Secret {
            metadata: ObjectMeta {
                labels: Some([(label.to_owned(), "blue".to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(
                [
                    (TOKEN.to_owned(), ByteString("abc".into())),
                    (STANDS_FOR.to_owned(), ByteString("00ff".into())),
                ]
                .into(),
            ),
            ..Secret::default()
        };
        let renewed = Renewed::read(&secret(RENEWAL_LABEL)).unwrap();
        assert_eq!((&*renewed.name, &*renewed.stands_for), ("blue", "00ff"));
        assert_eq!(renewed.header, "Bearer abc");
        assert!(Renewed::read(&secret("another")).is_none());
        let mut of_a_long_name = secret(RENEWAL_LABEL);
        let long = "a".repeat(200);
        let data = of_a_long_name.data.as_mut().unwrap();
        data.insert(NAME.to_owned(), ByteString(long.clone().into()));
        assert_eq!(Renewed::read(&of_a_long_name).unwrap().name, long);
    }
}
