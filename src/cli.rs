//! The command line: flags as the Go operator has them, and subcommands for people.
//!
//! Without a subcommand, or with `run`, the binary is the operator and takes the
//! contract's flags (contract: operations, flags): one or two dashes, `--flag=value` or
//! `--flag value`, booleans only as `--flag` or `--flag=BOOL`, durations in Go's syntax,
//! the last one wins. A positional argument is a subcommand or a mistake.
//!
//! Called as `kubectl-glance`, which is how kubectl runs `kubectl glance`, it is never the
//! operator: the subcommands are all there is.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{
    ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
    error::ErrorKind,
};
use glance_api::schema::{self, SchemaError};
use kube::CustomResourceExt as _;
use target_registry::TargetCluster;

use crate::{
    cluster::probe::DEFAULT_DOMAIN,
    clusters::args::{self as clusters, ClustersArgs},
    duration,
    leader::Timings,
    telemetry::LogArgs,
};

pub mod environment;
mod go_flags;
mod render;
mod value;

pub use render::RenderArgs;
pub use value::Listen;
pub(crate) use value::{go_bool, positive_duration};

/// Name of the file under which kubectl finds a plugin `glance`.
const PLUGIN: &str = "kubectl-glance";

/// What happens when `--max-concurrent-reconciles` is zero or less.
const DEFAULT_CONCURRENCY: usize = 2;

/// Everything the process was asked to do.
#[derive(Debug, Parser)]
#[command(
    name = "glance-operator",
    version,
    about = "Runs OpenStack Glance on many Kubernetes clusters from one hub",
    args_conflicts_with_subcommands = true,
    args_override_self = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(flatten)]
    run: RunArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What the binary can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator; the same as no subcommand
    Run(Box<RunArgs>),
    /// Print the custom resource definitions
    Crds,
    /// Print every object the operator would write for manifests, offline, with the values of Secrets masked
    Render(RenderArgs),
    /// Register target clusters, look after them, and cure them
    #[command(after_help = clusters::CLUSTERS, subcommand_required = true, arg_required_else_help = true)]
    Clusters(Box<ClustersArgs>),
    /// Print the script that completes commands and options in a shell
    #[command(after_help = COMPLETION)]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
}

const COMPLETION: &str = "\
Examples:
  source <(glance-operator completion bash)
  glance-operator completion zsh > \"${fpath[1]}/_glance-operator\"";

