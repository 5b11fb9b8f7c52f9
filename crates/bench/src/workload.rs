//! The workloads: a folder is made, work is timed in it phase by phase, what can be checked is, the folder is removed.
//!
//! Rules: a phase that claims durability has its fsync or syncfs inside the time; a cold phase starts after `Cold::make`;
//! full comparison of data stays outside the time, stamps are compared inside. Read next: one file per group of phases.

mod aged;
mod build;
mod database;
mod front_end;
pub(crate) mod large_object;
mod postgres;
mod postmark;
mod random;
mod records;
pub(crate) mod sequential;
mod several;
mod small_files;
mod sweep;
mod tree;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::cold::Cold;
use crate::error::{At, BenchError};
use crate::pattern::Pattern;
use crate::report::{Metric, Report, Spent, Stopwatch};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// 1 GiB written in pieces of 1 MiB with one fsync, read cold, read warm.
    Sequential,
    /// Cold reads of 4 KiB in a file of 1 GiB, by 16 threads and by one.
    RandomRead,
    /// Writes of 4 KiB in a file of 1 GiB, with an fsync every 32 writes and with one at the end.
    RandomWrite,
    /// 10,000 files of 4 KiB in 100 directories: create, stat, read, delete; 2,000 files each with its fsync.
    SmallFiles,
    /// A tree like a source repository: untar, find, grep, copy, rm.
    Tree,
    /// Sequential requests of 512 bytes to 16 MiB by one client and by eight.
    Sweep,
    /// PostMark-like transactions on small files and on larger ones.
    Postmark,
    /// 8 writers at once, each to its own file and all to one; 8 threads that read 70 and write 30 of 100 blocks.
    Several,
    /// A large object (HighLight): 51.2 MB in frames of 4 KiB, read and replaced in order, at random and 80/20.
    LargeObject,
    /// SQLite: inserts in transactions of 1 and of 1,000 rows, with a write-ahead log and with a rollback journal.
    Database,
    /// One file in records of 128 KiB, as IOZone does it: in order, backwards, strided and at random; 10,000 empty files.
    Records,
    /// Copy, build, look through and delete a tree of C sources (Loris).
    Build,
    /// PostgreSQL: pgbench's transactions by four clients.
    Postgres,
    /// Filled to 80 % and then changed at random for as much again; streams and small files on what is left.
    Aged,
    /// Names, attributes and cached reads with nothing synced or checked, for file systems that keep nothing.
    FrontEnd,
}

impl Workload {
    pub fn run(self, run: &Run) -> Result<Report, BenchError> {
        run.prepare()?;
        let (workload, metrics) = match self {
            Workload::Sequential => ("sequential", sequential::run(run)),
            Workload::RandomRead => ("random-read", random::run_reads(run)),
            Workload::RandomWrite => ("random-write", random::run_writes(run)),
            Workload::SmallFiles => ("small-files", small_files::run(run)),
            Workload::Tree => ("tree", tree::run(run)),
            Workload::Sweep => ("sweep", sweep::run(run)),
            Workload::Postmark => ("postmark", postmark::run(run)),
            Workload::Several => ("several", several::run(run)),
            Workload::LargeObject => ("large-object", large_object::run(run)),
            Workload::Database => ("database", database::run(run)),
            Workload::Records => ("records", records::run(run)),
            Workload::Build => ("build", build::run(run)),
            Workload::Postgres => ("postgres", postgres::run(run)),
            Workload::Aged => ("aged", aged::run(run)),
            Workload::FrontEnd => ("front-end", front_end::run(run)),
        };
        let metrics = metrics?;
        run.clean()?;
        Ok(Report { workload, seed: run.seed, divided_by: run.divide, cold: run.cold.description(), metrics })
    }
}

/// Everything a workload needs to know of its surroundings.
pub struct Run {
    pub directory: PathBuf,
    pub scratch: PathBuf,
    pub seed: u64,
    /// Amounts of work are divided by this.
    pub divide: u64,
    pub cold: Cold,
    pub pattern: Pattern,
}

impl Run {
    pub fn new(directory: &Path, scratch: PathBuf, seed: u64, divide: u64, cold: Cold) -> Self {
        let directory = directory.join("stere-bench-work");
        Run { directory, scratch, seed, divide: divide.max(1), cold, pattern: Pattern::new(seed) }
    }

    /// The amount for a full run, or the part of it that was asked for.
    pub fn scaled(&self, amount: u64) -> u64 {
        amount / self.divide
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn time<T>(&self, work: impl FnOnce() -> Result<T, BenchError>) -> Result<(Spent, T), BenchError> {
        let stopwatch = Stopwatch::start();
        let result = work()?;
        Ok((stopwatch.stop(), result))
    }

    /// All data and names of the file system under test are durable when this returns.
    pub fn sync_file_system(&self) -> Result<(), BenchError> {
        sync_file_system(&self.directory)
    }

    fn prepare(&self) -> Result<(), BenchError> {
        if self.directory.exists() {
            self.clean()?;
        }
        fs::create_dir(&self.directory).at("mkdir", &self.directory)
    }

    fn clean(&self) -> Result<(), BenchError> {
        fs::remove_dir_all(&self.directory).at("remove", &self.directory)?;
        // SAFETY: sync takes no argument and cannot fail.
        unsafe { libc::sync() };
        Ok(())
    }
}

/// All data and names of the file system that the directory is on are durable when this returns.
pub fn sync_file_system(directory: &Path) -> Result<(), BenchError> {
    let opened = File::open(directory).at("open", directory)?;
    // SAFETY: the descriptor is open for the whole call.
    let result = unsafe { libc::syncfs(opened.as_raw_fd()) };
    let outcome = if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
    outcome.at("syncfs", directory)
}

/// Does the work with each number below `threads` at once, and returns what came of each.
fn in_parallel<T: Send>(
    threads: u64,
    work: impl Fn(u64) -> Result<T, BenchError> + Sync,
) -> Result<Vec<T>, BenchError> {
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        workers.into_iter().map(join).collect()
    })
}

/// A phase whose effect is on stable storage.
const SYNCED: &str = "everything: fsync or syncfs is inside the time";

fn cold(metric: Metric) -> Metric {
    metric.cached("nothing (cold)")
}

fn warm(metric: Metric) -> Metric {
    metric.cached("whatever the phase before left")
}
