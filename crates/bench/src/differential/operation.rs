//! What is done: one operation with all its parameters, drawn at random over few names, so that names collide often.

use crate::pattern::Random;

/// A path below the root of a side, as bytes: names may be any bytes but `/` and NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub Vec<u8>);

impl std::fmt::Debug for Name {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_slice() {
            long if long.len() > 60 => write!(out, "\"{}..\" ({} bytes)", long[..8].escape_ascii(), long.len()),
            short => write!(out, "\"{}\"", short.escape_ascii()),
        }
    }
}

pub const SLOTS: u64 = 6;
/// Files grow to about this size; a few writes go far beyond and leave a hole.
const USUAL_SIZE: u64 = 300_000;
const FAR: u64 = 1 << 36;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallocateMode {
    Allocate,
    KeepSize,
    PunchHole,
    ZeroRange,
    ZeroRangeKeepSize,
    CollapseRange,
    InsertRange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    Fifo,
    Socket,
    Character,
    Regular,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    Replace,
    NoReplace,
    Exchange,
}

#[derive(Debug, Clone)]
pub enum Operation {
    Open {
        slot: u64,
        name: Name,
        create: bool,
        exclusive: bool,
        truncate: bool,
        append: bool,
        mode: u32,
    },
    OpenTemporary {
        slot: u64,
        name: Name,
        mode: u32,
    },
    LinkSlot {
        slot: u64,
        name: Name,
    },
    Close {
        slot: u64,
    },
    Write {
        slot: u64,
        offset: u64,
        length: u64,
        fill: u8,
    },
    Read {
        slot: u64,
        offset: u64,
        length: u64,
    },
    TruncateSlot {
        slot: u64,
        size: u64,
    },
    Fallocate {
        slot: u64,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    },
    CopyRange {
        from: u64,
        to: u64,
        from_offset: u64,
        to_offset: u64,
        length: u64,
    },
    Seek {
        slot: u64,
        offset: u64,
    },
    Sync {
        slot: u64,
        data_only: bool,
    },
    Lock {
        slot: u64,
        exclusive: bool,
        start: u64,
        length: u64,
    },
    StatSlot {
        slot: u64,
    },
    Mkdir {
        name: Name,
        mode: u32,
    },
    Unlink {
        name: Name,
    },
    Rmdir {
        name: Name,
    },
    Rename {
        from: Name,
        to: Name,
        mode: RenameMode,
    },
    Link {
        from: Name,
        to: Name,
    },
    Symlink {
        target: Name,
        name: Name,
    },
    Node {
        name: Name,
        kind: NodeKind,
        mode: u32,
    },
    Chmod {
        name: Name,
        mode: u32,
    },
    Chown {
        name: Name,
        user: u32,
        group: u32,
        follow: bool,
    },
    SetTimes {
        name: Name,
        access: Option<(i64, i64)>,
        modification: Option<(i64, i64)>,
        follow: bool,
    },
    Truncate {
        name: Name,
        size: u64,
    },
    SetAttribute {
        name: Name,
        attribute: &'static str,
        length: usize,
        create: bool,
        replace: bool,
    },
    GetAttribute {
        name: Name,
        attribute: &'static str,
    },
    RemoveAttribute {
        name: Name,
        attribute: &'static str,
    },
    SetAcl {
        name: Name,
        default: bool,
        permissions: [u16; 5],
    },
    List {
        name: Name,
    },
    ReadLink {
        name: Name,
    },
    Access {
        name: Name,
        mode: i32,
    },
    /// From now on as this user; 0 is root again.
    Become {
        user: u32,
    },
    Umask {
        mask: u32,
    },
}

pub const ATTRIBUTES: &[&str] = &[
    "user.a",
    "user.b",
    "user.empty",
    "trusted.t",
    "security.stere_test",
    "user.",
    "nonsense.x",
    "user.long_name_of_an_attribute",
];

