//! The command line, in its own words.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use crate::cli::Cli;

/// Every command with its help.
pub fn page() -> String {
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut page = "# Command line\n\nFlags take one dash or two, `--flag=value` or `--flag value`; durations are written \
                    like `90s` or `1h30m`.\n"
        .to_owned();
    section(&mut page, &mut command, "");
    page
}

fn section(page: &mut String, command: &mut Command, parent: &str) {
    let name = format!("{parent}{}", command.get_name());
    // The operator's version is no news in a reference.
    let help = command.render_long_help().to_string();
    let help: Vec<_> = help.lines().map(str::trim_end).collect();
    let _ = write!(
        page,
        "\n## `{name}`\n\n```text\n{}\n```\n",
        help.join("\n").trim_end()
    );
    for child in command.get_subcommands_mut() {
        if !child.is_hide_set() {
            section(page, child, &format!("{name} "));
        }
    }
}
