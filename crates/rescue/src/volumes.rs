//! Tertiary volumes among the devices of a rescue: each is read as a device whose slots are its objects.
//!
//! An object is a chunk whose header names no device, since places change. Here the header is handed out with the place that the object
//! has on this device, so all that finds and reads segments on devices finds and reads these. Records of checkpoints whose metadata is
//! on a volume are roots like any other. Invariants: nothing is written; what lies on a volume is hostile input, and is verified by
//! whoever reads it. Memory: the object that was read last, and a few before it. Read next: `sources.rs`, `state.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use stere_device::{Device, DeviceError, MediumWait, Operation, Piece, Ticket, Volume, VolumeError};
use stere_format::{
    CHUNK_BYTES_MAX, CheckpointRecord, ChunkHeader, ChunkPlace, DeviceIndex, DeviceLayout, PoolId, VolumeLabel,
    metadata_of_object, segment_of_object, state_of_object,
};

/// A volume that may hold something.
pub struct VolumeSource {
    /// What people call it.
    pub path: String,
    pub volume: Arc<dyn Volume>,
}

/// Objects that are kept in memory.
const KEPT_OBJECTS: usize = 4;
const HEADER_BYTES: u64 = ChunkHeader::SIZE as u64;

/// What a volume holds, as its names tell.
pub(crate) struct Contents {
    pub pool: Option<PoolId>,
    pub text: String,
    objects: Vec<Object>,
    /// Checkpoints whose metadata is there, newest first.
    pub records: Vec<CheckpointRecord>,
}

struct Object {
    name: String,
    length: u64,
}

impl Contents {
    pub fn of(volume: &dyn Volume) -> Result<Contents, VolumeError> {
        let label = label_of(volume);
        let (mut objects, mut metadata) = (Vec::new(), BTreeMap::<(u64, u64), (u32, Object)>::new());
        let mut records = Vec::new();
        for (name, length) in volume.list("")? {
            if segment_of_object(&name).is_some() {
                objects.push(Object { name, length });
            } else if let Some((segment, sequence, blocks)) = metadata_of_object(&name) {
                // The longest has all that the others have.
                let kept = metadata.get(&(segment, sequence)).map_or(0, |(blocks, _)| *blocks);
                if blocks > kept {
                    metadata.insert((segment, sequence), (blocks, Object { name, length }));
                }
            } else if state_of_object(&name).is_some() {
                records.extend(record_of(volume, &name, length));
            }
        }
        objects.extend(metadata.into_values().map(|(_, object)| object));
        records.sort_by_key(|record| std::cmp::Reverse(record.generation));
        let pool = label.as_ref().map(|label| label.pool).or(records.first().map(|record| record.pool));
        let pool = pool.or_else(|| objects.first().and_then(|object| pool_of(volume, &object.name)));
        records.retain(|record| Some(record.pool) == pool);
        let name = label.map_or("a medium without a good label".into(), |label| {
            format!("medium '{}' of the pool '{}'", label.name, label.pool_name)
        });
        let state = records.first().map(|record| format!(", with the metadata of generation {}", record.generation));
        let text = format!("{name}, {} segments{}", objects.len(), state.unwrap_or_default());
        Ok(Contents { pool, text, objects, records })
    }
}

fn label_of(volume: &dyn Volume) -> Option<VolumeLabel> {
    let length = volume.length(VolumeLabel::OBJECT).ok().flatten()?;
    let mut bytes = vec![0; length.min(VolumeLabel::BYTES_MAX as u64) as usize];
    volume.get(VolumeLabel::OBJECT, 0, &mut bytes, &MediumWait::NONE).ok()?;
    VolumeLabel::decode(&bytes).ok()
}

fn record_of(volume: &dyn Volume, name: &str, length: u64) -> Option<CheckpointRecord> {
    let mut bytes = vec![0; length.min(CheckpointRecord::RECORD_BYTES_MAX as u64) as usize];
    volume.get(name, 0, &mut bytes, &MediumWait::NONE).ok()?;
    CheckpointRecord::decode(&bytes).ok()
}

fn pool_of(volume: &dyn Volume, name: &str) -> Option<PoolId> {
    let mut bytes = vec![0; ChunkHeader::SIZE];
    volume.get(name, 0, &mut bytes, &MediumWait::NONE).ok()?;
    ChunkHeader::decode(&bytes).ok().map(|header| header.pool)
}

/// A volume as a device that is only read.
pub(crate) struct VolumeDevice {
    volume: Arc<dyn Volume>,
    objects: Vec<Object>,
    index: DeviceIndex,
    layout: DeviceLayout,
    kept: Mutex<VecDeque<(usize, Arc<Vec<u8>>)>>,
}

