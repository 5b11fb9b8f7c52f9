//! `cargo xtask bench`: stere and its peers on equal image files on the same disk, the same work in turn, as ratios.
//!
//! One turn is one workload on one file system made fresh; rounds go through all file systems before they start again, so
//! that a slow minute of the machine hits all of them. Printed are medians, spreads and ratios, never a number alone.
//! Read next: `bench/compare.rs` (turns and rounds), `bench/report.rs` (tables and bars), `bench/special.rs` (recovery, memory).

mod bars;
mod compare;
mod isolation;
mod plot;
mod rebuild;
mod report;
mod special;
mod statistics;
#[cfg(test)]
mod tests;

use std::path::Path;

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
    /// Creates, stats and cached reads beside a file system that keeps nothing, through the same front end.
    Null,
    /// From `kill -9` with a full journal to the first byte read, with few and with many files.
    Recovery,
    /// What the process holds while three million files are created and found.
    Memory,
    /// How many files are left when devices are lost: figures 5 and 6 of the Loris paper.
    Isolation,
    /// How fast a lost device is rebuilt, a tenth and eight tenths full, and what that leaves to readers.
    Rebuild,
}

#[derive(Debug, clap::Args)]
pub struct BenchArguments {
    #[arg(default_value = "all")]
    pub name: BenchName,
    /// An eighth of the work: to see that everything runs, not to measure.
    #[arg(long)]
    pub quick: bool,
    /// Rounds; the median is taken over them.
    #[arg(long, default_value_t = 5)]
    pub runs: usize,
    /// Only these file systems.
    #[arg(long, value_delimiter = ',')]
    pub subjects: Vec<Kind>,
    /// Mount options for stere.
    #[arg(long, default_value = "")]
    pub options: String,
    /// Files for the memory and recovery benches, instead of 3,000,000 and 1,000,000.
    #[arg(long)]
    pub files: Option<u64>,
    /// Keep the result in `bench/published`, which is in the repository, and not only in `bench/results`.
    #[arg(long)]
    pub publish: bool,
}

pub fn run(root: &Path, arguments: &BenchArguments) -> Result<()> {
    if !is_root() {
        return Err(XtaskError::found("the benches mount file systems and drop caches: run as root"));
    }
    if arguments.runs == 0 {
        return Err(XtaskError::found("--runs must be at least 1"));
    }
    match arguments.name {
        BenchName::Recovery => special::recovery(root, arguments),
        BenchName::Memory => special::memory(root, arguments),
        BenchName::Isolation => isolation::run(root, arguments),
        BenchName::Rebuild => rebuild::run(root, arguments),
        _ => compare::run(root, arguments),
    }
}
