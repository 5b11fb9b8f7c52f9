//! What a history is made of, and how it is drawn. Operations name paths and handles by number, not by what is there, so
//! that a history stays a history when steps are left out of it.

use crate::fault::FaultKind;
use crate::model::RenameManner;
use crate::random::Random;

/// A path: a directory of [`DIRECTORIES`] and a name of [`NAMES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    pub directory: u8,
    pub name: u8,
}

/// Directories that paths lie in.
pub const DIRECTORIES: [&[&[u8]]; 4] = [&[], &[b"d"], &[b"e"], &[b"d", b"f"]];

/// Last components.
pub const NAMES: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b"e", b"f", b"\xff odd \x01", &[b'n'; 255]];

/// Handles that can be open at a time.
pub const SLOTS: u8 = 5;

/// Which file an operation works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Path(Path),
    Slot(u8),
}

/// How a crash treats the devices' caches; each device gets its own in `Mixed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashManner {
    Nothing,
    Everything,
    Mixed,
}

/// One step of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    Create {
        path: Path,
        slot: u8,
    },
    Tmpfile {
        directory: u8,
        slot: u8,
    },
    Open {
        path: Path,
        slot: u8,
        truncate: bool,
    },
    Close {
        slot: u8,
    },
    Mkdir {
        path: Path,
    },
    Symlink {
        path: Path,
        length: u16,
    },
    Fifo {
        path: Path,
    },
    Link {
        target: Target,
        path: Path,
    },
    Unlink {
        path: Path,
    },
    Rmdir {
        path: Path,
    },
    Rename {
        from: Path,
        to: Path,
        manner: RenameManner,
    },
    Write {
        target: Target,
        offset: u64,
        length: u32,
        seed: u64,
    },
    Read {
        target: Target,
        offset: u64,
        length: u32,
    },
    Truncate {
        target: Target,
        size: u64,
    },
    Allocate {
        target: Target,
        offset: u64,
        length: u64,
        mode: u32,
    },
    Copy {
        from: Target,
        from_offset: u64,
        to: Target,
        to_offset: u64,
        length: u64,
    },
    Seek {
        target: Target,
        offset: u64,
    },
    SetMode {
        path: Path,
        mode: u32,
    },
    SetAttribute {
        path: Path,
        name: u8,
        length: u32,
        seed: u64,
    },
    RemoveAttribute {
        path: Path,
        name: u8,
    },
    SetPolicy {
        path: Path,
        policy: u8,
    },
    Fsync {
        target: Target,
    },
    FsyncDirectory {
        directory: u8,
    },
    SyncAll,
    List {
        directory: u8,
    },
    VerifyAll,
    Step {
        count: u8,
        idle: bool,
    },
    Checkpoint,
    Check,
    /// Fills the pool with files until there is no space left.
    Fill {
        bytes: u32,
    },
    /// Removes what `Fill` made: every file (1), or every so manieth.
    Empty {
        every: u8,
    },
    Remount,
    /// Power goes off after so many more writes and flushes, in whatever operation that is.
    ArmCrash {
        events: u32,
        manner: CrashManner,
    },
    /// Power goes off now; `again` more events into recovery, it goes off once more.
    Crash {
        manner: CrashManner,
        again: Option<u32>,
    },
    /// The faults begin to strike.
    Faults {
        device: u8,
        kind: FaultKind,
        per_million: u32,
    },
    /// The device will come back as it is now, at the next mount.
    KeepImage {
        device: u8,
    },
    /// The device goes away after so many more writes and flushes of all devices; now if 0.
    TakeAway {
        device: u8,
        events: u32,
    },
    /// The device comes back at the next mount.
    BringBack {
        device: u8,
    },
    /// The device goes away for ever after so many more writes and flushes of all devices; now if 0.
    Lose {
        device: u8,
        events: u32,
    },
    /// A new device joins, at once or as a spare.
    AddDevice {
        mebibytes: u32,
        spare: bool,
    },
    /// A new device takes the place of one that is there, or of one that is gone.
    ReplaceDevice {
        device: u8,
        mebibytes: u32,
    },
    /// A device is emptied, to stay in the pool or to leave it.
    EmptyDevice {
        device: u8,
        leaves: bool,
    },
    /// A device is given up: what it held is rebuilt on the others.
    GiveUp {
        device: u8,
    },
    /// A device is used again that was emptied.
    UseAgain {
        device: u8,
    },
    /// A person takes a device away.
    Offline {
        device: u8,
    },
    /// A device that is away comes back while the pool is mounted.
    Online {
        device: u8,
    },
    /// So many steps of mending, of a quarter of a mebibyte each.
    MendSome {
        steps: u8,
    },
    /// With all devices there: everything is scrubbed and mended, and is whole again after that.
    Mend,
}

/// What kind of life a history leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Mixed,
    Names,
    Data,
    Sync,
    /// A few files rewritten in large pieces with syncs between: segments fill, die and are used again.
    Churn,
    Full,
}

