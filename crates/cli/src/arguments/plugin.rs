//! What can be typed behind `stere plugin`: what users add to what is done to their files.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use stere_control::plugins::{Change, Order};

#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Add a WebAssembly module to a pool; files get it with `stere policy set PATH plugins=NAME[:PARAMETERS],...`
    Add {
        pool: String,
        /// Its name; files with an older plugin of this name keep that one
        name: String,
        /// The module, or its text (.wat)
        file: PathBuf,
    },
    /// List the plugins of a pool, and what they do
    List {
        pool: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a plugin that no file is stored with
    Remove { pool: String, name: String },
    /// Show the events that wait for plugins, and those that were given up
    Queue(QueueArguments),
}

#[derive(Debug, Args)]
pub struct QueueArguments {
    /// The pool, or the mount point of a `stere stack`
    #[arg(value_name = "POOL|MOUNTPOINT")]
    pub place: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Retry all events that wait or were given up
    #[arg(long, conflicts_with_all = ["drop", "drop_all"])]
    pub retry: bool,
    /// Drop the events that were given up
    #[arg(long, conflicts_with = "drop_all")]
    pub drop: bool,
    /// Drop all waiting events
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
