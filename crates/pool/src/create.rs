//! Making a pool: everything is checked first, then old superblocks are wiped, then the store writes its first checkpoint.
//!
//! Invariants: after an error of the checks nothing was written; the last thing written is the first valid superblock, so
//! a creation that was cut short leaves devices that are not members of any pool.

use std::sync::Arc;

use stere_device::{Completion, Device};
use stere_format::{
    BLOCK_BYTES, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, DEVICES_MAX, DeviceEntry, DeviceId, DeviceIndex, DeviceLayout,
    DeviceState, PoolId, Scheme, Superblock, WIDTH_MAX, layout::DEVICE_BYTES_MIN,
};
use stere_journal::Tail;
use stere_store::{DeviceIn, MetadataWish, Store, StoreOptions, usual_metadata_copies};

use crate::class::DeviceClass;
use crate::error::Error;
use crate::identify::{Holds, describe_copies, identify, other_version};

/// A pool has at least so many slots on its smallest device if the chunk size is chosen for it.
const SLOTS_WANTED: u32 = 48;
/// With fewer slots a device is of no use.
pub(crate) const SLOTS_MIN: u32 = 16;
const TEXT_BYTES_MAX: usize = Superblock::TEXT_FIELD_BYTES - 1;

/// Where random bytes come from: the core draws none itself.
pub trait Randomness {
    fn fill(&mut self, bytes: &mut [u8]);
}

impl<F: FnMut(&mut [u8])> Randomness for F {
    fn fill(&mut self, bytes: &mut [u8]) {
        self(bytes);
    }
}

/// A device that is to become part of a new pool.
pub struct NewDevice {
    /// What people call it: a path, mostly.
    pub path: String,
    pub device: Arc<dyn Device>,
    /// The name in the pool; empty for one that is made up.
    pub name: String,
    pub class: DeviceClass,
    pub tags: Vec<String>,
    pub host: String,
    pub shelf: String,
    /// What was found on it that is not stere's, in words; `None` if it is empty.
    pub foreign: Option<String>,
}

/// On how many devices metadata lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetadataCopies {
    /// Three, or as many as there are devices; two where the third is tiny beside the others.
    #[default]
    Default,
    All,
    Exactly(usize),
}

/// How a pool is made.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    pub pool_name: String,
    /// Chosen for the smallest device if not given.
    pub chunk_bytes: Option<u32>,
    pub metadata_copies: MetadataCopies,
    /// Destroy what the devices hold.
    pub force: bool,
    pub memory_bytes: usize,
    /// The shared log that the journal and the roots go to; empty, and for the id that `draw_pool_id` gave.
    pub tail: Option<Arc<Tail>>,
    /// The pool's id, where it had to be known before.
    pub pool: Option<PoolId>,
}

/// The chunk size for a pool whose smallest device is this large.
pub fn chunk_bytes_for(smallest_bytes: u64) -> u32 {
    const GIB: u64 = 1 << 30;
    let mut chunk_bytes = match smallest_bytes {
        0..=0x1_0000_0000 => CHUNK_BYTES_MIN,
        bytes if bytes <= 256 * GIB => 4 << 20,
        _ => CHUNK_BYTES_MAX,
    };
    let slots = |chunk_bytes| DeviceLayout::for_size(smallest_bytes, chunk_bytes).map_or(0, |layout| layout.slot_count);
    while chunk_bytes > CHUNK_BYTES_MIN && slots(chunk_bytes) < SLOTS_WANTED {
        chunk_bytes /= 2;
    }
    assert!(chunk_bytes.is_power_of_two(), "chunks of {chunk_bytes} bytes are chosen");
    assert!((CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_bytes), "chunks of {chunk_bytes} bytes are chosen");
    chunk_bytes
}

/// Whether a pool can be made of these, before anything is changed anywhere.
pub fn check_new(devices: &[NewDevice], options: &CreateOptions) -> Result<(), Error> {
    check_texts(devices, options)?;
    check_contents(devices, options.force)?;
    metadata_copies(options.metadata_copies, devices)?;
    layouts(devices, options).map(drop)
}

