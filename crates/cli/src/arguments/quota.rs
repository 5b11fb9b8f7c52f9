//! What can be typed about volumes and quotas.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a directory a volume: with limits and policy of its own, and what it takes counted. Made if it is not there
    Create {
        path: PathBuf,
        /// bytes=SIZE|none, inodes=NUMBER|none, stored=SIZE|none, soft_bytes=, soft_inodes=, soft_stored=, grace=7d; any other key is policy, as for `stere policy set`
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// The volumes of a pool, what they take and what they may
    List(AccountsArguments),
    /// Set limits and policy of a volume
    Set {
        path: PathBuf,
        /// As for create
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Delete a volume and all that is in it; its room comes back in the background
    Delete {
        path: PathBuf,
        /// Keep what is in it: the directory is an ordinary one from now on
        #[arg(long)]
        keep: bool,
        /// Do it; without this only what would go is told
        #[arg(long)]
        yes: bool,
        /// Return when the room is back
        #[arg(long)]
        wait: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum QuotaCommand {
    /// Limit a user, a group or a volume
    Set {
        pool: String,
        /// user:NAME, group:NAME (or numbers), the path of a volume, or users, groups: each that has no limit of its own, but root
        who: String,
        /// bytes=SIZE|none, inodes=NUMBER|none, stored=SIZE|none (on devices, with copies); soft_bytes=, soft_inodes=, soft_stored= may be gone beyond for grace=TIME (7d)
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// Return when everything that exists is counted
        #[arg(long)]
        wait: bool,
    },
    /// What users, groups and volumes take, and what they may
    List(AccountsArguments),
}

#[derive(Debug, Args)]
pub struct AccountsArguments {
    pub pool: String,
    /// Exact numbers of bytes
    #[arg(long)]
    pub bytes: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}
