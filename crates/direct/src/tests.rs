//! Reading by maps (P-270) from devices in memory: away, wrong, stale; whole blocks, parts, encoded, with a digest.

use std::sync::Arc;
use std::time::Duration;

use stere_crypt::{DataKey, Keyring};
use stere_device::{Buffer, Completion, Device, MemoryDevice};
use stere_format::{
    Address, BLOCK_BYTES, BlobEncoding, BlobValue, ChecksumKind, Checksums, ChunkPlace, ContentMap, DeviceLayout,
    EncryptionKey, MappedPiece, RowGrant, Scheme, SegmentChunks, WrappedKey, Wrapping,
};
use stere_plugin::{Encoded, Event, Events, Member, PluginFailure, Stack, UserPlugin, Verdict};
use stere_policy::Compression;
use zeroize::Zeroizing;

use super::*;

const CHUNK_BYTES: u32 = 1 << 20;
const DEVICE_BYTES: u64 = 64 << 20;
const SEGMENT: u64 = 40;
const RECORD: usize = 200_000;
const INODE: u64 = 77;

/// Five devices with a segment of 4+1, and in it a row with one record.
struct World {
    nodes: Nodes,
    devices: Vec<Arc<MemoryDevice>>,
    place: SegmentChunks,
    content: Vec<u8>,
    value: BlobValue,
}

fn layout() -> DeviceLayout {
    DeviceLayout::for_size(DEVICE_BYTES, CHUNK_BYTES).unwrap()
}

fn lz4() -> Compression {
    Compression::from_text("lz4").unwrap()
}

fn bytes(seed: u8) -> Vec<u8> {
    (0..RECORD).map(|at| (at / 7) as u8 ^ seed).collect()
}

impl World {
    fn new(kind: ChecksumKind) -> World {
        World::of(bytes(3), kind, false)
    }

    fn of(content: Vec<u8>, kind: ChecksumKind, is_compressed: bool) -> World {
        let nodes = Nodes::new(CHUNK_BYTES);
        let devices: Vec<_> = (0..5).map(|_| Arc::new(MemoryDevice::new(DEVICE_BYTES))).collect();
        for (index, device) in (0..).zip(&devices) {
            nodes.attach(index, device.clone(), layout(), Duration::from_secs(5)).unwrap();
        }
        let chunks = (0..5).map(|device| ChunkPlace { device, slot: 2 }).collect();
        let place = SegmentChunks { scheme: Scheme { data: 4, parity: 1 }, missing: 0, chunks };
        let (stored, encoding) = match is_compressed.then(|| stere_plugin::encode(lz4(), &content)) {
            Some(Encoded::Stored { encoding, bytes }) => (bytes, encoding),
            _ => (content.clone(), BlobEncoding::PLAIN),
        };
        assert_eq!(encoding == BlobEncoding::PLAIN, !is_compressed);
        let address = Address { segment: SEGMENT, row_block: 1, offset: 512, length: stored.len() as u32 };
        let checksums = Checksums::of(kind, &stored);
        let value = match is_compressed {
            true => BlobValue::encoded(address, checksums, encoding, content.len() as u32),
            false => BlobValue::plain(address, checksums),
        };
        let world = World { nodes, devices, place, content, value };
        world.write(&stored);
        world
    }

    /// The row that has this record.
    fn write(&self, stored: &[u8]) {
        let mut row = vec![0; (512 + stored.len()).next_multiple_of(BLOCK_BYTES)];
        row[512..512 + stored.len()].copy_from_slice(stored);
        let completion = Completion::new();
        let row = Buffer::copy_of(&row).share();
        self.nodes.stripe.write_row(SEGMENT, &self.place, 1, &row, 0, &completion).unwrap();
        assert!(completion.wait().is_empty());
    }

    fn piece(&self, at: u32, offset: u32, length: u32) -> MappedPiece {
        MappedPiece { at, offset, length, segment: 0, value: self.value.clone() }
    }

    fn map(&self, length: u32, pieces: Vec<MappedPiece>) -> ContentMap {
        ContentMap { length, segments: vec![self.place.clone()], pieces }
    }