/// The operator's own flags.
#[derive(Clone, Debug, Args)]
#[command(args_override_self = true)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct RunArgs {
    /// Address of the metrics listener; 0 switches it off
    #[arg(long, default_value = value::METRICS, value_name = "ADDRESS", value_parser = value::metrics_address)]
    pub metrics_bind_address: Listen,

    /// Serve the metrics with TLS, and only to accounts that may get the URL /metrics
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = value::go_bool)]
    pub metrics_secure: bool,

    /// Folder with the certificate of the metrics, tls.crt and tls.key; that of the webhooks when empty
    #[arg(long, default_value = "", value_name = "FOLDER")]
    metrics_cert_dir: String,

    /// Address of the health listener; 0 or nothing switches it off
    #[arg(long, default_value = value::HEALTH, value_name = "ADDRESS", value_parser = value::health_address)]
    pub health_probe_bind_address: Listen,

    /// Elect one active replica by a Lease; the others stand by
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = value::go_bool)]
    pub leader_elect: bool,

    /// Namespace of that Lease; the operator's own namespace when empty
    #[arg(long, default_value = "", value_name = "NAMESPACE", value_parser = value::namespace)]
    pub leader_election_namespace: String,

    /// How long the others wait for a leader that is silent; whole seconds
    #[arg(long, default_value = "15s", value_name = "DURATION", value_parser = value::positive_duration)]
    leader_elect_lease_duration: Duration,

    /// How long a leader goes on without a renewal; shorter than the lease
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = value::positive_duration)]
    leader_elect_renew_deadline: Duration,

    /// Time between two attempts to get or renew the lease; shorter than the deadline
    #[arg(long, default_value = "2s", value_name = "DURATION", value_parser = value::positive_duration)]
    leader_elect_retry_period: Duration,

    /// Serve the admission webhooks; off also means that no certificate is needed
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = value::go_bool)]
    pub enable_webhooks: bool,

    /// Address of the webhook listener
    #[arg(long, default_value = value::WEBHOOKS, value_name = "ADDRESS", value_parser = value::webhook_address)]
    pub webhook_bind_address: String,

    /// Folder with the webhooks' certificate, tls.crt and tls.key; k8s-webhook-server/serving-certs in the folder for
    /// temporary files when empty
    #[arg(long, default_value = "", value_name = "FOLDER")]
    webhook_cert_dir: String,

    /// Every resource is reconciled at least this often
    #[arg(long, default_value = "10m", value_name = "DURATION", value_parser = value::positive_duration)]
    pub sync_period: Duration,

    /// Watch only this namespace of the hub; all when empty
    #[arg(long, default_value = "", value_name = "NAMESPACE", value_parser = value::namespace)]
    pub namespace: String,

    /// Namespace that holds the registrations of target clusters; empty switches them off
    #[arg(long, default_value = "c5c3-clusters", value_name = "NAMESPACE", value_parser = value::namespace)]
    pub clusters_namespace: String,

    /// Parallel reconciles per controller; zero or less means 2
    #[arg(
        long,
        default_value = "2",
        value_name = "N",
        allow_negative_numbers = true
    )]
    max_concurrent_reconciles: i64,

    /// How long a deleted resource waits for its target cluster before it leaves its children behind
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = duration::unsigned)]
    pub abandon_after: Duration,

    /// How the API of a Glance on the hub itself is probed
    #[arg(long, value_enum, default_value_t = LocalProbe::Direct, value_name = "HOW")]
    pub local_probe: LocalProbe,

    /// DNS domain of the clusters, in the addresses of Services
    #[arg(long, default_value = DEFAULT_DOMAIN, value_name = "DOMAIN", value_parser = value::domain)]
    pub cluster_domain: String,

    /// Accept registrations that skip certificate checks, go through a proxy or use plain HTTP
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = value::go_bool)]
    pub allow_insecure_registrations: bool,

    /// Admit to a target cluster only the namespaces that are granted it
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = value::go_bool)]
    pub require_target_grants: bool,

    /// How often each target cluster is probed
    #[arg(long, hide = true, default_value = "10s", value_name = "DURATION", value_parser = value::positive_duration)]
    pub target_probe_interval: Duration,

    /// How soon a target cluster that is out of reach is tried again at first
    #[arg(long, hide = true, default_value = "5s", value_name = "DURATION", value_parser = value::positive_duration)]
    pub target_first_retry: Duration,

    /// Let nobody name a target cluster who lacks the verb `use` on its `TargetCluster`; needs the admission webhooks
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = value::go_bool)]
    pub authorize_target_use: bool,

    /// Identity of this hub, written to children on target clusters; the UID of kube-system when empty
    #[arg(long, default_value = "", value_name = "ID")]
    hub_id: String,

    /// How the process logs
    #[command(flatten)]
    pub log: LogArgs,
}

/// The way to the API of a Glance that runs on the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LocalProbe {
    /// Dial the Service, through `HTTP_PROXY` when that is set
    Direct,
    /// Ask the hub's API server to proxy; needs `get` on `services/proxy`
    ApiProxy,
}

/// Why the process ends before it did anything.
#[derive(Debug, PartialEq, Eq)]
pub struct Usage {
    /// What to print on standard error.
    pub text: String,
    /// 0 for `--help` and `--version`, 1 for mistakes.
    pub exit_code: u8,
}

// === impl Cli ===

impl Cli {
    /// Reads a whole command line, the program name first.
    pub fn parse_from_args(args: impl IntoIterator<Item = OsString>) -> Result<Self, Usage> {
        let args: Vec<OsString> = args.into_iter().collect();
        let mut command = Self::command();
        if is_plugin(args.first()) {
            command = command
                .bin_name(program(args.first()))
                .subcommand_required(true)
                .arg_required_else_help(true)
                // The operator's flags; they would start it.
                .mut_args(|arg| arg.hide(true));
        }
        let args = go_flags::normalize(&command, args);
        if let Some(message) = go_flags::detached_value(&command, &args) {
            return Err(command.error(ErrorKind::UnknownArgument, message).into());
        }
        let cli = command
            .try_get_matches_from(args)
            .and_then(|matches| Self::from_arg_matches(&matches))?;
        let run = match &cli.command {
            None => Some(&cli.run),
            Some(Command::Run(args)) => Some(args.as_ref()),
            Some(_) => None,
        };
        run.map_or(Ok(()), RunArgs::check)?;
        Ok(cli)
    }

    /// The subcommand, `run` when none was given.
    pub fn into_command(self) -> Command {
        self.command
            .unwrap_or_else(|| Command::Run(Box::new(self.run)))
    }
}

// === impl RunArgs ===

impl RunArgs {
    /// Passes that may run at one time, per controller.
    pub fn concurrency(&self) -> usize {
        usize::try_from(self.max_concurrent_reconciles)
            .ok()
            .filter(|n| *n > 0)
            .unwrap_or(DEFAULT_CONCURRENCY)
    }

