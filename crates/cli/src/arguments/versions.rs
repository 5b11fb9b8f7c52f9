//! What can be typed behind `stere versions`: what files held before.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum VersionsCommand {
    /// The versions of a file, or of everything that a directory has or had in it
    List {
        /// A file, also one that was removed, or a directory
        path: PathBuf,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Make a file again what it was; what it holds now becomes a version itself
    Restore {
        /// The file, also one that was removed
        path: PathBuf,
        /// What it held at this moment (2027-01-31T12:00:00, UTC), or a version by its name; the newest version if not given
        #[arg(long, value_name = "TIME")]
        at: Option<String>,
        /// Only tell what would be done
        #[arg(long)]
        dry_run: bool,
    },
}