impl VolumeDevice {
    /// With a slot for each object; `index` is the number that it has among the devices here.
    pub fn new(
        volume: Arc<dyn Volume>,
        contents: Contents,
        index: DeviceIndex,
        chunk_bytes: u32,
    ) -> Result<VolumeDevice, stere_format::DecodeError> {
        let slots = contents.objects.len() as u64 * u64::from(chunk_bytes);
        let size_bytes = stere_format::layout::DEVICE_BYTES_MIN + stere_format::layout::JOURNAL_BYTES_MAX + slots;
        let layout = DeviceLayout::for_size(size_bytes, chunk_bytes)?;
        assert!(layout.slot_count as usize >= contents.objects.len(), "there is a slot for each object");
        Ok(VolumeDevice { volume, objects: contents.objects, index, layout, kept: Mutex::default() })
    }

    pub fn layout(&self) -> DeviceLayout {
        self.layout
    }

    /// The header with the place that the object has here; as it is where it is none.
    fn place_header(&self, slot: usize, bytes: &mut [u8]) {
        let Some(bytes) = bytes.get_mut(..ChunkHeader::SIZE) else { return };
        if let Ok(mut header) = ChunkHeader::decode(bytes) {
            let place = ChunkPlace { device: self.index, slot: slot as u32 };
            // Of the others nothing is known; what they say must still be different devices.
            let is_other = |at: &ChunkPlace| at.device != place.device;
            if header.chunk == 0 && header.place.chunks[1..].iter().all(is_other) {
                header.place.chunks[0] = place;
                bytes.copy_from_slice(&header.encode());
            }
        }
    }

    fn failed(&self, offset: u64, error: &VolumeError) -> DeviceError {
        let source = Arc::new(std::io::Error::other(error.to_string()));
        DeviceError::Io { device: self.describe(), operation: Operation::Read, offset, source }
    }

    fn kept(&self, slot: usize) -> Option<Arc<Vec<u8>>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(other, _)| *other == slot).map(|(_, bytes)| bytes.clone())
    }

    fn fetch(&self, slot: usize, length: u64) -> Result<Vec<u8>, VolumeError> {
        let object = &self.objects[slot];
        let mut bytes = vec![0; object.length.min(length) as usize];
        self.volume.get(&object.name, 0, &mut bytes, &MediumWait::NONE)?;
        self.place_header(slot, &mut bytes);
        Ok(bytes)
    }

    /// The whole object, or only its beginning where no more is wanted and none is in memory.
    fn bytes_of(&self, slot: usize, wanted: u64) -> Result<Arc<Vec<u8>>, VolumeError> {
        if let Some(bytes) = self.kept(slot) {
            return Ok(bytes);
        }
        if wanted <= HEADER_BYTES {
            return Ok(Arc::new(self.fetch(slot, HEADER_BYTES)?));
        }
        let bytes = Arc::new(self.fetch(slot, u64::from(CHUNK_BYTES_MAX))?);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back((slot, bytes.clone()));
        if kept.len() > KEPT_OBJECTS {
            kept.pop_front();
        }
        Ok(bytes)
    }
}

impl Device for VolumeDevice {
    fn size_bytes(&self) -> u64 {
        self.layout.size_bytes
    }

    fn block_bytes(&self) -> u32 {
        512
    }

    /// What is not in an object is zeros.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        stere_device::check_range(&self.describe(), Operation::Read, offset, buffer.len() as u64, self.size_bytes())?;
        buffer.fill(0);
        let (first, chunk_bytes) = (self.layout.slots_offset, u64::from(self.layout.chunk_bytes));
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let left = (buffer.len() - done) as u64;
            let Some(within) = at.checked_sub(first) else {
                done += left.min(first - at) as usize;
                continue;
            };
            let (slot, start) = ((within / chunk_bytes) as usize, within % chunk_bytes);
            let length = left.min(chunk_bytes - start);
            if slot < self.objects.len() {
                let bytes = self.bytes_of(slot, start + length).map_err(|error| self.failed(at, &error))?;
                let end = (bytes.len() as u64).min(start + length);
                if let Some(part) = bytes.get(start as usize..end as usize) {
                    buffer[done..done + part.len()].copy_from_slice(part);
                }
            }
            done += length as usize;
        }
        Ok(())
    }

    fn submit_write_gathered(&self, _: u64, _: Vec<Piece>, ticket: Ticket) {
        ticket.finish(Err(DeviceError::ReadOnly { device: self.describe() }));
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly { device: self.describe() })
    }

    fn describe(&self) -> String {
        self.volume.describe()
    }
}
