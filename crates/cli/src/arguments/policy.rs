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
    /// List the classes of a pool with their policy
    List {
        pool: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one class, and how much it is used
    Show {
        pool: String,
        name: String,
        /// Print JSON
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
    /// Change a class; its files are stored again in the background
    Change {
        pool: String,
        name: String,
        /// As for create; without a value the class no longer sets the key, or a built-in class sets its first value again
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// Return when existing files are stored so
        #[arg(long)]
        wait: bool,
    },
    /// Delete a class; its files get another one
    Delete {
        pool: String,
        name: String,
        /// The class that its files get
        #[arg(long, value_name = "CLASS", default_value = "normal")]
        into: String,
        /// Do it; without this the command only shows what would change
        #[arg(long)]
        yes: bool,
        /// Return when existing files are stored so
        #[arg(long)]
        wait: bool,
    },
}
