//! What the process that takes strangers' descriptors is told by the daemon that starts it.

/// What the receiver is told when it is started.
#[derive(Debug, Clone, clap::Args)]
pub struct ReceiverArguments {
    pub major: u32,
    pub minor: u32,
    /// Nobody but this user and root is answered.
    #[arg(long)]
    pub only: Option<u32>,
}
