//! The simulator, called with whatever arguments it was given.

use std::path::Path;
use std::time::Duration;

use crate::command::MINUTE;
use crate::error::Result;
use crate::subject::cargo;

/// Long runs of the simulator are asked for by hand, so the limit only stops what has gone astray.
const LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);

pub fn run_simulator(root: &Path, arguments: &[&str], limit: Duration) -> Result<()> {
    let words = ["run", "--release", "--quiet", "-p", "stere-sim", "--bin", "sim", "--"];
    crate::command::run(cargo(root, &words).args(arguments), limit)
}

pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run_simulator(root, &words, LIMIT)
}

/// Built apart, so that the time of the histories is theirs.
pub fn build(root: &Path) -> Result<()> {
    run_cargo(root, &["build", "--release", "--quiet", "-p", "stere-sim", "--bin", "sim"])
}

/// Only with bugs planted, so that nothing else is tested twice.
pub fn find_planted_bugs(root: &Path) -> Result<()> {
    let words = ["test", "--release", "--quiet", "-p", "stere-sim", "--features", "planted-bugs"];
    run_cargo(root, &[&words[..], &["--test", "histories", "--", "planted"]].concat())
}

fn run_cargo(root: &Path, words: &[&str]) -> Result<()> {
    crate::command::run(&mut cargo(root, words), 40 * MINUTE)
}
