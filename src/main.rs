//! The glance-operator binary.

use std::process::ExitCode;

use glance_operator::{
    app,
    cli::{self, Cli, Command},
    clusters, render,
};

/// That of musl is slow: a third of the processor time of a busy operator (`make bench`).
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    let program = cli::program(args.first());
    let is_tool = args
        .get(1)
        .is_some_and(|arg| !arg.as_encoded_bytes().starts_with(b"-"));
    let command = match Cli::parse_from_args(args) {
        Ok(cli) => cli.into_command(),
        // Help that somebody asked for is a result, to be read page by page.
        Err(usage) if is_tool && usage.exit_code == 0 => return print(&usage.text),
        Err(usage) => {
            eprint!("{}", usage.text);
            return ExitCode::from(usage.exit_code);
        }
    };
    // Before the first TLS use: with no provider installed that would panic.
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        eprintln!("another TLS provider is installed already; this is a bug");
        return ExitCode::FAILURE;
    }
    match command {
        Command::Run(args) => run(*args),
        Command::Crds => crds(),
        Command::Render(args) => render(&args),
        Command::Clusters(args) => on_runtime(clusters::run(*args, program)),
        Command::Completion { shell } => print(&String::from_utf8_lossy(&cli::completion(shell))),
    }
}

/// Objects to standard output, everything else to standard error.
fn render(args: &cli::RenderArgs) -> ExitCode {
    on_runtime(async {
        match render::run(args).await {
            Ok(outcome) => {
                for note in &outcome.notes {
                    eprintln!("{note}");
                }
                let printed = print(&outcome.text);
                if outcome.is_well {
                    printed
                } else {
                    ExitCode::FAILURE
                }
            }
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        }
    })
}

fn run(args: cli::RunArgs) -> ExitCode {
    on_runtime(async {
        match app::run(args).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                report(&error);
                ExitCode::FAILURE
            }
        }
    })
}

fn on_runtime(work: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => {
            eprintln!("the runtime cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}

/// To standard output; a reader who closes the pipe has seen enough.
fn print(text: &str) -> ExitCode {
    match clusters::write(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// To the log, where whoever looks for the reason looks first; without a log in plain words.
fn report(error: &anyhow::Error) {
    if tracing::dispatcher::has_been_set() {
        tracing::error!(target: "glance_operator", "{error:#}");
    } else {
        eprintln!("{error:#}");
    }
}

fn crds() -> ExitCode {
    match cli::crds() {
        Ok(yaml) => print(&yaml),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
