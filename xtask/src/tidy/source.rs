//! The checks on one source file.

use std::path::Path;

use super::Finding;
use super::blank::blank;

const FILE_LINES_GOOD: usize = 600;
const FILE_LINES_MAX: usize = 900;
const FUNCTION_LINES_GOOD: usize = 70;
const FUNCTION_LINES_MAX: usize = 140;
const FORBIDDEN_MODULES: &[&str] = &["common", "utils", "util", "types", "core", "helpers", "misc"];
/// Not written as the macros, so that this file does not find itself.
const FORBIDDEN_WORDS: &[&str] = &["todo!", "unimplemented!", "dbg!"];
/// Crates in which one seed replays one history, and what would break that there (P-10).
const CORE_CRATES: &[&str] = &[
    "format",
    "stripe",
    "tree",
    "log",
    "recall",
    "journal",
    "engine",
    "tier",
    "store",
    "policy",
    "file",
    "namespace",
    "residency",
    "features",
    "naming",
    "jobs",
    "pool",
    "workload",
];
const CHANCES: &[&str] = &["HashMap", "HashSet", "RandomState", "SystemTime", "Instant", "thread"];
/// The folder of one machine that once was written into a file by mistake.
const FOREIGN_FOLDER: &str = concat!("/wo", "rk/");

/// Checks of every text file.
pub fn check_any(path: &Path, text: &str) -> Vec<Finding> {
    let is_foreign = |line: &str| {
        line.match_indices(FOREIGN_FOLDER).any(|(start, _)| {
            let before = line[..start].chars().next_back();
            before.is_none_or(|character| {
                !character.is_alphanumeric() && !matches!(character, '.' | '_' | '-' | '}' | '/')
            })
        })
    };
    let lines = text.lines().enumerate().filter(|(_, line)| is_foreign(line));
    lines.map(|(index, _)| Finding::error(path, index + 1, "names a folder of somebody's own machine")).collect()
}

/// Every package takes its lints and its minimum of Rust from the workspace.
pub fn check_manifest(path: &Path, text: &str) -> Vec<Finding> {
    let is_ours = path.starts_with("crates") || path.starts_with("xtask");
    if !is_ours || path.file_name().is_none_or(|name| name != "Cargo.toml") {
        return Vec::new();
    }
    let wanted = ["[lints]\nworkspace = true", "rust-version.workspace = true"];
    let missing = wanted.iter().filter(|line| !text.contains(*line));
    missing.map(|line| Finding::error(path, 1, format!("lacks `{}`", line.replace('\n', " ")))).collect()
}

pub fn check(path: &Path, text: &str) -> Vec<Finding> {
    let code = blank(text);
    let mut findings = check_file(path, text);
    findings.extend(check_words(path, &code));
    findings.extend(check_functions(path, &code));
    findings.extend(check_chance(path, &code));
    findings
}

fn check_chance(path: &Path, code: &str) -> Vec<Finding> {
    let mut parts = path.components().map(|part| part.as_os_str());
    let is_crate = parts.next().is_some_and(|part| part == "crates");
    let is_core = is_crate && parts.next().is_some_and(|name| CORE_CRATES.iter().any(|core| name == *core));
    let tests = test_lines(path, code);
    let mut findings = Vec::new();
    for (index, line) in code.lines().enumerate().filter(|(index, _)| is_core && !tests[*index]) {
        let mut words = line.split(|character: char| !character.is_alphanumeric() && character != '_');
        if let Some(word) = words.find(|word| CHANCES.contains(word)) {
            let what =
                format!("`{word}` differs from run to run; the core uses FxHashMap, BTreeMap, and asks its caller");
            findings.push(Finding::error(path, index + 1, what));
        }
    }
    findings
}

