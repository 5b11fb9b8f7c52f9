//! What can be typed about backups.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Name a directory outside the pool, empty, to which files with the policy backup=yes are copied
    Add {
        pool: String,
        /// How it is called
        name: String,
        /// dir:/PATH[,every=1d][,keep=10]: how often it is brought up to date (if not given, when somebody asks), and how many earlier
        /// states are kept there
        #[arg(value_name = "DESTINATION")]
        place: String,
        /// Of the chosen files only those for which this search holds, as for `stere find`
        #[arg(long, value_name = "SEARCH", default_value = "")]
        only: String,
        /// The directory is a destination already, of this pool: go on with it
        #[arg(long)]
        adopt: bool,
    },
    /// Forget a destination; what lies there stays
    Remove { pool: String, name: String },
    /// Bring destinations up to date now
    Run {
        pool: String,
        /// All of them if not given
        name: Option<String>,
        /// Return when it is done
        #[arg(long)]
        wait: bool,
    },
    /// Where backups go, when they were complete last, what could not be copied
    Status {
        pool: String,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Read every copy and compare it with what was written; bad ones are copied again by the next run
    Verify(BackupPlace),
    /// The states that can be restored, and with --files what is in one
    List {
        #[command(flatten)]
        place: BackupPlace,
        /// The state until this run, instead of the latest
        #[arg(long, value_name = "MOMENT")]
        until: Option<String>,
        /// Every file with its size
        #[arg(long)]
        files: bool,
    },
    /// Copy files back; every copy is proven before it gets its name
    Restore {
        #[command(flatten)]
        place: BackupPlace,
        /// Only this file, or what is below this directory: its path from the root of the pool
        #[arg(long, value_name = "PATH")]
        path: Option<PathBuf>,
        /// Into this directory
        #[arg(long, value_name = "DIRECTORY")]
        to: PathBuf,
        /// The state until this run, instead of the latest
        #[arg(long, value_name = "MOMENT")]
        until: Option<String>,
        /// Replace files that are there
        #[arg(long)]
        overwrite: bool,
        /// Restore this too, which is left out because it may be meant to harm: owners, setid, or all
        #[arg(long, value_name = "WHAT", value_delimiter = ',')]
        preserve: Vec<crate::arguments::preserve::Preserve>,
    },
}

#[derive(Debug, Args)]
pub struct BackupPlace {
    /// A pool that is mounted, or the directory of a backup, for which no pool is needed
    #[arg(value_name = "POOL|DIRECTORY")]
    pub place: String,
    /// Of a pool with several destinations: which of them
    pub name: Option<String>,
}
