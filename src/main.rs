//! The glance-operator binary.

use std::process::ExitCode;

use glance_operator::{
    app,
    cli::{Cli, Command},
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
    }
}

fn run(args: glance_operator::cli::RunArgs) -> ExitCode {
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
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
