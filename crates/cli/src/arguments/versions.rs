//! What can be typed behind `stere versions`: what files held before.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum VersionsCommand {
    /// List the versions of a file, or of everything that a directory has or had in it
    List {
        /// A file, also a removed one, or a directory
        path: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Restore an earlier version of a file; the present contents become a version
    Restore {
        /// The file, also a removed one
        path: PathBuf,
        /// The version of this time (2027-01-31T12:00:00, UTC), or the name of a version; without it the newest
        #[arg(long, value_name = "TIME")]
        at: Option<String>,
        /// Only show what would be done
        #[arg(long)]
        dry_run: bool,
    },
}
