//! Subjects of the last commits: at most 72 characters, as CONTRIBUTING.md says.

use std::path::Path;

use super::Finding;
use crate::command::{MINUTE, capture, program};

const SUBJECT_MAX: usize = 72;
/// Older ones are as they are.
const LAST: &str = "--max-count=10";

pub fn check(root: &Path) -> Vec<Finding> {
    let mut log = program(&["git", "-c", "safe.directory=*", "log", "--no-merges", LAST, "--format=%h %s"]);
    // A source without its history, from an archive, has no commits to look at.
    let said = capture(log.current_dir(root), MINUTE).unwrap_or_default();
    findings(&said)
}

/// From lines of a short hash and a subject.
pub fn findings(said: &str) -> Vec<Finding> {
    let parts = said.lines().filter_map(|line| line.split_once(' '));
    let long = parts.filter(|(_, subject)| subject.chars().count() > SUBJECT_MAX);
    let finding = |(hash, subject): (&str, &str)| {
        let length = subject.chars().count();
        Finding::error(Path::new(hash), 1, format!("a subject of {length} characters; {SUBJECT_MAX} are the most"))
    };
    long.map(finding).collect()
}