    fn whole(&self) -> ContentMap {
        let length = self.content.len() as u32;
        self.map(length, vec![self.piece(0, 0, length)])
    }

    fn read(&self, map: &ContentMap) -> Result<(Vec<u8>, Found), DirectError> {
        let mut out = vec![0xee; map.length as usize];
        let opening = Opening { keyring: &Keyring::new(None), stacks: &|_| None, inode: INODE, offset: 0 };
        self.nodes.read(map, &opening, &mut out).map(|found| (out, found))
    }

    fn assert_whole(&self) -> Found {
        let (out, found) = self.read(&self.whole()).unwrap();
        assert!(out == self.content);
        found
    }

    /// Makes what a device has of the segment wrong.
    fn spoil(&self, device: usize) {
        let start = layout().slot_offset(2).unwrap();
        self.devices[device].write_bytes(start, &vec![0x55; CHUNK_BYTES as usize]).unwrap();
    }
}

#[test]
fn what_a_map_names_is_read() {
    for kind in [ChecksumKind::Crc32c, ChecksumKind::Xxh3, ChecksumKind::Blake3] {
        assert_eq!(World::new(kind).assert_whole(), Found::default());
    }
    let text: Vec<u8> = b"the same words again ".iter().copied().cycle().take(RECORD).collect();
    assert_eq!(World::of(text, ChecksumKind::Xxh3, true).assert_whole(), Found::default());
}

#[test]
fn parts_and_holes_are_where_they_belong() {
    let text: Vec<u8> = b"other words, again and again ".iter().copied().cycle().take(RECORD).collect();
    for world in [World::new(ChecksumKind::Crc32c), World::of(text, ChecksumKind::Crc32c, true)] {
        let end = RECORD as u32;
        let pieces =
            vec![world.piece(1000, 8192, 4096), world.piece(9000, 5000, 3), world.piece(20_000, end - 700, 700)];
        let (out, _) = world.read(&world.map(30_000, pieces)).unwrap();
        let mut expected = vec![0; 30_000];
        expected[1000..5096].copy_from_slice(&world.content[8192..12_288]);
        expected[9000..9003].copy_from_slice(&world.content[5000..5003]);
        expected[20_000..20_700].copy_from_slice(&world.content[RECORD - 700..]);
        assert!(out == expected);
    }
}

#[test]
fn one_node_that_is_away_or_wrong_is_computed() {
    for device in 0..5 {
        let mut world = World::new(ChecksumKind::Crc32c);
        world.spoil(device);
        // The last one has parity, which nobody needs.
        assert_eq!(world.assert_whole().is_any_wrong, device < 4);
        world.place.missing = 1 << device;
        assert!(!world.assert_whole().is_any_wrong, "what is known to be missing is not read");
        world.place.missing = 0;
        assert!(world.nodes.stripe.detach(device as u16).is_some());
        world.assert_whole();
    }
}

#[test]
fn what_cannot_be_had_is_no_answer() {
    let world = World::new(ChecksumKind::Crc32c);
    world.spoil(0);
    world.spoil(1);
    assert!(matches!(world.read(&world.whole()), Err(DirectError::Stripe(_))));
    // The slots are another segment's by now: the map is stale.
    let world = World::new(ChecksumKind::Xxh3);
    world.write(&bytes(4));
    assert!(matches!(world.read(&world.whole()), Err(DirectError::Stripe(_))));
    // Blocks that have their CRCs and not their digest.
    let mut world = World::new(ChecksumKind::Crc32c);
    let blake3 = Checksums::of(ChecksumKind::Blake3, &bytes(4));
    let mut lying = blake3.to_push(RECORD);
    world.content.chunks(BLOCK_BYTES).for_each(|block| lying.push(stere_format::crc32c(block)));
    world.value.checksums = lying;
    assert!(matches!(world.read(&world.whole()), Err(DirectError::Digest { .. })));
    // A device that this machine does not reach, and one more.
    let world = World::new(ChecksumKind::Crc32c);
    (1..3).for_each(|device| drop(world.nodes.stripe.detach(device)));
    assert!(world.read(&world.whole()).is_err());
}