/// Makes an empty pool and opens it. The names (root directory) are the caller's next step.
pub fn create(
    devices: Vec<NewDevice>,
    options: &CreateOptions,
    randomness: &mut dyn Randomness,
) -> Result<Store, Error> {
    check_texts(&devices, options)?;
    check_contents(&devices, options.force)?;
    let copies = metadata_copies(options.metadata_copies, &devices)?;
    assert!((1..=devices.len()).contains(&copies), "each copy of metadata has a device of its own");
    let layouts = layouts(&devices, options)?;
    let plan = Plan::draw(&devices, layouts, copies, options, randomness);
    for new in &devices {
        wipe_device(&new.path, &*new.device)?;
    }
    let store_options = StoreOptions {
        memory_bytes: options.memory_bytes.max(32 << 20),
        meta_scheme: Scheme { data: 1, parity: (copies - 1) as u8 },
        metadata_follows_devices: matches!(options.metadata_copies, MetadataCopies::Default),
        hash_key: plan.hash_key,
        tail: options.tail.clone(),
        ..StoreOptions::default()
    };
    let mut devices_in = Vec::with_capacity(devices.len());
    let mut entries = Vec::with_capacity(devices.len());
    for (index, new) in devices.iter().enumerate() {
        let superblock = plan.superblock(index, new, options);
        entries.push(new.entry(&superblock, DeviceState::Active));
        devices_in.push(DeviceIn {
            index: index as DeviceIndex,
            superblock,
            device: new.device.clone(),
            read_cost: new.class.read_cost(),
        });
    }
    let store = Store::create(devices_in, entries, store_options)?;
    match options.metadata_copies {
        MetadataCopies::Default => {}
        MetadataCopies::All => store.places().set_metadata_wish(MetadataWish::All)?,
        MetadataCopies::Exactly(_) => store.places().set_metadata_wish(MetadataWish::Copies(copies as u8))?,
    }
    Ok(store)
}

fn check_text(what: &'static str, text: &str) -> Result<(), Error> {
    match text.len() <= TEXT_BYTES_MAX {
        true => Ok(()),
        false => Err(Error::TextTooLong { what, text: text.to_owned(), length: text.len(), max: TEXT_BYTES_MAX }),
    }
}

fn check_texts(devices: &[NewDevice], options: &CreateOptions) -> Result<(), Error> {
    check_text("pool name", &options.pool_name)?;
    devices.iter().try_for_each(check_label_texts)
}

pub(crate) fn check_label_texts(new: &NewDevice) -> Result<(), Error> {
    check_text("device name", &new.name)?;
    check_text("host", &new.host)?;
    check_text("shelf", &new.shelf)?;
    new.tags.iter().try_for_each(|tag| check_text("tag", tag))
}

/// Nothing that belongs to anybody is destroyed without being told to.
fn check_contents(devices: &[NewDevice], force: bool) -> Result<(), Error> {
    if devices.is_empty() {
        return Err(Error::NoDevices);
    }
    if devices.len() > DEVICES_MAX {
        return Err(Error::CopiesOutOfRange { given: devices.len(), max: DEVICES_MAX });
    }
    for (at, new) in devices.iter().enumerate() {
        if let Some(other) = devices[..at].iter().find(|other| other.path == new.path) {
            return Err(Error::SameDevice { first: other.path.clone(), second: new.path.clone() });
        }
        check_content(new, force)?;
    }
    Ok(())
}

/// The same for one device.
pub(crate) fn check_content(new: &NewDevice, force: bool) -> Result<(), Error> {
    let device = new.path.clone();
    let size_bytes = new.device.size_bytes();
    if size_bytes < DEVICE_BYTES_MIN {
        return Err(Error::TooSmall { device, size_bytes });
    }
    let mut probe = vec![0; BLOCK_BYTES];
    new.device.read(0, &mut probe).map_err(|source| Error::Unreadable { device: device.clone(), source })?;
    if force {
        return Ok(());
    }
    let belongs = |superblock: Superblock, device| {
        Err(Error::InAnotherPool { device, pool_name: superblock.pool_name, pool: superblock.pool })
    };
    match identify(&*new.device) {
        Holds::Member(identity) => return belongs(identity.superblock, device),
        Holds::Truncated(superblock) => return belongs(*superblock, device),
        Holds::Damaged(copies) => return Err(Error::DamagedMember { device, detail: describe_copies(&copies) }),
        Holds::OtherVersion { found } => return Err(other_version(device, found)),
        Holds::NothingOfStere => {}
    }
    match &new.foreign {
        Some(found) => Err(Error::Foreign { device, found: found.clone() }),
        None => Ok(()),
    }
}

fn metadata_copies(wanted: MetadataCopies, new: &[NewDevice]) -> Result<usize, Error> {
    let (max, devices) = (WIDTH_MAX, new.len());
    match wanted {
        MetadataCopies::Default => {
            let sizes: Vec<u64> = new.iter().map(|new| new.device.size_bytes()).collect();
            Ok(usual_metadata_copies(&sizes))
        }
        MetadataCopies::All => Ok(devices.min(max)),
        MetadataCopies::Exactly(given) if given == 0 || given > max => Err(Error::CopiesOutOfRange { given, max }),
        MetadataCopies::Exactly(copies) if copies > devices => Err(Error::NoRoomForCopies { copies, devices }),
        MetadataCopies::Exactly(copies) => Ok(copies),
    }
}

fn layouts(devices: &[NewDevice], options: &CreateOptions) -> Result<Vec<DeviceLayout>, Error> {
    let smallest_bytes = devices.iter().map(|new| new.device.size_bytes()).min().unwrap_or(0);
    let chunk_bytes = options.chunk_bytes.unwrap_or_else(|| chunk_bytes_for(smallest_bytes));
    let mut layouts = Vec::with_capacity(devices.len());
    for new in devices {
        let layout = DeviceLayout::for_size(new.device.size_bytes(), chunk_bytes)?;
        if layout.slot_count < SLOTS_MIN {
            let slots = layout.slot_count;
            return Err(Error::TooFewSlots { device: new.path.clone(), chunk_bytes, slots });
        }
        layouts.push(layout);
    }
    Ok(layouts)
}

