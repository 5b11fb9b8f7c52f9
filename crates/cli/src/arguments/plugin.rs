//! What can be typed behind `stere plugin`: what users add to what is done to their files.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use stere_control::plugins::{Change, Order};

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
    /// What plugins that are told afterwards have not been told yet, and what was given up
    Queue(QueueArguments),
}

#[derive(Debug, Args)]
pub struct QueueArguments {
    /// The pool, or where `stere stack` is mounted
    #[arg(value_name = "POOL|MOUNTPOINT")]
    pub place: String,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// Try all that waits or was given up again, now
    #[arg(long, conflicts_with_all = ["drop", "drop_all"])]
    pub retry: bool,
    /// Forget what was given up
    #[arg(long, conflicts_with = "drop_all")]
    pub drop: bool,
    /// Forget all that waits
    #[arg(long)]
    pub drop_all: bool,
}

impl QueueArguments {
    /// What the daemon is to do.
    pub fn order(&self) -> Order {
        match (self.retry, self.drop, self.drop_all) {
            (true, _, _) => Order::Change { change: Change::Retry },
            (_, true, _) => Order::Change { change: Change::DropGivenUp },
            (_, _, true) => Order::Change { change: Change::DropAll },
            _ => Order::Queue,
        }
    }
}
