//! The fleet in the hands of people: `glance-operator clusters …`, as kubectl plugin
//! `kubectl glance clusters …`.
//!
//! The verbs work from the user's own kubeconfig and rights, never from the operator's. What they
//! know comes from the registration Secrets, from the `TargetCluster`s where that kind is
//! installed, and from the targets themselves. Results go to standard output, everything else to
//! standard error; nothing that is printed holds a credential.

use std::process::ExitCode;

mod access;
pub mod args;
mod contexts;
mod doctor;
mod error;
mod fleet;
mod hub;
mod known;
mod kubeconfig;
mod ledger;
mod list;
mod output;
mod policy;
mod progress;
mod register;
mod rotate;
mod target;
mod unregister;
mod wait;

use self::{
    args::{ClustersArgs, CommonArgs, Verb},
    contexts::Contexts,
    error::Error,
    hub::Hub,
    output::Show,
    progress::Progress,
};
pub use output::write;

/// What every verb works with.
struct Session {
    common: CommonArgs,
    /// How the user calls this program, for commands that are printed.
    program: String,
    contexts: Contexts,
    hub: Hub,
    progress: Progress,
}

/// The words by which the user got here.
#[derive(Clone, Debug, Default)]
struct Caller {
    program: String,
    kubeconfig: Option<String>,
    context: Option<String>,
    namespace: String,
}

/// Runs a verb. `program` is what the user calls this program.
pub async fn run(args: ClustersArgs, program: &str) -> ExitCode {
    let ClustersArgs { common, verb } = args;
    // A verb holds several connections; that is no matter for a stack.
    match Box::pin(dispatch(common, verb, program)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(next) = error.next(program) {
                eprintln!("next: {next}");
            }
            ExitCode::FAILURE
        }
    }
}

async fn dispatch(common: CommonArgs, verb: Verb, program: &str) -> Result<(), Error> {
    if let Verb::Register(args) = &verb
        && args.dry_run
    {
        return register::dry_run(args, common.output);
    }
    let contexts = Contexts::load(common.kubeconfig.as_deref())?;
    let hub = Hub::connect(&contexts, &common).await?;
    let session = Session {
        common,
        program: program.to_owned(),
        contexts,
        hub,
        progress: Progress::start(),
    };
    let outcome = match &verb {
        Verb::Register(args) => Box::pin(register::register(&session, args)).await,
        Verb::List(args) => list::list(&session, &args.names).await,
        Verb::Doctor(args) => doctor::doctor(&session, args).await,
        Verb::Rotate(args) => Box::pin(rotate::rotate(&session, args)).await,
        Verb::Pause(args) => policy::pause(&session, &args.name, true).await,
        Verb::Resume(args) => policy::pause(&session, &args.name, false).await,
        Verb::Unregister(args) => unregister::unregister(&session, args).await,
        Verb::Abandoned(args) => ledger::abandoned(&session, &args.names).await,
        Verb::Reclaim(args) => ledger::reclaim(&session, &args.name).await,
    };
    session.progress.clear();
    outcome
}

// === impl Session ===

impl Session {
    fn show(&self, value: &impl Show) -> Result<(), Error> {
        self.progress.clear();
        output::show(self.common.output, value)
    }

    /// How the user got here, for commands that lead to the same place.
    fn caller(&self) -> Caller {
        Caller {
            program: self.program.clone(),
            kubeconfig: self.contexts.file().map(str::to_owned),
            context: self.common.context.clone(),
            namespace: self.hub.namespace.clone(),
        }
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("edge-1"), "edge-1");
        assert_eq!(quoted("it's me"), r"'it'\''s me'");
        assert_eq!(quoted(""), "''");
    }
}
