//! What Go's flag package reads in other ways than clap: one dash for two, and booleans, whose value is never a word of
//! its own.

use std::ffi::{OsStr, OsString};

/// The arguments of the operator itself with two dashes where Go takes one, for which clap would read several short
/// flags. Those of a subcommand stay as they are.
pub fn normalize(command: &clap::Command, mut args: Vec<OsString>) -> Vec<OsString> {
    if !is_subcommand(command, args.get(1)) {
        for arg in args.iter_mut().skip(1) {
            if is_single_dashed(arg) {
                let mut doubled = OsString::from("-");
                doubled.push(&*arg);
                *arg = doubled;
            }
        }
    }
    args
}

/// Says what is wrong with `--leader-elect true`: Go would go by the flag alone and take `true` for the first argument
/// that is none of its flags, and so ignore everything behind it. `args` are normalized.
pub fn detached_value(command: &clap::Command, args: &[OsString]) -> Option<String> {
    if is_subcommand(command, args.get(1)) {
        return None;
    }
    args.windows(2).find_map(|pair| {
        let [flag, word] = pair else {
            return None;
        };
        let (flag, word) = (flag.to_str()?, word.to_str()?);
        let name = flag.strip_prefix("--")?;
        let is_boolean = command
            .get_arguments()
            .any(|arg| arg.is_require_equals_set() && arg.get_long() == Some(name));
        let is_value = !word.is_empty() && !word.starts_with('-') && !names(command, word);
        (is_boolean && is_value).then(|| {
            let right = match super::go_bool(word) {
                Ok(_) => format!("--{name}={word}"),
                Err(_) => format!("--{name}=true or --{name}=false"),
            };
            format!("'{word}' is not read as the value of --{name}: write {right}, or --{name} alone, which is true")
        })
    })
}

/// `run` takes the operator's flags and is none.
fn is_subcommand(command: &clap::Command, arg: Option<&OsString>) -> bool {
    let arg = arg.and_then(|arg| arg.to_str());
    arg.is_some_and(|arg| arg != "run" && names(command, arg))
}

fn names(command: &clap::Command, word: &str) -> bool {
    command
        .get_subcommands()
        .any(|other| other.get_name() == word)
}

fn is_single_dashed(arg: &OsStr) -> bool {
    let Some(name) = arg.to_str().and_then(|arg| arg.strip_prefix('-')) else {
        return false;
    };
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic()) && chars.next().is_some()
}
