//! What can be typed about classes.

use clap::Subcommand;

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
    Create {
        pool: String,
        name: String,
        /// copies=1..., parity=4+2, redundancy=0...10, compress=..., encrypt=no|yes; what is not set is inherited
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
