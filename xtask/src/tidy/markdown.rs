//! Documents: lines of at most 100 characters, and no sentence that begins with Who, What or Whoever as a noun.
//!
//! Tables, code and lines without a space to break at are left out. The count of such openings is a ratchet in
//! `xtask/words.toml` (`openings`); a long line is an error at once.

use std::path::{Path, PathBuf};

use super::{Finding, words};

const LINE_MAX: usize = 100;
/// A sentence that begins so names nobody: "Who waits goes on by himself", not "Who may read it?".
const OPENINGS: &[&str] = &["Who ", "What ", "Whoever ", "**Who ", "**What ", "**Whoever "];

/// The lines of prose, with their numbers: no tables, no code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            is_fenced = !is_fenced;
            return None;
        }
        let is_code = is_fenced || line.starts_with("    ") && !is_list_text(trimmed);
        (!is_code && !trimmed.starts_with('|')).then_some((index + 1, line))
    })
}

/// An item of a nested list is indented as code is.
fn is_list_text(trimmed: &str) -> bool {
    trimmed.starts_with("- ")
        || trimmed.starts_with("* ")
        || trimmed.split_once(". ").is_some_and(|(number, _)| number.parse::<u8>().is_ok())
}

/// Whether there is a space to break at that is not in code.
fn can_break(line: &str) -> bool {
    let outside: String = line.trim_start().trim_start_matches("- ").split('`').step_by(2).collect();
    outside.trim_end_matches([' ', ',', '.', ':']).contains(' ')
}

pub fn check(path: &Path, text: &str) -> Vec<Finding> {
    let is_long = |line: &str| line.chars().count() > LINE_MAX && !line.starts_with('#') && can_break(line);
    let long = prose(text).filter(|(_, line)| is_long(line));
    let finding = |(number, line): (usize, &str)| {
        let length = line.chars().count();
        Finding::error(path, number, format!("a line of {length} characters; break it at {LINE_MAX}"))
    };
    long.map(finding).collect()
}

/// Sentences that open so; a question may.
fn openings_in(text: &str) -> usize {
    // A heading is no sentence.
    let lines = prose(text).map(|(_, line)| if line.starts_with('#') { "" } else { line });
    let paragraphs = lines.collect::<Vec<_>>().join("\n");
    paragraphs
        .split("\n\n")
        .map(|paragraph| {
            let joined = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
            sentences(&joined).into_iter().filter(|sentence| opens_as_noun(sentence)).count()
        })
        .sum()
}

fn opens_as_noun(sentence: &str) -> bool {
    let start = sentence.trim_start_matches(['-', ' ', '#']);
    OPENINGS.iter().any(|opening| start.starts_with(opening)) && !sentence.trim_end_matches(['*', ' ']).ends_with('?')
}

/// Split after `.`, `!`, `?` or `:` before a space, and before each item of a list.
fn sentences(text: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for word in text.split(' ') {
        if word == "-" {
            all.push(String::new());
            continue;
        }
        if let Some(last) = all.last_mut() {
            last.push_str(word);
            last.push(' ');
        }
        if word.ends_with(['.', '!', '?', ':']) || word.ends_with(".**") || word.ends_with("?**") {
            all.push(String::new());
        }
    }
    all
}

/// How many sentences of all documents open so.
pub fn openings(files: &[(PathBuf, String)]) -> usize {
    let documents = files.iter().filter(|(path, _)| is_document(path) && path != Path::new(words::GLOSSARY));
    documents.map(|(_, text)| openings_in(text)).sum()
}

pub fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}
