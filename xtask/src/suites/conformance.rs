//! Is it a POSIX file system (P-15)? pjdfstest and fsx by others, and our own comparison with ext4; and does it work
//! when it is full (P-6)?

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use super::{Job, end};
use crate::command::{MINUTE, capture, output};
use crate::error::{At, Result, XtaskError};
use crate::packages::{FSX, PJDFSTEST, crate_program};
use crate::subject::{Kind, Shape};

const FSX_OPERATIONS: u64 = 200_000;
const DIFFERENTIAL_OPERATIONS: u64 = 40_000;
const DIFFERENTIAL_RUNS_AT_ONCE: u64 = 3;
const RACE_SECONDS: u64 = 5;
const LARGE_DIRECTORY_ENTRIES: u64 = 100_000;
/// pjdfstest 0.2.2 computes a name of length 0 for folders whose path has this length (modulo 127), and fails by itself.
const PJDFSTEST_BAD_LENGTH: usize = 9;

/// All tests in two runs: those that remount read-only cannot run beside tests that leave files open.
pub fn pjdfstest(job: &Job) -> Result<()> {
    let binary = crate_program(&job.world.root, PJDFSTEST)?;
    let second = job.world.subject(Kind::Tmpfs, "second", &Shape::default())?;
    let mut path = job.subject.mount_point.clone();
    while path.as_os_str().len() % 127 == PJDFSTEST_BAD_LENGTH {
        path = path.join("x");
        fs::create_dir_all(&path).at("mkdir", &path)?;
    }
    let runs: [(bool, &[&str]); 2] = [(false, &[]), (true, &["erofs"])];
    for (allow_remount, patterns) in runs {
        let configuration = write_configuration(&job.scratch, allow_remount)?;
        let mut command = Command::new(&binary);
        command.arg("-c").arg(&configuration).arg("-p").arg(&path).arg("-s").arg(&second.mount_point);
        let result = output(command.args(patterns), 20 * MINUTE)?;
        judge_pjdfstest(&result.stdout, result.status.success())?;
    }
    Ok(())
}

/// The dummy users are ones that every Debian has; `remount` runs the tests of EROFS.
fn write_configuration(scratch: &Path, allow_remount: bool) -> Result<PathBuf> {
    let path = scratch.join("pjdfstest.toml");
    let text = format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
         stat_st_birthtime = {{}}\n[settings]\nnaptime = 0.02\nallow_remount = {allow_remount}\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n"
    );
    fs::write(&path, text).at("write", &path)?;
    Ok(path)
}

