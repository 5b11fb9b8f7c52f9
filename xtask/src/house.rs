//! `cargo xtask house`: figures of the structure of the source, each beside its goal and beside the worst that is still
//! accepted.
//!
//! `docs/design/house.md` says what each figure means and what it was before. `xtask/house.toml` is the ratchet: a figure
//! may be worse than its goal, but not worse than the ratchet. `--record` lowers the ratchet to today's figures and never
//! raises it. Read next: `house/count.rs` (simple counts), `house/circle.rs` (files that need each other).

mod circle;
mod count;
mod ratchet;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use self::count::Source;
use self::ratchet::Ratchet;
use crate::error::{At, Result, XtaskError};
use crate::tidy::read_files;

/// A circle of more files is one file in disguise: none of them is understood without the rest.
const CIRCLE_MAX: usize = 6;
const RATCHET: &str = "xtask/house.toml";

/// On which side of its goal a figure is good.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Goal::AtMost(most) => value <= most,
            Goal::AtLeast(least) => value >= least,
        }
    }

    /// Whether `value` is further from the goal than `than`. Ratios are kept with three digits, so less is no difference.
    fn is_worse(self, value: f64, than: f64) -> bool {
        match self {
            Goal::AtMost(_) => value > than + 0.0005,
            Goal::AtLeast(_) => value < than - 0.0005,
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Goal::AtMost(most) => write!(formatter, "at most {most}"),
            Goal::AtLeast(least) => write!(formatter, "at least {least}"),
        }
    }
}

/// One figure, with what it was counted on.
#[derive(Debug, Clone)]
struct Figure {
    /// Its key in the ratchet.
    key: &'static str,
    says: &'static str,
    value: f64,
    goal: Goal,
    /// Where the figure comes from: the type, the crates, the files.
    detail: String,
}

fn figure(key: &'static str, says: &'static str, value: f64, goal: Goal, detail: impl Into<String>) -> Figure {
    Figure { key, says, value, goal, detail: detail.into() }
}

/// The figures of the checkout at `root`.
fn figures(root: &Path) -> Result<Vec<Figure>> {
    let files = read_files(root)?;
    let sources: Vec<Source> = files.iter().filter_map(|(path, text)| Source::new(path, text)).collect();
    if sources.is_empty() {
        return Err(XtaskError::found("no source of a crate was found: is this a checkout?"));
    }
    let mut all = structure(&sources);
    all.extend(functions(&sources));
    let readme = files.iter().find(|(path, _)| path == Path::new("README.md"));
    let words = readme.map_or(0, |(_, text)| text.split_whitespace().count());
    let tests = count::test_executables(files.iter().map(|(path, _)| path.as_path()));
    let private = count::with_private_words(&sources);
    all.push(figure("test_executables", "integration-test executables", tests as f64, Goal::AtMost(30.0), ""));
    all.push(figure("readme_words", "words of README.md", words as f64, Goal::AtMost(900.0), ""));
    all.push(figure("private_word_files", "files with private words", private as f64, Goal::AtMost(3.0), ""));
    Ok(all)
}

fn structure(sources: &[Source]) -> Vec<Figure> {
    let circles = circle::largest_by_crate(sources);
    let largest = circles.values().map(Vec::len).max().unwrap_or(0);
    let in_large: usize = circles.values().map(Vec::len).filter(|files| *files > CIRCLE_MAX).sum();
    let several = |(name, files): (&String, &Vec<String>)| (files.len() > 1).then(|| format!("{name} {}", files.len()));
    let circle_detail = circles.iter().filter_map(several).collect::<Vec<_>>().join(", ");
    let (type_name, methods) = count::largest_type(sources);
    let crates = count::large_crates(sources);
    let locals = count::thread_locals(sources);
    let traits: usize = sources.iter().map(count::public_traits).sum();
    let runs = count::duplicated_runs(sources);
    vec![
        figure(
            "largest_circle",
            "files in the largest circle",
            largest as f64,
            Goal::AtMost(CIRCLE_MAX as f64),
            circle_detail,
        ),
        figure("circle_files", "files in circles of more than six", in_large as f64, Goal::AtMost(0.0), ""),
        figure("largest_type", "methods of the largest type", methods as f64, Goal::AtMost(80.0), type_name),
        figure("large_crates", "crates over 10,000 lines", crates.len() as f64, Goal::AtMost(0.0), crates.join(", ")),
        figure("thread_locals", "thread-locals", locals.len() as f64, Goal::AtMost(0.0), locals.join(", ")),
        figure("public_traits", "public traits", traits as f64, Goal::AtMost(25.0), ""),
        figure("duplicated_runs", "duplicated runs of six lines", runs as f64, Goal::AtMost(100.0), ""),
    ]
}