/// All that is drawn and chosen once for the whole pool.
struct Plan {
    pool: PoolId,
    ids: Vec<DeviceId>,
    hash_key: [u8; 16],
    layouts: Vec<DeviceLayout>,
    journal_devices: Vec<DeviceIndex>,
    journal_bytes: u64,
}

/// A random (version 4) UUID.
pub(crate) fn draw_uuid(randomness: &mut dyn Randomness) -> [u8; 16] {
    let mut bytes = [0; 16];
    randomness.fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

/// The id of a pool that is to be made.
pub fn draw_pool_id(randomness: &mut dyn Randomness) -> PoolId {
    PoolId(draw_uuid(randomness))
}

impl Plan {
    fn draw(
        devices: &[NewDevice],
        layouts: Vec<DeviceLayout>,
        copies: usize,
        options: &CreateOptions,
        randomness: &mut dyn Randomness,
    ) -> Plan {
        assert_eq!(devices.len(), layouts.len(), "every device has its layout");
        let mut hash_key = [0; 16];
        let pool = options.pool.unwrap_or_else(|| draw_pool_id(randomness));
        let ids = devices.iter().map(|_| DeviceId(draw_uuid(randomness))).collect();
        randomness.fill(&mut hash_key);
        let journal_devices = journal_devices(devices, copies);
        let journal_bytes =
            journal_devices.iter().map(|index| layouts[usize::from(*index)].journal_bytes).min().unwrap_or(0);
        assert!(journal_bytes > 0, "each mirror of the journal has room for it");
        tracing::debug!(pool = %pool, name = options.pool_name, ?journal_devices, journal_bytes, "a new pool");
        Plan { pool, ids, hash_key, layouts, journal_devices, journal_bytes }
    }

    fn superblock(&self, index: usize, new: &NewDevice, options: &CreateOptions) -> Superblock {
        Superblock {
            journal_bytes: self.journal_bytes,
            journal_devices: if options.tail.is_some() { Vec::new() } else { self.journal_devices.clone() },
            is_log_shared: options.tail.is_some(),
            pool_name: options.pool_name.clone(),
            host: new.host.clone(),
            shelf: new.shelf.clone(),
            ..Superblock::first(self.pool, self.ids[index], index as DeviceIndex, self.layouts[index])
        }
    }
}

impl NewDevice {
    /// What the pool's table says of it.
    pub(crate) fn entry(&self, superblock: &Superblock, state: DeviceState) -> DeviceEntry {
        let number = usize::from(superblock.device_index) + 1;
        let name = if self.name.is_empty() { format!("d{number}") } else { self.name.clone() };
        DeviceEntry {
            class: self.class.code(),
            state: state.code(),
            tags: self.tags.clone(),
            ..DeviceEntry::of(superblock, name)
        }
    }
}

/// Who mirrors the journal: fast devices first, then large ones, because the smallest mirror bounds them all.
fn journal_devices(devices: &[NewDevice], copies: usize) -> Vec<DeviceIndex> {
    let mut order: Vec<usize> = (0..devices.len()).collect();
    order.sort_by_key(|&index| {
        let new = &devices[index];
        (new.class.read_cost(), std::cmp::Reverse(new.device.size_bytes()), index)
    });
    let count = copies.min(Superblock::JOURNAL_DEVICES_MAX);
    let mut chosen: Vec<DeviceIndex> = order.into_iter().take(count).map(|index| index as DeviceIndex).collect();
    chosen.sort_unstable();
    assert!(!chosen.is_empty() && chosen.len() <= Superblock::JOURNAL_DEVICES_MAX, "a journal has mirrors");
    chosen
}

/// Takes away every superblock and signature that was in front or behind, so that nothing old is found again.
pub(crate) fn wipe_device(path: &str, device: &dyn Device) -> Result<(), Error> {
    const FRONT_BYTES: usize = 256 << 10;
    const BACK_BYTES: usize = 128 << 10;
    assert!(device.size_bytes() >= DEVICE_BYTES_MIN, "{path} is too small for its front and back to be apart");
    let failed = |source| Error::Unwritable { device: path.to_owned(), source };
    device.forget_epochs().map_err(failed)?;
    let zeros = stere_device::Buffer::zeroed(FRONT_BYTES).share();
    let completion = Completion::new();
    let back = device.size_bytes() / BLOCK_BYTES as u64 * BLOCK_BYTES as u64 - BACK_BYTES as u64;
    device.submit_write(0, zeros.clone(), 0..FRONT_BYTES, completion.ticket(0));
    device.submit_write(back, zeros, 0..BACK_BYTES, completion.ticket(1));
    if let Some((_, source)) = completion.wait().pop() {
        return Err(failed(source));
    }
    device.flush().map_err(failed)
}
