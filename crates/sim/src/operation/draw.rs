//! Single operations, drawn one after the other. Read next: `script.rs`, which puts what belongs together between them.

use super::{ATTRIBUTES, CrashManner, Operation, POLICIES, Path, Profile, SLOTS, Target};
use crate::model::RenameManner;
use crate::random::Random;

/// Draws operations.
pub struct Generator {
    pub(super) random: Random,
    /// Drawn already, because they belong to the operation before.
    following: Vec<Operation>,
    pub(super) profile: Profile,
    pub(super) devices: usize,
}

impl Generator {
    pub fn new(random: Random, profile: Profile, devices: usize) -> Generator {
        Generator { random, following: Vec::new(), profile, devices }
    }

    pub(super) fn path(&mut self) -> Path {
        let directory = if self.random.chance(1, 2) { 0 } else { self.random.below(4) as u8 };
        let name = if self.random.chance(1, 20) { self.random.below(8) } else { self.random.below(6) };
        Path { directory, name: name as u8 }
    }

    fn slot(&mut self) -> u8 {
        self.random.below(u64::from(SLOTS)) as u8
    }

    pub(super) fn target(&mut self) -> Target {
        if self.random.chance(1, 3) { Target::Path(self.path()) } else { Target::Slot(self.slot()) }
    }

    /// An offset where something interesting happens: near block, record and blob borders, or anywhere.
    pub(super) fn offset(&mut self) -> u64 {
        match self.random.below(8) {
            0..3 => self.random.below(20_000),
            3 => self.random.below(8) * 4096,
            4 => self.random.below(4) * (128 << 10),
            5 => (self.random.below(3) * (128 << 10) + 4096).saturating_sub(self.random.below(9000)),
            6 => self.random.below(600_000),
            _ => 0,
        }
    }

    pub(super) fn length(&mut self) -> u64 {
        match self.random.below(12) {
            0..4 => self.random.between(1, 600),
            4..7 => self.random.between(1, 20_000),
            7 => self.random.between(1, 4) * 4096,
            8 => 128 << 10,
            9 => self.random.between(1, 300_000),
            10 => 4096,
            _ => self.random.between(1, 3) * (128 << 10),
        }
    }

    pub(super) fn content(&mut self) -> Operation {
        let target = self.target();
        let (offset, length) = (self.offset(), self.length());
        match self.random.below(20) {
            0..10 => Operation::Write { target, offset, length: length as u32, seed: self.random.next_u64() },
            10..12 => Operation::Read { target, offset, length: length as u32 },
            12..14 => Operation::Truncate { target, size: if self.random.chance(1, 4) { 0 } else { offset } },
            14..17 => self.allocate(target, offset, length),
            17..19 => {
                let (to, to_offset) = (self.target(), self.offset());
                let aligned = self.random.chance(2, 3);
                let align = |offset: u64| if aligned { offset / 4096 * 4096 } else { offset };
                Operation::Copy { from: target, from_offset: align(offset), to, to_offset: align(to_offset), length }
            }
            _ => Operation::Seek { target, offset },
        }
    }

    fn allocate(&mut self, target: Target, offset: u64, length: u64) -> Operation {
        const MODES: [u32; 9] = [0, 1, 3, 0x10, 0x11, 8, 0x20, 0x40, 0x41];
        let mode = *self.random.pick(&MODES);
        let shifts = mode == 8 || mode == 0x20;
        if shifts && !self.random.chance(1, 10) {
            let blocks = self.random.between(1, 8);
            return Operation::Allocate { target, offset: offset / 4096 * 4096, length: blocks * 4096, mode };
        }
        Operation::Allocate { target, offset, length, mode }
    }

    fn names(&mut self) -> Operation {
        let (path, slot) = (self.path(), self.slot());
        match self.random.below(24) {
            0..5 => Operation::Create { path, slot },
            5..7 => Operation::Open { path, slot, truncate: self.random.chance(1, 4) },
            7 => Operation::Close { slot },
            8 => Operation::Tmpfile { directory: self.random.below(4) as u8, slot },
            9..12 => Operation::Mkdir { path: Path { name: 3 + path.name % 3, ..path } },
            12 => Operation::Symlink { path, length: self.random.between(1, 4095) as u16 },
            13 => Operation::Fifo { path },
            14 | 15 => Operation::Link { target: self.target(), path },
            16..18 => Operation::Unlink { path },
            18 => Operation::Rmdir { path: Path { name: 3 + path.name % 3, ..path } },
            19..23 => {
                let manner = *self.random.pick(&[
                    RenameManner::Replace,
                    RenameManner::Replace,
                    RenameManner::NoReplace,
                    RenameManner::Exchange,
                ]);
                Operation::Rename { from: path, to: self.path(), manner }
            }
            _ => self.attribute(path),
        }
    }

