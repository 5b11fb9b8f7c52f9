//! The devices of a rescue: what each says it is, or, where no superblock is left, what its chunks say.
//!
//! Invariants: nothing is written to a device; all members are of one pool and one chunk size; each has a handle of its own
//! among the stripe's devices, also where two claim the same number (a device and the one that replaced it). Read next: `rows.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use stere_device::{BufferPool, Device};
use stere_format::{
    BLOCK_BYTES, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, CheckpointRecord, ChunkHeader, DeviceIndex, DeviceLayout, PoolId,
    Superblock,
};
use stere_stripe::{READ_COST_FAST, READ_COST_SEEKING, Stripe};

use crate::error::Error;
use crate::volumes::{Contents, VolumeDevice, VolumeSource};

/// A device that may hold something, open for reading.
pub struct Source {
    /// What people call it.
    pub path: String,
    pub device: Arc<dyn Device>,
}

/// What was made of one device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceFacts {
    pub path: String,
    /// Whether anything is read from it.
    pub is_used: bool,
    pub text: String,
}

/// A device of the pool.
pub(crate) struct Member {
    pub device: Arc<dyn Device>,
    pub layout: DeviceLayout,
    /// Its number in the pool.
    pub index: DeviceIndex,
    /// Its number among the stripe's devices here.
    pub handle: DeviceIndex,
    /// Good copies, newest first.
    pub superblocks: Vec<Superblock>,
    /// Whether it shows that nothing newer than its newest superblock was begun: the places of the next generation still
    /// hold the one before.
    pub is_newest_shown: bool,
}

/// All devices of the pool that were given.
pub(crate) struct Members {
    pub pool: PoolId,
    pub stripe: Arc<Stripe>,
    pub members: Vec<Member>,
    pub facts: Vec<DeviceFacts>,
    /// Checkpoints whose metadata is on volumes, newest first.
    pub records: Vec<CheckpointRecord>,
}

/// A device by itself.
struct Identity {
    pool: PoolId,
    layout: DeviceLayout,
    index: DeviceIndex,
    superblocks: Vec<Superblock>,
    is_newest_shown: bool,
    text: String,
}

/// Memory that reads and reconstruction use.
const BUFFER_BYTES: usize = 32 << 20;
/// How much is read at once when a device is searched.
const SEARCH_BYTES: usize = 1 << 20;
/// So many chunk headers in agreement settle a layout.
const HEADERS_ENOUGH: usize = 16;
/// Without any layout that fits, so many headers are looked for.
const HEADERS_SEARCHED_MAX: usize = 64;
/// Volumes get numbers from here down: above are those that objects name instead of devices.
const VOLUME_HANDLE_MAX: DeviceIndex = 60_000;

impl Members {
    pub fn gather(sources: Vec<Source>, volumes: Vec<VolumeSource>) -> Result<Members, Error> {
        if sources.is_empty() && volumes.is_empty() {
            return Err(Error::NoDevices);
        }
        let count = sources.len() + volumes.len();
        let mut facts = Vec::with_capacity(count);
        let mut found: Vec<(Source, Identity)> = Vec::new();
        for source in sources {
            let identity = by_superblocks(&*source.device).or_else(|| by_chunks(&*source.device));
            let text =
                identity.as_ref().map_or_else(|| "nothing of a pool was found on it".into(), |it| it.text.clone());
            facts.push(DeviceFacts { path: source.path.clone(), is_used: identity.is_some(), text });
            found.extend(identity.map(|identity| (source, identity)));
        }
        let contents = open_volumes(volumes, &mut facts);
        assert_eq!(facts.len(), count, "each source is told of once");
        let devices = found.iter().map(|(source, identity)| (&source.path, identity.pool, identity.name()));
        let volumes = contents.iter().map(|(source, contents, pool)| (&source.path, *pool, contents.text.clone()));
        let mut speakers = devices.chain(volumes);
        let Some((first, pool, first_pool)) = speakers.next() else {
            let detail = facts.iter().map(|fact| fact.path.as_str()).collect::<Vec<_>>().join(", ");
            return Err(Error::NothingFound { detail });
        };
        if let Some((second, _, second_pool)) = speakers.find(|(_, other, _)| *other != pool) {
            let (first, second) = (first.clone(), second.clone());
            return Err(Error::TwoPools { first, first_pool, second, second_pool });
        }
        drop(speakers);
        // Of volumes alone nothing tells the chunk size; no object is larger than this.
        let chunk_bytes = if found.is_empty() { CHUNK_BYTES_MAX } else { chunk_bytes_of(&found) };
        let stripe = Arc::new(Stripe::new(chunk_bytes, BufferPool::new(BUFFER_BYTES)));
        let mut gathered = Members { pool, stripe, members: Vec::new(), facts, records: Vec::new() };
        // The newest gets the number that addresses name.
        found.sort_by_key(|(_, identity)| std::cmp::Reverse(identity.generation()));
        for (source, identity) in found {
            gathered.attach(source, identity);
        }
        for (source, contents, _) in contents {
            gathered.attach_volume(source, contents);
        }
        gathered.records.sort_by_key(|record| std::cmp::Reverse(record.generation));
        Ok(gathered)
    }

