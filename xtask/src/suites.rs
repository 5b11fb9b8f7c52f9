//! The suites on a real mount: other people's tests, our comparisons, real programs, and `kill -9`.
//!
//! A suite gets a mounted `Subject` and fails if anything is not as on a local file system. Every suite can be pointed at
//! a peer too (`cargo xtask suite NAME --on ext4`), which is how we know that it is the file system that fails.

mod conformance;
mod crash;
mod programs;

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::cleanup::Place;
use crate::error::{At, Result};
use crate::packages;
use crate::subject::{Binaries, Kind, Shape, Subject};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    Pjdfstest,
    Fsx,
    FsxShort,
    FsxNoMmap,
    Differential,
    Race,
    Limits,
    MillionNames,
    Full,
    KillLoop,
    Sqlite,
    Git,
    Rsync,
    Build,
}

impl Suite {
    pub const ALL: [Suite; 14] = [
        Suite::Pjdfstest,
        Suite::Fsx,
        Suite::FsxShort,
        Suite::FsxNoMmap,
        Suite::Differential,
        Suite::Race,
        Suite::Limits,
        Suite::MillionNames,
        Suite::Full,
        Suite::KillLoop,
        Suite::Sqlite,
        Suite::Git,
        Suite::Rsync,
        Suite::Build,
    ];

    /// What CI runs. Not among them, but in `soak`: what takes long (fsx with mmap, a build, a million names).
    pub const CI: [Suite; 10] = [
        Suite::Pjdfstest,
        Suite::FsxNoMmap,
        Suite::Differential,
        Suite::Race,
        Suite::Limits,
        Suite::Full,
        Suite::KillLoop,
        Suite::Sqlite,
        Suite::Git,
        Suite::Rsync,
    ];

    pub fn describe(self) -> &'static str {
        match self {
            Suite::Pjdfstest => "pjdfstest, all tests",
            Suite::Fsx => "fsx, 200,000 operations with mmap",
            Suite::FsxShort => "fsx, 20,000 operations with mmap",
            Suite::FsxNoMmap => "fsx, 200,000 operations without mmap",
            Suite::Differential => "differential run against ext4",
            Suite::Race => "eight at once on a few names",
            Suite::Limits => "large directories, long names, far offsets, file handles",
            Suite::MillionNames => "a directory of a million names, beside ext4",
            Suite::Full => "filled to the last byte, emptied, filled again",
            Suite::KillLoop => "synced writes and renames through kill -9",
            Suite::Sqlite => "SQLite (WAL, synchronous=FULL) through kill -9",
            Suite::Git => "git clone, commit, gc and fsck",
            Suite::Rsync => "rsync -aHAX there and back",
            Suite::Build => "cargo build of these sources",
        }
    }

    fn run(self, job: &Job) -> Result<()> {
        match self {
            Suite::Pjdfstest => conformance::pjdfstest(job),
            Suite::Fsx => conformance::fsx(job),
            Suite::FsxShort => conformance::fsx_short(job),
            Suite::FsxNoMmap => conformance::fsx_without_mmap(job),
            Suite::Differential => conformance::differential(job),
            Suite::Race => conformance::race(job),
            Suite::Limits => conformance::limits(job),
            Suite::MillionNames => conformance::million_names(job),
            Suite::Full => conformance::full(job),
            Suite::KillLoop => crash::kill_loop(job),
            Suite::Sqlite => crash::sqlite(job),
            Suite::Git => programs::git(job),
            Suite::Rsync => programs::rsync(job),
            Suite::Build => programs::build(job),
        }
    }
}

/// What all suites of a run share: the sources, the built programs, a folder that is cleaned up at the end.
pub struct World {
    pub root: PathBuf,
    pub binaries: Binaries,
    pub place: Place,
}

impl World {
    pub fn new(root: &Path) -> Result<Self> {
        Ok(World { root: root.to_owned(), binaries: Binaries::build(root, false)?, place: Place::new(root)? })
    }

    pub fn subject(&self, kind: Kind, folder: &str, shape: &Shape) -> Result<Subject> {
        let directory = self.place.directory.join(folder);
        fs::create_dir_all(&directory).at("mkdir", &directory)?;
        Subject::new(kind, &directory, shape, &self.binaries)
    }
}

/// Every suite ends so: the devices, unmounted, must prove sound.
fn end(subject: &Subject) -> Result<()> {
    subject.unmount()?;
    subject.check()
}

/// One suite's work: where, on what, and which seed.
struct Job<'a> {
    world: &'a World,
    subject: &'a Subject,
    seed: u64,
    times: u64,
    /// A folder on the disk of the sources, not on the subject.
    scratch: PathBuf,
}

pub fn run_on_stere(world: &World, suite: Suite, seed: u64) -> Result<()> {
    run_on(world, suite, Kind::StereMirror, seed, 1)
}

pub fn run_one(root: &Path, suite: Suite, kind: Kind, seed: u64, times: u64) -> Result<()> {
    packages::require_root_and_fuse()?;
    let world = World::new(root)?;
    run_on(&world, suite, kind, seed, times)?;
    println!("{} on {}: ok", suite.describe(), kind.name());
    Ok(())
}

fn run_on(world: &World, suite: Suite, kind: Kind, seed: u64, times: u64) -> Result<()> {
    let shape = Shape { device_size: "4G".into(), ..Shape::default() };
    // Suites may run beside each other.
    let subject = world.subject(kind, &format!("subject-{suite:?}"), &shape)?;
    let scratch = world.place.directory.join(format!("scratch-{suite:?}"));
    fs::create_dir_all(&scratch).at("mkdir", &scratch)?;
    let result = suite.run(&Job { world, subject: &subject, seed, times, scratch: scratch.clone() });
    let _ = fs::remove_dir_all(&scratch);
    result.and_then(|()| end(&subject)).inspect_err(|_| subject.show_logs())
}
