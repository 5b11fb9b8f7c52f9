//! The simulator, called with whatever arguments it was given.

use std::path::Path;
use std::time::Duration;

use crate::command::{MINUTE, program};
use crate::error::Result;
use crate::subject::{build, cargo, target_directory};

/// Long runs of the simulator are asked for by hand, so the limit only stops what has gone astray.
const LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);

pub fn run_simulator(root: &Path, arguments: &[&str], limit: Duration) -> Result<()> {
    build(root, &["-p", "stere-sim", "--bin", "sim"])?;
    let simulator = target_directory(root).join("release/sim");
    crate::command::run(program(&[&simulator.to_string_lossy()]).args(arguments).current_dir(root), limit)
}

pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run_simulator(root, &words, LIMIT)
}

/// Only with bugs planted, so that nothing else is tested twice.
pub fn find_planted_bugs(root: &Path) -> Result<()> {
    // Of the workspace, so that everything below is what the other tests were built with.
    let words = ["test", "--release", "--quiet", "--workspace", "--features", "stere-sim/planted-bugs"];
    let words = [&words[..], &["--test", "histories", "--", "planted"]].concat();
    crate::command::run(&mut cargo(root, &words), 40 * MINUTE)
}
