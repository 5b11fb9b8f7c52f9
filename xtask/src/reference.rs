//! `cargo xtask reference`: the manual's page of commands, from the help of the command itself.
//!
//! The page is what `stere COMMAND --help` prints, for every command in the order of the help. CI makes it again and
//! refuses a page that differs, so the manual never describes another command than the one that is built.

use std::fs;
use std::path::Path;

use crate::command::{self, MINUTE, program};
use crate::error::{At, Result, XtaskError};
use crate::subject::{build, target_directory};

const PAGE: &str = "docs/manual/src/reference.md";
const HEAD: &str = "\
# Command reference

This page is generated from the command's own help by `cargo xtask reference`. The same text is in
`stere COMMAND --help` and in the man pages, which `stere man DIRECTORY` writes.

Exit codes: 0 done, 1 error, 2 wrong usage, 3 done but degraded, 4 data lost.
";

/// Builds the command, and writes the page or compares it.
pub fn run(root: &Path, is_check: bool) -> Result<()> {
    build(root, &["-p", "stere"])?;
    let binary = target_directory(root).join("release/stere");
    let page = page(&|words| help(&binary, words))?;
    let path = root.join(PAGE);
    if !is_check {
        return fs::write(&path, page).at("write", &path);
    }
    match fs::read_to_string(&path).at("read", &path)? == page {
        true => Ok(()),
        false => Err(XtaskError::found(format!("{PAGE} is not what the command says; run `cargo xtask reference`"))),
    }
}

fn help(binary: &Path, words: &[String]) -> Result<String> {
    let mut stere = program(&[&binary.to_string_lossy()]);
    command::capture(stere.args(words).arg("--help").env("COLUMNS", "100"), MINUTE)
}

/// The page, by asking `help` for one command after the other.
fn page(help: &dyn Fn(&[String]) -> Result<String>) -> Result<String> {
    let mut page = HEAD.to_owned();
    let commands = subcommands(&help(&[])?);
    if commands.is_empty() {
        return Err(XtaskError::found("the command's help lists no commands: has its form changed?"));
    }
    for name in commands {
        add(&mut page, help, &[name])?;
    }
    Ok(page)
}

fn add(page: &mut String, help: &dyn Fn(&[String]) -> Result<String>, words: &[String]) -> Result<()> {
    let text = help(words)?;
    let level = "#".repeat((words.len() + 1).min(4));
    let lines: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
    page.push_str(&format!("\n{level} stere {}\n\n```text\n{}\n```\n", words.join(" "), lines.join("\n")));
    for name in subcommands(&text) {
        add(page, help, &[words, &[name]].concat())?;
    }
    Ok(())
}

/// The names in the block "Commands:" of a help text.
fn subcommands(help: &str) -> Vec<String> {
    let block = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let entries = block.take_while(|line| !line.trim().is_empty());
    let name = |line: &str| {
        let rest = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?;
        rest.split_whitespace().next().map(str::to_owned)
    };
    entries.filter_map(name).filter(|name| name != "help").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(words: &[String]) -> Result<String> {
        Ok(match words.join(" ").as_str() {
            "" => "A tool.\n\nUsage: stere\n\nCommands:\n  device  Devices\n          and more of it\n  help    Help\n\nOptions:\n",
            "device" => "Devices\n\nCommands:\n  add   Adds  \n  help  Help\n",
            "device add" => "Adds\n\nUsage: stere device add\n",
            other => return Err(XtaskError::found(format!("nobody asks for {other}"))),
        }
        .to_owned())
    }

    #[test]
    fn every_command_has_its_help_on_the_page() {
        let page = page(&fake).expect("every help is there");
        assert!(page.contains("\n## stere device\n"));
        assert!(page.contains("\n### stere device add\n\n```text\nAdds\n\nUsage: stere device add\n```\n"));
        assert!(!page.contains("stere help") && !page.contains("Adds  \n"));
    }

    #[test]
    fn a_help_without_commands_is_an_error() {
        assert!(page(&|_| Ok("Usage: stere\n".into())).is_err());
    }
}