    /// How long the leader election waits for what.
    pub fn lease(&self) -> Timings {
        Timings {
            lease: self.leader_elect_lease_duration,
            renew: self.leader_elect_renew_deadline,
            retry: self.leader_elect_retry_period,
        }
    }

    /// What only several flags together can get wrong.
    fn check(&self) -> Result<(), clap::Error> {
        let Timings {
            lease,
            renew,
            retry,
        } = self.lease();
        let whole = lease.subsec_nanos() == 0;
        if !(whole && lease > renew && renew > retry) {
            let message = "--leader-elect-lease-duration must be whole seconds and longer than \
                           --leader-elect-renew-deadline, and that longer than --leader-elect-retry-period";
            return Err(Cli::command().error(ErrorKind::ValueValidation, message));
        }
        match self.shared_address() {
            Some((one, other, address)) => {
                let message = format!("{one} and {other} cannot both be {address}");
                Err(Cli::command().error(ErrorKind::ValueValidation, message))
            }
            None => Ok(()),
        }
    }

    /// Two listeners that were given one address, which only one can have.
    fn shared_address(&self) -> Option<(&'static str, &'static str, &str)> {
        let all = [
            (
                "--metrics-bind-address",
                self.metrics_bind_address.address(),
            ),
            (
                "--health-probe-bind-address",
                self.health_probe_bind_address.address(),
            ),
            (
                "--webhook-bind-address",
                self.enable_webhooks
                    .then_some(self.webhook_bind_address.as_str()),
            ),
        ];
        let mut taken: Vec<(&str, &str)> = Vec::new();
        for (flag, address) in all {
            // Port 0 is another one each time.
            let Some(address) = address.filter(|address| !address.ends_with(":0")) else {
                continue;
            };
            if let Some((one, _)) = taken.iter().find(|(_, other)| *other == address) {
                return Some((one, flag, address));
            }
            taken.push((flag, address));
        }
        None
    }

    /// The identity given to this hub by hand.
    pub fn hub_id(&self) -> Option<&str> {
        Some(self.hub_id.as_str()).filter(|id| !id.is_empty())
    }

    /// The folder with the certificate of the metrics.
    pub fn metrics_certificate(&self) -> PathBuf {
        if self.metrics_cert_dir.is_empty() {
            return self.webhook_certificate();
        }
        PathBuf::from(&self.metrics_cert_dir)
    }

    /// The folder with the certificate of the webhooks.
    pub fn webhook_certificate(&self) -> PathBuf {
        if self.webhook_cert_dir.is_empty() {
            return std::env::temp_dir().join("k8s-webhook-server/serving-certs");
        }
        PathBuf::from(&self.webhook_cert_dir)
    }

    /// The one namespace to watch on the hub; `None` means all.
    pub fn watched_namespace(&self) -> Option<&str> {
        Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty())
    }
}

// === impl Usage ===

impl From<clap::Error> for Usage {
    fn from(error: clap::Error) -> Self {
        let exit_code = u8::from(error.use_stderr());
        let text = error.render().to_string();
        // Help that stands in for what is missing is read by a person.
        let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        if exit_code == 0 || is_help {
            return Self { text, exit_code };
        }
        Self {
            text: in_two_lines(&text),
            exit_code,
        }
    }
}

/// A mistake as one line that says all of it, for logs are read by lines, and the usage as another.
fn in_two_lines(text: &str) -> String {
    let (what, rest) = text.split_once("Usage:").unwrap_or((text, ""));
    let what: Vec<&str> = what
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
        .collect();
    let all = Cli::command().render_usage().to_string();
    let usage = match rest.lines().next().map(str::trim) {
        Some(usage) if !usage.is_empty() => format!("Usage: {usage}"),
        _ => all.lines().next().unwrap_or_default().to_owned(),
    };
    format!("{}\n{usage} (--help says more)\n", what.join(" "))
}

/// What the user calls this program, by the name of the file it was run as.
pub fn program(file: Option<&OsString>) -> &'static str {
    if is_plugin(file) {
        "kubectl glance"
    } else {
        "glance-operator"
    }
}

/// The script that completes this command line in a shell.
pub fn completion(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "glance-operator", &mut script);
    script
}

fn is_plugin(file: Option<&OsString>) -> bool {
    let name = file.and_then(|file| Path::new(file).file_stem());
    name.is_some_and(|name| name == PLUGIN)
}

/// The custom resource definitions as they are shipped, one YAML document each.
pub fn crds() -> Result<String, SchemaError> {
    let definitions = schema::crds()?;
    let registrations = schema::yaml(&schema::shipped(&TargetCluster::crd())?)?;
    let all = definitions.into_iter().map(|(_, yaml)| yaml);
    Ok(all.chain([registrations]).collect())
}

#[cfg(test)]
mod tests;
