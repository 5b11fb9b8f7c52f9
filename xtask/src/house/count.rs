//! The simple counts: each looks at the text of one source, or adds up over all of them.
//!
//! Tests do not count: files and folders of tests are left out, and a file ends at its inner module of tests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use crate::tidy::{blank, function_ranges};

/// Crates that exist to test or to measure.
const HARNESS: &[&str] = &["sim", "bench", "model", "protocol-model", "faults"];
/// Crates outside the core: front ends, tools, what reaches out of the machine. Every other crate is core, new ones too.
const EDGE: &[&str] = &[
    "backup",
    "cli",
    "client",
    "client-wire",
    "control",
    "crypt",
    "daemon",
    "format",
    "fuse",
    "fuse-wire",
    "libstere",
    "library",
    "log-engines",
    "machine",
    "machine-tls",
    "machine-wire",
    "medium",
    "multihost",
    "nbd",
    "node",
    "online",
    "owner",
    "people",
    "plugin",
    "rescue",
    "robot",
    "sandbox",
    "sdk",
    "stack",
    "stere",
    "tertiary",
];
/// Words that only we understand (`docs/glossary.md` has what replaces them).
const PRIVATE_WORDS: &[&str] = &[
    "outspoken",
    "patient",
    "hull",
    "saying",
    "keeping",
    "owed",
    "put_away",
    "fold_names",
    "folds_names",
    "folded_names",
    "folding_names",
];
const RUN_LINES: usize = 6;
/// A run of closing braces repeats everywhere and says nothing.
const RUN_CHARACTERS: usize = 120;
const LARGE_CRATE_LINES: usize = 10_000;

/// One file of a crate, without its tests.
pub struct Source {
    pub crate_name: String,
    /// From the folder of the crate, such as `src/tree/merge.rs`.
    pub path: String,
    pub text: String,
    /// The text with comments and literals blanked out.
    pub code: String,
}

impl Source {
    /// None for what is not Rust, not of a crate, or a test.
    pub fn new(path: &Path, text: &str) -> Option<Source> {
        let path = path.to_str()?;
        let (crate_name, inner) = path.strip_prefix("crates/")?.split_once('/')?;
        if !inner.ends_with(".rs") || is_test(inner) {
            return None;
        }
        let text = without_test_module(text).to_owned();
        let code = blank(&text);
        Some(Source { crate_name: crate_name.to_owned(), path: inner.to_owned(), text, code })
    }

    pub fn is_harness(&self) -> bool {
        HARNESS.contains(&self.crate_name.as_str())
    }

    pub fn is_core(&self) -> bool {
        !self.is_harness() && !EDGE.contains(&self.crate_name.as_str())
    }
}

fn is_test(path: &str) -> bool {
    const FOLDERS: &[&str] = &["test", "tests", "testing", "support", "benches", "examples", "fuzz"];
    let stem = path.trim_end_matches(".rs");
    let is_named = |part: &str| FOLDERS.contains(&part);
    stem.split('/').any(is_named) || stem.ends_with("_test") || stem.ends_with("_tests")
}

fn without_test_module(text: &str) -> &str {
    for (start, _) in text.match_indices("\n#[cfg(test)]") {
        let rest = text[start + "\n#[cfg(test)]".len()..].trim_start();
        let first = rest.lines().next().unwrap_or_default();
        if first.starts_with("mod ") && first.trim_end().ends_with('{') {
            return &text[..start];
        }
    }
    text
}