/// A row that has room for these records, one behind the other.
fn row_for(records: &Records, epoch: u64, place: SegmentChunks) -> RowGrant {
    let (mut end, mut offsets) = (512, Vec::new());
    for record in &records.offer.records {
        offsets.push(end);
        end += record.address.length.next_multiple_of(512);
    }
    RowGrant {
        number: 1,
        epoch,
        segment: SEGMENT,
        place,
        row_block: 70,
        row_bytes: (end + 512).next_multiple_of(4096),
        offsets,
        header: [7; 512],
        summary_offset: end,
        summary: vec![5; 100],
    }
}

/// The records as they lie in a row.
fn values_in(row: &RowGrant, records: &Records) -> Vec<BlobValue> {
    let placed = |(record, offset): (&BlobValue, &u32)| {
        let length = record.address.length;
        let address = Address { segment: row.segment, row_block: row.row_block, offset: *offset, length };
        BlobValue { address, ..record.clone() }
    };
    records.offer.records.iter().zip(&row.offsets).map(placed).collect()
}

/// P-278: what is written for a row that the owner gave is read by a map of what was offered.
#[test]
fn a_row_is_written_as_it_was_offered() {
    let world = World::new(ChecksumKind::Crc32c);
    for (text, checksum) in
        [("none", ChecksumKind::Crc32c), ("lz4", ChecksumKind::Xxh3), ("zstd", ChecksumKind::Blake3)]
    {
        let compression = Compression::from_text(text).unwrap();
        let encoding = Encoding { stack: None, compression, checksum, record_bytes: 64 << 10 };
        let mut data = bytes(9);
        data.truncate(192 << 10);
        data[..50_000]
            .iter_mut()
            .zip(0_u64..)
            .for_each(|(byte, at)| *byte = (at.wrapping_mul(0x9e37_79b9_7f4a) >> 17) as u8);
        // The first record is a part of one.
        let records = Records::of(&encoding, None, (128 << 10) + 4096, data.clone()).unwrap();
        assert_eq!(records.offer.records[0].logical_bytes, (64 << 10) - 4096, "{text}");
        let grant = row_for(&records, 3, SegmentChunks { missing: 2, ..world.place.clone() });
        world.nodes.write(&grant, &records, 0).unwrap();
        assert!(
            world.nodes.write(&RowGrant { epoch: 2, ..grant.clone() }, &records, 0).is_err(),
            "an owner that was replaced"
        );
        let (mut at, mut pieces) = (0, Vec::new());
        for value in values_in(&grant, &records) {
            let length = value.logical_bytes;
            pieces.push(MappedPiece { at, offset: 0, length, segment: 0, value });
            at += length;
        }
        // One chunk was left out; another one may go as well.
        let missing = SegmentChunks { missing: 2, ..world.place.clone() };
        let map = ContentMap { length: at, segments: vec![missing], pieces };
        assert!(world.read(&map).unwrap().0 == data, "{text}");
    }
}

