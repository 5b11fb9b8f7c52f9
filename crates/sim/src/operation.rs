//! What a history is made of, and how it is drawn. Operations name paths and handles by number, not by what is there, so
//! that a history stays a history when steps are left out of it.

use crate::accounts::AccountStep;
use crate::backups::DiskTrouble;
use crate::fault::FaultKind;
use crate::medium_faults::VolumeStep;
use crate::metadata_offload::ColdStep;
use crate::model::RenameManner;
use crate::placement::Place;
use crate::policy_lists::ListChange;
use crate::random::Random;
use crate::tiers::TierStep;
use crate::volume::{Harm, VolumeTrouble};

pub use draw::Generator;

mod draw;
mod script;
mod volumes;

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

/// What follows when segments are released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Releasing {
    Only,
    Commit,
    /// As many as it takes until their room is free.
    Checkpoints,
}

/// A write that comes between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Between {
    pub offset: u64,
    pub length: u32,
    pub seed: u64,
    pub syncs: bool,
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
    /// The same, where it has to read a volume with another one between that changes whole blocks and does not wait, and a sync.
    WriteMeanwhile {
        target: Target,
        offset: u64,
        length: u32,
        seed: u64,
        between: Between,
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
    /// The pool gets rules.
    LoadRules {
        number: u8,
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
    /// A file with one copy is written and synced while the device goes away, which may be the one that should have it; then the power
    /// goes off.
    LonelySync {
        device: u8,
        events: u32,
    },
    /// A file with one copy is written; then its device does not answer, or not one kind of call, while it is emptied, removed or given up, and
    /// after hours it does all again.
    TrySingle {
        ailment: u8,
        verb: u8,
    },
    /// Two users fill a pool of their own, beside this one, and make calls of all kinds in it.
    TryNearlyFull {
        seed: u64,
    },
    /// A device hangs, in the middle of something, while others have what it holds; it answers after hours, or never.
    TryHanging {
        moment: u8,
    },
    /// A device fails for a while, a spare takes over, and the device comes back intact.
    TryTakeover {
        manner: u8,
    },
    /// Several machines reach a copy of the devices, and each wants to mount the pool.
    TryRivals,
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
    /// Less of a device is used from now on: so many percent of its size.
    ShrinkDevice {
        device: u8,
        percent: u8,
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
    /// Chunks may move from fuller devices to emptier ones.
    Rebalance,
    /// So many steps of mending, of a quarter of a mebibyte each.
    MendSome {
        steps: u8,
    },
    /// With all devices there: everything is mended, and is whole again after that.
    Mend,
    /// Everything is read and proved; what is bad and can be put right is right after it.
    Scrub,
    /// A medium joins the pool; a slow one is read whole segments at a time.
    AddVolume {
        is_slow: bool,
    },
    /// A file, or what is below a directory, goes down to these volumes, a set; to none if it is empty.
    Archive {
        path: Path,
        volumes: u8,
    },
    /// So many steps of the work that volumes make; `ends` segments that are not full.
    StepVolumes {
        count: u8,
        ends: bool,
    },
    /// What is on all its volumes is given up on devices.
    Release {
        path: Path,
        releasing: Releasing,
    },
    /// What is released is wanted back.
    Stage {
        path: Path,
    },
    Pin {
        path: Path,
        is_pinned: bool,
    },
    /// From now on a volume does this wrong.
    Trouble {
        volume: u8,
        trouble: VolumeTrouble,
    },
    /// All volumes do right again.
    EndTroubles,
    /// An object on a volume is not what it was any more.
    Harm {
        volume: u8,
        pick: u8,
        harm: Harm,
    },
    /// A person takes a volume away, until the next mount.
    TakeVolumeAway {
        volume: u8,
    },
    /// A volume is compared with the pool; `reads` every object.
    VerifyVolume {
        volume: u8,
        reads: bool,
    },
    /// All that is on a volume goes to another one, and the volume goes then.
    RetireVolume {
        volume: u8,
        heir: u8,
    },
    /// A volume is removed, if nothing is there only.
    RemoveVolume {
        volume: u8,
    },
    /// Nothing is copied out, or again.
    HoldUploads {
        are_held: bool,
    },
    /// Metadata goes to volumes, so many objects of it.
    CopyMetadata {
        steps: u8,
    },
    /// Objects of which at most so many percent are alive are emptied into new ones.
    Repack {
        percent: u8,
        steps: u8,
    },
    /// As a mount does by itself: the volume is repacked of which most is dead, if that is so many percent.
    RepackEmptiest {
        percent: u8,
    },
    /// Archived segments are released as marks say, of which the high one is so many percent under what is in use, and the low one so
    /// many under that.
    KeepRoom {
        under: u8,
        by: u8,
    },
    /// A file is read on a mount that refuses recalls, or that does not wait for them.
    ReadWithoutRecall {
        target: Target,
        denies: bool,
    },
    /// With nothing wrong with volumes: everything goes down that shall.
    SettleVolumes,
    /// With all devices gone, volumes give back what was published.
    RescueFromVolumes,
    /// A file is to stay as it is for so many days from now; with none it is to be free.
    Retain {
        path: Path,
        days: u8,
    },
    /// A limit is set, `room` above what there is, for a while of so many days if it is of that manner.
    Limit {
        holder: u8,
        manner: u8,
        room: u16,
        days: u8,
    },
    /// Days go by.
    PassDays {
        days: u8,
    },
    /// A file, a directory, or with no path the root, says something of versions (0) or plugins (1).
    Say {
        path: Option<Path>,
        list: u8,
        change: ListChange,
        pick: u8,
    },
    /// The class that says something of versions and plugins says something else.
    ChangeClass {
        pick: u8,
    },
    /// Records are to have another size.
    AskRecords {
        path: Option<Path>,
        pick: u8,
    },
    /// A file, a directory, or with no path the root, says when changes are durable.
    AskSync {
        path: Option<Path>,
        pick: u8,
    },
    /// A file or a directory says for how long nobody may have used what is on volumes before devices give it up.
    AskRelease {
        path: Path,
        pick: u8,
    },
    /// Devices give up what nobody used for long.
    KeepUnused,
    /// A file, a directory, or with no path the root, says on which devices data is to lie.
    AskPlace {
        path: Option<Path>,
        place: Place,
    },
    /// A device gets other tags.
    Label {
        device: u8,
        tags: u8,
    },
    /// Something is done to accounts.
    Accounts(AccountStep),
    /// Something rare happens to volumes.
    Volumes(VolumeStep),
    /// Units, heat and what is recalled are tried and proven.
    Tiers(TierStep),
    /// Something is done to names that are put away.
    Cold(ColdStep),
    /// The plugin that is told afterwards fails from now on, or works again.
    FailTold {
        fails: bool,
    },
    /// So many files are told of.
    Tell {
        count: u8,
    },
    /// A file is to be copied to the disk of backups, or not.
    ChooseForBackup {
        path: Path,
        is_chosen: bool,
    },
    /// What is chosen is copied, while something may be wrong with the disk.
    Backup {
        trouble: DiskTrouble,
    },
    /// Copies are read, given back and compared, after one of them rotted.
    ProveBackup {
        rots: bool,
    },
}

impl Operation {
    /// Whether it stands for itself, so that others may take its place.
    pub fn is_plain(&self) -> bool {
        matches!(
            self,
            Operation::Create { .. }
                | Operation::Open { .. }
                | Operation::Close { .. }
                | Operation::Mkdir { .. }
                | Operation::Symlink { .. }
                | Operation::Fifo { .. }
                | Operation::Link { .. }
                | Operation::Unlink { .. }
                | Operation::Rename { .. }
                | Operation::Write { .. }
                | Operation::Read { .. }
                | Operation::Truncate { .. }
                | Operation::Allocate { .. }
                | Operation::Copy { .. }
                | Operation::Seek { .. }
                | Operation::SetMode { .. }
                | Operation::SetAttribute { .. }
                | Operation::List { .. }
        )
    }
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

/// Attributes that are set.
pub const ATTRIBUTES: [&[u8]; 4] = [b"user.a", b"user.b", b"trusted.c", b"security.d"];

/// Policies: attribute and value, with what a pool of how many devices at least gives.
pub const POLICIES: [(&[u8], &[u8]); 13] = [
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
    (b"user.stere.rules", b"a: copies=3, compress=lz4; b: parity=2+1; *: compress=zstd:1"),
    (b"user.stere.rules", b"size>100K: copies=3; *: copies=2, compress=lz4"),
    (b"user.stere.rules", b"c: parity=2+2; d/**: compress=zstd:1, record=8K"),
];

/// Rules of the whole pool.
pub const RULES: [&str; 4] = [
    "",
    "*: compress=lz4, record=16K",
    "! a: copies=3; size>64K: compress=zstd:1",
    "b: parity=2+1; ! *: compress=none",
];
