//! Flags of `render`.

use std::path::PathBuf;

use clap::Args;

use crate::render::Format;

/// What to render, and how to show it.
#[derive(Clone, Debug, Args)]
pub struct RenderArgs {
    /// Manifests: Glances, `GlanceBackend`s and, as far as given, the Secrets and `ConfigMap`s they name; `-` is standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE", num_args = 1.., required = true)]
    pub files: Vec<PathBuf>,

    /// Namespace of objects that name none
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE")]
    pub namespace: String,

    /// How to print the objects
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,

    /// Namespace of the operator, which a network policy lets in for its probe
    #[arg(long, value_name = "NAMESPACE")]
    pub operator_namespace: Option<String>,

    /// Show what would change in a cluster instead; nothing is written. Exit code 1 when something would
    #[arg(long)]
    pub diff: bool,

    /// Context of the kubeconfig whose cluster runs the Glance; the current one when not given
    #[arg(long, value_name = "CONTEXT", requires = "diff")]
    pub context: Option<String>,

    /// Context of the hub, where the resources are, when that is another cluster
    #[arg(long, value_name = "CONTEXT", requires = "diff")]
    pub hub_context: Option<String>,
}
