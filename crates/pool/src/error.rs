//! Why a pool was not made or not opened: what was found, and what to do about it.

use stere_device::DeviceError;
use stere_format::{DecodeError, PoolId};

/// Refusals. None of them has changed anything on any device.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal and the roots are elsewhere.
    #[error(
        "the log of the pool '{pool}' is in an engine, not on its devices, and this machine does not know where: `stere pool import DEVICE... --log URL`"
    )]
    LogNeeded { pool: String },
    /// The engine of the shared log gives no answer.
    #[error("{why}")]
    LogAway { why: String },
    /// A device that is away would go on with the old log.
    #[error(
        "the pool '{pool}' lacks {missing}, which would not hear that its log moved; attach it, or remove it from the pool"
    )]
    WouldNotHear { pool: String, missing: String },
    /// Its log cannot be moved: there is something in it.
    #[error(
        "the pool '{pool}' was not closed in order, so its log stays where it is; mount it, unmount it, then try again"
    )]
    NotClosed { pool: String },
    /// The log lacks what devices know of.
    #[error(
        "the shared log of the pool '{pool}' is older than {device}: it was restored from an older state, or it is not this pool's; nothing was changed: bring the newest state of the log back"
    )]
    LogOlder { pool: String, device: String },
    #[error("no device was named; name at least one file, disk or partition")]
    NoDevices,

    #[error("{first} and {second} are the same device; name every device once")]
    SameDevice { first: String, second: String },

    #[error(
        "{first} and {second} carry the same device id {id}: one is a copy of the other, or both are paths to one device; name only the one that was in use last"
    )]
    CopiedDevice { first: String, second: String, id: String },

    #[error(
        "{device} has {size_bytes} bytes, and a device of a pool needs at least 64 MiB; make it larger or leave it out"
    )]
    TooSmall { device: String, size_bytes: u64 },

    #[error(
        "{device} is a device of this very pool; bring it back with `stere device online`, or repeat with --force if what is on it may be lost"
    )]
    InThisPool { device: String },

    #[error("a pool takes at most {max} devices, and all numbers are in use; remove a device first")]
    TooManyDevices { max: usize },

    #[error(
        "{device} holds {found}; using it would destroy that: name another device, or repeat with --force if it may be lost"
    )]
    Foreign { device: String, found: String },

    #[error(
        "{device} belongs to the pool '{pool_name}' ({pool}); name another device, or repeat with --force if that pool may be destroyed"
    )]
    InAnotherPool { device: String, pool_name: String, pool: PoolId },

    #[error(
        "{device} holds a damaged stere device ({detail}); its pool may still be mended: name another device, or repeat with --force if it may be lost"
    )]
    DamagedMember { device: String, detail: String },

    #[error(
        "{copies} metadata copies need {copies} devices, and there are {devices}; name more devices or ask for fewer copies"
    )]
    NoRoomForCopies { copies: usize, devices: usize },

    #[error("{given} metadata copies are not possible; ask for 1 to {max}")]
    CopiesOutOfRange { given: usize, max: usize },

    #[error(
        "a chunk size of {chunk_bytes} bytes leaves {device} only {slots} slots; choose smaller chunks or a larger device"
    )]
    TooFewSlots { device: String, chunk_bytes: u32, slots: u32 },

    #[error("the {what} '{text}' has {length} bytes, at most {max} are possible; choose a shorter one")]
    TextTooLong { what: &'static str, text: String, length: usize, max: usize },

    #[error(transparent)]
    Layout(#[from] DecodeError),

    #[error("{device} cannot be read: {source}")]
    Unreadable { device: String, source: DeviceError },

    #[error("{device} could not be written while the pool was made: {source}")]
    Unwritable { device: String, source: DeviceError },

    #[error(
        "the pool is in use by {owner}: its heartbeat on {device} moves; unmount it there first, or if that is not wanted find out how two machines reach this device"
    )]
    InUseElsewhere { device: String, owner: String },

    #[error("{device}: the heartbeat that keeps other machines away could not be renewed: {source}")]
    Heartbeat { device: String, source: DeviceError },

    #[error("{device} is not a device of a stere pool ({found}); check the path, or make a pool with `stere create`")]
    NotStere { device: String, found: String },

    #[error(
        "{device}: no copy of its superblock is whole ({detail}); leave it out, or attach a copy of the device from before the damage"
    )]
    SuperblocksDamaged { device: String, detail: String },

    #[error(
        "{device} was written by a newer stere (format {found}, this program knows {supported}); use a newer stere"
    )]
    NewerVersion { device: String, found: u16, supported: u16 },

    #[error(
        "{device} was written by an older stere (format {found}, this program knows {supported}); open it with that version and copy its files"
    )]
    OlderVersion { device: String, found: u16, supported: u16 },

    #[error(
        "{device} was written by a newer stere (format {major}.{minor}) and can only be read by this one; mount with `-o ro`, or use a newer stere"
    )]
    ReadOnlyVersion { device: String, major: u16, minor: u16 },

    #[error(
        "{device} is cut short: it has {size_bytes} bytes, and its superblock says {expected_bytes}; bring it back to its full size, or leave it out"
    )]
    Truncated { device: String, size_bytes: u64, expected_bytes: u64 },

    #[error(
        "the devices belong to different pools: {first} to '{first_pool}', {second} to '{second_pool}'; name the devices of one pool"
    )]
    TwoPools { first: String, first_pool: String, second: String, second_pool: String },

    #[error(
        "{first} and {second} are of one pool but have different histories: each was written to without the other; choose whose files count with `-o prefer={first}` or `-o prefer={second}` (or `stere pool import --choose DEVICE`): what was written only to the other half is then given up"
    )]
    SplitHistories { first: String, second: String },

    #[error("{chosen} was chosen, but it is not among the devices that are there ({present}); choose one of them")]
    ChosenNotThere { chosen: String, present: String },

    #[error(
        "the pool '{pool}' lacks {missing}; attach what is missing, or mount with `-o degraded=auto` to go on with what the other devices hold"
    )]
    Missing { pool: String, missing: String },

    #[error(
        "the pool '{pool}' cannot be read without what is missing ({missing}): no copy of its metadata is there ({detail}); attach the missing devices, or copy out what can be found with `stere rescue`"
    )]
    MetadataMissing { pool: String, missing: String, detail: String },

    #[error(
        "the metadata of the pool '{pool}' cannot be read although all devices are there ({detail}); see `stere check`"
    )]
    MetadataDamaged { pool: String, detail: String },

    #[error(transparent)]
    Store(#[from] stere_store::Error),
}
