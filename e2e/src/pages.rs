//! The documentation as something that can be run: the commands of a page, in their order.
//!
//! A `console` block is run. A `shell-session` block is not, and the line above it must say why. An HTML comment
//! `<!-- test: … -->` is something that only a test has to do at that place; `<!-- covered by FILE … -->` says that the
//! commands of the next block are run elsewhere, by what is in these files.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

/// Something that happens on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// The commands of one block, as a script.
    Script {
        /// Line of the block on its page, from 1.
        line: usize,
        /// The commands, without prompts.
        text: String,
    },
    /// What a comment asks of the test.
    Hook(String),
    /// Commands that are run by what is in these files.
    Covered {
        /// Line of the block on its page, from 1.
        line: usize,
        /// The files, from the top of the checkout.
        by: Vec<String>,
    },
}

/// What happens on the page in `file`.
pub fn read(file: &Path) -> Result<Vec<Act>> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    parse(&text).with_context(|| file.display().to_string())
}

fn parse(text: &str) -> Result<Vec<Act>> {
    let mut acts = Vec::new();
    // The last line of prose, which has to excuse a block that is not run.
    let mut said = "";
    let mut covered = None;
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let Some(info) = line.trim_start().strip_prefix("```") else {
            if let Some(hook) = line.trim().strip_prefix("<!-- test: ") {
                acts.push(Act::Hook(hook.trim_end_matches("-->").trim().to_owned()));
            } else if let Some(files) = line.trim().strip_prefix("<!-- covered by ") {
                let files = files.trim_end_matches("-->").split_whitespace();
                covered = Some((number + 1, files.map(str::to_owned).collect::<Vec<_>>()));
            } else if !line.trim().is_empty() {
                said = line;
            }
            continue;
        };
        let mut script = String::new();
        for (number, line) in lines.by_ref() {
            if line.trim_start().starts_with("```") {
                break;
            }
            let line = line.get(indent..).unwrap_or(line.trim_start());
            match line.strip_prefix("$ ") {
                Some(command) => script.push_str(command),
                None if script.is_empty() && info == "console" => {
                    bail!("line {}: a command starts with `$ `", number + 1)
                }
                None => script.push_str(line),
            }
            script.push('\n');
        }
        match info {
            "console" => acts.push(match covered.take() {
                Some((_, by)) => Act::Covered {
                    line: number + 1,
                    by,
                },
                None => Act::Script {
                    line: number + 1,
                    text: script,
                },
            }),
            "shell-session" => ensure!(
                ["needs", "not run"]
                    .iter()
                    .any(|word| said.to_lowercase().contains(word)),
                "line {}: the line above must say what the block needs, or why it is not run",
                number + 1
            ),
            "bash" | "sh" | "shell" => bail!(
                "line {}: commands belong into a `console` block, which is run",
                number + 1
            ),
            _ => {}
        }
    }
    if let Some((line, _)) = covered {
        bail!("line {line}: no `console` block follows that could be covered elsewhere");
    }
    Ok(acts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_taken_as_a_reader_would_type_them() {
        let page = "Do it:\n\n```console\n$ a \\\n    b\n$ c '\nd'\n```\n\n<!-- test: wait -->\n\
                    1. Then\n\n   ```console\n   $ e\n   ```\n\nNeeds a cloud:\n\n```shell-session\n$ f\n```\n";
        assert_eq!(
            parse(page).unwrap(),
            [
                Act::Script {
                    line: 3,
                    text: "a \\\n    b\nc '\nd'\n".to_owned()
                },
                Act::Hook("wait".to_owned()),
                Act::Script {
                    line: 13,
                    text: "e\n".to_owned()
                },
            ]
        );
    }

    #[test]
    fn a_block_that_is_run_elsewhere_says_where_and_only_that_block() {
        let page = "<!-- covered by a.rs b/c -->\n\n```console\n$ a\n```\n\n```console\n$ b\n```\n";
        assert_eq!(
            parse(page).unwrap(),
            [
                Act::Covered {
                    line: 3,
                    by: vec!["a.rs".to_owned(), "b/c".to_owned()]
                },
                Act::Script {
                    line: 7,
                    text: "b\n".to_owned()
                },
            ]
        );
        assert!(parse("<!-- covered by a.rs -->\n\nNothing.\n").is_err());
    }

    #[test]
    fn no_command_escapes_the_test_without_a_word() {
        assert!(parse("Just so.\n\n```shell-session\n$ f\n```\n").is_err());
        assert!(parse("```bash\nf\n```\n").is_err());
        assert!(parse("```console\nf\n```\n").is_err());
    }
}