    fn attach_volume(&mut self, source: VolumeSource, mut contents: Contents) {
        let is_free = |handle: &DeviceIndex| {
            !self.members.iter().any(|member| member.handle == *handle || member.index == *handle)
        };
        let count = usize::from(contents.device_count());
        let handles: Vec<DeviceIndex> = (0..=VOLUME_HANDLE_MAX).rev().filter(is_free).take(count).collect();
        self.records.append(&mut contents.records);
        let chunk_bytes = self.stripe.chunk_bytes();
        let devices = match VolumeDevice::all_of(source.volume, contents, &handles, chunk_bytes) {
            Ok(devices) => devices,
            Err(error) => return self.note(&source.path, false, &format!("; it is left out: {error}")),
        };
        for (device, handle) in devices.into_iter().zip(handles) {
            let (layout, device) = (device.layout(), Arc::new(device));
            match self.stripe.attach(handle, device.clone(), layout, READ_COST_SEEKING) {
                Ok(()) => self.members.push(Member {
                    device,
                    layout,
                    index: handle,
                    handle,
                    superblocks: Vec::new(),
                    is_newest_shown: false,
                }),
                Err(error) => self.note(&source.path, false, &format!("; it is left out: {error}")),
            }
        }
    }

    fn attach(&mut self, source: Source, identity: Identity) {
        let mut handle = identity.index;
        if self.members.iter().any(|member| member.handle == handle) {
            handle = (0..=DeviceIndex::MAX)
                .rev()
                .find(|free| !self.members.iter().any(|member| member.handle == *free || member.index == *free))
                .unwrap_or(DeviceIndex::MAX);
            self.note(&source.path, true, "; another device has its number and is newer");
        }
        let attached = self.stripe.attach(handle, source.device.clone(), identity.layout, READ_COST_FAST);
        if let Err(error) = attached {
            return self.note(&source.path, false, &format!("; it is left out: {error}"));
        }
        self.members.push(Member {
            device: source.device,
            layout: identity.layout,
            index: identity.index,
            handle,
            superblocks: identity.superblocks,
            is_newest_shown: identity.is_newest_shown,
        });
    }

    fn note(&mut self, path: &str, is_used: bool, text: &str) {
        for fact in self.facts.iter_mut().filter(|fact| fact.path == path) {
            fact.is_used = is_used;
            fact.text.push_str(text);
        }
    }
}

/// What the volumes hold, those of them that hold anything of a pool.
fn open_volumes(volumes: Vec<VolumeSource>, facts: &mut Vec<DeviceFacts>) -> Vec<(VolumeSource, Contents, PoolId)> {
    let mut opened = Vec::new();
    for source in volumes {
        let path = source.path.clone();
        let (is_used, text) = match Contents::of(&*source.volume) {
            Ok(contents) => {
                let (pool, text) = (contents.pool, contents.text.clone());
                opened.extend(pool.map(|pool| (source, contents, pool)));
                (pool.is_some(), text)
            }
            Err(error) => (false, error.to_string()),
        };
        facts.push(DeviceFacts { path, is_used, text });
    }
    opened
}

