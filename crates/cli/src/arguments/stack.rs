//! What can be typed behind `stere stack`.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::SecretArguments;

#[derive(Debug, Args)]
pub struct StackArguments {
    /// An existing directory of any file system
    pub source: PathBuf,
    /// Where it is to be seen through the stack
    pub mountpoint: PathBuf,
    /// Which files are stored how, such as '*.c: compress=zstd, encrypt=yes, plugins=delta:2+rotate'; the first that matches decides
    #[arg(long = "rule", value_name = "RULE")]
    pub rules: Vec<String>,
    /// The same from a file, one a line
    #[arg(long, value_name = "FILE")]
    pub rules_file: Option<PathBuf>,
    /// A plugin: a WebAssembly module, or its text (.wat)
    #[arg(long = "plugin", value_name = "NAME=FILE")]
    pub plugins: Vec<String>,
    /// Where files with backup=yes in their rule are copied to after they were changed, as they lie in the source
    #[arg(long, value_name = "DIRECTORY")]
    pub backup: Option<PathBuf>,
    #[command(flatten)]
    pub secret: SecretArguments,
    /// Other users may use it
    #[arg(long)]
    pub allow_other: bool,
    /// Change nothing
    #[arg(long)]
    pub read_only: bool,
}
