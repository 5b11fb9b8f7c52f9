//! What can be typed behind `stere stack`.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::SecretArguments;

#[derive(Debug, Args)]
pub struct StackArguments {
    /// An existing directory of any file system
    pub source: PathBuf,
    /// The mount point
    pub mountpoint: PathBuf,
    /// Rules for how files are stored, such as '*.c: compress=zstd, encrypt=yes, plugins=delta:2+rotate'; the first match decides
    #[arg(long = "rule", value_name = "RULE")]
    pub rules: Vec<String>,
    /// A file with rules, one a line
    #[arg(long, value_name = "FILE")]
    pub rules_file: Option<PathBuf>,
    /// A plugin: a WebAssembly module, or its text (.wat)
    #[arg(long = "plugin", value_name = "NAME=FILE")]
    pub plugins: Vec<String>,
    /// A directory to which changed files with backup=yes in their rule are copied, as they are stored in the source
    #[arg(long, value_name = "DIRECTORY")]
    pub backup: Option<PathBuf>,
    #[command(flatten)]
    pub secret: SecretArguments,
    /// Let other users use it
    #[arg(long)]
    pub allow_other: bool,
    /// Mount read-only
    #[arg(long)]
    pub read_only: bool,
}
