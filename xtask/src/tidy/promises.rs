//! The promises: every number in `docs/promises.md` is cited by a test, every cited number is in the document.
//!
//! A promise is a paragraph that opens with its number, `**P-4**`, followed by a list of its tests; the files that the list
//! names in backquotes exist. Tests are files named `tests.rs`, files in `tests/`, the simulator, the workload driver and the
//! suites; a citation anywhere else explains, but proves nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Finding;

const DOCUMENT: &str = "docs/promises.md";
const TEST_PLACES: &[&str] =
    &["/tests/", "/tests.rs", "crates/sim/", "crates/bench/", "xtask/src/suites/", "xtask/src/bench/"];

pub fn check(files: &[(PathBuf, String)]) -> Vec<Finding> {
    let document = Path::new(DOCUMENT);
    let Some((_, text)) = files.iter().find(|(path, _)| path == document) else {
        return vec![Finding::error(document, 1, "is missing: what stere promises, numbered")];
    };
    let (promised, mut findings) = parse(document, text, files);
    let mut cited = BTreeMap::new();
    for (path, text) in files.iter().filter(|(path, _)| path.extension().is_some_and(|extension| extension == "rs")) {
        if path.starts_with("xtask/src/tidy") {
            continue;
        }
        for (number, line) in numbers_by_line(text) {
            if !promised.contains_key(&number) {
                findings.push(Finding::error(path, line, format!("cites P-{number}, which {DOCUMENT} does not have")));
            }
            if is_test(path) {
                cited.entry(number).or_insert(line);
            }
        }
    }
    let uncited = promised.iter().filter(|(number, _)| !cited.contains_key(*number));
    findings.extend(uncited.map(|(number, line)| Finding::error(document, *line, format!("no test cites P-{number}"))));
    findings
}

/// The promised numbers with their lines, and what is wrong with the form of the document.
fn parse(document: &Path, text: &str, files: &[(PathBuf, String)]) -> (BTreeMap<u32, usize>, Vec<Finding>) {
    let (mut promised, mut findings) = (BTreeMap::new(), Vec::new());
    // The promise that still waits for its list.
    let mut open: Option<(u32, usize)> = None;
    for (index, line) in text.lines().enumerate() {
        let at = index + 1;
        if let Some(number) = number_of_paragraph(line) {
            if promised.insert(number, at).is_some() {
                findings.push(Finding::error(document, at, format!("P-{number} is there twice")));
            }
            findings.extend(open.replace((number, at)).map(|(number, at)| without_tests(document, number, at)));
        } else if line.starts_with("- ") || line.starts_with("  ") {
            open = None;
            let missing = paths_in(line).filter(|path| !is_there(path, files));
            findings.extend(missing.map(|path| Finding::error(document, at, format!("there is no {path}"))));
        } else if !numbers_by_line(line).is_empty() && line.trim_start().starts_with("**") {
            findings.push(Finding::error(document, at, "a promise opens its paragraph as `**P-4** `"));
        }
    }
    findings.extend(open.map(|(number, at)| without_tests(document, number, at)));
    (promised, findings)
}

fn without_tests(document: &Path, number: u32, line: usize) -> Finding {
    Finding::error(document, line, format!("P-{number} lists no test"))
}

/// The number that a paragraph opens with.
fn number_of_paragraph(line: &str) -> Option<u32> {
    line.strip_prefix("**P-")?.split_once("** ")?.0.parse().ok()
}

/// What stands in backquotes and begins as a path of the repository does.
fn paths_in(line: &str) -> impl Iterator<Item = &str> {
    let places = ["crates/", "docs/", "xtask/", "tools/", "plugins/"];
    line.split('`').skip(1).step_by(2).filter(move |word| places.iter().any(|place| word.starts_with(place)))
}

/// A file, or a folder that has one.
fn is_there(path: &str, files: &[(PathBuf, String)]) -> bool {
    files.iter().any(|(file, _)| file.starts_with(path))
}

fn is_test(path: &Path) -> bool {
    let path = path.to_string_lossy();
    TEST_PLACES.iter().any(|place| path.contains(place))
}

/// Every number with the first line it is on.
fn numbers_by_line(text: &str) -> BTreeMap<u32, usize> {
    let mut numbers = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        for (start, _) in line.match_indices("P-") {
            let before = line[..start].chars().next_back();
            let digits: String = line[start + 2..].chars().take_while(char::is_ascii_digit).collect();
            if before.is_none_or(|character| !character.is_alphanumeric() && character != '-')
                && let Ok(number) = digits.parse()
            {
                numbers.entry(number).or_insert(index + 1);
            }
        }
    }
    numbers
}