fn functions(sources: &[Source]) -> Vec<Figure> {
    let mut lengths: Vec<usize> = sources.iter().flat_map(count::function_lengths).collect();
    lengths.sort_unstable();
    let at = |part: f64| lengths.get((lengths.len() as f64 * part) as usize).copied().unwrap_or(0) as f64;
    let density = |is_counted: &dyn Fn(&Source) -> bool| {
        let counted = || sources.iter().filter(|source| is_counted(source));
        let asserts: usize = counted().map(count::asserts).sum();
        let functions: usize = counted().map(count::functions).sum();
        let ratio = asserts as f64 / functions.max(1) as f64;
        ((ratio * 1000.0).round() / 1000.0, format!("{asserts} in {functions} functions"))
    };
    let (core, core_detail) = density(&|source| source.is_core());
    let (overall, detail) = density(&|source| !source.is_harness());
    let length_detail = format!("{} functions", lengths.len());
    vec![
        figure("function_median", "lines of the median function", at(0.5), Goal::AtMost(8.0), length_detail),
        figure("function_p90", "lines of functions, 90th percentile", at(0.9), Goal::AtMost(27.0), ""),
        figure("asserts_core", "asserts a function, core", core, Goal::AtLeast(0.2), core_detail),
        figure("asserts_overall", "asserts a function, over all", overall, Goal::AtLeast(0.15), detail),
    ]
}

/// Prints every figure and fails when one is worse than the ratchet. `strict` fails for a missed goal too.
pub fn run(root: &Path, record: bool, strict: bool) -> Result<()> {
    let figures = figures(root)?;
    let path = root.join(RATCHET);
    let text = fs::read_to_string(&path).at("read", &path)?;
    let ratchet = Ratchet::parse(&text)?;
    let worse = print_all(&figures, &ratchet);
    if record {
        let values: BTreeMap<&str, f64> = figures.iter().map(|one| (one.key, ratchet.lowered(one))).collect();
        fs::write(&path, ratchet::render(&figures, &values)).at("write", &path)?;
    }
    let missed = figures.iter().filter(|one| !one.goal.is_met(one.value)).count();
    match (worse.is_empty(), missed) {
        (false, _) => Err(XtaskError::found(format!("worse than {RATCHET} allows: {}", worse.join(", ")))),
        (true, 1..) if strict => Err(XtaskError::found(format!("{missed} of {} goals are missed", figures.len()))),
        _ => Ok(()),
    }
}

/// The keys of the figures that the ratchet refuses.
fn print_all(figures: &[Figure], ratchet: &Ratchet) -> Vec<&'static str> {
    let mut worse = Vec::new();
    for one in figures {
        let word = if one.goal.is_met(one.value) { "ok" } else { "MISSED" };
        let detail = if one.detail.is_empty() { String::new() } else { format!("  ({})", one.detail) };
        println!("    {:<36} {:>7}  {:<15} {word:<6}{detail}", one.says, one.value, one.goal.to_string());
        match ratchet.limit(one.key) {
            Some(limit) if !one.goal.is_worse(one.value, limit) => {}
            Some(limit) => {
                println!("        WORSE than {limit}, the figure that {RATCHET} records");
                worse.push(one.key);
            }
            None => {
                println!("        {RATCHET} has no line for {}", one.key);
                worse.push(one.key);
            }
        }
    }
    worse
}