    fn attribute(&mut self, path: Path) -> Operation {
        let name = self.random.below(ATTRIBUTES.len() as u64) as u8;
        match self.random.below(6) {
            0 => Operation::SetMode { path, mode: self.random.below(0o1000) as u32 },
            1 | 2 => {
                let length = if self.random.chance(1, 10) { 60_000 } else { 200 };
                let length = self.random.below(length) as u32;
                Operation::SetAttribute { path, name, length, seed: self.random.next_u64() }
            }
            3 => Operation::RemoveAttribute { path, name },
            _ => Operation::SetPolicy { path, policy: self.random.below(POLICIES.len() as u64) as u8 },
        }
    }

    fn sync(&mut self) -> Operation {
        match self.random.below(8) {
            0..4 => Operation::Fsync { target: self.target() },
            4 => Operation::FsyncDirectory { directory: self.random.below(4) as u8 },
            5 => Operation::SyncAll,
            6 if self.random.chance(2, 3) => {
                Operation::Step { count: self.random.between(1, 8) as u8, idle: self.random.chance(1, 2) }
            }
            _ => Operation::Checkpoint,
        }
    }

    pub(super) fn manner(&mut self) -> CrashManner {
        *self.random.pick(&[CrashManner::Nothing, CrashManner::Everything, CrashManner::Mixed, CrashManner::Mixed])
    }

    fn event(&mut self) -> Operation {
        match self.random.below(10) {
            0..2 => Operation::Remount,
            2..4 => {
                let again = self.random.chance(1, 4).then(|| self.random.between(1, 12) as u32);
                Operation::Crash { manner: self.manner(), again }
            }
            4..7 => self.armed_crash(),
            7 => Operation::VerifyAll,
            8 => Operation::List { directory: self.random.below(4) as u8 },
            _ => Operation::Check,
        }
    }

    /// A power cut that is likely to come within the sync of some changes, where most can go wrong.
    fn armed_crash(&mut self) -> Operation {
        let sync = self.sync();
        self.following.push(sync);
        for _ in 0..self.random.below(4) {
            let change = if self.random.chance(1, 2) { self.content() } else { self.names() };
            self.following.push(change);
        }
        let events = if self.random.chance(1, 4) { self.random.between(1, 40) } else { self.random.between(1, 8) };
        Operation::ArmCrash { events: events as u32, manner: self.manner() }
    }

    fn full(&mut self) -> Operation {
        match self.random.below(10) {
            0..3 => Operation::Fill { bytes: self.random.between(1, 40) as u32 * 100_000 },
            3..5 => Operation::Empty { every: self.random.between(1, 3) as u8 },
            5 => Operation::Step { count: 20, idle: true },
            _ => self.content(),
        }
    }

    /// The next operation.
    pub fn operation(&mut self) -> Operation {
        if let Some(operation) = self.following.pop() {
            return operation;
        }
        let weights: [u64; 5] = match self.profile {
            Profile::Churn => [0, 5, 2, 6, 87],
            Profile::Mixed => [35, 35, 15, 15, 0],
            Profile::Names => [8, 65, 12, 15, 0],
            Profile::Data => [65, 15, 10, 10, 0],
            Profile::Sync => [30, 20, 35, 15, 0],
            Profile::Full => [20, 10, 10, 10, 50],
        };
        let mut drawn = self.random.below(weights.iter().sum());
        let mut kind = 0;
        while drawn >= weights[kind] {
            drawn -= weights[kind];
            kind += 1;
        }
        match kind {
            0 => self.content(),
            1 => self.names(),
            2 => self.sync(),
            3 => self.event(),
            _ if self.profile == Profile::Churn => self.churn(),
            _ => self.full(),
        }
    }

    fn churn(&mut self) -> Operation {
        let target = Target::Slot(self.random.below(3) as u8);
        match self.random.below(10) {
            0..6 => {
                let (offset, length) = (self.random.below(4) * (128 << 10), self.random.between(2, 8) * (64 << 10));
                Operation::Write { target, offset, length: length as u32, seed: self.random.next_u64() }
            }
            6..9 => Operation::Fsync { target },
            _ => Operation::Truncate { target, size: 0 },
        }
    }
}
