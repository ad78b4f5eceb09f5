//! What goes wrong in people's commands, and the next step to take.

use kube::config::KubeconfigError;
use target_registry::{error_code, error_text};

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No kubeconfig that can be read.
    #[error("the kubeconfig cannot be used: {0}")]
    Kubeconfig(#[from] Box<KubeconfigError>),
    /// The kubeconfig has no such context.
    #[error("there is no context {name:?} in the kubeconfig; it has {}", listed(.known))]
    NoContext {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A request failed.
    #[error("{doing}: {text}")]
    Api {
        /// What was being done.
        doing: String,
        /// The server's words.
        text: String,
        /// Its HTTP status, if it answered.
        code: Option<u16>,
    },
    /// Nothing has that name.
    #[error("no cluster is registered under the name {name:?} in the namespace {namespace}")]
    NotRegistered {
        /// The name.
        name: String,
        /// Where it was looked for.
        namespace: String,
    },
    /// The kind `TargetCluster` is not installed on the hub.
    #[error("the hub does not serve TargetClusters, which {what} needs")]
    NoTargetClusters {
        /// What needs it.
        what: &'static str,
    },
    /// Glances name the cluster.
    #[error("{} the cluster {name}: {}", count_of_glances(.glances), .glances.join(", "))]
    InUse {
        /// The cluster.
        name: String,
        /// `namespace/name` of each.
        glances: Vec<String>,
    },
    /// What deleted Glances left behind would be forgotten.
    #[error("children of {count} deleted Glances were left behind on the cluster {name}")]
    Abandoned {
        /// The cluster.
        name: String,
        /// How many.
        count: usize,
    },
    /// Another registration lives by the rights of the account.
    #[error(
        "{other} works in all of this cluster with the account {account}, whose rights would become fewer"
    )]
    SharedAccount {
        /// The other registration.
        other: String,
        /// `namespace/name` of the account.
        account: String,
    },
    /// The account on the target is another hub's.
    #[error("the account {account} on the target was made for another hub ({hub})")]
    OtherHub {
        /// `namespace/name` of the account.
        account: String,
        /// UID of the other hub.
        hub: String,
    },
    /// The name belongs to another cluster.
    #[error(
        "the name {name} is registered for another cluster ({known}) than the context leads to ({found})"
    )]
    OtherCluster {
        /// The name.
        name: String,
        /// Identity that the name stands for.
        known: String,
        /// Identity of what the context leads to.
        found: String,
    },
    /// Nobody said, and nothing tells, which context leads to the target.
    #[error("it is not known which context leads to the cluster {name}")]
    NoTargetContext {
        /// The cluster.
        name: String,
    },
    /// What was registered does not answer.
    #[error("{name} was registered and does not answer from here: {text}")]
    Silent {
        /// The cluster.
        name: String,
        /// Why.
        text: String,
    },
    /// A name or address that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// Time is up.
    #[error("{what} did not happen within {} s{}", .seconds, seen(.last))]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
        /// What was seen last; may be empty.
        last: String,
    },
    /// A new token is registered, and nobody logs in with it.
    #[error(
        "the new token is registered, and the operator did not log in with it within {seconds} s; the old token still works"
    )]
    Unused {
        /// How long that was waited for.
        seconds: u64,
    },
    /// The doctor, or somebody who asked him, found something. It has been printed already.
    #[error("{0}")]
    Unwell(String),
    /// The result cannot be written.
    #[error("the result cannot be printed: {0}")]
    Print(String),
}

/// Names what was being done when a request failed.
pub trait Doing<T> {
    /// `doing` is a clause such as `reading the Secret c5c3-clusters/edge-1`.
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, Error>;
}

// === impl Error ===

impl Error {
    /// The next step, when there is one to name.
    pub fn next(&self, program: &str) -> Option<String> {
        Some(match self {
            Self::Kubeconfig(_) => {
                "name a kubeconfig by --kubeconfig or $KUBECONFIG, and the hub's context by --context".to_owned()
            }
            Self::NoContext { .. } => "take one of these, or name another file by --kubeconfig".to_owned(),
            Self::Api { code: Some(401), .. } => {
                "log in to that cluster again; the credential of the context is not accepted".to_owned()
            }
            Self::Api { code: Some(403), .. } => {
                "ask for this right, or use a context that has it".to_owned()
            }
            Self::Api { code: Some(409), .. } => "see which manager has set the field: keep what it wrote with --use-existing-access, or take the field over with --force-conflicts".to_owned(),
            Self::Api { code: None, .. } => {
                "check that the server in the context can be reached from here".to_owned()
            }
            Self::NotRegistered { name, .. } => format!(
                "see what there is with `{program} clusters list -n NAMESPACE`, or register it with `{program} clusters register {name} --target-context CONTEXT`"
            ),
            Self::NoTargetClusters { .. } => {
                format!("install the kind: {program} crds | kubectl apply --server-side -f -")
            }
            Self::InUse { .. } => {
                "delete them first, or leave them without a cluster with --force".to_owned()
            }
            Self::Abandoned { name, .. } => format!(
                "look at them with `{program} clusters abandoned {name}`, delete them with `{program} clusters reclaim {name}`, or forget them with --force"
            ),
            Self::OtherCluster { name, .. } => format!(
                "take another name, or `{program} clusters unregister {name}` first if the other cluster is gone for good"
            ),
            Self::SharedAccount { .. } => {
                "name an account of its own by --service-account, or share this one as it is with --use-existing-access".to_owned()
            }
            Self::OtherHub { .. } => {
                "give this hub one of its own by --access-namespace or --service-account, take it over with --force-conflicts if the other hub is gone, or, if it is this hub's, use an account that may read the hub's namespace kube-system".to_owned()
            }
            Self::NoTargetContext { .. } => "name it by --target-context".to_owned(),
            Self::Silent { name, .. } => {
                format!("see what is wrong with `{program} clusters doctor {name}`")
            }
            Self::Timeout { .. } | Self::Unused { .. } => {
                "wait longer with --timeout, and see whether the operator runs and watches this namespace (--clusters-namespace)".to_owned()
            }
            Self::Api { .. } | Self::Invalid(_) | Self::Unwell(_) | Self::Print(_) => return None,
        })
    }
}

// === impl Doing ===

impl<T> Doing<T> for Result<T, kube::Error> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|error| Error::Api {
            doing: doing(),
            text: error_text(&error),
            code: error_code(&error),
        })
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

fn count_of_glances(glances: &[String]) -> String {
    match glances.len() {
        1 => "a Glance names".to_owned(),
        n => format!("{n} Glances name"),
    }
}

fn seen(last: &str) -> String {
    if last.is_empty() {
        String::new()
    } else {
        format!("; last seen: {last}")
    }
}
