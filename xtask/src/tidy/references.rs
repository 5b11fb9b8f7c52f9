//! Files that heads of sources and documents name: each must be there.
//!
//! In a head (`//!`) the name of a file in backquotes that is one of a Rust source is looked for among all sources of the
//! project, by its last parts; in a document a path that begins with `crates/` or `xtask/` is looked for as it is.
//! So nobody who reads on is sent to a file that has moved. Read next: `markdown.rs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Finding, markdown};

/// A finding for each name of a file that is not there.
pub fn check(files: &[(PathBuf, String)]) -> Vec<Finding> {
    let known: BTreeSet<&Path> = files.iter().map(|(path, _)| path.as_path()).collect();
    let mut findings = Vec::new();
    for (path, text) in files {
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        for (index, line) in text.lines().enumerate() {
            let missing: Vec<&str> = if is_source && line.starts_with("//!") {
                quoted(line).filter(|name| name.ends_with(".rs") && !is_end_of_any(&known, name)).collect()
            } else if markdown::is_document(path) {
                paths(line).filter(|name| !known.contains(Path::new(name))).collect()
            } else {
                continue;
            };
            let finding = |name: &str| Finding::error(path, index + 1, format!("`{name}` is not there; has it moved?"));
            findings.extend(missing.into_iter().map(finding));
        }
    }
    findings
}

/// What stands between backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether the path of any file ends with these parts; `../` only says from where.
fn is_end_of_any(known: &BTreeSet<&Path>, name: &str) -> bool {
    let name = name.trim_start_matches("../");
    known.iter().any(|path| path.ends_with(name))
}

/// Paths of sources, without a place in them and without patterns.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let is_of_path = |character: char| character.is_alphanumeric() || "/_-.".contains(character);
    let words = line.split(move |character| !is_of_path(character));
    words.filter(|word| (word.starts_with("crates/") || word.starts_with("xtask/")) && word.ends_with(".rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
        check(&files).into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn names_of_files_that_are_not_there_are_found() {
        let there = ("crates/a/src/round.rs", "//! Read next: `../b.rs`, `a/src/b.rs`, `gone.rs`, `a.txt`.");
        assert_eq!(found(&[there, ("crates/a/src/b.rs", "// `gone.rs` is no head")]), ["crates/a/src/round.rs:1"]);
        let page = ("docs/a.md", "- `crates/a/src/b.rs`\n- `crates/a/src/c.rs` and crates/*/src/d.rs\n");
        assert_eq!(found(&[page, ("crates/a/src/b.rs", "")]), ["docs/a.md:2"]);
    }
}