impl Identity {
    fn generation(&self) -> u64 {
        self.superblocks.first().map_or(0, |superblock| superblock.generation)
    }

    fn name(&self) -> String {
        let name = self.superblocks.first().map(|superblock| format!("'{}'", superblock.pool_name));
        name.unwrap_or_else(|| self.pool.to_string())
    }
}

/// The chunk size of the devices that have superblocks; of the others they were guessed.
fn chunk_bytes_of(found: &[(Source, Identity)]) -> u32 {
    let told = found.iter().find(|(_, identity)| !identity.superblocks.is_empty());
    told.or(found.first()).map_or(CHUNK_BYTES_MIN, |(_, identity)| identity.layout.chunk_bytes)
}

/// One place of a superblock.
enum Copy {
    Good(Box<Superblock>),
    Unwritten,
    Bad,
}

fn read_copy(device: &dyn Device, offset: u64) -> Copy {
    let mut bytes = vec![0; Superblock::SIZE];
    if device.read(offset, &mut bytes).or_else(|_| device.read(offset, &mut bytes)).is_err() {
        return Copy::Bad;
    }
    match Superblock::decode(&bytes) {
        Ok(superblock)
            if superblock.layout.superblock_offsets_of_generation(superblock.generation).contains(&offset) =>
        {
            Copy::Good(Box::new(superblock))
        }
        Err(_) if bytes.iter().all(|byte| *byte == 0) => Copy::Unwritten,
        _ => Copy::Bad,
    }
}

fn by_superblocks(device: &dyn Device) -> Option<Identity> {
    let mut offsets = DeviceLayout::superblock_offsets_for_size(device.size_bytes()).to_vec();
    let mut copies: Vec<(u64, Copy)> = Vec::new();
    let mut at = 0;
    while let Some(&offset) = offsets.get(at) {
        let copy = read_copy(device, offset);
        if let Copy::Good(superblock) = &copy {
            // A device that was cut or has grown has its copies where its end was.
            let places = superblock.layout.superblock_offsets();
            let new: Vec<u64> = places.into_iter().filter(|place| !offsets.contains(place)).collect();
            offsets.extend(new);
        }
        copies.push((offset, copy));
        at += 1;
    }
    let mut good: Vec<Superblock> = Vec::new();
    for (_, copy) in &copies {
        if let Copy::Good(superblock) = copy {
            good.push((**superblock).clone());
        }
    }
    // Whoever owns the front owns the device.
    let owner = good.first().map(|superblock| (superblock.pool, superblock.device))?;
    good.retain(|superblock| (superblock.pool, superblock.device) == owner);
    good.sort_by_key(|superblock| std::cmp::Reverse(superblock.generation));
    let newest = good.first()?;
    let next_places = newest.layout.superblock_offsets_of_generation(newest.generation + 1);
    let is_newest_shown = copies.iter().any(|(offset, copy)| {
        let is_older = match copy {
            Copy::Good(superblock) => superblock.generation < newest.generation,
            Copy::Unwritten => true,
            Copy::Bad => false,
        };
        next_places.contains(offset) && is_older
    });
    let text = format!("device number {}, generation {}", newest.device_index + 1, newest.generation);
    let is_cut = newest.layout.size_bytes > device.size_bytes();
    let text = if is_cut { format!("{text}, cut off at {} bytes", device.size_bytes()) } else { text };
    let (pool, layout, index) = (newest.pool, newest.layout, newest.device_index);
    Some(Identity { pool, layout, index, superblocks: good, is_newest_shown, text })
}