/// P-295: rows that nothing could be computed from are durable, or said not to be; each is for as many records as it has room for.
#[test]
fn rows_without_parity_are_flushed() {
    let nodes = Nodes::new(CHUNK_BYTES);
    let devices: Vec<_> = (0..2).map(|_| Arc::new(MemoryDevice::with_volatile_cache(DEVICE_BYTES))).collect();
    for (index, device) in (0..).zip(&devices) {
        nodes.attach(index, device.clone(), layout(), Duration::from_secs(5)).unwrap();
    }
    let encoding = Encoding { record_bytes: 64 << 10, ..Encoding::default() };
    let records = Records::of(&encoding, None, 0, bytes(5)).unwrap();
    assert_eq!(records.count(), 4);
    assert_eq!(records.content_bytes_before(4), RECORD as u64);
    let place = |device, scheme| SegmentChunks {
        scheme,
        missing: 0,
        chunks: [ChunkPlace { device, slot: 2 }].into_iter().collect(),
    };
    let row = |place: SegmentChunks, row_block| RowGrant {
        number: 1,
        epoch: 0,
        segment: SEGMENT,
        place,
        row_block,
        row_bytes: 140 << 10,
        offsets: vec![512, 512 + (64 << 10)],
        header: [7; 512],
        summary_offset: 132 << 10,
        summary: vec![5; 100],
    };
    let alone = Scheme { data: 1, parity: 0 };
    let (first, second) = (row(place(0, alone), 1), row(place(0, alone), 40));
    nodes.write(&first, &records, 0).unwrap();
    nodes.write(&second, &records, 1).unwrap();
    assert_eq!((devices[0].unflushed_count(), devices[0].counters().flushes), (0, 2));
    let written = |at: u64| {
        let mut read = vec![0; 64 << 10];
        devices[0].read(layout().slot_offset(2).unwrap() + at * BLOCK_BYTES as u64 + 512, &mut read).unwrap();
        read
    };
    assert!(written(1) == bytes(5)[..64 << 10] && written(40) == bytes(5)[64 << 10..128 << 10]);
    assert!(nodes.write(&first, &records, 3).is_err(), "there are no two records from there on");
    // Somebody else's flush failed while this row was written: it may be lost with what that was for.
    let losses = nodes.losses_of(&first);
    devices[0].set_offline(true);
    assert!(nodes.write(&second, &records, 0).is_err());
    devices[0].set_offline(false);
    *nodes.losses.lock().entry(0).or_default() += 1;
    assert!(nodes.flush(&first, &losses).is_err());
    // Of another node, and of what has parity, nothing is waited for.
    nodes.write(&row(place(1, alone), 1), &records, 0).unwrap();
    let pair = SegmentChunks {
        chunks: (0..2).map(|device| ChunkPlace { device, slot: 3 }).collect(),
        ..place(0, Scheme { data: 1, parity: 1 })
    };
    let before = devices[1].counters().flushes;
    nodes.write(&row(pair, 1), &records, 0).unwrap();
    assert_eq!(devices[1].counters().flushes, before);
}

/// Adds its number to each byte. It refuses what begins with 0xff.
#[derive(Debug)]
struct Turn(u8);

impl UserPlugin for Turn {
    fn is_codec(&self) -> bool {
        true
    }

    fn events(&self) -> Events {
        Events::NONE
    }

    fn encode(&self, _: &str, content: &[u8], _: usize) -> Result<Vec<u8>, PluginFailure> {
        match content.first() {
            Some(0xff) => Err(PluginFailure::Refused("not this".into())),
            _ => Ok(content.iter().map(|byte| byte.wrapping_add(self.0)).collect()),
        }
    }

    fn decode(&self, _: &str, stored: &[u8], _: usize) -> Result<Vec<u8>, PluginFailure> {
        Ok(stored.iter().map(|byte| byte.wrapping_sub(self.0)).collect())
    }

    fn judge(&self, _: &str, _: &Event<'_>) -> Result<Verdict, PluginFailure> {
        Ok(Verdict::Allow)
    }
}

fn turned(number: u8) -> Arc<Stack> {
    let member = Member { name: "turn".into(), parameters: String::new(), plugin: Arc::new(Turn(number)) };
    Arc::new(Stack { members: vec![member] })
}

