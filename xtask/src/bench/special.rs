//! Two benches of stere alone: how long recovery takes, and how much memory the process holds.

use std::fs;
use std::path::{Path, absolute};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::BenchArguments;
use super::report::save_value;
use super::statistics::Summary;
use crate::cleanup::Place;
use crate::command::{MINUTE, capture, quoted, run as run_command, shell, start, wait};
use crate::error::{At, Result, XtaskError};
use crate::subject::{Binaries, Kind, Shape, Subject, cargo, memory_of};

const RECOVERY_FILES: [u64; 2] = [10_000, 1_000_000];
/// Size of the files in prepared pools.
pub(super) const PREPARED_FILE_BYTES: u64 = 100;
const RECOVERY_BAR: Duration = Duration::from_secs(2);
const MEMORY_FILES: u64 = 3_000_000;
const MEMORY_BUDGETS: [(&str, u64); 2] = [("128M", 128 << 20), ("1G", 1 << 30)];
/// A checkpoint begins when half of the journal's region is in use, and frees it.
const JOURNAL_SHARE: f64 = 0.45;

/// Few files and many in turn, and after each kill: the time until the mount is back and a first file is read.
pub fn recovery(root: &Path, arguments: &BenchArguments) -> Result<()> {
    let (place, binaries) = (Place::new(root)?, Binaries::build(root, false)?);
    let most = arguments.files.unwrap_or(u64::MAX);
    let counts = RECOVERY_FILES.map(|files| if arguments.quick { files / 8 } else { files }.min(most));
    let mut rows = Vec::new();
    for files in counts {
        rows.push((files, prepare_pool(root, &place, &binaries, arguments, files)?, Vec::new(), Vec::new()));
    }
    if arguments.prepare {
        return Ok(());
    }
    for round in 0..arguments.runs {
        for (files, subject, seconds, shares) in &mut rows {
            println!("round {} of {}: {files} files", round + 1, arguments.runs);
            subject.mount()?;
            let recovery = recover_once(&binaries, &place, subject, round)?;
            subject.unmount()?;
            seconds.push(recovery.seconds);
            shares.push(recovery.journal_share);
        }
    }
    let rows: Vec<Value> =
        rows.iter().map(|(files, _, seconds, shares)| recovery_row(*files, seconds, shares)).collect();
    finish(root, arguments, json!({ "recovery": rows }))
}

fn recovery_row(files: u64, seconds: &[f64], shares: &[f64]) -> Value {
    let summary = Summary::of(seconds).expect("there is at least one round");
    let word = if summary.max < RECOVERY_BAR.as_secs_f64() { "met" } else { "MISSED" };
    println!(
        "recovery with {files} files, journal {:.0} % full: median {:.3} s ({:.3}..{:.3}), bar: under {} s: {word}",
        Summary::of(shares).map_or(0.0, |shares| shares.median * 100.0),
        summary.median,
        summary.min,
        summary.max,
        RECOVERY_BAR.as_secs()
    );
    json!({ "files": files, "seconds": seconds, "journal_shares": shares, "met": word == "met" })
}

/// An unmounted pool with so many files: one that an earlier run left in the folder for that, or a new one.
pub(super) fn prepare_pool(
    root: &Path,
    place: &Place,
    binaries: &Binaries,
    arguments: &BenchArguments,
    files: u64,
) -> Result<Subject> {
    let parent = arguments.prepared.as_ref().unwrap_or(&place.directory);
    let parent = absolute(parent).at("find", parent)?.join(format!("recovery-{files}"));
    let mark = parent.join("is-complete");
    let is_complete = mark.exists();
    if !is_complete && parent.exists() {
        fs::remove_dir_all(&parent).at("remove", &parent)?;
    }
    fs::create_dir_all(&parent).at("mkdir", &parent)?;
    let is_kept = arguments.prepared.is_some();
    // Sparse: only what files take is taken.
    let device_size = if files > MEMORY_FILES { "24G".into() } else { Shape::default().device_size };
    let shape = Shape { options: arguments.options.clone(), is_kept, device_size, ..Shape::default() };
    let subject = Subject::new(Kind::Stere, &parent, &shape, binaries)?;
    match is_complete {
        true => subject.unmount()?,
        false if files > MEMORY_FILES => fill_unmounted(root, binaries, &subject, files)?,
        false => {
            create_files(binaries, &subject, files, PREPARED_FILE_BYTES)?;
            subject.unmount()?;
        }
    }
    fs::write(&mark, "").at("write", &mark)?;
    Ok(subject)
}

