//! The command line of `clusters`: verbs, options and the help that teaches them.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use super::output::Format;
use crate::cli::{go_bool, positive_duration};

/// `clusters VERB`.
#[derive(Clone, Debug, Args)]
pub struct ClustersArgs {
    /// What holds for every verb
    #[command(flatten)]
    pub common: CommonArgs,
    /// What to do
    #[command(subcommand)]
    pub verb: Verb,
}

/// Options of every verb, named as in kubectl.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of all clusters commands")]
pub struct CommonArgs {
    /// Kubeconfig file with the contexts of the hub and of the targets; else $KUBECONFIG, else ~/.kube/config
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the hub; else the current one
    #[arg(long, global = true, value_name = "CONTEXT")]
    pub context: Option<String>,

    /// Namespace of the hub that holds the registrations
    #[arg(
        short = 'n',
        long,
        visible_alias = "namespace",
        global = true,
        default_value = "c5c3-clusters",
        value_name = "NAMESPACE"
    )]
    pub clusters_namespace: String,

    /// How the result is printed
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub output: Format,

    /// How long to wait for clusters and for the operator, for example 90s or 5m
    #[arg(long, global = true, default_value = "60s", value_name = "DURATION", value_parser = positive_duration)]
    pub timeout: Duration,
}

/// What can be done with the clusters of a fleet.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Register a cluster: grant access on it, write the registration, wait until it is ready
    #[command(after_help = REGISTER)]
    Register(Box<RegisterArgs>),
    /// List the registered clusters
    #[command(visible_aliases = ["ls", "get"], after_help = LIST)]
    List(NamesArgs),
    /// Examine registrations, and print what cures each fault
    #[command(visible_alias = "diagnose", after_help = DOCTOR)]
    Doctor(DoctorArgs),
    /// Replace the credential of a registration, without a gap
    #[command(after_help = ROTATE)]
    Rotate(RotateArgs),
    /// Stop all writes to a cluster, teardown included; reads and status go on
    #[command(after_help = PAUSE)]
    Pause(NameArgs),
    /// Let writes to a paused cluster go on
    Resume(NameArgs),
    /// Remove a registration, unless Glances name the cluster; what runs there stays
    #[command(after_help = UNREGISTER)]
    Unregister(UnregisterArgs),
    /// List what deleted Glances had to leave behind on clusters
    #[command(after_help = ABANDONED)]
    Abandoned(NamesArgs),
    /// Delete on a cluster what deleted Glances had to leave behind there
    #[command(after_help = ABANDONED)]
    Reclaim(NameArgs),
}

/// One cluster.
#[derive(Clone, Debug, Args)]
pub struct NameArgs {
    /// Name of the cluster
    #[arg(value_parser = cluster_name)]
    pub name: String,
}

/// Some clusters, or all.
#[derive(Clone, Debug, Args)]
pub struct NamesArgs {
    /// Names of the clusters; all when there are none
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}

/// The administrator's way to a target.
#[derive(Clone, Debug, Args)]
pub struct TargetArgs {
    /// Context of the target, with rights to grant access there
    #[arg(long, value_name = "CONTEXT")]
    pub target_context: Option<String>,

    /// Kubeconfig file with that context, if it is not in the one of the hub
    #[arg(long, value_name = "FILE")]
    pub target_kubeconfig: Option<PathBuf>,
}

/// Where the hub's account lives on a target.
#[derive(Clone, Debug, Args)]
pub struct AccountArgs {
    /// Namespace of the hub's account on the target; else the one of the registered token, else c5c3-access
    #[arg(long, value_name = "NAMESPACE")]
    pub access_namespace: Option<String>,

    /// Name of the hub's account on the target; else the one of the registered token, else target-cluster-access
    #[arg(long, value_name = "NAME")]
    pub service_account: Option<String>,

    /// Address of the API server as the operator's pod reaches it; else the one of the target's context
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,

    /// Register a token that expires after this time instead of one that does not
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    pub token_lifetime: Option<Duration>,
}

/// `register`.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[derive(Clone, Debug, Args)]
pub struct RegisterArgs {
    /// Name under which Glances will name the cluster
    #[arg(value_parser = cluster_name)]
    pub name: String,

    /// The administrator's way to the target
    #[command(flatten)]
    pub target: TargetArgs,

    /// Namespaces of the target that the hub may use; else those of an earlier registration, else the whole cluster, every Secret included
    #[arg(long, value_delimiter = ',', value_name = "NAMESPACE,…")]
    pub namespaces: Vec<String>,

    /// Namespaces of the hub whose Glances may name the cluster; without them all
    #[arg(long, value_delimiter = ',', value_name = "NAMESPACE,…")]
    pub allowed_namespaces: Vec<String>,

    /// The hub's account on the target
    #[command(flatten)]
    pub account: AccountArgs,

    /// Create those namespaces on the target that do not exist
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set, value_parser = go_bool)]
    pub create_namespaces: bool,

    /// Write nothing to the target: the access chart, or somebody else, has granted access already
    #[arg(long)]
    pub use_existing_access: bool,

    /// Take over fields that another manager has set on the objects on the target, and an account of another hub
    #[arg(long)]
    pub force_conflicts: bool,

    /// Wait until the operator says that the cluster is ready
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set, value_parser = go_bool)]
    pub wait: bool,

    /// Print what would be created on the target, and change nothing anywhere
    #[arg(long)]
    pub dry_run: bool,
}

