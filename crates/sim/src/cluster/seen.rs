//! What happened in histories of the area `cluster`. Read next: `cluster.rs`.

/// Events of histories, so that nobody takes quiet ones for proof.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    pub histories: u64,
    pub acknowledged: u64,
    pub takeovers: u64,
    /// Owners that went on after they were replaced.
    pub woken: u64,
    pub crashes: u64,
    /// Times that an owner was cut off a node.
    pub parted: u64,
    /// Owners that lost the pool because the log did not answer them.
    pub without_log: u64,
    /// Attempts to take the pool that came to nothing.
    pub taken_in_vain: u64,
    /// Writes, and records of the log, that arrived when nobody waited for them.
    pub arrived_late: u64,
    pub records_late: u64,
    /// Times that everything which a node had missed was written to it.
    pub caught_up: u64,
    /// Owners whose clock stood still when they were replaced.
    pub stopped_clocks: u64,
    /// Owners that woke and found their lease over.
    pub lease_over: u64,
    /// Blocks of copies that changed.
    pub rotten: u64,
    /// Reads of a file whose only node was away.
    pub away: u64,
    /// Rows that other machines wrote for an owner, and those that they did not end.
    pub lent: u64,
    pub dropped: u64,
    /// Rows that a machine wrote to when their owner had been replaced.
    pub lent_late: u64,
}

impl Seen {
    pub(super) fn and(self, other: Seen) -> Seen {
        Seen {
            histories: self.histories + other.histories,
            acknowledged: self.acknowledged + other.acknowledged,
            takeovers: self.takeovers + other.takeovers,
            woken: self.woken + other.woken,
            crashes: self.crashes + other.crashes,
            parted: self.parted + other.parted,
            without_log: self.without_log + other.without_log,
            taken_in_vain: self.taken_in_vain + other.taken_in_vain,
            arrived_late: self.arrived_late + other.arrived_late,
            records_late: self.records_late + other.records_late,
            caught_up: self.caught_up + other.caught_up,
            stopped_clocks: self.stopped_clocks + other.stopped_clocks,
            lease_over: self.lease_over + other.lease_over,
            rotten: self.rotten + other.rotten,
            away: self.away + other.away,
            lent: self.lent + other.lent,
            dropped: self.dropped + other.dropped,
            lent_late: self.lent_late + other.lent_late,
        }
    }
}
