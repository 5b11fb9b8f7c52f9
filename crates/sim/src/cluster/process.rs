//! A process of the area `cluster`: its clock, its ways to nodes and log, and what it did since it was last told that all is durable.
//!
//! Invariant: a process has one clock, which may stand still and never goes back. Read next: `steps.rs`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use stere_device::Device;
use stere_journal::{JournalError, Tail, TailWorld};
use stere_store::{Io, Store};

use super::files::{File, Lent};
use super::link::{Link, LogLink};
use super::network::{Network, Way};
use super::{HOLD_MS, LEASE_MS, POOL, told};

/// How often a record is put where the log does not answer, before its owner gives up.
const TRIES_MAX: u32 = 4;
/// How often an owner looks at the log before somebody else takes the pool.
const LOOKS_MAX: u32 = 8;

/// The clock of one process.
#[derive(Debug)]
pub(super) struct ProcessClock {
    world_ms: Arc<AtomicU64>,
    behind_ms: AtomicU64,
    /// Until when the process believes that nobody else takes the pool.
    lease_until_ms: AtomicU64,
}

impl ProcessClock {
    pub(super) fn new(world_ms: Arc<AtomicU64>) -> ProcessClock {
        ProcessClock { world_ms, behind_ms: AtomicU64::new(0), lease_until_ms: AtomicU64::new(0) }
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.world_ms.load(Ordering::Relaxed) - self.behind_ms.load(Ordering::Relaxed)
    }

    /// It did not go on while others did.
    pub(super) fn stand_still(&self, ms: u64) {
        let before_ms = self.behind_ms.fetch_add(ms, Ordering::Relaxed);
        let world_ms = self.world_ms.load(Ordering::Relaxed);
        assert!(before_ms + ms <= world_ms, "a clock stands still for no longer than time passes");
    }

    /// The log took a record of this process, or said now that nobody else's is there.
    pub(super) fn note_lease(&self) {
        self.lease_until_ms.fetch_max(self.now_ms() + LEASE_MS, Ordering::Relaxed);
    }
}

/// Changes of an owner that it did not hear of yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) written: BTreeMap<u64, File>,
    pub(super) removed: BTreeMap<u64, File>,
}

/// Somebody who has the pool, or had it.
pub(super) struct Process {
    pub(super) number: usize,
    pub(super) store: Store,
    pub(super) tail: Arc<Tail>,
    pub(super) clock: Arc<ProcessClock>,
    pub(super) pending: Pending,
    /// Rows that another machine may still write to, and until when.
    pub(super) late: Vec<(u64, Lent)>,
    /// Its clock stands still while it does.
    pub(super) is_stopped: bool,
    /// It opened the pool without one of the nodes, and stays so.
    pub(super) lacks_node: bool,
}

impl Process {
    pub(super) fn new(
        number: usize,
        store: Store,
        tail: Arc<Tail>,
        clock: Arc<ProcessClock>,
        lacks_node: bool,
    ) -> Process {
        Process {
            number,
            store,
            tail,
            clock,
            pending: Pending::default(),
            late: Vec::new(),
            is_stopped: false,
            lacks_node,
        }
    }

    /// Whether the process believes that nobody took the pool.
    pub(super) fn has_lease(&self) -> bool {
        self.clock.now_ms() < self.clock.lease_until_ms.load(Ordering::Relaxed)
    }

    /// Looks whether the log is where it left it, as the daemon does each second. Whether it could be asked.
    pub(super) fn look(&self) -> bool {
        let begun_ms = self.clock.now_ms();
        let Ok(bounds) = self.tail.log().bounds() else { return false };
        let (decided, begun) = self.tail.ends();
        if bounds.next > begun {
            self.tail.lose(JournalError::Replaced);
        } else if bounds.next <= decided {
            self.tail.grants().renew(begun_ms + LEASE_MS);
            self.clock.note_lease();
        }
        true
    }

    /// Looks until it may write, or it is too late for that.
    pub(super) fn look_until_leased(&self, network: &Network) {
        let mut looks = 0;
        while looks < LOOKS_MAX && self.tail.check().is_ok() && !self.look() {
            looks += 1;
        }
        assert!(looks == 0 || network.is_excused(self.number), "only a log that is away is asked again");
    }

    /// Whether the log did not answer when something was to be put.
    pub(super) fn is_without_log(&self) -> bool {
        matches!(self.tail.check(), Err(JournalError::LogAway { .. }))
    }

    /// Whether it knows that somebody else has the pool.
    pub(super) fn is_replaced(&self) -> bool {
        self.tail.check().is_err() && !self.is_without_log()
    }

    /// Whether what it writes goes out, and its commits end.
    pub(super) fn may_write(&self) -> bool {
        self.has_lease() && self.tail.check().is_ok()
    }

    /// Whether a file of one copy lies on a node that this process does not have.
    pub(super) fn may_lack(&self, network: &Network, node: usize, file: &File) -> bool {
        let is_away = self.lacks_node || matches!(network.way(self.number, node), Way::Cut | Way::Failed);
        let Ok(blob) = self.store.view(Io::BLOCKING, |view| view.blob(file.blob)) else { return false };
        let placed = blob.segment.placed();
        is_away && placed.scheme.parity == 0 && placed.chunks.iter().any(|place| usize::from(place.device) == node)
    }
}

/// A node as a process reaches it.
pub(super) fn link(network: &Arc<Network>, process: usize, node: usize) -> Arc<dyn Device> {
    Arc::new(Link { network: network.clone(), process, node })
}

/// The log as one more process has it.
pub(super) fn tail(network: &Arc<Network>, process: usize, clock: &Arc<ProcessClock>) -> Result<Arc<Tail>, String> {
    let own = clock.clone();
    let world = TailWorld {
        now_ms: Arc::new(move || own.now_ms()),
        pause: Box::new(|_, tries| tries < TRIES_MAX),
        lease_ms: LEASE_MS,
        hold_ms: HOLD_MS,
    };
    assert!(clock.now_ms() <= clock.world_ms.load(Ordering::Relaxed), "no clock runs ahead");
    let mut owner = [0; 16];
    owner[..8].copy_from_slice(&(process as u64 + 1).to_le_bytes());
    let log = LogLink { network: network.clone(), process, clock: clock.clone() };
    let tail = Tail::open(Arc::new(log), POOL, owner, world).map_err(told)?;
    let weak: Weak<Tail> = Arc::downgrade(&tail);
    tail.grants().set_on_wanted(Arc::new(move || {
        weak.upgrade().into_iter().for_each(|tail| drop(tail.put_grants()));
    }));
    Ok(tail)
}