fn check_file(path: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if stem != "tests" && !text.starts_with("//!") {
        findings.push(Finding::error(path, 1, "does not open with `//!`, what it holds and what to read next"));
    }
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        findings.push(Finding::error(path, lines, format!("{lines} lines; split it, {FILE_LINES_GOOD} are enough")));
    } else if lines > FILE_LINES_GOOD {
        findings.push(Finding::warning(path, lines, format!("{lines} lines; {FILE_LINES_GOOD} are enough")));
    }
    if FORBIDDEN_MODULES.contains(&stem.as_str()) {
        findings.push(Finding::error(path, 1, format!("a module named `{stem}` says nothing; name what it does")));
    }
    findings
}

fn check_words(path: &Path, code: &str) -> Vec<Finding> {
    let tests = test_lines(path, code);
    let mut findings = Vec::new();
    for (index, line) in code.lines().enumerate() {
        for word in FORBIDDEN_WORDS.iter().filter(|word| line.contains(*word)) {
            findings.push(Finding::error(path, index + 1, format!("`{word}` has no place in what is landed")));
        }
        if line.contains("#[ignore") {
            findings.push(Finding::error(path, index + 1, "an ignored test tests nothing; mend it or remove it"));
        }
        if !tests[index] && line.contains(".unwrap()") {
            findings.push(Finding::error(
                path,
                index + 1,
                "`unwrap()` outside of tests; use `?`, or `expect` with the invariant",
            ));
        }
        if let Some(name) = line.trim().strip_prefix("mod ").and_then(|rest| rest.split([' ', ';', '{']).next())
            && FORBIDDEN_MODULES.contains(&name)
        {
            findings.push(Finding::error(path, index + 1, format!("a module named `{name}` says nothing")));
        }
    }
    findings
}

/// For every line, whether it belongs to tests: by the file, or by `#[cfg(test)]` on the item it is in.
pub fn test_lines(path: &Path, code: &str) -> Vec<bool> {
    let count = code.lines().count();
    let folders = ["tests", "benches", "fuzz", "examples"];
    let in_test_file = path.file_stem().is_some_and(|stem| stem == "tests")
        || path.components().any(|part| folders.iter().any(|folder| part.as_os_str() == *folder));
    let all: Vec<&str> = code.lines().collect();
    let mut lines = vec![in_test_file; count];
    for (start, line) in code.lines().enumerate() {
        if line.contains("#[cfg(test)]") || line.contains("#[test]") {
            let end = end_of_item(&all, start);
            lines[start..=end].fill(true);
        }
    }
    lines
}

fn check_functions(path: &Path, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (start, end) in function_ranges(code) {
        let length = end - start + 1;
        if length > FUNCTION_LINES_MAX {
            findings.push(Finding::error(path, start + 1, format!("a function of {length} lines; split it")));
        } else if length > FUNCTION_LINES_GOOD {
            let what = format!("a function of {length} lines; {FUNCTION_LINES_GOOD} are enough");
            findings.push(Finding::warning(path, start + 1, what));
        }
    }
    findings
}

/// The first and the last line of every function in `code`, whose comments and literals are blanked out.
pub fn function_ranges(code: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = code.lines().collect();
    let starts = (0..lines.len()).filter(|index| starts_function(lines[*index]));
    starts.map(|start| (start, end_of_item(&lines, start))).collect()
}

fn starts_function(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let qualifiers = ["pub", "pub(crate)", "pub(super)", "const", "async", "unsafe", "extern"];
    words.find(|word| !qualifiers.contains(word)).is_some_and(|word| word == "fn")
}

/// The line on which the item that starts here ends: at its closing brace, or at `;` if it has none.
fn end_of_item(lines: &[&str], start: usize) -> usize {
    let (mut depth, mut opened, mut nested) = (0i32, false, 0i32);
    for (index, line) in lines.iter().enumerate().skip(start) {
        for character in line.chars() {
            match character {
                '{' => (depth, opened) = (depth + 1, true),
                '}' => depth -= 1,
                '(' | '[' => nested += 1,
                ')' | ']' => nested -= 1,
                ';' if !opened && nested == 0 => return index,
                _ => (),
            }
            if opened && depth == 0 {
                return index;
            }
        }
    }
    lines.len().saturating_sub(1)
}
