//! What a registration Secret says, and what of it is refused.
//!
//! A registration Secret is data, written by somebody who may not be the operator's administrator.
//! Nothing in it may make the process run a program, open a file, or send a credential of its own
//! somewhere. So it is judged as plain data before anything that could act on it sees it.

mod claims;
mod connect;
mod credential;
mod document;
mod entry;
mod error;
mod refusal;

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderValue};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use sha2::{Digest, Sha256};

pub use self::{
    claims::Claims,
    error::RegistrationError,
    refusal::{Fault, Refusal},
};
use crate::{LOCAL, client::host_of, renewal::Renewed, target_cluster::CredentialStatus};

/// Label of a registration Secret. Its value must be exactly `true`.
pub const REGISTRATION_LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// Data key of the kubeconfig, required.
pub const KUBECONFIG_KEY: &str = "kubeconfig";

/// Data key of the declared namespaces, separated by commas; absent means the whole cluster.
pub const NAMESPACES_KEY: &str = "namespaces";

/// Longest name of a namespace (RFC 1123 label).
const LONGEST_LABEL: usize = 63;

/// A registration Secret that may be acted on.
pub struct Registration {
    name: String,
    namespaces: Option<BTreeSet<String>>,
    hash: ContentHash,
    /// Of everything but the token: equal ones differ in nothing a connection is made of.
    connection_hash: ContentHash,
    pub(crate) access: Access,
    credential: CredentialStatus,
    /// UID of the Secret.
    uid: Option<String>,
    /// What the Secret says, where a renewed token is used in its place.
    original: Option<HeaderValue>,
}

/// How to reach a cluster; pure data, no path and no program in it.
pub(crate) struct Access {
    pub(crate) config: kube::Config,
    /// The `Authorization` header; `None` with a client certificate alone.
    pub(crate) credential: Option<HeaderValue>,
    /// Further headers, for impersonation.
    pub(crate) headers: HeaderMap,
}

/// SHA-256 of what a registration consists of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash([u8; 32]);

/// A registration Secret whose keys are in order; its kubeconfig has not been looked at.
pub(crate) struct Content<'a> {
    name: &'a str,
    kubeconfig: &'a [u8],
    namespaces: Option<BTreeSet<String>>,
    hash: ContentHash,
    uid: Option<&'a str>,
    /// Data keys that mean nothing.
    pub(crate) unread: Vec<&'a str>,
}

/// Whether a Secret is a registration at all: labelled with exactly `true`, and not being deleted.
///
/// To be asked in code and not by a selector, so that a label that is removed or changed is
/// noticed like a deletion.
pub fn is_registration(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(REGISTRATION_LABEL));
    metadata.deletion_timestamp.is_none() && label.is_some_and(|value| value == "true")
}

// === impl Registration ===

impl Registration {
    /// Judges a Secret (contract: target clusters, registration). Nothing on disk is opened and
    /// nothing is run, whatever it contains. `allow_insecure` admits what
    /// [`Refusal::is_insecure`] names, and nothing else.
    ///
    /// # Errors
    ///
    /// The first reason not to use it, in the order of the contract.
    ///
    /// ```
    /// use k8s_openapi::{ByteString, api::core::v1::Secret};
    /// use target_registry::{Cause, Registration};
    ///
    /// let mut secret = Secret::default();
    /// secret.metadata.name = Some("blue".to_owned());
    /// let kubeconfig = "users: [{name: x, user: {exec: {command: id}}}]";
    /// secret.data = Some([("kubeconfig".to_owned(), ByteString(kubeconfig.into()))].into());
    ///
    /// let error = Registration::from_secret(&secret, false).unwrap_err();
    /// assert_eq!(error.cause(), Cause::CredentialsRefused);
    /// assert!(error.to_string().contains("exec and auth-provider credentials are not supported"));
    /// ```
    pub fn from_secret(secret: &Secret, allow_insecure: bool) -> Result<Self, RegistrationError> {
        Content::read(secret)?.judge(allow_insecure)
    }

    /// Name of the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Declared namespaces; `None` means the whole cluster.
    pub fn namespaces(&self) -> Option<&BTreeSet<String>> {
        self.namespaces.as_ref()
    }

    /// Host and port of the API server.
    pub fn server(&self) -> String {
        host_of(&self.access.config.cluster_url)
    }

    /// What the cluster is spoken to with, and until when that is good.
    pub fn credential(&self) -> &CredentialStatus {
        &self.credential
    }

    /// Hash of the content; labels and annotations are not part of it.
    pub fn content_hash(&self) -> ContentHash {
        self.hash
    }

    /// The same as it is used while `secret` holds a renewed token for it (see [`crate::RENEWAL_LABEL`]);
    /// `None` for any other Secret, and for a token that is no better than its own.
    pub fn renewed_by(&self, secret: &Secret) -> Option<Self> {
        Renewed::read(secret)?.stand_in(self)
    }

    /// UID of the Secret, if it says.
    pub(crate) fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// What the token in use says of itself; all unknown without one.
    pub fn claims(&self) -> Claims {
        let header = self.access.credential.as_ref();
        header.map(Claims::of_header).unwrap_or_default()
    }