/// `rotate`.
#[derive(Clone, Debug, Args)]
pub struct RotateArgs {
    /// Name of the cluster
    #[arg(value_parser = cluster_name)]
    pub name: String,

    /// The administrator's way to the target; the context is found by the server's address when absent
    #[command(flatten)]
    pub target: TargetArgs,

    /// The hub's account on the target
    #[command(flatten)]
    pub account: AccountArgs,

    /// Wait until the operator says that the cluster is ready by the new token
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set, value_parser = go_bool)]
    pub wait: bool,
}

/// `doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Names of the clusters; all when there are none
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,

    /// The target's context for the commands that are printed; found by the server's address when absent
    #[command(flatten)]
    pub target: TargetArgs,
}

/// `unregister`.
#[derive(Clone, Debug, Args)]
pub struct UnregisterArgs {
    /// Name of the cluster
    #[arg(value_parser = cluster_name)]
    pub name: String,

    /// Unregister although Glances name the cluster; they stop being reconciled
    #[arg(long)]
    pub force: bool,

    /// Also delete the hub's account and its rights on the target, by this way; namespaces stay
    #[command(flatten)]
    pub target: TargetArgs,
}

/// Names that a Secret can have, and a Glance can name.
fn cluster_name(text: &str) -> Result<String, String> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let outer = |byte: Option<u8>| byte.is_some_and(inner);
    let bytes = || text.bytes();
    if text.len() <= 253
        && outer(bytes().next())
        && outer(bytes().next_back())
        && bytes().all(|byte| inner(byte) || byte == b'-' || byte == b'.')
    {
        Ok(text.to_owned())
    } else {
        Err("names consist of lower case letters, digits, '-' and '.', and begin and end with a letter or digit".to_owned())
    }
}

/// Shown below the help of `clusters`.
pub const CLUSTERS: &str = "\
A hub keeps one registration per target cluster: a Secret with a kubeconfig, and a TargetCluster of
the same name with its policy and status. A Glance names the cluster in spec.targetClusterRef.

The exit code is 0 only when what was asked for is true in the end, and for doctor when there is
nothing to complain of. Results go to standard output, progress and errors to standard error.

Examples:
  # From nothing to a cluster that Glances can be placed on
  glance-operator clusters register edge-1 --target-context edge-1 --namespaces openstack

  # The fleet at a glance
  glance-operator clusters list

  # What is wrong, and the commands that cure it
  glance-operator clusters doctor edge-1

Linked as kubectl-glance into the PATH, the same is `kubectl glance clusters …`.";

const REGISTER: &str = "\
On the target this creates what the chart target-cluster-access creates: an account, its token, a
Role and a RoleBinding in each namespace, and the right to read secret stores of the whole cluster.
On the hub it writes the Secret that holds the kubeconfig and, where the kind is installed, the
TargetCluster with the identity of the cluster, so that the name can never lead to another one.
Doing it again changes nothing, or brings an older registration up to date.

Examples:
  # A cluster whose namespace openstack the hub may use
  glance-operator clusters register edge-1 --target-context edge-1 --namespaces openstack

  # Only Glances of the hub's namespaces tenant-a and tenant-b may use it
  glance-operator clusters register edge-1 --target-context edge-1 --namespaces openstack \\
    --allowed-namespaces tenant-a,tenant-b

  # The administrator's address is not the one that the hub reaches
  glance-operator clusters register edge-1 --target-context kind-edge-1 --namespaces openstack \\
    --server https://edge-1-control-plane:6443

  # The target's owner reviews and applies it, then the hub's owner registers
  glance-operator clusters register edge-1 --namespaces openstack --dry-run -o yaml > access.yaml
  kubectl --context edge-1 apply --server-side -f access.yaml
  glance-operator clusters register edge-1 --target-context edge-1 --namespaces openstack \\
    --use-existing-access";

const LIST: &str = "\
Examples:
  glance-operator clusters list
  glance-operator clusters list -o wide
  glance-operator clusters list -o json | jq -r '.items[] | select(.ready != \"True\") | .name'";

const DOCTOR: &str = "\
Looks at the registration on the hub, then logs in to the target with the registered credential, and
compares what it may do with what Glances need. What cannot be reached from here is left to the
operator's own word. Nothing is changed anywhere.

The exit code is 1 as soon as there is something to do.

Examples:
  # All clusters
  glance-operator clusters doctor

  # The commands that cure one cluster, as a script to read and run
  glance-operator clusters doctor edge-1 -o json | jq -r '.items[].checks[] | .remedy // empty'";

const ROTATE: &str = "\
A new token is made beside the old one and written over the registered one; the operator changes to
it under running watches; then the old token is deleted on the target. A registration whose
kubeconfig is missing, refused or wrong is written anew the same way.

Examples:
  glance-operator clusters rotate edge-1 --target-context edge-1

  # With a token that ends by itself
  glance-operator clusters rotate edge-1 --target-context edge-1 --token-lifetime 720h";

const PAUSE: &str = "\
Examples:
  glance-operator clusters pause edge-1
  glance-operator clusters resume edge-1";

const UNREGISTER: &str = "\
Examples:
  glance-operator clusters unregister edge-1

  # And take back what register granted on the target
  glance-operator clusters unregister edge-1 --target-context edge-1";

const ABANDONED: &str = "\
A Glance that is deleted while its cluster is not registered leaves its children there. They are
listed in the TargetCluster. As soon as a cluster of that identity is registered again they can be
deleted; each is checked to be the one that was left.

Examples:
  glance-operator clusters abandoned
  glance-operator clusters reclaim edge-1";
