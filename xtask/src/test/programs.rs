//! The test programs of all crates: built by one call of cargo, then run a few at a time, because many of them mostly wait
//! (for mounts, servers, time) while others compute.
//!
//! Each runs as cargo would run it: in the folder of its crate. The integration tests of a crate are one executable
//! (`tests/all`), which is linked once and started once for each of its modules: tests of one module run side by side, and
//! what one of them does to its process reaches no other module. What one says is shown when it has failed. It is run again
//! alone then: if it fails again, the step fails; if not, it is named as UNSTABLE with what it said, to be looked into: it
//! minds what runs beside it, or fails now and then. The slowest are told at the end. There are no tests in documentation comments, so rustdoc is not asked for any.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::command::{self, MINUTE, program};
use crate::error::{Result, XtaskError};
use crate::packages;
use crate::subject::cargo;

/// Two per processor would compute more than there are processors for; one leaves them idle while programs wait.
const AT_ONCE: usize = 3;
const BUILD_MAX: Duration = Duration::from_secs(60 * 60);
/// One program: the longest takes two minutes on two idle processors.
const PROGRAM_MAX: Duration = Duration::from_secs(12 * 60);
/// The name of the one executable of a crate's integration tests.
const ALL: &str = "all";
const SLOWEST_SHOWN: usize = 8;
/// Begun first, as they take longest: nothing is left to wait for alone at the end.
const LONGEST: &[&str] =
    &["histories", "regressions", "stress", "tier", "failing", "junctions", "site_of_hosts", "full_mixed"];

#[derive(Debug, PartialEq, Eq)]
struct TestProgram {
    name: String,
    executable: PathBuf,
    /// Of its crate: where it runs.
    folder: PathBuf,
    /// The tests to run, by their full names; all, if none is named.
    tests: Vec<String>,
}

/// What cargo says in one line of JSON, if that is a test program.
fn test_program(line: &str) -> Option<TestProgram> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let executable = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let target = message["target"]["name"].as_str()?;
    Some(TestProgram { name: format!("{package} {target}"), executable, folder, tests: Vec::new() })
}

/// One program for each module, from what the executable lists.
fn by_module(one: &TestProgram, listed: &str) -> Vec<TestProgram> {
    let mut modules: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for test in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
        let module = test.split_once("::").map_or("", |(module, _)| module);
        modules.entry(module).or_default().push(test.to_owned());
    }
    let package = one.name.strip_suffix(ALL).unwrap_or(&one.name);
    let program = |(module, tests): (&str, Vec<String>)| TestProgram {
        name: format!("{package}{module}"),
        tests,
        executable: one.executable.clone(),
        folder: one.folder.clone(),
    };
    modules.into_iter().map(program).collect()
}

/// The integration tests of a crate, one program for each of their modules.
fn split(one: TestProgram) -> Result<Vec<TestProgram>> {
    if !one.name.ends_with(ALL) {
        return Ok(vec![one]);
    }
    let mut list = program(&[&one.executable.to_string_lossy(), "--list", "--format", "terse"]);
    let listed = command::capture(list.current_dir(&one.folder).env("CARGO_MANIFEST_DIR", &one.folder), MINUTE)?;
    let programs = by_module(&one, &listed);
    match programs.is_empty() {
        true => Err(XtaskError::found(format!("{} lists no test", one.executable.display()))),
        false => Ok(programs),
    }
}

fn build(root: &Path) -> Result<VecDeque<TestProgram>> {
    // Without the examples, which have no tests: clippy has compiled them.
    let words = ["test", "--workspace", "--release", "--lib", "--bins", "--tests", "--quiet", "--no-run"];
    let mut build = cargo(root, &words);
    let said = command::capture(build.arg("--message-format=json-render-diagnostics"), BUILD_MAX)?;
    let executables: Vec<TestProgram> = said.lines().filter_map(test_program).collect();
    if executables.is_empty() {
        return Err(XtaskError::found("cargo told of no test program: has the form of its messages changed?"));
    }
    println!("    {} executables built", executables.len());
    let mut programs = Vec::new();
    for one in executables {
        programs.extend(split(one)?);
    }
    let rank = |one: &TestProgram| LONGEST.iter().position(|name| one.name.ends_with(name)).unwrap_or(LONGEST.len());
    programs.sort_by_key(rank);
    Ok(programs.into())
}

struct Outcome {
    program: TestProgram,
    took: Duration,
    has_failed: bool,
    /// It was still running when its time was over: it is not run again.
    has_hung: bool,
}

