//! `cargo xtask`: the developer commands, test, sim, bench, soak, tidy, house, quick and reference.
//!
//! Read next: `test.rs` (what CI runs), `suites.rs` (the suites on a real mount), `bench.rs` (the benches).

mod bench;
mod cleanup;
mod command;
mod error;
mod house;
mod packages;
mod quick;
mod reference;
mod simulator;
mod soak;
mod steps;
mod subject;
mod suites;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::bench::BenchArguments;
use crate::error::Result;
use crate::subject::Kind;
use crate::suites::Suite;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Developer commands of stere.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything CI runs, in order.
    Test {
        /// Only the steps with these words in their name, such as "planted" or "on a mount".
        #[arg(long)]
        only: Option<String>,
    },
    /// The simulator: histories with crashes and faults against the real stack; replays a seed.
    Sim {
        /// Given to the simulator as they are: --seed N, --histories N, --steps N.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The benches, beside the peers that are installed, as ratios.
    Bench(BenchArguments),
    /// The real-mount suites and the simulator, again and again with fresh seeds.
    Soak {
        #[arg(long)]
        minutes: u64,
        /// The first seed; the next rounds count on from it. Default: from the clock.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Checks of the source itself: heads of files, lengths, words, documents, commits, promises.
    Tidy {
        /// Lowers the accepted counts of old words to today's; never raises one.
        #[arg(long)]
        record: bool,
    },
    /// Figures of the structure, each with its goal; fails when one is worse than `xtask/house.toml` records.
    House {
        /// Lowers the recorded figures to today's; never raises one.
        #[arg(long)]
        record: bool,
        /// Fails while a goal is missed.
        #[arg(long)]
        strict: bool,
    },
    /// Formatting, unit tests and clippy of the crates that differ from main, and whether what depends on them compiles.
    Quick {
        /// Only this crate, by its name or its folder's, such as `tree`.
        name: Option<String>,
    },
    /// Writes the manual's command reference from the command's own help.
    Reference {
        /// Only compares, and fails when the page differs.
        #[arg(long)]
        check: bool,
    },
    /// One suite on one file system: to try a suite on a peer, or to run one on stere alone.
    Suite {
        suite: Suite,
        #[arg(long, default_value = "stere-mirror")]
        on: Kind,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// More than the suite's usual amount of work.
        #[arg(long, default_value_t = 1)]
        times: u64,
    },
}

fn main() -> ExitCode {
    cleanup::on_signals();
    let result = execute(Arguments::parse().command);
    cleanup::wait_if_interrupted();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn execute(command: Command) -> Result<()> {
    let root = workspace_root();
    match command {
        Command::Test { only } => test::run(&root, only),
        Command::Sim { arguments } => simulator::run(&root, &arguments),
        Command::Bench(arguments) => bench::run(&root, &arguments),
        Command::Soak { minutes, seed } => soak::run(&root, minutes, seed),
        Command::Tidy { record } => tidy::run(&root, record),
        Command::Quick { name } => quick::run(&root, name.as_deref()),
        Command::Reference { check } => reference::run(&root, check),
        Command::House { record, strict } => house::run(&root, record, strict),
        Command::Suite { suite, on, seed, times } => suites::run_one(&root, suite, on, seed, times),
    }
}

/// The folder that holds the workspace: where the sources of this program were when it was built.
fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.to_owned(), Path::to_owned)
}
