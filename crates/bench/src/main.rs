//! `stere-bench`: work to be done in a directory of any file system, so that file systems can be compared.
//!
//! It knows nothing of stere: the same program with the same seed runs on ext4, mergerfs or a stere mount. Every part
//! is deterministic from its seed and checks what it reads back. Read next: `workload.rs` (what is timed and how).

mod cold;
mod error;
mod pattern;
mod report;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cold::Cold;
use crate::error::BenchError;
use crate::workload::{Run, Workload};

#[derive(Parser)]
#[command(
    name = "stere-bench",
    about = "Timed and checked work in a directory of any file system."
)]
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
        /// An eighth of the work: to see that everything runs, not to measure.
        #[arg(long)]
        quick: bool,
        /// Shell command that remounts the file system before every cold phase, for daemons that cache by themselves.
        #[arg(long)]
        cold_hook: Option<String>,
        /// Where the archive for the tree workload is made: another, fast file system.
        #[arg(long)]
        scratch: Option<PathBuf>,
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
        Command::Run {
            workload,
            directory,
            seed,
            quick,
            cold_hook,
            scratch,
        } => {
            let scratch = scratch.unwrap_or_else(std::env::temp_dir);
            let run = Run::new(&directory, scratch, seed, quick, Cold::new(cold_hook));
            let report = workload.run(&run)?;
            println!("{}", report.to_json());
            Ok(())
        }
    }
}
