//! What can be typed behind `stere digest`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// How a digest is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Algorithm {
    Sha256,
    Blake3,
}

#[derive(Debug, Args)]
pub struct DigestArguments {
    /// Files, or directories for all files below them. They are read whole, and recalled from media if necessary
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Read again and compare with the stored digests; exit code 4 if any differs, 3 if a file has no digest
    #[arg(long)]
    pub check: bool,
    /// The kind of digest
    #[arg(long, value_enum, default_value = "sha256")]
    pub algorithm: Algorithm,
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
}