    /// The same with a renewed token.
    pub(crate) fn renewed(&self, token: HeaderValue) -> Self {
        let original = self
            .original
            .clone()
            .or_else(|| self.access.credential.clone());
        self.with(token, original)
    }

    /// The same as the Secret says it, if a renewed token is used.
    pub(crate) fn original(&self) -> Option<Self> {
        Some(self.with(self.original.clone()?, None))
    }

    fn with(&self, token: HeaderValue, original: Option<HeaderValue>) -> Self {
        let access = Access {
            config: self.access.config.clone(),
            credential: Some(token),
            headers: self.access.headers.clone(),
        };
        Self {
            name: self.name.clone(),
            namespaces: self.namespaces.clone(),
            hash: self.hash,
            connection_hash: self.connection_hash,
            credential: credential::of(&access),
            access,
            uid: self.uid.clone(),
            original,
        }
    }

    /// Whether `other` is reached by the same connections, and differs in the token at most.
    pub(crate) fn same_connection(&self, other: &Self) -> bool {
        self.connection_hash == other.connection_hash && self.namespaces == other.namespaces
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("name", &self.name)
            .field("server", &self.server())
            .field("namespaces", &self.namespaces)
            .finish_non_exhaustive()
    }
}

// === impl Content ===

impl<'a> Content<'a> {
    /// Looks at the keys, and at all of the namespaces.
    pub(crate) fn read(secret: &'a Secret) -> Result<Self, RegistrationError> {
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        let cluster = || name.to_owned();
        if name == LOCAL {
            return Err(RegistrationError::NameTaken { cluster: cluster() });
        }
        let key = |key| {
            secret
                .data
                .as_ref()
                .and_then(|data| data.get(key))
                .map(|b| &*b.0)
        };
        let kubeconfig = key(KUBECONFIG_KEY).filter(|bytes| !bytes.is_empty());
        let kubeconfig = kubeconfig
            .ok_or_else(|| RegistrationError::KubeconfigMissing { cluster: cluster() })?;
        let raw = key(NAMESPACES_KEY);
        let namespaces = raw.map(|raw| namespaces(name, raw)).transpose()?;
        Ok(Self {
            name,
            kubeconfig,
            namespaces,
            hash: ContentHash::of(kubeconfig, raw),
            uid: secret.metadata.uid.as_deref(),
            unread: secret
                .data
                .iter()
                .flatten()
                .map(|(key, _)| key.as_str())
                .filter(|key| ![KUBECONFIG_KEY, NAMESPACES_KEY].contains(key))
                .collect(),
        })
    }

    pub(crate) fn hash(&self) -> ContentHash {
        self.hash
    }

    /// Whether everything that `registration` may see is still declared.
    pub(crate) fn covers(&self, registration: &Registration) -> bool {
        match (&self.namespaces, &registration.namespaces) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(now), Some(before)) => before.is_subset(now),
        }
    }

    /// Looks at the kubeconfig.
    pub(crate) fn judge(self, allow_insecure: bool) -> Result<Registration, RegistrationError> {
        let cluster = || self.name.to_owned();
        let (access, connection_hash) =
            document::judge(self.kubeconfig, allow_insecure).map_err(|reason| match reason {
                document::Reason::Refused(refusal) => RegistrationError::Refused {
                    cluster: cluster(),
                    refusal,
                },
                document::Reason::Invalid(fault) => RegistrationError::Invalid {
                    cluster: cluster(),
                    fault,
                },
            })?;
        Ok(Registration {
            name: cluster(),
            namespaces: self.namespaces,
            hash: self.hash,
            connection_hash,
            credential: credential::of(&access),
            uid: self.uid.map(str::to_owned),
            original: None,
            access,
        })
    }
}

fn namespaces(cluster: &str, raw: &[u8]) -> Result<BTreeSet<String>, RegistrationError> {
    let text = String::from_utf8_lossy(raw);
    if text.trim().is_empty() {
        return Err(RegistrationError::NamespacesEmpty {
            cluster: cluster.to_owned(),
        });
    }
    let entry = |entry: &str| {
        let entry = entry.trim().to_owned();
        if is_label(&entry) {
            Ok(entry)
        } else {
            Err(RegistrationError::NamespaceInvalid {
                cluster: cluster.to_owned(),
                entry,
            })
        }
    };
    text.split(',').map(entry).collect()
}

/// Whether `text` is an RFC 1123 label.
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= LONGEST_LABEL
        && !text.is_empty()
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

// === impl ContentHash ===

impl ContentHash {
    /// Over the kubeconfig and, only if there is one, a NUL byte and the namespaces. So an absent
    /// list differs from an empty one (contract: target clusters, the Secret).
    fn of(kubeconfig: &[u8], namespaces: Option<&[u8]>) -> Self {
        let mut hash = Sha256::new();
        hash.update(kubeconfig);
        if let Some(namespaces) = namespaces {
            hash.update([0]);
            hash.update(namespaces);
        }
        Self(hash.finalize().into())
    }
}

impl std::fmt::Display for ContentHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl std::fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