struct Recovery {
    seconds: f64,
    journal_share: f64,
}

/// Three writers work until the journal is as full as it gets before a checkpoint empties it; then the process is killed.
fn recover_once(binaries: &Binaries, place: &Place, subject: &Subject, round: usize) -> Result<Recovery> {
    // A pool that was kept has the folders of earlier runs.
    let directory = subject.mount_point.join(format!("journal-{}-{round}", std::process::id()));
    fs::create_dir(&directory).at("mkdir", &directory)?;
    let log = place.directory.join(format!("journal-{round}.log"));
    let mut command = Command::new(&binaries.bench);
    command.arg("acknowledge").arg(&directory).arg(&log).stdout(Stdio::null()).stderr(Stdio::null());
    let mut writers = start(&mut command, "the writers")?;
    let journal_share = fill_journal(subject);
    subject.kill()?;
    wait(&mut writers, 5 * MINUTE, "the writers")?;
    let journal_share = journal_share?;
    capture(&mut shell("sync; echo 3 >/proc/sys/vm/drop_caches"), 5 * MINUTE)?;
    let start = Instant::now();
    subject.mount()?;
    let first = subject.mount_point.join("many/000/000/file-00000000");
    let length = fs::read(&first).at("read", &first)?.len();
    let elapsed = start.elapsed();
    if length as u64 != PREPARED_FILE_BYTES {
        return Err(XtaskError::found(format!(
            "{} has {length} bytes after recovery, not {PREPARED_FILE_BYTES}",
            first.display()
        )));
    }
    let mut verify = Command::new(&binaries.bench);
    capture(verify.arg("verify").arg(&directory).arg(&log), 30 * MINUTE)?;
    Ok(Recovery { seconds: elapsed.as_secs_f64(), journal_share })
}