impl Profile {
    /// The profile of this name.
    pub fn parse(name: &str) -> Option<Profile> {
        let all = [Profile::Mixed, Profile::Names, Profile::Data, Profile::Sync, Profile::Churn, Profile::Full];
        all.into_iter().find(|profile| format!("{profile:?}").eq_ignore_ascii_case(name))
    }

    /// Draws one.
    pub fn draw(random: &mut Random) -> Profile {
        match random.below(100) {
            0..40 => Profile::Mixed,
            40..55 => Profile::Names,
            55..75 => Profile::Data,
            75..86 => Profile::Sync,
            86..94 => Profile::Churn,
            _ => Profile::Full,
        }
    }
}

/// Draws operations.
pub struct Generator {
    random: Random,
    /// Drawn already, because they belong to the operation before.
    following: Vec<Operation>,
    profile: Profile,
    devices: usize,
}

/// Attributes that are set.
pub const ATTRIBUTES: [&[u8]; 4] = [b"user.a", b"user.b", b"trusted.c", b"security.d"];

/// Policies: attribute and value, with what a pool of how many devices at least gives.
pub const POLICIES: [(&[u8], &[u8]); 10] = [
    (b"user.stere.copies", b"1"),
    (b"user.stere.copies", b"2"),
    (b"user.stere.copies", b"3"),
    (b"user.stere.parity", b"2+1"),
    (b"user.stere.parity", b"2+2"),
    (b"user.stere.class", b"scratch"),
    (b"user.stere.compress", b"zstd:1"),
    (b"user.stere.compress", b"lz4"),
    (b"user.stere.compress", b"none"),
    (b"user.stere.redundancy", b"6"),
];

impl Generator {
    pub fn new(random: Random, profile: Profile, devices: usize) -> Generator {
        Generator { random, following: Vec::new(), profile, devices }
    }

    fn path(&mut self) -> Path {
        let directory = if self.random.chance(1, 2) { 0 } else { self.random.below(4) as u8 };
        let name = if self.random.chance(1, 20) { self.random.below(8) } else { self.random.below(6) };
        Path { directory, name: name as u8 }
    }

    fn slot(&mut self) -> u8 {
        self.random.below(u64::from(SLOTS)) as u8
    }

    fn target(&mut self) -> Target {
        if self.random.chance(1, 3) { Target::Path(self.path()) } else { Target::Slot(self.slot()) }
    }

    /// An offset where something interesting happens: near block, record and blob borders, or anywhere.
    fn offset(&mut self) -> u64 {
        match self.random.below(8) {
            0..3 => self.random.below(20_000),
            3 => self.random.below(8) * 4096,
            4 => self.random.below(4) * (128 << 10),
            5 => (self.random.below(3) * (128 << 10) + 4096).saturating_sub(self.random.below(9000)),
            6 => self.random.below(600_000),
            _ => 0,
        }
    }

