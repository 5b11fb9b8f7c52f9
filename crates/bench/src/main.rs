//! `stere-bench`: work to be done in a directory of any file system, so that file systems can be compared.
//!
//! It knows nothing of stere: the same program with the same seed runs on ext4, mergerfs or a stere mount. Every part
//! is deterministic from its seed and checks what it reads back. Read next: `workload.rs` (what is timed and how).

mod acknowledge;
mod coherence;
#[cfg(test)]
#[path = "coherence/tests.rs"]
mod coherence_tests;
mod cold;
mod delay;
mod differential;
mod error;
mod fill;
mod frames;
mod limits;
mod many;
mod pattern;
mod race;
mod relay;
mod report;
mod switch;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::acknowledge::Promise;
use crate::coherence::Plant;
use crate::cold::Cold;
use crate::differential::Plan;
use crate::error::{At, BenchError};
use crate::switch::{End, Switch};
use crate::workload::{Run, Workload};

#[derive(Parser)]
#[command(name = "stere-bench", about = "Timed and checked work in a directory of any file system.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run one workload in DIR and print its metrics as one line of JSON.
    Run {
        /// What to run.
        workload: Workload,
        /// An existing directory on the file system to be measured; a folder of our own is made in it and removed.
        directory: PathBuf,
        /// The data and the order of the random operations follow from it.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only this part of the work: 8 is enough to see that everything runs.
        #[arg(long, default_value_t = 1)]
        divide: u64,
        /// Shell command that remounts the file system before every cold phase, for daemons that cache by themselves.
        #[arg(long)]
        cold_hook: Option<String>,
        /// Where the archive for the tree workload is made: another, fast file system.
        #[arg(long)]
        scratch: Option<PathBuf>,
    },
    /// Create very many small files and say how long it took, to see what the file system keeps in memory.
    Many {
        directory: PathBuf,
        #[arg(long)]
        files: u64,
        #[arg(long, default_value_t = 0)]
        size: usize,
        /// Make only the folders that they belong in.
        #[arg(long)]
        only_folders: bool,
    },
    /// What the file system does per second among the files that `many` made, cold, as one line of JSON.
    Sample {
        directory: PathBuf,
        /// Files and their size as they were given to `many`.
        #[arg(long)]
        files: u64,
        #[arg(long, default_value_t = 0)]
        size: usize,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long)]
        cold_hook: Option<String>,
    },
    /// The large object of the papers: FILE of 12,500 frames, read and replaced in several orders; seconds of each part.
    Frames {
        file: PathBuf,
        /// Only make the file.
        #[arg(long)]
        make: bool,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Read FILE once, and tell when its first byte came, and all of it.
    Delay { file: PathBuf },
    /// Be a long way to the server at HOST:PORT: print a port of this machine whose connections go there, and serve them until killed.
    Relay {
        /// HOST:PORT.
        to: String,
        /// What anything takes in one direction.
        #[arg(long, default_value_t = 10)]
        delay_ms: u64,
    },
    /// Be a cable with a delay between two network namespaces: make a TAP device at each end, and carry frames until killed.
    Switch {
        /// NAMESPACE:DEVICE
        one: String,
        /// NAMESPACE:DEVICE
        other: String,
        /// What a frame takes in one direction.
        #[arg(long, default_value_t = 100)]
        delay_us: u64,
    },
    /// Fill the file system in DIR, remove, fill again, and check that data and space are as they must be.
    Fill {
        directory: PathBuf,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 4)]
        rounds: u64,
    },
    /// Check large directories, unusual names, far offsets and file handles.
    Limits {
        directory: PathBuf,
        /// Entries of the large directory.
        #[arg(long, default_value_t = 100_000)]
        entries: u64,
    },
    /// Several at once on a few names: every answer must be one that a local file system could give.
    Race {
        directory: PathBuf,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 5)]
        seconds: u64,
    },
    /// Write and read in several directories, which are one on the mounts of several machines: what one writes the others see.
    Coherence {
        #[arg(required = true, num_args = 2..)]
        directories: Vec<PathBuf>,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// End when so many reads were judged.
        #[arg(long, default_value_t = u64::MAX)]
        reads: u64,
        /// Make some changes wrong, to see that it is found.
        #[arg(long)]
        plant: Option<Plant>,
        /// Allow that an append is seen growing, as on ext4.
        #[arg(long)]
        grows_in_parts: bool,
    },
    /// Write, sync and note in LOG what was acknowledged, until the file system dies.
    Acknowledge {
        directory: PathBuf,
        /// On another file system.
        log: PathBuf,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 3)]
        threads: u64,
        /// What makes a change durable before it is acknowledged.
        #[arg(long, default_value = "fsync")]
        promise: Promise,
        /// Stop after so many operations of every thread.
        #[arg(long, default_value_t = u64::MAX)]
        operations: u64,
    },
    /// Check that everything that LOG says was acknowledged is there.
    Verify {
        directory: PathBuf,
        log: PathBuf,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Do the same random operations in both directories, and report the first difference.
    Differential {
        first: PathBuf,
        second: PathBuf,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 20_000)]
        operations: u64,
        /// Compare the whole trees every so many steps; 1 names the operation that made the difference, and is slow.
        #[arg(long, default_value_t = 500)]
        check_every: u64,
        /// Print every operation from this step on.
        #[arg(long)]
        show_from: Option<u64>,
        /// Change something on one side after this step, to see that it is found.
        #[arg(long)]
        plant: Option<u64>,
    },
}

