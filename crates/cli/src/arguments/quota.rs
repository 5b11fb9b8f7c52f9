//! What can be typed about volumes and quotas.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a directory a volume, with its own limits, policy and accounting; creates the directory if necessary
    Create {
        path: PathBuf,
        /// bytes=SIZE|none, inodes=NUMBER|none, stored=SIZE|none, soft_bytes=, soft_inodes=, soft_stored=, grace=7d; any other key is policy, as for `stere policy set`
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// List the volumes of a pool with usage and limits
    List(AccountsArguments),
    /// Set limits and policy of a volume
    Set {
        path: PathBuf,
        /// As for create
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Mount another pool, with a log in the same engine and an owner of its own, at a directory on every machine
    Attach {
        path: PathBuf,
        /// A pool that is known here and mounted nowhere
        #[arg(value_name = "POOL")]
        pool: String,
    },
    /// Make the directory of an attached pool an ordinary one again; the pool keeps everything
    Detach { path: PathBuf },
    /// Delete a volume and everything in it; its space is freed in the background
    Delete {
        path: PathBuf,
        /// Keep its files: the directory becomes an ordinary one
        #[arg(long)]
        keep: bool,
        /// Do it; without this the command only shows what would be deleted
        #[arg(long)]
        yes: bool,
        /// Return when the space is free
        #[arg(long)]
        wait: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum QuotaCommand {
    /// Limit a user, a group or a volume
    Set {
        pool: String,
        /// user:NAME, group:NAME (or numbers), the path of a volume, or users or groups: everyone without an own limit, except root
        who: String,
        /// bytes=SIZE|none, inodes=NUMBER|none, stored=SIZE|none (on devices, with copies); soft_bytes=, soft_inodes=, soft_stored= may be exceeded for grace=TIME (7d)
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// Return when all existing files are counted
        #[arg(long)]
        wait: bool,
    },
    /// List users, groups and volumes with usage and limits
    List(AccountsArguments),
}

#[derive(Debug, Args)]
pub struct AccountsArguments {
    pub pool: String,
    /// Print exact numbers of bytes
    #[arg(long)]
    pub bytes: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
