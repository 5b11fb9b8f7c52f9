//! What can be typed about backups.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Add an empty directory outside the pool, to which files with the policy backup=yes are copied
    Add {
        pool: String,
        /// Its name
        name: String,
        /// dir:/PATH[,every=1d][,keep=10]: how often it is brought up to date (without it only by `backup run`), and how many
        /// earlier states are kept there
        #[arg(value_name = "DESTINATION")]
        place: String,
        /// Copy only those of the chosen files that match this search, as for `stere find`
        #[arg(long, value_name = "SEARCH", default_value = "")]
        only: String,
        /// Continue with a directory that is a destination of this pool already
        #[arg(long)]
        adopt: bool,
    },
    /// Forget a destination; the files in it stay
    Remove { pool: String, name: String },
    /// Bring destinations up to date now
    Run {
        pool: String,
        /// The destination; without it all of them
        name: Option<String>,
        /// Return when it is done
        #[arg(long)]
        wait: bool,
    },
    /// Show destinations, when they were last complete, and what could not be copied
    Status {
        pool: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Read every copy and compare it with what was written; the next run copies bad ones again
    Verify(BackupPlace),
    /// List the states that can be restored, and with --files the files of one
    List {
        #[command(flatten)]
        place: BackupPlace,
        /// Use the state of this run instead of the latest
        #[arg(long, value_name = "MOMENT")]
        until: Option<String>,
        /// List every file with its size
        #[arg(long)]
        files: bool,
    },
    /// Copy files back; every copy is verified before it gets its name
    Restore {
        #[command(flatten)]
        place: BackupPlace,
        /// Restore only this file, or what is below this directory: a path from the root of the pool
        #[arg(long, value_name = "PATH")]
        path: Option<PathBuf>,
        /// The directory to restore into
        #[arg(long, value_name = "DIRECTORY")]
        to: PathBuf,
        /// Use the state of this run instead of the latest
        #[arg(long, value_name = "MOMENT")]
        until: Option<String>,
        /// Replace existing files
        #[arg(long)]
        overwrite: bool,
        /// Also restore owners, setid, or all; without it they are left out, because they may be meant to harm
        #[arg(long, value_name = "WHAT", value_delimiter = ',')]
        preserve: Vec<crate::arguments::preserve::Preserve>,
    },
}

#[derive(Debug, Args)]
pub struct BackupPlace {
    /// A mounted pool, or the directory of a backup, which needs no pool
    #[arg(value_name = "POOL|DIRECTORY")]
    pub place: String,
    /// The destination, if the pool has several
    pub name: Option<String>,
}