fn judge_pjdfstest(stdout: &str, success: bool) -> Result<()> {
    let summary = stdout.lines().find(|line| line.contains("Summary")).unwrap_or("no summary: it ended early");
    println!("    {summary}");
    let failed: Vec<&str> = stdout
        .lines()
        .filter(|line| line.contains("FAILED"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    if success && failed.is_empty() {
        return Ok(());
    }
    Err(XtaskError::found(format!("pjdfstest: {summary}; failed: {}", failed.join(" "))))
}

pub fn fsx_without_mmap(job: &Job) -> Result<()> {
    run_fsx(job, "", "mapread = 0\nmapwrite = 0\n", FSX_OPERATIONS)
}

/// With mmap a tenth of the operations waits for the device after each write through a mapping, the others do not: each
/// such wait costs as much as an fsync, and would take most of the time.
pub fn fsx(job: &Job) -> Result<()> {
    fsx_with_mmap(job, FSX_OPERATIONS)
}

/// As many as CI has time for.
pub fn fsx_short(job: &Job) -> Result<()> {
    fsx_with_mmap(job, FSX_OPERATIONS / 10)
}

fn fsx_with_mmap(job: &Job, operations: u64) -> Result<()> {
    let mmap = "mapread = 10\nmapwrite = 10\ninvalidate = 1\n";
    for (settings, operations) in [("nomsyncafterwrite = true\n", operations / 10 * 9), ("", operations / 10)] {
        let start = Instant::now();
        run_fsx(job, settings, mmap, operations)?;
        let how = if settings.is_empty() { "waiting for the device" } else { "without waiting" };
        println!("    {operations} operations, writes through mappings {how}: {:.1} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}

fn run_fsx(job: &Job, settings: &str, mmap: &str, operations: u64) -> Result<()> {
    let binary = crate_program(&job.world.root, FSX)?;
    let configuration = job.scratch.join("fsx.toml");
    let text = format!(
        "flen = 262144\n{settings}[opsize]\nmax = 65536\n[weights]\nclose_open = 1\nread = 10\nwrite = 10\n{mmap}\
         truncate = 5\nfsync = 1\nfdatasync = 1\nposix_fallocate = 3\npunch_hole = 5\nsendfile = 3\nposix_fadvise = 1\n\
         copy_file_range = 5\n"
    );
    fs::write(&configuration, text).at("write", &configuration)?;
    let file = job.subject.mount_point.join("fsx-file");
    let (count, seed) = ((operations * job.times).to_string(), job.seed.to_string());
    let mut command = Command::new(binary);
    command.arg("-f").arg(&configuration).args(["-N", &count, "-S", &seed, "-P"]).arg(&job.scratch).arg(&file);
    let result = output(&mut command, 60 * MINUTE)?;
    if result.status.success() {
        return Ok(());
    }
    let text = format!("{}{}", result.stdout, result.stderr);
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(25)..].join("\n    ");
    Err(XtaskError::found(format!("fsx with seed {seed}: {}\n    {tail}", result.status)))
}

/// Against ext4, which has no opinion of its own beyond the manual pages: one run alone, then several at once, each in a
/// folder of its own, so that requests of many kinds meet in the process.
pub fn differential(job: &Job) -> Result<()> {
    let reference =
        job.world.subject(Kind::Ext4, "reference", &Shape { device_size: "4G".into(), ..Shape::default() })?;
    let operations = DIFFERENTIAL_OPERATIONS * job.times;
    let mut alone = differential_run(job, &reference.mount_point, &job.subject.mount_point, job.seed, operations);
    capture(&mut alone, 60 * MINUTE)?;
    let runs = (1..=DIFFERENTIAL_RUNS_AT_ONCE).map(|number| {
        let folders =
            [&reference.mount_point, &job.subject.mount_point].map(|point| point.join(format!("run-{number}")));
        folders.iter().try_for_each(|folder| fs::create_dir(folder).at("mkdir", folder))?;
        let seed = job.seed * 1000 + number;
        Ok(differential_run(job, &folders[0], &folders[1], seed, operations / DIFFERENTIAL_RUNS_AT_ONCE))
    });
    let runs = runs.collect::<Result<Vec<Command>>>()?;
    thread::scope(|scope| {
        let started: Vec<_> =
            runs.into_iter().map(|mut run| scope.spawn(move || capture(&mut run, 60 * MINUTE).map(drop))).collect();
        started.into_iter().try_for_each(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn differential_run(job: &Job, left: &Path, right: &Path, seed: u64, operations: u64) -> Command {
    let mut command = Command::new(&job.world.binaries.bench);
    command.arg("differential").arg(left).arg(right);
    command.args(["--seed", &seed.to_string(), "--operations", &operations.to_string()]);
    command
}

/// Opening against removing and replacing: a name that was found can be opened, whatever becomes of it meanwhile.
pub fn race(job: &Job) -> Result<()> {
    let mut command = Command::new(&job.world.binaries.bench);
    command.arg("race").arg(&job.subject.mount_point).args(["--seed", &job.seed.to_string()]);
    command.args(["--seconds", &(RACE_SECONDS * job.times).to_string()]);
    capture(&mut command, 60 * MINUTE).map(drop)
}

pub fn limits(job: &Job) -> Result<()> {
    let mut command = Command::new(&job.world.binaries.bench);
    let entries = (LARGE_DIRECTORY_ENTRIES * job.times).to_string();
    capture(command.arg("limits").arg(&job.subject.mount_point).args(["--entries", &entries]), 60 * MINUTE).map(drop)
}

/// The same with a million names, and on ext4 in the same run; both times are told.
pub fn million_names(job: &Job) -> Result<()> {
    // ext4 makes one inode for each 16 KiB of the device, so 4 GiB would have a quarter of a million.
    let reference =
        job.world.subject(Kind::Ext4, "reference", &Shape { device_size: "20G".into(), ..Shape::default() })?;
    for (name, point) in [("ext4", &reference.mount_point), (job.subject.kind.name(), &job.subject.mount_point)] {
        let mut command = Command::new(&job.world.binaries.bench);
        let said = capture(command.arg("limits").arg(point).args(["--entries", "1000000"]), 60 * MINUTE)?;
        println!("    {name}: {}", said.trim());
    }
    Ok(())
}

/// On small devices of its own, so that they fill quickly; afterwards they must still prove sound.
pub fn full(job: &Job) -> Result<()> {
    let small = Shape { device_size: "512M".into(), ..Shape::default() };
    let subject = job.world.subject(job.subject.kind, "small", &small)?;
    let mut command = Command::new(&job.world.binaries.bench);
    command.arg("fill").arg(&subject.mount_point).args(["--seed", &job.seed.to_string()]);
    let filled = capture(command.args(["--rounds", &(4 * job.times).to_string()]), 60 * MINUTE);
    filled.and_then(|_| end(&subject)).inspect_err(|_| subject.show_logs())
}
