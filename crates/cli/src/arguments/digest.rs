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
    /// Files; of a directory all files below it. They are read whole, and come back from tertiary volumes for it
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Read again and compare with what is stored; exit code 4 if anything reads otherwise, 3 if there is a file without a digest
    #[arg(long)]
    pub check: bool,
    /// Which digest
    #[arg(long, value_enum, default_value = "sha256")]
    pub algorithm: Algorithm,
    /// An object a line, for programs
    #[arg(long)]
    pub json: bool,
}