/// Returns once the journal holds `JOURNAL_SHARE` of its region: how much it holds then.
fn fill_journal(subject: &Subject) -> Result<f64> {
    let begin = Instant::now();
    while begin.elapsed() < 5 * MINUTE {
        let status = subject.status()?;
        let bytes = |name: &str| status[name].as_u64().map(|bytes| bytes as f64);
        let (Some(used), Some(whole)) = (bytes("journal_used_bytes"), bytes("journal_bytes")) else {
            return Err(XtaskError::found("`stere status --json` does not tell how full the journal is"));
        };
        if used / whole >= JOURNAL_SHARE {
            return Ok(used / whole);
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(XtaskError::found("the journal did not fill within five minutes"))
}

/// The process's memory while very many files are created and found, under each budget.
pub fn memory(root: &Path, arguments: &BenchArguments) -> Result<()> {
    let (place, binaries) = (Place::new(root)?, Binaries::build(root, false)?);
    let files = arguments.files.unwrap_or(if arguments.quick { MEMORY_FILES / 8 } else { MEMORY_FILES });
    let mut rows = Vec::new();
    for (budget, budget_bytes) in MEMORY_BUDGETS {
        let shape = Shape { device_size: "24G".into(), options: format!("memory={budget}"), ..Shape::default() };
        let subject = Subject::new(Kind::Stere, &place.directory, &shape, &binaries)?;
        let (creating, seconds) = watch(&subject, || create_files(&binaries, &subject, files, 0))?;
        subject.unmount()?;
        subject.mount()?;
        let (finding, find_seconds) = watch(&subject, || find_all(&subject, files))?;
        for (phase, held, seconds) in [("create", creating, seconds), ("find", finding, find_seconds)] {
            let word = if held.resident <= budget_bytes { "met" } else { "MISSED" };
            let megabytes = |bytes: u64| bytes >> 20;
            println!(
                "memory={budget}, {files} files, {phase}: at most {} MiB resident ({} MiB PSS), {seconds:.0} s, bar: within {budget}: {word}",
                megabytes(held.resident),
                megabytes(held.shared),
            );
            rows.push(json!({
                "budget_bytes": budget_bytes, "files": files, "phase": phase, "resident_bytes_max": held.resident,
                "pss_bytes_max": held.shared, "seconds": seconds, "met": word == "met",
            }));
        }
    }
    finish(root, arguments, json!({ "memory": rows }))
}

/// The most that was seen, in bytes.
struct Held {
    resident: u64,
    shared: u64,
}

/// Looks at the process ten times a second while the work is done.
fn watch(subject: &Subject, work: impl FnOnce() -> Result<()>) -> Result<(Held, f64)> {
    let process = subject.daemon_process()?;
    let (resident, shared, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let look = || {
        if let Ok((peak, pss)) = memory_of(process) {
            resident.fetch_max(peak, Ordering::Relaxed);
            shared.fetch_max(pss, Ordering::Relaxed);
        }
    };
    let start = Instant::now();
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                look();
                thread::sleep(Duration::from_millis(100));
            }
        });
        let result = work();
        look();
        done.store(true, Ordering::Relaxed);
        result
    });
    result?;
    let held = Held { resident: resident.into_inner(), shared: shared.into_inner() };
    if held.resident == 0 {
        return Err(XtaskError::found("the process's memory could not be read: it ended on the way"));
    }
    Ok((held, start.elapsed().as_secs_f64()))
}

fn create_files(binaries: &Binaries, subject: &Subject, files: u64, size: u64) -> Result<()> {
    let directory = subject.mount_point.join("many");
    fs::create_dir(&directory).at("mkdir", &directory)?;
    let mut command = Command::new(&binaries.bench);
    command.arg("many").arg(&directory).args(["--files", &files.to_string(), "--size", &size.to_string()]);
    capture(&mut command, 120 * MINUTE)?;
    capture(&mut shell(&format!("sync -f {}", quoted(&directory))), 30 * MINUTE).map(drop)
}

/// Makes the folders through the mount and the files without it, which takes minutes where a mount takes half an hour.
fn fill_unmounted(root: &Path, binaries: &Binaries, subject: &Subject, files: u64) -> Result<()> {
    let words = ["build", "--release", "--quiet", "-p", "libstere", "--example", "many"];
    run_command(&mut cargo(root, &words), 10 * MINUTE)?;
    let directory = subject.mount_point.join("many");
    fs::create_dir(&directory).at("mkdir", &directory)?;
    let mut folders = Command::new(&binaries.bench);
    folders.arg("many").arg(&directory).args(["--only-folders", "--files", &files.to_string()]);
    capture(&mut folders, 30 * MINUTE)?;
    subject.unmount()?;
    let mut fill = Command::new(binaries.bench.with_file_name("examples").join("many"));
    fill.args([files.to_string(), PREPARED_FILE_BYTES.to_string()]).arg(subject.image(0));
    println!("{}", capture(&mut fill, 120 * MINUTE)?.trim());
    Ok(())
}

fn find_all(subject: &Subject, files: u64) -> Result<()> {
    let line = format!("find {} -type f -size -2 | wc -l", quoted(&subject.mount_point.join("many")));
    let found = capture(&mut shell(&line), 120 * MINUTE)?;
    if found.trim() == files.to_string() {
        return Ok(());
    }
    Err(XtaskError::found(format!("find sees {} files, {files} were created", found.trim())))
}

fn finish(root: &Path, arguments: &BenchArguments, value: Value) -> Result<()> {
    let file = save_value(root, arguments, value)?;
    println!("written to {}", file.display());
    Ok(())
}
