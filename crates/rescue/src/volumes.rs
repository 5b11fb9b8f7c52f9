//! Tertiary volumes among the devices of a rescue: each is read as a device whose slots are its objects.
//!
//! An object is a chunk whose header names no device, since places change. Here the header is handed out with the place that the object
//! has on this device, so all that finds and reads segments on devices finds and reads these. The object of a segment with several data
//! chunks has its rows one behind the other: it is dealt over as many devices of the same volume, one for each data chunk. Records of checkpoints whose metadata is
//! on a volume are roots like any other. Invariants: nothing is written; what lies on a volume is hostile input, and is verified by
//! whoever reads it. Memory: the object that was read last, and a few before it. Read next: `sources.rs`, `state.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use stere_device::{Device, DeviceError, MediumWait, Operation, Piece, Ticket, Volume, VolumeError};
use stere_format::{
    CHUNK_BYTES_MAX, CheckpointRecord, ChunkHeader, ChunkPlace, DeviceIndex, DeviceLayout, ObjectRows, PoolId, Scheme,
    VolumeLabel, data_chunks_of_object, metadata_of_object, state_of_object,
};
use stere_stripe::{row_capacity, row_pieces};

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
    data_chunks: u8,
}

impl Contents {
    pub fn of(volume: &dyn Volume) -> Result<Contents, VolumeError> {
        let label = label_of(volume);
        let (mut objects, mut metadata) = (Vec::new(), BTreeMap::<(u64, u64), (u32, Object)>::new());
        let mut records = Vec::new();
        for (name, length) in volume.list("")? {
            if let Some(data_chunks) = data_chunks_of_object(&name) {
                objects.push(Object { name, length, data_chunks });
            } else if let Some((segment, sequence, blocks)) = metadata_of_object(&name) {
                // The longest has all that the others have.
                let kept = metadata.get(&(segment, sequence)).map_or(0, |(blocks, _)| *blocks);
                if blocks > kept {
                    metadata.insert((segment, sequence), (blocks, Object { name, length, data_chunks: 1 }));
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

    /// As many devices as its objects have data chunks at most.
    pub fn device_count(&self) -> u16 {
        self.objects.iter().map(|object| u16::from(object.data_chunks)).max().unwrap_or(1)
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

/// The objects of a volume, and those that were read last.
struct VolumeObjects {
    volume: Arc<dyn Volume>,
    objects: Vec<Object>,
    /// Numbers of its devices among the devices here, in the order of the data chunks that they give.
    indices: Vec<DeviceIndex>,
    kept: Mutex<VecDeque<(usize, Arc<Vec<u8>>)>>,
}

/// A volume as a device that is only read.
pub(crate) struct VolumeDevice {
    source: Arc<VolumeObjects>,
    /// Which data chunk it gives of each object.
    chunk: u8,
    layout: DeviceLayout,
}

impl VolumeDevice {
    /// One for each of these numbers that they have among the devices here, with a slot for each object.
    pub fn all_of(
        volume: Arc<dyn Volume>,
        contents: Contents,
        indices: &[DeviceIndex],
        chunk_bytes: u32,
    ) -> Result<Vec<VolumeDevice>, stere_format::DecodeError> {
        assert_eq!(indices.len(), usize::from(contents.device_count()), "each data chunk is given by a device");
        let slots = contents.objects.len() as u64 * u64::from(chunk_bytes);
        let size_bytes = stere_format::layout::DEVICE_BYTES_MIN + stere_format::layout::JOURNAL_BYTES_MAX + slots;
        let layout = DeviceLayout::for_size(size_bytes, chunk_bytes)?;
        assert!(layout.slot_count as usize >= contents.objects.len(), "there is a slot for each object");
        let (objects, indices) = (contents.objects, indices.to_vec());
        let source = Arc::new(VolumeObjects { volume, objects, indices, kept: Mutex::default() });
        let chunks = 0..source.indices.len() as u8;
        Ok(chunks.map(|chunk| VolumeDevice { source: source.clone(), chunk, layout }).collect())
    }

    pub fn layout(&self) -> DeviceLayout {
        self.layout
    }

    fn failed(&self, offset: u64, error: &VolumeError) -> DeviceError {
        let source = Arc::new(std::io::Error::other(error.to_string()));
        DeviceError::Io { device: self.describe(), operation: Operation::Read, offset, source }
    }

    /// What this device's chunk of an object holds from `start` on; what is not in the object is left as it is.
    fn read_slot(&self, slot: usize, start: u64, into: &mut [u8]) -> Result<(), VolumeError> {
        let data_chunks = self.source.objects[slot].data_chunks;
        if self.chunk >= data_chunks {
            return Ok(());
        }
        let mut header =
            self.source.bytes_of(slot, HEADER_BYTES)?.get(..ChunkHeader::SIZE).unwrap_or_default().to_vec();
        self.source.place_header(slot, self.chunk, &mut header);
        copy_part(&header, start, 0, into);
        if start + into.len() as u64 <= HEADER_BYTES {
            return Ok(());
        }
        let object = self.source.bytes_of(slot, u64::MAX)?;
        let content = object.get(ChunkHeader::SIZE..).unwrap_or_default();
        if data_chunks == 1 {
            copy_part(content, start, HEADER_BYTES, into);
            return Ok(());
        }
        let scheme = Scheme { data: data_chunks, parity: 0 };
        for (row_block, row) in rows_of(content, data_chunks) {
            for piece in row_pieces(scheme, row_block, 0..row.len() as u64) {
                if piece.chunk == usize::from(self.chunk) {
                    copy_part(&row[piece.at..piece.at + piece.length], start, piece.chunk_offset, into);
                }
            }
        }
        Ok(())
    }
}

/// Copies what of `part`, which lies at `at`, belongs into a buffer that begins at `start`.
fn copy_part(part: &[u8], start: u64, at: u64, into: &mut [u8]) {
    let end = start + into.len() as u64;
    let (from, to) = (start.max(at), end.min(at + part.len() as u64));
    if from < to {
        let source = &part[(from - at) as usize..(to - at) as usize];
        into[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
    }
}

/// The rows of an object with several data chunks, behind its header: where each begins in its chunks, and what it holds. Where none
/// begins one is looked for, block by block.
fn rows_of(content: &[u8], data_chunks: u8) -> Vec<(u32, &[u8])> {
    let scheme = Scheme { data: data_chunks, parity: 0 };
    let (mut found, mut rows) = (Vec::new(), ObjectRows::new(data_chunks, content));
    while !rows.is_at_end() {
        found.extend(rows.by_ref().map(|(header, row)| {
            let length = row_capacity(scheme, header.row_height).min(row.len());
            (header.row_block, &row[..length])
        }));
        rows.pass_block();
    }
    found
}

impl VolumeObjects {
    /// The header of one of its chunks with the places that they have here; as it is where it is none.
    fn place_header(&self, slot: usize, chunk: u8, bytes: &mut [u8]) {
        let Ok(mut header) = ChunkHeader::decode(bytes) else { return };
        let data_chunks = usize::from(self.objects[slot].data_chunks);
        let places = self.indices.iter().map(|index| ChunkPlace { device: *index, slot: slot as u32 });
        let places: Vec<ChunkPlace> = places.take(data_chunks).collect();
        // Of the others nothing is known; what they say must still be different devices.
        let is_other = |at: &ChunkPlace| self.indices.iter().all(|index| at.device != *index);
        let is_named_right = usize::from(header.place.scheme.data) == data_chunks && header.chunk == 0;
        if is_named_right && header.place.chunks[data_chunks..].iter().all(is_other) {
            header.place.chunks[..data_chunks].copy_from_slice(&places);
            header.chunk = chunk;
            bytes.copy_from_slice(&header.encode());
        }
    }

    fn kept(&self, slot: usize) -> Option<Arc<Vec<u8>>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(other, _)| *other == slot).map(|(_, bytes)| bytes.clone())
    }

    fn fetch(&self, slot: usize, length: u64) -> Result<Vec<u8>, VolumeError> {
        let object = &self.objects[slot];
        let mut bytes = vec![0; object.length.min(length) as usize];
        self.volume.get(&object.name, 0, &mut bytes, &MediumWait::NONE)?;
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
        let bytes_max = u64::from(CHUNK_BYTES_MAX) * u64::from(self.objects[slot].data_chunks);
        let bytes = Arc::new(self.fetch(slot, bytes_max)?);
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
            if slot < self.source.objects.len() {
                let into = &mut buffer[done..done + length as usize];
                self.read_slot(slot, start, into).map_err(|error| self.failed(at, &error))?;
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
        self.source.volume.describe()
    }
}
