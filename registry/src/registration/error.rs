//! Why a registration cannot be used.

use super::{Fault, KUBECONFIG_KEY, Refusal};
use crate::failure::Cause;

/// Why a registration Secret cannot be used. The texts name the cluster and what to do, and never
/// contain a value from the kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// The name means the cluster of the registry itself.
    #[error(
        "the name {cluster:?} means the hub itself and cannot be registered, give the registration \
         Secret another name"
    )]
    NameTaken {
        /// Name of the cluster.
        cluster: String,
    },
    /// The key is missing or empty. Removing it in place withdraws the credential.
    #[error(
        "the {KUBECONFIG_KEY} key in the registration Secret of cluster {cluster:?} is missing or \
         empty, write a kubeconfig into it"
    )]
    KubeconfigMissing {
        /// Name of the cluster.
        cluster: String,
    },
    /// Falling back to the whole cluster would hand out what somebody wanted to take away.
    #[error(
        "namespaces key present but empty in the registration Secret of cluster {cluster:?}, \
         list the namespaces or remove the key for the whole cluster"
    )]
    NamespacesEmpty {
        /// Name of the cluster.
        cluster: String,
    },
    /// One bad entry spoils all: dropping it would silently narrow the scope.
    #[error(
        "namespaces entry {entry:?} is not a valid namespace name: a lowercase RFC 1123 label \
         consists of lower case letters, digits and '-', begins and ends with a letter or digit, \
         and has at most 63 characters (registration Secret of cluster {cluster:?})"
    )]
    NamespaceInvalid {
        /// Name of the cluster.
        cluster: String,
        /// The entry as it stands there, trimmed.
        entry: String,
    },
    /// Something that is refused for security.
    #[error("refusing the kubeconfig of cluster {cluster:?}: {refusal}")]
    Refused {
        /// Name of the cluster.
        cluster: String,
        /// What, where, and what to do instead.
        refusal: Refusal,
    },
    /// Not a usable kubeconfig.
    #[error("the kubeconfig of cluster {cluster:?} cannot be used: {fault}")]
    Invalid {
        /// Name of the cluster.
        cluster: String,
        /// What is wrong, and where.
        fault: Fault,
    },
}

// === impl RegistrationError ===

impl RegistrationError {
    /// The kind of error.
    pub fn cause(&self) -> Cause {
        match self {
            Self::NameTaken { .. } | Self::KubeconfigMissing { .. } | Self::Invalid { .. } => {
                Cause::KubeconfigInvalid
            }
            Self::NamespacesEmpty { .. } | Self::NamespaceInvalid { .. } => {
                Cause::NamespacesInvalid
            }
            Self::Refused { .. } => Cause::CredentialsRefused,
        }
    }

    /// Whether a connection made before may be kept. Only where nobody can have meant to take it
    /// away: the kubeconfig is there and cannot be read. One that was emptied, or whose credential was
    /// blanked out, was withdrawn.
    pub fn keeps_last_good(&self) -> bool {
        let Self::Invalid { fault, .. } = self else {
            return false;
        };
        !matches!(fault, Fault::Empty | Fault::NoCredential { .. })
    }
}
