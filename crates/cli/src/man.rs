//! The man pages, from the same text as `--help`.

use std::path::Path;

use clap::CommandFactory;

use crate::arguments::Cli;
use stere_machine::error::{At, DONE, Result};

pub fn run(directory: &Path) -> Result<u8> {
    std::fs::create_dir_all(directory).at("create", directory)?;
    clap_mangen::generate_to(Cli::command(), directory).at("write man pages to", directory)?;
    Ok(DONE)
}