pub fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Where `word` stands as a whole word.
pub fn whole_words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word).map(|(start, _)| start).filter(move |start| {
        let before = text[..*start].chars().next_back();
        let after = text[start + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

pub fn functions(source: &Source) -> usize {
    let named =
        |start: &usize| source.text[start + 2..].strip_prefix(' ').is_some_and(|rest| rest.starts_with(is_word));
    whole_words(&source.text, "fn").filter(named).count()
}

pub fn asserts(source: &Source) -> usize {
    const NAMES: &[&str] = &["assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne"];
    let called = |name: &str| {
        let is_call = |start: &usize| {
            let rest = source.text[start + name.len()..].strip_prefix('!');
            rest.is_some_and(|rest| rest.trim_start().starts_with('('))
        };
        whole_words(&source.text, name).filter(is_call).count()
    };
    NAMES.iter().map(|name| called(name)).sum()
}

pub fn function_lengths(source: &Source) -> Vec<usize> {
    function_ranges(&source.code).into_iter().map(|(first, last)| last - first + 1).collect()
}

pub fn public_traits(source: &Source) -> usize {
    let starts = |line: &str| line.trim_start().starts_with("pub trait ");
    source.code.lines().filter(|line| starts(line)).count()
}

/// Files of the core with a `thread_local!` that holds more than buffers for scratch.
pub fn thread_locals(sources: &[Source]) -> Vec<String> {
    let holds_state = |source: &&Source| {
        let blocks = source.text.split("thread_local!").skip(1);
        let inner = |block: &str| block.split("\n}").next().unwrap_or_default().to_owned();
        source.is_core() && blocks.map(inner).any(|block| !block.contains("RefCell<Vec<u8>>"))
    };
    sources.iter().filter(holds_state).map(|source| format!("{}/{}", source.crate_name, source.path)).collect()
}

pub fn large_crates(sources: &[Source]) -> Vec<String> {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_harness()) {
        *lines.entry(&source.crate_name).or_default() += source.text.matches('\n').count();
    }
    let large = lines.into_iter().filter(|(_, count)| *count > LARGE_CRATE_LINES);
    large.map(|(name, count)| format!("{name} {count}")).collect()
}

/// The type of an `impl` that starts on this line: of `impl Trait for Type`, the last.
pub fn impl_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = if rest.starts_with('<') { after_generics(rest) } else { rest };
    let rest = rest.strip_prefix(' ')?;
    let of = rest.split_once(" for ").map_or(rest, |(_, of)| of).trim_start();
    let name = of.split(|character: char| !is_word(character)).next()?;
    name.starts_with(|first: char| first.is_ascii_uppercase()).then_some(name)
}

fn after_generics(text: &str) -> &str {
    let mut depth = 0;
    for (index, character) in text.char_indices() {
        match character {
            '<' => depth += 1,
            '>' if !text[..index].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[index + 1..];
        }
    }
    ""
}

/// The methods of every `impl` that is not in a module: the type and the names.
pub fn methods(code: &str) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    let mut open = false;
    for line in code.lines() {
        if let Some(name) = impl_type(line) {
            all.push((name.to_owned(), Vec::new()));
            open = !line.trim_end().ends_with("{}");
        } else if line.starts_with('}') {
            open = false;
        } else if open && let (Some(name), Some((_, names))) = (method_name(line), all.last_mut()) {
            names.push(name.to_owned());
        }
    }
    all
}

/// The names of methods that stand in an `impl` of a trait.
pub fn methods_of_traits(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut open = false;
    for line in code.lines() {
        if impl_type(line).is_some() {
            open = line.contains(" for ") && !line.trim_end().ends_with("{}");
        } else if line.starts_with('}') {
            open = false;
        } else if open && let Some(name) = method_name(line) {
            names.insert(name.to_owned());
        }
    }
    names
}

/// The function that this line defines, if it stands directly in an `impl`.
fn method_name(line: &str) -> Option<&str> {
    let inner = line.strip_prefix("    ").filter(|rest| !rest.starts_with(' '))?;
    let (before, after) = inner.split_once("fn ")?;
    let qualifiers = ["pub", "const", "async", "unsafe"];
    let is_qualifier = |word: &str| qualifiers.contains(&word) || word.starts_with("pub(");
    let name = after.split(|character: char| !is_word(character)).next()?;
    (!name.is_empty() && before.split_whitespace().all(is_qualifier)).then_some(name)
}

/// The type with most methods, as `crate::Type`, and how many it has.
pub fn largest_type(sources: &[Source]) -> (String, usize) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources {
        for (name, names) in methods(&source.code) {
            *counts.entry(format!("{}::{name}", source.crate_name)).or_default() += names.len();
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count).unwrap_or_default()
}

pub fn with_private_words(sources: &[Source]) -> usize {
    let named = |source: &&Source| {
        let has = |word: &str| whole_words(&source.text, word).next().is_some() || file_stem(&source.path) == word;
        PRIVATE_WORDS.iter().any(|word| has(word))
    };
    sources.iter().filter(named).count()
}

pub fn file_stem(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs")
}

/// Runs of six lines or more that stand in the source before, whether in this file or another.
pub fn duplicated_runs(sources: &[Source]) -> usize {
    let mut seen: HashMap<String, ()> = HashMap::new();
    let mut runs = 0;
    for source in sources.iter().filter(|source| !source.is_harness()) {
        let is_told = |line: &&str| !line.is_empty() && !line.starts_with("use ");
        let lines: Vec<&str> = source.code.lines().map(str::trim).filter(is_told).collect();
        let mut is_in_run = false;
        for window in lines.windows(RUN_LINES) {
            let text = window.join("\n");
            let is_old = text.len() >= RUN_CHARACTERS && seen.insert(text, ()).is_some();
            runs += usize::from(is_old && !is_in_run);
            is_in_run = is_old;
        }
    }
    runs
}

/// Files and folders directly in `crates/X/tests` that cargo links into an executable each.
pub fn test_executables<'a>(paths: impl Iterator<Item = &'a Path>) -> usize {
    let mut executables = BTreeSet::new();
    for path in paths {
        let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
        match parts[..] {
            ["crates", name, "tests", file] if file.ends_with(".rs") => executables.insert((name, file)),
            ["crates", name, "tests", folder, "main.rs"] => executables.insert((name, folder)),
            _ => false,
        };
    }
    executables.len()
}
