//! Keeps two machines that reach the same devices from writing to one pool.
//!
//! `stere_pool::claim` decides; here is what it takes from the world: which devices other machines may reach (`reach.rs`), who
//! this process is (`machine.rs`), the clock, and a thread for each heartbeat (`guard.rs`). The daemon and the library use it.
//!
//! Invariants: a pool is claimed before anything is written to it; heartbeats are kept from then until the pool is closed;
//! a device that hangs delays no heartbeat but its own.

mod guard;
mod log_claim;
mod machine;
mod reach;

pub use guard::{Guard, Joined};
pub use log_claim::{FOREIGN_SLOTS_MS, LEASE_MS, LogClaim, SILENCE_MS, Seen, Silence, Watched};
pub use machine::{boot_ms, claimant, has_ended, own_host};
pub use reach::may_be_shared;

/// Which devices are guarded (mount option `multihost=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Multihost {
    /// Those that another machine may reach, as far as the kernel tells.
    #[default]
    Auto,
    /// All.
    On,
    /// As `Auto`; a pool whose log is shared is taken from whoever has it.
    Take,
    /// As `Auto`; an owner of a shared log whose last beat is this one was watched already, and is silent. The log ended at `next` for so long.
    AfterSilence { owner: [u8; 16], sequence: u64, next: u64, silent_ms: u64 },
    /// None: the administrator answers for it that one machine only uses the pool.
    Off,
}

impl Multihost {
    fn guards(self, path: &str) -> bool {
        match self {
            Multihost::Auto | Multihost::Take | Multihost::AfterSilence { .. } => {
                may_be_shared(std::path::Path::new(path))
            }
            Multihost::On => true,
            Multihost::Off => false,
        }
    }
}