impl Operation {
    pub fn generate(random: &mut Random) -> Self {
        match random.below(100) {
            0..40 => Self::generate_on_slot(random),
            40..75 => Self::generate_on_names(random),
            75..96 => Self::generate_on_attributes(random),
            96..98 => Operation::Become { user: [0, 0, 0, 1001, 1002][random.below(5) as usize] },
            _ => Operation::Umask { mask: [0, 0o022, 0o077, 0o027][random.below(4) as usize] },
        }
    }

    fn generate_on_slot(random: &mut Random) -> Self {
        let slot = random.below(SLOTS);
        match random.below(40) {
            0..8 => Operation::Open {
                slot,
                name: name(random),
                create: random.below(3) != 0,
                exclusive: random.below(5) == 0,
                truncate: random.below(5) == 0,
                append: random.below(6) == 0,
                mode: mode(random),
            },
            8 => Operation::OpenTemporary { slot, name: name(random), mode: mode(random) },
            9 => Operation::LinkSlot { slot, name: name(random) },
            10 => Operation::Close { slot },
            11..20 => {
                Operation::Write { slot, offset: offset(random), length: length(random), fill: random.next() as u8 }
            }
            20..25 => Operation::Read { slot, offset: offset(random), length: length(random) },
            25..27 => Operation::TruncateSlot { slot, size: offset(random) },
            27..32 => Self::generate_fallocate(random, slot),
            32..34 => Operation::CopyRange {
                from: slot,
                to: random.below(SLOTS),
                from_offset: offset(random),
                to_offset: offset(random),
                length: length(random),
            },
            34..36 => Operation::Seek { slot, offset: offset(random) },
            36 => Operation::Sync { slot, data_only: random.below(2) == 0 },
            37 => Operation::Lock {
                slot,
                exclusive: random.below(2) == 0,
                start: random.below(100),
                length: random.below(50),
            },
            _ => Operation::StatSlot { slot },
        }
    }

    fn generate_fallocate(random: &mut Random, slot: u64) -> Self {
        use FallocateMode::*;
        let modes =
            [Allocate, KeepSize, PunchHole, PunchHole, ZeroRange, ZeroRangeKeepSize, CollapseRange, InsertRange];
        let mode = modes[random.below(8) as usize];
        let (mut offset, mut length) = (random.below(USUAL_SIZE), length(random));
        let aligned = random.below(3) != 0;
        if aligned || matches!(mode, CollapseRange | InsertRange) {
            (offset, length) = (offset / 4096 * 4096, length / 4096 * 4096);
        }
        Operation::Fallocate { slot, mode, offset, length }
    }

    fn generate_on_names(random: &mut Random) -> Self {
        match random.below(35) {
            0..5 => Operation::Mkdir { name: name(random), mode: mode(random) },
            5..9 => Operation::Unlink { name: name(random) },
            9..11 => Operation::Rmdir { name: name(random) },
            11..20 => Operation::Rename {
                from: name(random),
                to: name(random),
                mode: [RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]
                    [random.below(4) as usize],
            },
            20..24 => Operation::Link { from: name(random), to: name(random) },
            24..27 => Operation::Symlink { target: name(random), name: name(random) },
            27..29 => Operation::Node {
                name: name(random),
                kind: [NodeKind::Fifo, NodeKind::Socket, NodeKind::Character, NodeKind::Regular]
                    [random.below(4) as usize],
                mode: mode(random),
            },
            29..32 => Operation::List { name: name(random) },
            32 => Operation::ReadLink { name: name(random) },
            _ => Operation::Truncate { name: name(random), size: offset(random) },
        }
    }