    fn length(&mut self) -> u64 {
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

    fn content(&mut self) -> Operation {
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

    fn manner(&mut self) -> CrashManner {
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

    /// Directories and open files, so that what follows finds something to work on.
    fn beginning(&mut self) -> Vec<Operation> {
        let mkdir = |directory, name| Operation::Mkdir { path: Path { directory, name } };
        let mut operations = vec![mkdir(0, 3), mkdir(0, 4), mkdir(1, 5)];
        for slot in 0..SLOTS {
            let path = Path { directory: self.random.below(4) as u8, name: slot % 3 };
            operations.push(Operation::Create { path, slot });
            let length = self.length() as u32;
            let seed = self.random.next_u64();
            operations.push(Operation::Write { target: Target::Slot(slot), offset: 0, length, seed });
        }
        operations
    }

    /// Lets a device go away and come back a few times, between operations, in their middle, or within a recovery; mounted again
    /// without it some times.
    fn send_away(&mut self, operations: &mut Vec<Operation>, device: u8) {
        let (mut at, mut device) = (0, device);
        for _ in 0..self.random.between(1, 3) {
            at += self.random.below(30) as usize;
            let events = if self.random.chance(1, 3) { 0 } else { self.random.between(1, 30) as u32 };
            let away = match self.random.chance(1, 6) {
                true => Operation::Offline { device },
                false => Operation::TakeAway { device, events },
            };
            let again = self.random.chance(1, 3).then(|| self.random.between(1, 12) as u32);
            let crash = Operation::Crash { manner: self.manner(), again };
            let mount = if self.random.chance(1, 2) { Operation::Remount } else { crash };
            let mut put = |at: &mut usize, operation: Operation| {
                *at = (*at).min(operations.len());
                operations.insert(*at, operation);
                *at += 1;
            };
            put(&mut at, away);
            if self.random.chance(1, 2) {
                at += self.random.below(12) as usize;
                put(&mut at, mount.clone());
            }
            at += self.random.below(20) as usize;
            if self.random.chance(1, 3) {
                put(&mut at, Operation::Online { device });
            } else if self.random.chance(4, 5) {
                put(&mut at, Operation::BringBack { device });
            }
            if self.random.chance(3, 4) {
                put(&mut at, mount);
            }
            // What is whole again bears the loss of any device.
            if self.random.chance(2, 3) {
                put(&mut at, Operation::Mend);
                device = self.random.below(self.devices as u64) as u8;
            }
        }
    }

    /// People change devices a few times; each change is followed by some mending, and some by all of it.
    fn change_devices(&mut self, operations: &mut Vec<Operation>) {
        let mut at = 0;
        let mut devices = self.devices as u64;
        for _ in 0..self.random.between(1, 4) {
            at = (at + self.random.below(25) as usize).min(operations.len());
            let device = self.random.below(devices) as u8;
            let mebibytes = *self.random.pick(&[64, 80, 200, 700, 3000]);
            let change = match self.random.below(10) {
                0..3 => Operation::AddDevice { mebibytes, spare: self.random.chance(1, 4) },
                3..5 => Operation::ReplaceDevice { device, mebibytes },
                5..8 => Operation::EmptyDevice { device, leaves: self.random.chance(2, 3) },
                8 => Operation::GiveUp { device },
                _ => Operation::UseAgain { device },
            };
            devices += u64::from(matches!(change, Operation::AddDevice { .. } | Operation::ReplaceDevice { .. }));
            let mut put = |operation: Operation| {
                operations.insert(at, operation);
                at += 1;
            };
            if self.random.chance(1, 3) {
                put(Operation::ArmCrash { events: self.random.between(1, 30) as u32, manner: CrashManner::Mixed });
            }
            put(change);
            if self.random.chance(2, 3) {
                put(Operation::MendSome { steps: self.random.between(1, 8) as u8 });
            }
            if self.random.chance(1, 3) {
                put(Operation::Mend);
            }
        }
        // Later ones of `send_away` may be of devices that came.
        self.devices = devices as usize;
    }

    /// A device is lost, between operations, in their middle, or within a recovery; it is replaced or given up, or nobody does
    /// anything about it.
    fn lose_device(&mut self, operations: &mut Vec<Operation>, device: u8) {
        let (mut at, mut device) = (0, device);
        if self.devices == 1 {
            return;
        }
        for _ in 0..self.random.between(1, 3) {
            at = (at + self.random.below(30) as usize).min(operations.len());
            let events = if self.random.chance(1, 3) { 0 } else { self.random.between(1, 60) as u32 };
            let mut follow = vec![Operation::Lose { device, events }];
            match self.random.below(6) {
                0 => follow.push(Operation::Crash { manner: self.manner(), again: None }),
                1 => follow.push(Operation::Remount),
                2 => follow.push(Operation::Checkpoint),
                _ => {}
            }
            let mebibytes = *self.random.pick(&[80, 200, 3000]);
            match self.random.below(4) {
                0 => follow.push(Operation::AddDevice { mebibytes, spare: false }),
                1 => follow.push(Operation::ReplaceDevice { device, mebibytes: 3200 }),
                2 => follow.insert(0, Operation::AddDevice { mebibytes, spare: true }),
                _ => {}
            }
            if self.random.chance(1, 2) {
                follow.push(Operation::MendSome { steps: self.random.between(1, 6) as u8 });
            }
            if self.random.chance(1, 2) {
                let again = self.random.chance(1, 3).then(|| self.random.between(1, 12) as u32);
                follow.push(Operation::Crash { manner: self.manner(), again });
            }
            for operation in follow {
                operations.insert(at, operation);
                at = (at + 1 + self.random.below(4) as usize).min(operations.len());
            }
            if self.random.chance(4, 5) {
                operations.insert(at, Operation::Mend);
                device = self.random.below(self.devices as u64) as u8;
            }
        }
    }

    /// A whole history of so many operations; one in `with_faults` gets the faults that are given.
    pub fn history(&mut self, steps: usize, faults: &[(u8, FaultKind, u32)]) -> Vec<Operation> {
        let mut operations = if self.random.chance(4, 5) { self.beginning() } else { Vec::new() };
        operations.extend((0..steps).map(|_| self.operation()));
        if self.devices > 1 && self.random.chance(1, 3) && self.profile != Profile::Full {
            self.change_devices(&mut operations);
        }
        for (device, kind, per_million) in faults {
            let device = *device;
            if *kind == FaultKind::LostDevice {
                self.lose_device(&mut operations, device);
                continue;
            }
            if *kind == FaultKind::AwayDevice {
                self.send_away(&mut operations, device);
                continue;
            }
            let at = self.random.below(steps as u64 / 2 + 1) as usize;
            let operation = match kind {
                FaultKind::StaleDevice => Operation::KeepImage { device },
                _ => Operation::Faults { device, kind: *kind, per_million: *per_million },
            };
            operations.insert(at, operation);
        }
        operations
    }
}
