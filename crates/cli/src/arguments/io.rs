//! What can be typed about the load.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// A pool, or a directory of one: what is below that is counted for itself from the first question on.
#[derive(Debug, Args)]
pub struct IoSubject {
    /// A mounted pool, or a directory on its mount; what is below a directory is counted for itself from the first question on
    #[arg(value_name = "POOL|DIRECTORY")]
    pub subject: String,
}

#[derive(Debug, Subcommand)]
pub enum IoCommand {
    /// Show what was asked of a pool since it was mounted: calls, sizes, order, latencies, dependence
    Stat {
        #[command(flatten)]
        of: IoSubject,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the same as tables, or write pictures of it (SVG) into a directory
    Show {
        /// A mounted pool, a directory on its mount, or a file with a trace
        #[arg(value_name = "POOL|DIRECTORY|TRACE")]
        of: String,
        /// Write the pictures here; the directory is made if it is missing
        #[arg(long, value_name = "DIRECTORY")]
        svg: Option<PathBuf>,
    },
    /// Say what follows for policy, and why; changes nothing
    Advise {
        #[command(flatten)]
        of: IoSubject,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a trace of all calls into a new file, on the machine of the pool's daemon
    Record {
        pool: String,
        /// A new file
        #[arg(required_unless_present = "stop")]
        file: Option<PathBuf>,
        /// For so many seconds
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// The largest that the file may get
        #[arg(long, value_name = "SIZE", value_parser = stere_machine::size::parse, default_value = "1G")]
        size: u64,
        /// What of names comes into it
        #[arg(long, value_enum, default_value_t = TracedNames::Plain)]
        names: TracedNames,
        /// End the trace that is being recorded
        #[arg(long, conflicts_with = "file")]
        stop: bool,
        /// Return when it is complete
        #[arg(long)]
        wait: bool,
    },
    /// Convert a trace: between its own form, a plain table (.tsv) and the text of darshan-dxt-parser (.dxt)
    Convert { from: PathBuf, to: PathBuf },
}

/// What of names comes into a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TracedNames {
    Plain,
    /// Hashed under a key that nobody keeps
    Hashed,
    None,
}