    fn generate_on_attributes(random: &mut Random) -> Self {
        let name = name(random);
        let attribute = ATTRIBUTES[random.below(ATTRIBUTES.len() as u64) as usize];
        let follow = random.below(3) != 0;
        match random.below(21) {
            0..4 => Operation::Chmod { name, mode: mode(random) },
            4..7 => {
                let owners = [u32::MAX, 0, 1001, 1002];
                let mut owner = || owners[random.below(4) as usize];
                Operation::Chown { name, user: owner(), group: owner(), follow }
            }
            7..11 => Operation::SetTimes { name, access: time(random), modification: time(random), follow },
            11..14 => {
                let length = [0, 1, 20, 300][random.below(4) as usize];
                // Never both: local file systems do not agree what that means.
                let (create, replace) = [(true, false), (false, true), (false, false)][random.below(3) as usize];
                Operation::SetAttribute { name, attribute, length, create, replace }
            }
            14..16 => Operation::GetAttribute { name, attribute },
            16 => Operation::RemoveAttribute { name, attribute },
            17..19 => {
                let mut permission = || random.below(8) as u16;
                let permissions = [permission(), permission(), permission(), permission(), permission()];
                Operation::SetAcl { name, default: random.below(2) == 0, permissions }
            }
            _ => Operation::Access { name, mode: random.below(8) as i32 },
        }
    }

    /// Moves the rest of a file, which not every file system can.
    pub fn shifts_ranges(&self) -> bool {
        let Operation::Fallocate { mode, .. } = self else { return false };
        matches!(mode, FallocateMode::CollapseRange | FallocateMode::InsertRange)
    }

    /// The names whose attributes are compared afterwards.
    pub fn names(&self) -> Vec<&Name> {
        use Operation::*;
        match self {
            Open { name, .. } | OpenTemporary { name, .. } | LinkSlot { name, .. } | Mkdir { name, .. } => vec![name],
            Unlink { name } | Rmdir { name } | Symlink { name, .. } | Node { name, .. } | Chmod { name, .. } => {
                vec![name]
            }
            Chown { name, .. } | SetTimes { name, .. } | Truncate { name, .. } | SetAttribute { name, .. } => {
                vec![name]
            }
            GetAttribute { name, .. } | RemoveAttribute { name, .. } | SetAcl { name, .. } | List { name } => {
                vec![name]
            }
            ReadLink { name } | Access { name, .. } => vec![name],
            Rename { from, to, .. } | Link { from, to } => vec![from, to],
            _ => Vec::new(),
        }
    }
}

/// One to three components out of a handful, now and then an unusual one.
fn name(random: &mut Random) -> Name {
    let depth = [1, 1, 1, 2, 2, 3][random.below(6) as usize];
    let mut path = Vec::new();
    for level in 0..depth {
        if level > 0 {
            path.push(b'/');
        }
        match random.below(120) {
            0 => path.extend([b'L'; 255]),
            1 => path.extend([b'M'; 256]),
            2 => path.extend(b"\xff\x01 odd\n"),
            3 => path.push(b'.'),
            other => path.push(b'a' + (other % 5) as u8),
        }
    }
    if random.below(40) == 0 {
        path.push(b'/');
    }
    Name(path)
}

fn mode(random: &mut Random) -> u32 {
    match random.below(8) {
        0 => random.below(0o10000) as u32,
        1 => 0o700,
        2 => 0o600,
        _ => 0o777,
    }
}

fn offset(random: &mut Random) -> u64 {
    match random.below(30) {
        0 => FAR + random.below(USUAL_SIZE),
        1..8 => random.below(USUAL_SIZE) / 4096 * 4096,
        8..12 => 0,
        _ => random.below(USUAL_SIZE),
    }
}

fn length(random: &mut Random) -> u64 {
    match random.below(10) {
        0 => 0,
        1..4 => (1 + random.below(16)) * 4096,
        4..6 => random.below(200_000),
        _ => random.below(9000),
    }
}

/// None is "now"; explicit times lie before 2002, some before 1970 and with nanoseconds.
fn time(random: &mut Random) -> Option<(i64, i64)> {
    match random.below(6) {
        0 => None,
        1 => Some((-(random.below(1 << 30) as i64), random.below(1_000_000_000) as i64)),
        _ => Some((random.below(1_000_000_000) as i64, random.below(1_000_000_000) as i64)),
    }
}
