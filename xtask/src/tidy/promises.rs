//! The promises: every number in `docs/promises.md` is cited by a test, every cited number is in the document.
//!
//! A number is `P-` and digits. Tests are files named `tests.rs`, files in `tests/`, the simulator, the workload driver and the
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
    let promised = numbers_by_line(text);
    let (mut cited, mut findings) = (BTreeMap::new(), Vec::new());
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
