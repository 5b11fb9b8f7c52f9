//! Old words in names and phrases: counted, and never more than the ratchet allows.
//!
//! `docs/glossary.md` lists them at its end: names in backquotes in the first column of one table, phrases in quotes in that
//! of another. A name is found as a part of an identifier (`put_away` in `names_put_away`, `hull` in `HullOfReads`) or of a
//! file's name. `xtask/words.toml` has the counts that are accepted; renaming lowers them, `cargo xtask tidy --record` writes
//! them down. Different identifiers are counted, not places, so that moving code and using a name change nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::blank::{blank, literals};
use super::{Finding, markdown};

pub const GLOSSARY: &str = "docs/glossary.md";
const REFERENCE: &str = "docs/manual/src/reference.md";
pub const RATCHET: &str = "xtask/words.toml";

/// What the glossary refuses.
#[derive(Debug, Default)]
pub struct OldWords {
    /// Each as its parts in lower case: `put_away` is `["put", "away"]`.
    names: Vec<Vec<String>>,
    phrases: Vec<String>,
}

impl OldWords {
    pub fn parse(glossary: &str) -> Self {
        let mut words = OldWords::default();
        let section = glossary.split("\n## Old words").nth(1).unwrap_or_default();
        for row in section.lines().filter(|line| line.starts_with("| ")) {
            let first = row.trim_start_matches('|').split('|').next().unwrap_or_default();
            words.names.extend(quoted_by(first, '`').into_iter().map(|name| parts_of(&name)));
            words.phrases.extend(quoted_by(first, '"'));
        }
        words
    }
}

/// What stands between pairs of `mark`.
fn quoted_by(text: &str, mark: char) -> Vec<String> {
    text.split(mark).skip(1).step_by(2).map(str::to_owned).collect()
}

/// The parts of an identifier: `HullOfReads` and `hull_of_reads` are `hull`, `of`, `reads`.
fn parts_of(identifier: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut before = '_';
    for character in identifier.chars() {
        let is_new = before == '_' || (character.is_uppercase() && !before.is_uppercase());
        match parts.last_mut() {
            _ if character == '_' => {}
            Some(part) if !is_new => part.extend(character.to_lowercase()),
            _ => parts.push(character.to_lowercase().collect()),
        }
        before = character;
    }
    parts
}

fn identifiers(code: &str) -> impl Iterator<Item = &str> {
    let is_inside = |character: char| character.is_alphanumeric() || character == '_';
    code.split(move |character| !is_inside(character)).filter(|word| !word.is_empty())
}

/// For each old name, the identifiers that it is a part of, added to `found`.
fn names_in(words: &OldWords, path: &Path, text: &str, found: &mut BTreeMap<String, BTreeSet<String>>) {
    // A call of `fold` on an iterator is the standard library's.
    let code = blank(text).replace(".fold(", ".(").replace(".try_fold(", ".(");
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().replace('-', "_");
    for identifier in identifiers(&code).chain([stem.as_str()]) {
        let parts = parts_of(identifier);
        for name in &words.names {
            if parts.windows(name.len()).any(|window| window == name.as_slice()) {
                found.entry(name.join("_")).or_default().insert(identifier.to_owned());
            }
        }
    }
}

/// How often phrases stand in a document, or in the string literals of a source.
fn phrases_in(words: &OldWords, path: &Path, text: &str) -> usize {
    let is_document = path.extension().is_some_and(|extension| extension == "md");
    let said: String = if is_document { text.to_owned() } else { literals(text) };
    words.phrases.iter().map(|phrase| said.matches(phrase.as_str()).count()).sum()
}

/// The counts of today: names in identifiers, phrases in documents and messages, openings of sentences.
pub fn count(files: &[(PathBuf, String)]) -> BTreeMap<String, usize> {
    let glossary = files.iter().find(|(path, _)| path == Path::new(GLOSSARY));
    let words = glossary.map(|(_, text)| OldWords::parse(text)).unwrap_or_default();
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut phrases = 0;
    // The page of commands is a copy of what the command says, which is counted there.
    let is_copy = |path: &Path| path == Path::new(GLOSSARY) || path == Path::new(REFERENCE);
    for (path, text) in files.iter().filter(|(path, _)| !is_copy(path)) {
        let is_source = path.starts_with("crates") && path.extension().is_some_and(|extension| extension == "rs");
        let is_document = path.extension().is_some_and(|extension| extension == "md");
        if is_source {
            names_in(&words, path, text, &mut names);
        }
        if is_source || is_document {
            phrases += phrases_in(&words, path, text);
        }
    }
    let empty = words.names.iter().map(|name| (name.join("_"), 0));
    let mut counts: BTreeMap<String, usize> = empty.collect();
    counts.extend(names.into_iter().map(|(name, identifiers)| (name, identifiers.len())));
    counts.insert("phrases".into(), phrases);
    counts.insert("openings".into(), markdown::openings(files));
    counts
}

/// A finding for each word that stands more often than the ratchet allows.
pub fn check(files: &[(PathBuf, String)]) -> Vec<Finding> {
    let ratchet = files.iter().find(|(path, _)| path == Path::new(RATCHET)).map(|(_, text)| parse_ratchet(text));
    let Some(ratchet) = ratchet else {
        return vec![Finding::error(Path::new(RATCHET), 1, "is missing: how often each old word may stand")];
    };
    let counts = count(files);
    if counts.len() < 3 {
        return vec![Finding::error(Path::new(GLOSSARY), 1, "lists no old words")];
    }
    let more = counts.into_iter().filter(|(word, found)| *found > ratchet.get(word).copied().unwrap_or(0));
    let finding = |(word, found): (String, usize)| {
        let allowed = ratchet.get(&word).copied().unwrap_or(0);
        let what = format!("`{word}`: {found} are there, {allowed} are accepted; {GLOSSARY} has the word to use");
        Finding::error(Path::new(RATCHET), 1, what)
    };
    more.map(finding).collect()
}

fn parse_ratchet(text: &str) -> BTreeMap<String, usize> {
    let pair =
        |line: &str| line.split_once('=').map(|(word, count)| (word.trim().to_owned(), count.trim().parse().ok()));
    let pairs = text.lines().filter(|line| !line.starts_with('#')).filter_map(pair);
    pairs.filter_map(|(word, count)| count.map(|count| (word, count))).collect()
}

/// The ratchet with today's counts, where they are lower than what it has, or new.
pub fn lowered(files: &[(PathBuf, String)]) -> String {
    let old = files.iter().find(|(path, _)| path == Path::new(RATCHET));
    let old = old.map(|(_, text)| parse_ratchet(text)).unwrap_or_default();
    let lower = |(word, found): (String, usize)| {
        let count = old.get(&word).map_or(found, |before| found.min(*before));
        format!("{word} = {count}\n")
    };
    let head = "# In how many names in crates/ each old word of docs/glossary.md may still stand, and how many old phrases and\n\
                # openings of sentences may stand in documents and messages. `cargo xtask tidy --record` lowers the numbers.\n";
    std::iter::once(head.to_owned()).chain(count(files).into_iter().map(lower)).collect()
}