/// What chunk headers tell where no superblock is left.
fn by_chunks(device: &dyn Device) -> Option<Identity> {
    let mut best: Option<(usize, DeviceLayout, ChunkHeader)> = None;
    let mut chunk_bytes = CHUNK_BYTES_MIN;
    while chunk_bytes <= CHUNK_BYTES_MAX {
        if let Ok(layout) = DeviceLayout::for_size(device.size_bytes(), chunk_bytes) {
            let (count, header) = headers_that_fit(device, &layout);
            if let Some(header) = header.filter(|_| best.as_ref().is_none_or(|(most, _, _)| count > *most)) {
                best = Some((count, layout, header));
            }
        }
        chunk_bytes *= 2;
    }
    // A single one may be the first slot of any chunk size.
    let best = best.filter(|(count, _, _)| *count > 1);
    let (_, layout, header) = best.or_else(|| by_search(device))?;
    let index = header.place.chunks[usize::from(header.chunk)].device;
    let text = format!("no superblock is left; its chunks say that it is device number {}", index + 1);
    Some(Identity { pool: header.pool, layout, index, superblocks: Vec::new(), is_newest_shown: false, text })
}

/// How many slots hold a chunk that says it is in that slot, as far as it takes to be sure; and one of them.
fn headers_that_fit(device: &dyn Device, layout: &DeviceLayout) -> (usize, Option<ChunkHeader>) {
    let (mut count, mut first) = (0, None);
    for slot in 0..layout.slot_count {
        let Some(offset) = layout.slot_offset(slot) else { break };
        let Some(header) = read_header(device, offset) else { continue };
        if header.place.chunks[usize::from(header.chunk)].slot == slot {
            count += 1;
            first = first.or(Some(header));
            if count == HEADERS_ENOUGH {
                break;
            }
        }
    }
    (count, first)
}

pub(crate) fn read_header(device: &dyn Device, offset: u64) -> Option<ChunkHeader> {
    let mut block = vec![0; ChunkHeader::SIZE];
    device.read(offset, &mut block).ok()?;
    ChunkHeader::decode(&block).ok()
}

/// Looks at every block of a device whose layout nothing tells, and takes the layout that most headers agree on.
fn by_search(device: &dyn Device) -> Option<(usize, DeviceLayout, ChunkHeader)> {
    let mut headers: Vec<(u64, ChunkHeader)> = Vec::new();
    let mut offset = 0;
    while offset < device.size_bytes() && headers.len() < HEADERS_SEARCHED_MAX {
        let length = (device.size_bytes() - offset).min(SEARCH_BYTES as u64) as usize / BLOCK_BYTES * BLOCK_BYTES;
        let mut bytes = vec![0; length];
        if device.read(offset, &mut bytes).is_ok() {
            for (block, content) in (0u64..).zip(bytes.chunks(BLOCK_BYTES)) {
                if let Ok(header) = ChunkHeader::decode(content) {
                    headers.push((offset + block * BLOCK_BYTES as u64, header));
                }
            }
        }
        offset += SEARCH_BYTES as u64;
    }
    let slot_of = |header: &ChunkHeader| u64::from(header.place.chunks[usize::from(header.chunk)].slot);
    let mut votes: HashMap<(u32, u64), usize> = HashMap::new();
    for (offset, header) in &headers {
        let mut chunk_bytes = CHUNK_BYTES_MIN;
        while chunk_bytes <= CHUNK_BYTES_MAX {
            if let Some(base) = offset.checked_sub(slot_of(header) * u64::from(chunk_bytes)) {
                *votes.entry((chunk_bytes, base)).or_default() += 1;
            }
            chunk_bytes *= 2;
        }
    }
    let best = votes.into_iter().max_by_key(|((chunk_bytes, base), count)| (*count, *chunk_bytes, *base));
    let ((chunk_bytes, slots_offset), count) = best?;
    let fits =
        |(offset, header): &&(u64, ChunkHeader)| *offset == slots_offset + slot_of(header) * u64::from(chunk_bytes);
    let header = headers.iter().find(fits).map(|(_, header)| header.clone())?;
    let slots = device.size_bytes().saturating_sub(slots_offset) / u64::from(chunk_bytes);
    // What lies before the slots is not known; the journal's region is only read where it shows records.
    let journal_offset = (256 << 10).min(slots_offset);
    let layout = DeviceLayout {
        size_bytes: device.size_bytes() / BLOCK_BYTES as u64 * BLOCK_BYTES as u64,
        chunk_bytes,
        slot_count: u32::try_from(slots).unwrap_or(u32::MAX),
        slots_offset,
        journal_offset,
        journal_bytes: slots_offset - journal_offset,
    };
    Some((count, layout, header))
}
