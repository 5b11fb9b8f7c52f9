//! What can be typed behind `stere plugin`: what users add to what is done to their files.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Add a WebAssembly module to a pool; files get it with `stere policy set PATH plugins=NAME[:PARAMETERS],...`
    Add {
        pool: String,
        /// How it is called from now on; who has an older one of this name keeps that
        name: String,
        /// The module, or its text (.wat)
        file: PathBuf,
    },
    /// The plugins of a pool, and what they do
    List {
        pool: String,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Remove a plugin that nothing is stored with
    Remove { pool: String, name: String },
}