/// P-297: plugins have content first on the machine that writes it, and last on the one that reads it.
#[test]
fn what_passes_plugins_is_undone_by_whoever_has_them() {
    let world = World::new(ChecksumKind::Crc32c);
    let (keyring, stack) = (Keyring::new(None), turned(40));
    for text in ["none", "lz4"] {
        let compression = Compression::from_text(text).unwrap();
        let encoding =
            Encoding { stack: Some((5, stack.clone())), compression, record_bytes: 64 << 10, ..Encoding::default() };
        let records = Records::of(&encoding, None, 0, bytes(9)[..128 << 10].to_vec()).unwrap();
        let is_so = |record: &BlobValue| {
            record.stack == 5
                && record.encoding.is_plugged()
                && (record.encoding.compression() == BlobEncoding::LZ4) == (text == "lz4")
        };
        assert!(records.offer.records.iter().all(is_so), "{text}");
        let grant = row_for(&records, 0, world.place.clone());
        world.nodes.write(&grant, &records, 0).unwrap();
        // Of the first record a part.
        let value = values_in(&grant, &records).remove(0);
        let map = world.map(6000, vec![MappedPiece { at: 0, offset: 5000, length: 6000, segment: 0, value }]);
        let read = |stacks: &dyn Fn(u16) -> Option<Arc<Stack>>| {
            let mut out = vec![0; 6000];
            let opening = Opening { keyring: &keyring, stacks, inode: INODE, offset: 5000 };
            world.nodes.read(&map, &opening, &mut out).map(|_| out)
        };
        assert!(read(&|number| (number == 5).then(|| stack.clone())).unwrap() == bytes(9)[5000..11_000], "{text}");
        assert!(matches!(read(&|_| None), Err(DirectError::Undecodable { .. })), "{text}");
        // A plugin that says no: the owner tells the program.
        let refused = Records::of(&encoding, None, 0, vec![0xff; 4096]).unwrap_err();
        assert!(refused.to_string().contains("turn"), "{refused}");
    }
}

/// A keyring in which key 3 is unlocked.
fn keyring() -> Keyring {
    let keyring = Keyring::new(Some([6; 16]));
    let wrapped = WrappedKey { wrapping: Wrapping::KeyFile, salt: [1; 16], nonce: [2; 24], key: [3; 48] };
    let name = "k".to_owned();
    keyring.put(EncryptionKey { number: 3, name, is_default: true, made_seconds: 0, wrapped: vec![wrapped] });
    keyring.unlock(DataKey::new(3, Zeroizing::new([8; 32]))).unwrap();
    keyring
}

/// P-296: what is encrypted is written and read past the owner by whoever has the key, at its own place only.
#[test]
fn what_is_encrypted_opens_with_its_key_at_its_place() {
    let world = World::new(ChecksumKind::Crc32c);
    let (keys, at) = (keyring(), 128 << 10);
    for (text, stack) in [("none", None), ("zstd", None), ("zstd", Some((5, turned(40))))] {
        let stacks = |number| stack.clone().filter(|(of, _)| *of == number).map(|(_, stack)| stack);
        let encoding = Encoding {
            stack: stack.clone(),
            compression: Compression::from_text(text).unwrap(),
            record_bytes: 64 << 10,
            ..Encoding::default()
        };
        let mut data = bytes(9);
        data.truncate(160 << 10);
        let sealing = Sealing { keyring: &keys, key: 3, inode: INODE };
        let records = Records::of(&encoding, Some(&sealing), at, data.clone()).unwrap();
        assert!(records.offer.records.iter().all(|record| record.key == 3 && record.encoding.is_encrypted()), "{text}");
        let grant = row_for(&records, 0, world.place.clone());
        world.nodes.write(&grant, &records, 0).unwrap();
        // Of the first record the end, then the others.
        let (mut begin, mut pieces, skipped) = (0, Vec::new(), 5000);
        for value in values_in(&grant, &records) {
            let offset = if begin == 0 { skipped } else { 0 };
            let length = value.logical_bytes - offset;
            pieces.push(MappedPiece { at: begin, offset, length, segment: 0, value });
            begin += length;
        }
        let map = world.map(begin, pieces);
        let read = |keyring: &Keyring, inode, offset| {
            let mut out = vec![0; map.length as usize];
            world.nodes.read(&map, &Opening { keyring, stacks: &stacks, inode, offset }, &mut out).map(|_| out)
        };
        let offset = at + u64::from(skipped);
        assert!(read(&keys, INODE, offset).unwrap() == data[skipped as usize..], "{text}");
        assert!(read(&keys, INODE + 1, offset).is_err(), "of another file");
        assert!(read(&keys, INODE, offset + 4096).is_err(), "elsewhere in its own");
        keys.finish_lock(3);
        assert!(read(&keys, INODE, offset).is_err(), "with the key locked");
        assert!(Records::of(&encoding, Some(&sealing), at, data.clone()).is_err(), "with the key locked");
        keys.unlock(DataKey::new(3, Zeroizing::new([8; 32]))).unwrap();
    }
}
