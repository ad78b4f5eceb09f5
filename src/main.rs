//! The glance-operator binary.

use std::process::ExitCode;

use glance_operator::{
    app,
    cli::{self, Cli, Command},
    render,
};

fn main() -> ExitCode {
    let command = match Cli::parse_from_args(std::env::args_os()) {
        Ok(cli) => cli.into_command(),
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
    }
}

/// Objects to standard output, everything else to standard error.
fn render(args: &cli::RenderArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("the runtime cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(render::run(args)) {
        Ok(outcome) => {
            for note in &outcome.notes {
                eprintln!("{note}");
            }
            print!("{}", outcome.text);
            if outcome.is_well {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: cli::RunArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("the runtime cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(app::run(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
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
        Ok(yaml) => {
            print!("{yaml}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