/// Runs one to its end; what it says is shown when it fails.
fn run_one(one: TestProgram, path: &std::ffi::OsStr) -> Outcome {
    let begun = Instant::now();
    let mut test = program(&[&one.executable.to_string_lossy()]);
    if !one.tests.is_empty() {
        test.arg("--exact").args(&one.tests);
    }
    test.arg("--quiet").current_dir(&one.folder).env("CARGO_MANIFEST_DIR", &one.folder).env("PATH", path);
    // Where an engine could not be brought its tests say that they are skipped.
    test.env("STERE_TEST_SKIP_ENGINES", "1");
    let failure = match command::output(&mut test, PROGRAM_MAX) {
        Ok(output) if output.status.success() => {
            // Tests that cannot run here say so; nothing is skipped in silence.
            let skipped = output.stderr.lines().chain(output.stdout.lines()).filter(|line| line.contains("SKIPPED"));
            skipped.for_each(|line| println!("    {}: {line}", one.name));
            None
        }
        Ok(output) => Some(format!("{}\n{}", output.stdout.trim_end(), output.stderr.trim_end())),
        Err(error) => {
            end_what_hangs();
            Some(error.to_string())
        }
    };
    let has_hung = begun.elapsed() >= PROGRAM_MAX;
    if let Some(said) = &failure {
        println!("    failed: {} ({}):\n{said}", one.name, one.executable.display());
    }
    Outcome { program: one, took: begun.elapsed(), has_failed: failure.is_some(), has_hung }
}

/// Whether a process is gone, or has ended but for threads that wait for a mount.
fn is_ended(process: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/status")).map_or(true, |status| {
        status.lines().any(|line| line.strip_prefix("State:").is_some_and(|state| state.trim_start().starts_with('Z')))
    })
}

/// Daemons of tests whose program is gone hold mounts for which everybody waits who syncs the machine.
fn end_what_hangs() {
    let Ok(processes) = std::fs::read_dir("/proc") else { return };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    for number in numbers {
        let line = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let owner = line.split("stere-test-").nth(1).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(is_ended) {
            // SAFETY: plain system call, to a process that a test began.
            unsafe { libc::kill(number as i32, libc::SIGKILL) };
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

fn run_all(programs: VecDeque<TestProgram>, path: &std::ffi::OsStr) -> Vec<Outcome> {
    let (queue, done) = (Mutex::new(programs), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = lock(&queue).pop_front();
                    let Some(one) = next else { break };
                    let outcome = run_one(one, path);
                    lock(&done).push(outcome);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(|poison| poison.into_inner())
}

/// Builds and runs them all, also when some fail.
pub fn run(root: &Path) -> Result<()> {
    let begun = Instant::now();
    let programs = build(root)?;
    let count = programs.len();
    println!("    {count} test programs built in {:.0} s", begun.elapsed().as_secs_f64());
    let path = std::env::var_os("PATH").unwrap_or_default();
    // What tests bring themselves comes before what happens to be installed: another version may say other things.
    let places = packages::folders_of_programs(root).into_iter().chain(std::env::split_paths(&path));
    let path = std::env::join_paths(places).unwrap_or(path);
    let mut outcomes = run_all(programs, &path);
    outcomes.sort_by_key(|outcome| std::cmp::Reverse(outcome.took));
    let shown = outcomes.iter().take(SLOWEST_SHOWN);
    let slowest: Vec<String> =
        shown.map(|one| format!("{} {:.0} s", one.program.name, one.took.as_secs_f64())).collect();
    println!("    the slowest: {}", slowest.join(", "));
    let failed = repeat_alone(outcomes, &path);
    if failed.is_empty() {
        return Ok(());
    }
    Err(XtaskError::found(format!("{} of {count} test programs failed: {}", failed.len(), failed.join(", "))))
}

/// The names of those that fail again with nothing beside them.
fn repeat_alone(outcomes: Vec<Outcome>, path: &std::ffi::OsStr) -> Vec<String> {
    let mut failed = Vec::new();
    for outcome in outcomes.into_iter().filter(|outcome| outcome.has_failed) {
        let name = outcome.program.name.clone();
        if outcome.has_hung {
            failed.push(name);
            continue;
        }
        println!("    again, alone: {name}");
        if run_one(outcome.program, path).has_failed {
            failed.push(name);
        } else {
            println!("    UNSTABLE: {name} failed beside others and passed alone: see what it said above, and mend it");
        }
    }
    failed
}

#[cfg(test)]
mod tests;
