//! What can go wrong on a device, each kind with a switch and a rate. `docs/faults.md` says what stere makes of each.

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    /// A sector becomes unreadable until it is written again.
    LatentReadError,
    /// A read fails once.
    TransientReadError,
    /// A bit flips at rest.
    BitRot,
    /// A write is acknowledged and never happens.
    LostWrite,
    /// A write is acknowledged and lands elsewhere.
    MisdirectedWrite,
    /// A write fails.
    FailedWrite,
    /// A flush fails; what it should have kept is partly gone.
    FailedFlush,
    /// A flush is acknowledged and keeps nothing.
    LyingFlush,
    /// From some point on everything fails.
    DyingDevice,
    /// Everything takes long.
    SlowDevice,
    /// At a mount the device holds what it held some time ago.
    StaleDevice,
    /// The device goes away, perhaps in the middle of something, is missed at mounts, and may come back with what it held.
    AwayDevice,
    /// The device goes away, perhaps in the middle of something, and never comes back.
    LostDevice,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [FaultKind; 13] = [
        FaultKind::LatentReadError,
        FaultKind::TransientReadError,
        FaultKind::BitRot,
        FaultKind::LostWrite,
        FaultKind::MisdirectedWrite,
        FaultKind::FailedWrite,
        FaultKind::FailedFlush,
        FaultKind::LyingFlush,
        FaultKind::DyingDevice,
        FaultKind::SlowDevice,
        FaultKind::StaleDevice,
        FaultKind::AwayDevice,
        FaultKind::LostDevice,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::LatentReadError => "latent-read-error",
            FaultKind::TransientReadError => "transient-read-error",
            FaultKind::BitRot => "bit-rot",
            FaultKind::LostWrite => "lost-write",
            FaultKind::MisdirectedWrite => "misdirected-write",
            FaultKind::FailedWrite => "failed-write",
            FaultKind::FailedFlush => "failed-flush",
            FaultKind::LyingFlush => "lying-flush",
            FaultKind::DyingDevice => "dying-device",
            FaultKind::SlowDevice => "slow-device",
            FaultKind::StaleDevice => "stale-device",
            FaultKind::AwayDevice => "away-device",
            FaultKind::LostDevice => "lost-device",
        }
    }

    /// The kind of this name.
    pub fn parse(name: &str) -> Option<FaultKind> {
        FaultKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether the device is not there, rather than wrong: what copies bear without an error.
    pub fn is_absence(self) -> bool {
        matches!(self, FaultKind::AwayDevice | FaultKind::LostDevice)
    }

    /// Whether operations may be refused from the first such fault on, even where copies are left: the pool stops writing rather
    /// than promise what one device alone would have to keep.
    pub fn may_stop_writing(self) -> bool {
        matches!(self, FaultKind::FailedWrite | FaultKind::FailedFlush | FaultKind::DyingDevice)
    }
}

/// How often each kind strikes one device, in a million operations it applies to. 0 is off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultRates {
    rates: [u32; FaultKind::ALL.len()],
}

impl FaultRates {
    /// No faults.
    pub fn none() -> FaultRates {
        FaultRates::default()
    }

    /// Sets one kind's rate.
    pub fn set(&mut self, kind: FaultKind, per_million: u32) {
        self.rates[kind as usize] = per_million;
    }

    /// One kind's rate.
    pub fn get(&self, kind: FaultKind) -> u32 {
        self.rates[kind as usize]
    }

    /// Whether any kind is on.
    pub fn any(&self) -> bool {
        self.rates.iter().any(|rate| *rate > 0)
    }
}
