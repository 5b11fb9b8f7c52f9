//! What of files is restored only if it is asked for.

use clap::ValueEnum;

/// What `--preserve` can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Preserve {
    /// Owners and groups, and access control lists, which name them
    Owners,
    /// Set-user-ID and set-group-ID bits, capabilities and the other attributes that root or the kernel trusts
    Setid,
    /// Device nodes
    Devices,
    /// All of these
    All,
}
