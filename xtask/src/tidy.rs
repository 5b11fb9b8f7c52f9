//! `cargo xtask tidy`: what the compiler and clippy do not check about the sources.
//!
//! Heads and lengths of files, lengths of functions, words that must not be there, names of modules, documents, files
//! that heads and documents name, the layers of crates, subjects of commits, and the promises: each number in
//! `docs/promises.md` is cited by a test, and no test cites one that is not there. Rust is looked at after comments and
//! strings are blanked out (`blank.rs`), so a word in a message is not a finding. Read next: `source.rs`.

mod blank;
mod commits;
mod layers;
mod markdown;
mod promises;
mod references;
mod source;
#[cfg(test)]
mod tests;
mod words;

pub use self::blank::blank;
pub use self::source::function_ranges;

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{MINUTE, capture, program};
use crate::error::{At, Result, XtaskError};

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub place: String,
    pub what: String,
    /// A warning is printed; anything else fails the run.
    pub is_warning: bool,
}

impl Finding {
    pub fn error(path: &Path, line: usize, what: impl Into<String>) -> Self {
        Finding { place: format!("{}:{line}", path.display()), what: what.into(), is_warning: false }
    }

    pub fn warning(path: &Path, line: usize, what: impl Into<String>) -> Self {
        Finding { is_warning: true, ..Self::error(path, line, what) }
    }
}

/// `record` lowers the counts of old words that are accepted to today's.
pub fn run(root: &Path, record: bool) -> Result<()> {
    let mut files = read_files(root)?;
    if record {
        let path = root.join(words::RATCHET);
        fs::write(&path, words::lowered(&files)).at("write", &path)?;
        files = read_files(root)?;
    }
    let mut findings = Vec::new();
    for (path, text) in &files {
        if path.extension().is_some_and(|extension| extension == "rs") {
            findings.extend(source::check(path, text));
        }
        if markdown::is_document(path) {
            findings.extend(markdown::check(path, text));
        }
        findings.extend(source::check_any(path, text));
        findings.extend(source::check_manifest(path, text));
    }
    findings.extend(words::check(&files));
    findings.extend(commits::check(root));
    findings.extend(promises::check(&files));
    findings.extend(references::check(&files));
    findings.extend(layers::check(&files));
    findings.iter().filter(|finding| finding.is_warning).for_each(|finding| print(finding, "warning"));
    findings.retain(|finding| !finding.is_warning);
    findings.iter().for_each(|finding| print(finding, "error"));
    match findings.len() {
        0 => Ok(()),
        count => Err(XtaskError::found(format!("tidy: {count} findings, listed above"))),
    }
}

fn print(finding: &Finding, word: &str) {
    println!("    {word}: {}: {}", finding.place, finding.what);
}

/// Every text file that git knows or would take, with its path from the root.
pub fn read_files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut list =
        program(&["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"]);
    let names = capture(list.current_dir(root), MINUTE)?;
    let mut files = Vec::new();
    for name in names.lines() {
        let path = root.join(name);
        if path.is_file()
            && let Ok(text) = String::from_utf8(fs::read(&path).at("read", &path)?)
        {
            files.push((PathBuf::from(name), text));
        }
    }
    Ok(files)
}
