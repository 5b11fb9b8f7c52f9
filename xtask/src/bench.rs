//! `cargo xtask bench`: stere and its peers on equal image files on the same disk, the same work in turn, as ratios.
//!
//! One turn is one workload on one file system made fresh; rounds go through all file systems before they start again, so
//! that a slow minute of the machine hits all of them. Printed are medians, spreads and ratios, never a number alone.
//! Read next: `bench/compare.rs` (turns and rounds), `bench/report.rs` (tables and bars), `bench/special.rs` (recovery, memory).

mod amplification;
mod bars;
mod cases;
mod checksums;
mod compare;
mod disks;
mod files;
mod highlight;
mod isolation;
mod library;
mod plot;
mod ratios;
mod rebuild;
mod redundancy;
mod repair;
mod report;
mod special;
mod statistics;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::error::{Result, XtaskError};
use crate::packages::is_root;
use crate::subject::Kind;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchName {
    /// All workloads beside all peers.
    All,
    Sequential,
    RandomRead,
    RandomWrite,
    SmallFiles,
    Tree,
    /// Sequential requests of 512 bytes to 16 MiB, by one client and by eight (Sawmill), drawn.
    Sweep,
    /// PostMark-like mixes of small and of larger files.
    Postmark,
    /// Two copies beside btrfs raid1 and 2+1 beside btrfs raid5: all but trees.
    Raid,
    /// The other file systems in user space, on one device and on three.
    Peers,
    /// 8 writers, and 8 threads that read and write 70/30.
    Several,
    /// HighLight's large object: in order, at random, 80/20, read and replaced.
    LargeObject,
    /// SQLite: transactions of 1 and of 1,000 rows, with both kinds of journal; PostgreSQL's pgbench with four clients.
    Database,
    /// Filled to 80 % and then changed at random for as much again: streams and small files on what is left.
    Aged,
    /// One file in records of 128 KiB, in order, backwards, strided and at random (IOZone, as ATTEST ran it); empty files.
    Records,
    /// Copy, build, look through and delete C sources (Loris's application-level set).
    Build,
    /// Creates, stats and cold reads per second among 10,000 to 10,000,000 files, and the memory for it.
    Files,
    /// Device bytes for each user byte, fresh and aged, for both cleaner policies, drawn.
    Amplification,
    /// Creates, stats and cached reads beside a file system that keeps nothing, through the same front end.
    Null,
    /// What is missed beside file systems in the kernel, beside one behind our front end that only keeps things in its memory.
    Ceiling,
    /// From `kill -9` with a full journal to the first byte read, with few and with many files.
    Recovery,
    /// What the process holds while three million files are created and found.
    Memory,
    /// How many files are left when devices are lost: figures 5 and 6 of the Loris paper.
    Isolation,
    /// How fast a lost device is rebuilt, a tenth and eight tenths full, and what that leaves to readers.
    Rebuild,
    /// Five devices, 4+1 beside 5+0, and 4+1 with a device lost.
    Redundancy,
    /// What checksums cost: beside a build that computes and verifies none.
    Checksums,
    /// What damage costs a reader (Loris, table 1), and how fast scrubbing is.
    Repair,
    /// One file through the library, directly, through the mount, and the bare image.
    Library,
    /// Measures nothing: draws the ratios of what is published, for docs/performance.
    Ratios,
    /// Measures nothing: draws HighLight's tables beside what is published.
    Highlight,
}

/// What image files lie on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Images {
    Disk,
    Memory,
}

#[derive(Debug, clap::Args)]
pub struct BenchArguments {
    #[arg(default_value = "all")]
    pub name: BenchName,
    /// An eighth of the work: to see that everything runs, not to measure.
    #[arg(long)]
    pub quick: bool,
    /// Only this part of the work in a comparison of file systems, for measurements that must be short.
    #[arg(long, default_value_t = 1)]
    pub divide: u64,
    /// Rounds; the median is taken over them.
    #[arg(long, default_value_t = 5)]
    pub runs: usize,
    /// Most time for the comparison of file systems, shared by its workloads; fewer rounds are made when it is over.
    #[arg(long, default_value_t = 30)]
    pub minutes: u32,
    /// Only these file systems.
    #[arg(long, value_delimiter = ',')]
    pub subjects: Vec<Kind>,
    /// Only these workloads of a comparison; the result's name tells them.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Stere works on its image files and not, like its peers, on loop devices over them.
    #[arg(long)]
    pub stere_on_files: bool,
    /// Mount options for stere.
    #[arg(long, default_value = "")]
    pub options: String,
    /// Where the image files lie: on the disk this is run from, or in memory, where only processors limit.
    #[arg(long, default_value = "disk")]
    pub images: Images,
    /// Files for the memory and recovery benches, instead of 3,000,000 and 1,000,000.
    #[arg(long)]
    pub files: Option<u64>,
    /// For the benches of recovery and of many files: their pools stay in this folder, and those that an earlier run left there are used.
    #[arg(long)]
    pub prepared: Option<PathBuf>,
    /// Make what belongs in the folder above, and measure nothing.
    #[arg(long, requires = "prepared")]
    pub prepare: bool,
    /// Keep the result in `bench/published`, which is in the repository, and not only in `bench/results`.
    #[arg(long)]
    pub publish: bool,
}

impl BenchArguments {
    /// What the amounts of work are divided by.
    pub fn divisor(&self) -> u64 {
        if self.quick { 8 } else { self.divide.max(1) }
    }

    pub fn wants(&self, workload: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == workload)
    }
}

pub fn run(root: &Path, arguments: &BenchArguments) -> Result<()> {
    if arguments.name == BenchName::Ratios {
        return ratios::run(root);
    }
    if arguments.name == BenchName::Highlight {
        return highlight::run(root);
    }
    if !is_root() {
        return Err(XtaskError::found("the benches mount file systems and drop caches: run as root"));
    }
    if arguments.runs == 0 {
        return Err(XtaskError::found("--runs must be at least 1"));
    }
    match arguments.name {
        BenchName::Recovery => special::recovery(root, arguments),
        BenchName::Memory => special::memory(root, arguments),
        BenchName::Files => files::run(root, arguments),
        BenchName::Isolation => isolation::run(root, arguments),
        BenchName::Rebuild => rebuild::run(root, arguments),
        BenchName::Redundancy => redundancy::run(root, arguments),
        BenchName::Checksums => checksums::run(root, arguments),
        BenchName::Amplification => amplification::run(root, arguments),
        BenchName::Repair => repair::run(root, arguments),
        BenchName::Library => library::run(root, arguments),
        _ => compare::run(root, arguments),
    }
}