fn main() -> ExitCode {
    match execute(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stere-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn execute(command: Command) -> Result<(), BenchError> {
    match command {
        Command::Run { workload, directory, seed, divide, cold_hook, scratch } => {
            let scratch = scratch.unwrap_or_else(std::env::temp_dir);
            let run = Run::new(&directory, scratch, seed, divide, Cold::new(cold_hook));
            let report = workload.run(&run)?;
            println!("{}", report.to_json());
            Ok(())
        }
        Command::Many { directory, files, size, only_folders } => {
            if only_folders {
                return many::create_folders(&directory, files);
            }
            println!("{}", many::create(&directory, files, size)?);
            Ok(())
        }
        Command::Sample { directory, files, size, seed, cold_hook } => {
            println!("{}", many::sample(&directory, files, size, seed, &Cold::new(cold_hook))?);
            Ok(())
        }
        Command::Frames { file, make, seed } => {
            println!("{}", if make { frames::make(&file, seed)? } else { frames::work(&file, seed)? });
            Ok(())
        }
        Command::Delay { file } => {
            println!("{}", delay::run(&file)?);
            Ok(())
        }
        Command::Relay { to, delay_ms } => {
            relay::run(&to, std::time::Duration::from_millis(delay_ms), |address| println!("{address}"))
        }
        Command::Switch { one, other, delay_us } => run_switch(&one, &other, delay_us),
        Command::Fill { directory, seed, rounds } => {
            println!("{}", fill::run(&directory, seed, rounds)?);
            Ok(())
        }
        Command::Limits { directory, entries } => {
            println!("{}", limits::run(&directory, entries)?);
            Ok(())
        }
        Command::Race { directory, seed, seconds } => {
            println!("{}", race::run(&directory, seed, seconds)?);
            Ok(())
        }
        Command::Coherence { directories, seed, seconds, reads, plant, grows_in_parts } => {
            let time = std::time::Duration::from_secs(seconds);
            let held_max = coherence::HELD_MAX;
            let plan = coherence::Plan { seed, time, reads_max: reads, plant, grows_in_parts, held_max };
            println!("{}", coherence::run(&directories, plan).map_err(BenchError::Incoherent)?);
            Ok(())
        }
        Command::Acknowledge { directory, log, seed, threads, promise, operations } => {
            let count = acknowledge::write(&directory, &log, promise, seed, threads, operations)?;
            println!("{count} operations acknowledged");
            Ok(())
        }
        Command::Verify { directory, log, seed } => {
            let count = acknowledge::verify(&directory, &log, seed)?;
            println!("{count} acknowledged operations are there");
            Ok(())
        }
        Command::Differential { first, second, seed, operations, check_every, show_from, plant } => {
            let check_every = check_every.max(1);
            let plan = Plan { seed, operations, check_every, show_from, planted_at: plant };
            differential::run(&first, &second, plan)?;
            println!("seed {seed}: {operations} operations, no difference");
            Ok(())
        }
    }
}

fn run_switch(one: &str, other: &str, delay_us: u64) -> Result<(), BenchError> {
    let end = |text: &str| End::parse(text).at("find the network namespace and device", text.as_ref());
    let delay = std::time::Duration::from_micros(delay_us);
    let mut switch = Switch::between([&end(one)?, &end(other)?], delay).at("make a cable from", one.as_ref())?;
    println!("ready");
    switch.wait();
    Ok(())
}
