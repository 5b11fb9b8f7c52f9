//! What can be typed about classes, and the keys of policy in help.

use clap::Subcommand;
use stere_policy::{PolicyKey, policy_keys};

/// The keys with their values, for help.
pub fn keys_help(is_wanted: impl Fn(&PolicyKey) -> bool) -> String {
    let lines = policy_keys().filter(is_wanted).map(|key| format!("  {:<11} {}", key.word, key.expected));
    format!("Keys:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

#[derive(Debug, Subcommand)]
pub enum ClassCommand {
    /// The classes of a pool, and what they ask for
    List {
        pool: String,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// One class, and how much it is used
    Show {
        pool: String,
        name: String,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Define a class
    #[command(after_help = keys_help(|key| key.is_for_classes))]
    Create {
        pool: String,
        name: String,
        /// Keys and their values, listed below; what is not set is inherited
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Make a class ask for something else; what has it is stored anew in the background
    Change {
        pool: String,
        name: String,
        /// As for create; without a value the class says nothing about it any more, or what it was built in with
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// Return when what exists is stored so
        #[arg(long)]
        wait: bool,
    },
    /// Delete a class; what has it belongs to another one
    Delete {
        pool: String,
        name: String,
        /// The other one
        #[arg(long, value_name = "CLASS", default_value = "normal")]
        into: String,
        /// Do it; without this only what would change is told
        #[arg(long)]
        yes: bool,
        /// Return when what exists is stored so
        #[arg(long)]
        wait: bool,
    },
}
